package appliance

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"zonehop/selector"
)

// serving remembers who serves the new connections of each service, to log when that changes: a
// failover, a last resort and their end are what an operator looks for first.
type serving map[servingKey]selector.Kind

type servingKey struct {
	service string
	family  selector.Family
}

// servingNews is what is said about each kind, how loudly, and what status shows of it as a problem.
var servingNews = map[selector.Kind]struct {
	level         zapcore.Level
	news, problem string
}{
	selector.HealthyPrimaries: {zapcore.InfoLevel, "healthy primary backends serve again", ""},
	selector.HealthyFailovers: {zapcore.WarnLevel, "failover backends serve, because too few primary ones are healthy", "too few primary backends are healthy: failover backends serve"},
	selector.AllPrimaries:     {zapcore.ErrorLevel, "no backend is healthy: all primary ones serve as a last resort", "no backend is healthy: all primary ones serve as a last resort"},
	selector.Drop:             {zapcore.ErrorLevel, "no backend is healthy: new connections are dropped", "no backend is healthy: new connections are dropped"},
}

// follow logs what changed with a snapshot. Nothing is said of a service before its backends have
// verdicts, nor of one that begins as it should.
func (s serving) follow(log *zap.Logger, snap *selector.Snapshot) {
	now := make(serving)
	for _, v := range snap.Services {
		for _, f := range []selector.Family{selector.V4, selector.V6} {
			if kind, settled := snap.Serving(v, f); settled {
				now[servingKey{v.Name, f}] = kind
			}
		}
	}
	for key, kind := range now {
		before, known := s[key]
		if known && before == kind || !known && kind == selector.HealthyPrimaries {
			continue
		}
		said := servingNews[kind]
		fields := []zap.Field{zap.String("service", key.service), zap.Stringer("family", key.family), zap.Stringer("kind", kind)}
		if known {
			fields = append(fields, zap.Stringer("previousKind", before))
		}
		log.Log(said.level, said.news, fields...)
	}
	clear(s)
	for key, kind := range now {
		s[key] = kind
	}
}
