package probe

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// TestGRPCHealthService probes the health service that the gRPC project ships,
// on its own server, with and without TLS.
func TestGRPCHealthService(t *testing.T) {
	for _, typ := range []Type{GRPC, GRPCWithTLS} {
		t.Run(string(typ), func(t *testing.T) {
			var options []grpc.ServerOption
			if typ == GRPCWithTLS {
				options = append(options, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{serverCertificate(t)}})))
			}
			server, service := grpc.NewServer(options...), health.NewServer()
			grpc_health_v1.RegisterHealthServer(server, service)
			service.SetServingStatus("shop", grpc_health_v1.HealthCheckResponse_SERVING)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- server.Serve(l) }()
			t.Cleanup(func() {
				server.Stop()
				if err := <-served; err != nil {
					t.Error(err)
				}
			})

			pool := startPool(t, Options{})
			targets := make(map[string]Key)
			var list []Target
			for _, name := range []string{"", "shop", "nowhere"} {
				c := fastCheck(typ, addrOf(l).Port())
				c.Name, c.GRPCServiceName = "grpc-"+name, name
				target := Target{Key: Key{Backend: addrOf(l).Addr(), Check: c.Name}, Addr: addrOf(l), Check: c}
				targets[name] = target.Key
				list = append(list, target)
			}
			update(t, pool, list...)
			expect := func(want map[string]State) {
				t.Helper()
				for name, state := range want {
					waitFor(t, "service "+name+" is "+state.String(), func() bool {
						st, ok := pool.State(targets[name])
						return ok && st.State == state
					})
				}
			}
			expect(map[string]State{"": Healthy, "shop": Healthy, "nowhere": Unhealthy})
			service.SetServingStatus("shop", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
			expect(map[string]State{"": Healthy, "shop": Unhealthy})
			service.Shutdown()
			expect(map[string]State{"": Unhealthy})
			service.Resume()
			expect(map[string]State{"": Healthy, "shop": Healthy})
		})
	}
}

// serverCertificate is the one that net/http/httptest serves with.
func serverCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return s.TLS.Certificates[0]
}
