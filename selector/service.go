package selector

import "time"

// Service is a backend service in a snapshot: configuration only, so it is shared by all snapshots
// between two reloads. Who is eligible is the snapshot's.
type Service struct {
	ID              uint16 // 1..65535, the same for a name across reloads
	Name            string
	SymmetryGroup   string
	Affinity        SessionAffinity
	TrackingMode    TrackingMode
	Persistence     Persistence
	NoFailoverDrain bool
	// SYNSelects: a SYN starts a new selection without looking for an entry. False only where an
	// entry stands for a whole session of several connections.
	SYNSelects bool
	Weighted   bool
	// ReportedWeights: weights are what Builder.SetWeight was told.
	ReportedWeights bool
	IdleTimeout     time.Duration
	DrainTimeout    time.Duration
	Policy          Policy

	index  int      // in Snapshot.Services
	ids    []uint32 // listed backends, configuration order
	size   int      // positions: listed and draining backends
	secret secret
}

// newService fills in what follows from the options alone.
func newService(o *ServiceOptions, id uint16, index int, hashKey string) *Service {
	group := o.SymmetryGroup
	if group == "" {
		group = o.Name
	}
	shared := o.TrackingMode == PerSession && hashShapes(o.Affinity)[1] != Shape5
	return &Service{
		ID: id, Name: o.Name, SymmetryGroup: group,
		Affinity: o.Affinity, TrackingMode: o.TrackingMode, Persistence: o.Persistence,
		NoFailoverDrain: o.NoFailoverDrain, SYNSelects: !shared, Weighted: o.Weighted, ReportedWeights: o.ReportedWeights,
		IdleTimeout: o.IdleTimeout, DrainTimeout: o.DrainTimeout, Policy: o.Policy,
		index: index, secret: newSecret(hashKey, group),
	}
}

// persists reports whether a tracked flow stays on a backend that turned unhealthy.
func (s *Service) persists(class flowClass) bool {
	switch s.Persistence {
	case PersistAlways:
		return true
	case PersistNever:
		return false
	}
	return class != classDatagram && s.SYNSelects
}
