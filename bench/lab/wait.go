package lab

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// settleTime is how long the kernel has for what it does at once, on a machine
// that is busy with other things.
const settleTime = 30 * time.Second

// Wait polls until done reports true, ctx ends or the time is over; the error
// then names what was waited for and the last error of done. An error of done
// alone does not end the wait.
func Wait(ctx context.Context, what string, within time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait for %s: not within %v", what, within), err)
		case <-tick.C:
		}
	}
}
