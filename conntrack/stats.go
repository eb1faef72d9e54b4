package conntrack

// Stats is a sum over all writers. The writers do not stand still for it, so
// its numbers may be a few events apart from each other.
type Stats struct {
	Lines       int    // room of the table, in entries
	Quota       int    // how many entries may be Unconfirmed
	Unconfirmed uint64 // entries by state, expired ones that were not swept yet included
	Confirmed   uint64
	Closing     uint64
	Used        uint64 // entries in all states

	// Totals since the table was made.
	Inserted      uint64 // new entries, those taken over from a file included
	Existed       uint64 // insertions that found an entry of another writer
	Expired       uint64 // entries freed because their time was over
	Removed       uint64 // entries freed by Remove
	Reselected    uint64 // entries that got a new backend
	RejectedQuota uint64 // insertions refused because of the quota of Unconfirmed entries
	RejectedFull  uint64 // insertions refused because both buckets were full
}

// Stats returns occupancy and totals. It costs a few cache lines per writer.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	sum := t.retired
	for _, w := range t.writers {
		sum.add(&w.counters)
	}
	t.mu.Unlock()
	s := Stats{
		Lines:       t.Lines(),
		Quota:       int(t.quota),
		Unconfirmed: sum.in(Unconfirmed),
		Confirmed:   sum.in(Confirmed),
		Closing:     sum.in(Closing),

		Inserted:      sum[madeUnconfirmed] + sum[madeConfirmed] - sum[withdrawnEvent],
		Existed:       sum[existedEvent],
		Expired:       sum[expiredEvent],
		Removed:       sum[freedUnconfirmed] + sum[freedConfirmed] + sum[freedClosing] - sum[expiredEvent] - sum[withdrawnEvent],
		Reselected:    sum[reselectedEvent],
		RejectedQuota: sum[rejectedQuota],
		RejectedFull:  sum[rejectedFull],
	}
	s.Used = s.Unconfirmed + s.Confirmed + s.Closing
	return s
}

// in returns how many entries are in a state; 0 if the sum was taken between
// two ends of one event and is below.
func (s *totals) in(state State) uint64 { return uint64(max(int64(s.balance(state)), 0)) }

func (s *totals) balance(state State) uint64 {
	switch state {
	case Unconfirmed:
		return s[madeUnconfirmed] + s[reopenedConfirmed] + s[reopenedClosing] -
			s[confirmedUnconfirmed] - s[closedUnconfirmed] - s[freedUnconfirmed]
	case Confirmed:
		return s[madeConfirmed] + s[confirmedUnconfirmed] - s[closedConfirmed] - s[reopenedConfirmed] - s[freedConfirmed]
	}
	return s[closedUnconfirmed] + s[closedConfirmed] - s[reopenedClosing] - s[freedClosing]
}
