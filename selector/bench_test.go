package selector

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func BenchmarkPublish(b *testing.B) {
	b.Run("one change", func(b *testing.B) {
		bd := mustNew(b, grid(1000, 10))
		healthy(bd, 1)
		i := 0
		for b.Loop() {
			// Another backend each time, and never a set that was there before.
			bd.SetHealth("web", fmt.Sprintf("b%04d", i%1000), V4, Health(1-(i/1000+1)%2))
			bd.Publish(int64(i))
			i++
		}
		b.ReportMetric(float64(bd.Current().Took)/1e6, "last-ms")
	})
	b.Run("failover flip", func(b *testing.B) {
		o := grid(1000, 10)
		for i := range o.Services[0].Backends {
			o.Services[0].Backends[i].Failover = i%20 >= 10
		}
		bd := mustNew(b, o)
		healthy(bd, 1)
		i := 0
		for b.Loop() {
			b.StopTimer()
			clear(bd.cache.tables) // a flip to sets never seen before
			h := Health(i & 1)
			for k, e := range o.Services[0].Backends {
				if k%20 < 10 {
					bd.SetHealth("web", e.Name, V4, h)
				}
			}
			b.StartTimer()
			bd.Publish(int64(i))
			i++
		}
	})
	b.Run("nothing", func(b *testing.B) {
		bd := mustNew(b, grid(1000, 10))
		healthy(bd, 1)
		for b.Loop() {
			bd.Publish(2)
		}
	})
}

func BenchmarkSelect(b *testing.B) {
	for _, n := range []int{10, 1000} {
		for _, zones := range []int{1, 10} {
			b.Run(fmt.Sprintf("backends=%d/zones=%d", n, zones), func(b *testing.B) {
				s := healthy(mustNew(b, grid(n, zones)), 1)
				r := &s.Rules[0]
				tuples := make([]Tuple, 4096)
				for i := range tuples {
					tuples[i] = tupleFrom(fmt.Sprintf("10.%d.%d.%d", 1+i%zones, i>>8, i&255), uint16(i*7))
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if c := s.Select(r, &tuples[i&4095]); c.Backend == 0 {
						b.Fatal("nothing selected")
					}
					i++
				}
			})
		}
	}
}

func BenchmarkVIP(b *testing.B) {
	o := grid(10, 1)
	for i := range 200 {
		r := o.Rules[0]
		r.Name = fmt.Sprintf("vip%d", i)
		r.Address = netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})
		o.Rules = append(o.Rules, r)
	}
	s := healthy(mustNew(b, o), 1)
	var hits, misses [1024][2]uint64
	for i := range hits {
		hits[i] = s.VIPs[i*7%len(s.VIPs)].Addr
		misses[i] = [2]uint64{0, 0xffff_0a00_0000 + uint64(i)*2654435761&0xffffff}
	}
	b.Run("hit", func(b *testing.B) {
		i, n := 0, 0
		for b.Loop() {
			if s.VIP(hits[i&1023]).Rule(protoTCP, 80, true) != nil {
				n++
			}
			i++
		}
		if n != i {
			b.Fatalf("%d of %d found", n, i)
		}
	})
	b.Run("miss", func(b *testing.B) {
		i := 0
		for b.Loop() {
			if s.VIP(misses[i&1023]) != nil {
				b.Fatal("found")
			}
			i++
		}
	})
}

func BenchmarkRoute(b *testing.B) {
	o := grid(10, 1)
	for i := range 64 {
		o.Routes = append(o.Routes, RouteOptions{
			Name: fmt.Sprintf("r%d", i), Service: "web",
			DestRange: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i * 4), 0}), 22),
		})
	}
	s := healthy(mustNew(b, o), 1)
	src := words(addr("10.1.0.1"))
	for name, base := range map[string]uint64{"hit": 0xffff_c0a8_0000, "miss": 0xffff_0b00_0000} {
		b.Run(name, func(b *testing.B) {
			i := uint64(0)
			for b.Loop() {
				if r := s.Route(src, [2]uint64{0, base + i&0xffff}, protoTCP, 0); (r != nil) != (name == "hit") {
					b.Fatalf("Route = %v", r)
				}
				i += 97
			}
		})
	}
}

func BenchmarkTrackingKey(b *testing.B) {
	s := healthy(mustNew(b, grid(10, 1)), 1)
	r := &s.Rules[0]
	t := tupleFrom("10.1.0.1", 4000)
	var sum uint64
	for b.Loop() {
		src, dst, sp, dp, proto, kind := r.TrackingKey(&t)
		sum += src[1] ^ dst[1] ^ uint64(sp) ^ uint64(dp) ^ uint64(proto) ^ uint64(kind)
	}
	if sum == 1 {
		b.Log(time.Duration(sum))
	}
}
