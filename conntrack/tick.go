package conntrack

import "time"

// Tick is a point in time in sixteenths of a second since the epoch of the
// clock that [TickOf] is given. It wraps after 8.5 years; only differences are
// looked at, and those are right up to half of that.
type Tick uint32

const tickLen = time.Second / 16

// TickOf converts a time of a monotonic clock, in nanoseconds, to ticks. It is
// meant to be called once per batch.
func TickOf(nowNanos int64) Tick { return Tick(uint64(nowNanos) / uint64(tickLen)) }

// maxTimeout is the longest idle timeout, so that differences of ticks stay
// unambiguous: 4.2 years.
const maxTimeout = 1<<31 - 1

// ticks converts a timeout to ticks, rounding up, at least one.
func ticks(d time.Duration) uint32 {
	if d > maxTimeout*tickLen {
		return maxTimeout
	}
	return uint32(max(d+tickLen-1, tickLen) / tickLen)
}

// State is where an entry is in its life.
type State uint8

const (
	// Unconfirmed entries were made by one packet and wait for a second one.
	// They live for [Options.HalfOpen] and share [Options.HalfOpenShare] of
	// the table.
	Unconfirmed State = iota
	// Confirmed entries live until they are idle for their service's timeout.
	Confirmed
	// Closing entries saw the end of their connection and live until they are
	// idle for [Options.Closing], or their service's timeout if that is less.
	Closing
	stateEnd
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Unconfirmed:
		return "unconfirmed"
	case Confirmed:
		return "confirmed"
	case Closing:
		return "closing"
	}
	return "invalid"
}

// Span returns how long t ticks take: the time between two points if t is
// their difference.
func (t Tick) Span() time.Duration { return time.Duration(t) * tickLen }
