package appliance

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"

	"zonehop/forwarder/neigh"
)

// groupKeeper joins the solicited-node groups of the IPv6 addresses answered
// for. Without it nobody's solicitation arrives from behind a snooping switch.
// The kernel is asked in a goroutine of its own, so that no publish waits for it,
// and now and then without a change: an interface can lose its groups, and refuse
// one for a while, without an event that tells of it.
type groupKeeper struct {
	groups *neigh.Groups
	log    *zap.Logger
	wake   chan struct{} // capacity 1: want has changed

	mu      sync.Mutex // guards what follows
	want    map[int][]netip.Addr
	version uint64 // counts changes of want
	done    uint64 // the version that the kernel was told
	told    chan struct{}
}

func newGroupKeeper(g *neigh.Groups, log *zap.Logger) *groupKeeper {
	return &groupKeeper{groups: g, log: log, wake: make(chan struct{}, 1), told: make(chan struct{})}
}

// set says which addresses are answered for, by interface index.
func (k *groupKeeper) set(want map[int][]netip.Addr) {
	k.mu.Lock()
	k.want = want
	k.version++
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// settle waits until the kernel was told what was set before the call.
func (k *groupKeeper) settle(ctx context.Context) error {
	k.mu.Lock()
	version := k.version
	for k.done < version {
		told := k.told
		k.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-told:
		}
		k.mu.Lock()
	}
	k.mu.Unlock()
	return nil
}

// groupsInterval is how often memberships are compared with what the kernel
// has. A host that lost one is not found by IPv6 clients for that long.
const groupsInterval = 2 * time.Second

// run follows set until ctx is done, and then leaves all groups.
func (k *groupKeeper) run(ctx context.Context) {
	defer k.groups.Close()
	tick := time.NewTicker(groupsInterval)
	defer tick.Stop()
	refused := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-tick.C:
		}
		k.mu.Lock()
		want, version := k.want, k.version
		k.mu.Unlock()
		err := k.groups.Update(want)
		if now := text(err); now != refused {
			if refused = now; err != nil {
				k.log.Warn("cannot join a solicited-node group: IPv6 clients may not find an address; trying again", zap.Error(err))
			}
		}
		k.mu.Lock()
		k.done = version
		close(k.told)
		k.told = make(chan struct{})
		k.mu.Unlock()
	}
}
