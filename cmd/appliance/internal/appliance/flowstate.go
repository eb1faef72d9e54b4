package appliance

import (
	"bytes"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"zonehop/config"
	"zonehop/conntrack"
	"zonehop/selector"
)

// savedState is the application section of a flow table's file: what the
// numbers in its entries mean.
type savedState struct {
	Version int    `json:"version"`
	HashKey string `json:"hashKey"` // a fingerprint
	selector.Saved
}

// savedVersion changes when an older savedState cannot be read any more.
const savedVersion = 1

// flowState keeps the application section up to date.
type flowState struct {
	mu     sync.Mutex // orders the stores; taken after Appliance.mu
	key    string     // fingerprint of the hash key in force
	stored []byte     // last
}

// fingerprint tells hash keys apart without showing them.
func fingerprint(key string) string {
	sum := sha256.Sum256([]byte("zonehop flow table\x00" + key))
	return hex.EncodeToString(sum[:8])
}

// setKey notes the hash key that is in force.
func (s *flowState) setKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = fingerprint(key)
}

// openFlows makes the flow table and the snapshot builder that its entries
// refer to. With a file, both go on where the last process ended; a file that
// cannot be used is told and replaced by a fresh one.
func (a *Appliance) openFlows(c *config.Config, o selector.Options) (err error) {
	a.state.setKey(o.HashKey)
	t := conntrack.Options{
		Lines: c.FlowTable.Entries, HalfOpenShare: c.FlowTable.HalfOpenShare.Float64(),
		HalfOpen: c.FlowTable.TCPHalfOpen, Closing: c.FlowTable.TCPClosing, Seed: randomSeed(),
	}
	if c.FlowTable.Path == "" {
		if a.builder, err = selector.New(o, a.clock()); err != nil {
			return fmt.Errorf("build snapshot: %w", err)
		}
		if a.table, err = conntrack.New(t); err != nil {
			return fmt.Errorf("allocate flow table: %w", err)
		}
		return nil
	}
	table, found, err := conntrack.Open(c.FlowTable.Path, t, conntrack.TickOf(a.clock()))
	if err != nil {
		return err
	}
	a.table = table
	refused := found.Refused
	if found.Application != nil {
		a.builder, err = a.restore(o, found.Application)
		if errors.Is(err, errUnreadable) {
			refused = fmt.Errorf("flow table %s: %w", c.FlowTable.Path, err)
			if a.table, err = conntrack.Create(table, t); err != nil {
				return err
			}
		}
	}
	if err == nil && a.builder == nil {
		a.builder, err = selector.New(o, a.clock())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("build snapshot: %w", err), a.table.Close())
	}
	switch {
	case refused != nil:
		a.log.Warn("the flow table that was there is refused; a fresh one takes its place, and connections are balanced anew", zap.Error(refused))
	case found.Application != nil:
		a.log.Info("flow table taken over", zap.String("file", c.FlowTable.Path), zap.Int("entries", found.Entries),
			zap.Int("halfWritten", found.Emptied), zap.Int("previousCapacity", found.PreviousLines), zap.Int("withoutRoom", found.Lost))
	default:
		a.log.Info("flow table made", zap.String("file", c.FlowTable.Path))
	}
	if err := a.storeState(); err != nil {
		return errors.Join(err, a.table.Close())
	}
	return nil
}

// errUnreadable is why a section that is whole cannot be used.
var errUnreadable = errors.New("what it says of its backends cannot be used")

// restore makes a builder from an application section. Errors: errUnreadable,
// and those of the configuration.
func (a *Appliance) restore(o selector.Options, section []byte) (*selector.Builder, error) {
	var s savedState
	if err := json.Unmarshal(section, &s); err != nil || s.Version != savedVersion {
		return nil, fmt.Errorf("%w: version %d, want %d: %w", errUnreadable, s.Version, savedVersion, errors.Join(err))
	}
	b, err := selector.Restore(o, s.Saved, a.clock())
	if errors.Is(err, selector.ErrSaved) {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if err == nil && s.HashKey != a.state.key {
		a.log.Warn("the hash key has changed: tracked connections stay, connections that are not in the flow table may move")
	}
	return b, err
}

// storeState stores in the table's file what its entries mean, if that has
// changed. It must come between an Apply and its Publish.
func (a *Appliance) storeState() error {
	if a.config.Load().FlowTable.Path == "" {
		return nil
	}
	a.state.mu.Lock()
	defer a.state.mu.Unlock()
	section, err := json.Marshal(savedState{savedVersion, a.state.key, a.builder.Save()})
	if err != nil {
		return fmt.Errorf("encode backends for the flow table: %w", err)
	}
	if bytes.Equal(section, a.state.stored) {
		return nil
	}
	a.state.stored = nil
	if err := a.table.SaveApplication(section); err != nil {
		return err
	}
	a.state.stored = section
	return nil
}

// keepState is storeState for those who go on without it.
func (a *Appliance) keepState() {
	if err := a.storeState(); err != nil {
		a.log.Error("the flow table's file is out of date: unless this gets well, the next start begins with a fresh table", zap.Error(err))
	}
}

func randomSeed() uint64 {
	var b [8]byte
	crand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:])
}
