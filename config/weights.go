package config

// checkWeights refuses services that follow the weights of their backends and have no way to learn
// them, and warns of weights in the file that have no effect for that reason.
func (d *decoder) checkWeights(c *Config) {
	checks := make(map[string]*HealthCheck, len(c.HealthChecks))
	for i := range c.HealthChecks {
		checks[c.HealthChecks[i].Name] = &c.HealthChecks[i]
	}
	for i := range c.BackendServices {
		s := &c.BackendServices[i]
		if s.LocalityLbPolicy != PolicyWeightedRendezvous {
			continue
		}
		if h := checks[s.HealthCheck]; h != nil {
			switch h.Type {
			case CheckHTTP, CheckHTTPS, CheckHTTP2, "":
			default:
				d.errorAt(&s.LocalityLbPolicy, "%s takes weights from answers to HTTP, and health check %s is of type %s; use a check of type HTTP, HTTPS or HTTP2, or GCP_RENDEZVOUS",
					s.LocalityLbPolicy, h.Name, h.Type)
			}
		}
		for j := range s.Backends {
			if b := &s.Backends[j]; d.given(&b.Weight) {
				d.warnAt(&b.Weight, "%d has no effect with localityLbPolicy %s, which takes weights from answers to the health check; leave it out", b.Weight, s.LocalityLbPolicy)
				break
			}
		}
	}
}
