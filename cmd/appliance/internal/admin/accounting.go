package admin

import "fmt"

// Judge adds up both sides of the accounting and says whether they agree.
// waiting is the number of frames that lie on RX rings: redirected, and not
// yet received. Under load the counters are of slightly different moments, so
// only a quiet appliance is sure to be balanced.
func (a *Accounting) Judge(waiting uint64) {
	a.Balanced, a.Imbalance = true, ""
	check := func(what string, left, right uint64) {
		if left != right && a.Balanced {
			a.Balanced, a.Imbalance = false, fmt.Sprintf("%s: %d on one side, %d on the other", what, left, right)
		}
	}
	check("redirected", a.Redirected, a.Received+waiting+a.RXDropped+a.RXRingFull+a.NoSocket)
	check("received", a.Received, a.Forwarded+total(a.Answered)+total(a.Dropped)+a.Held)
	check("sent", a.Forwarded+total(a.Answered)+total(a.Originated), a.Completed+a.InFlight+a.Abandoned+a.Invalid)
}

func total(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}
