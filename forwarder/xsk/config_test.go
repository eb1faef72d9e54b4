package xsk

import (
	"strings"
	"testing"
)

func TestConfigValidate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   string // "" is valid
	}{
		{"default", func(*Config) {}, ""},
		{"large frames", func(c *Config) { c.FrameSize = 4096 }, ""},
		{"more frames", func(c *Config) { c.Frames = 3 * 8192 }, ""},
		{"frame size", func(c *Config) { c.FrameSize = 3000 }, "use 2048 (MTU up to 1770) or 4096 (MTU up to 3818)"},
		{"RX not a power of two", func(c *Config) { c.RX = 1000 }, "RX ring of 1000"},
		{"TX too small", func(c *Config) { c.TX = 16 }, "TX ring of 16"},
		{"fill too large", func(c *Config) { c.Fill = 1 << 16 }, "fill ring of 65536"},
		{"fill below twice RX", func(c *Config) { c.Fill = 2048 }, "at least twice the RX ring, 4096"},
		{"too few frames", func(c *Config) { c.Frames = 8191 }, "use at least 8192"},
		{"too much memory", func(c *Config) { c.Frames = 1 << 21 }, "less than 4 GiB"},
		{"batch", func(c *Config) { c.Batch = 16 }, "batch of 16"},
		{"batch above TX", func(c *Config) { c.Batch = 4096 }, "batch of 4096"},
		{"mode", func(c *Config) { c.Mode = 9 }, "auto, zero-copy or copy"},
		{"huge pages", func(c *Config) { c.HugePages = 9 }, "auto, off or on"},
	} {
		c := DefaultConfig()
		tt.change(&c)
		err := c.Validate()
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
	// All problems at once.
	err := Config{}.Validate()
	for _, want := range []string{"frame size", "fill ring", "RX ring", "TX ring", "batch"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("empty configuration: %v does not mention %q", err, want)
		}
	}
}

func TestReserveLimits(t *testing.T) {
	cfg := smallConfig() // 384 frames per socket, 1024 in all
	u := heapUMEM(t, cfg)
	a, _ := joinFake(t, u, 1, 0)
	joinFake(t, u, 2, 0)
	for _, tt := range []struct {
		name           string
		ifindex, queue int
		want           string
	}{
		{"third socket", 3, 0, "raise the number of frames"},
		{"same queue", 1, 0, "close and reclaim that first"},
	} {
		if _, err := u.Reserve(tt.ifindex, tt.queue, cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
	u.Reclaim(a)
	if _, err := u.Reserve(3, 0, cfg); err != nil {
		t.Errorf("after a socket was reclaimed: %v", err)
	}
}

func TestFrame(t *testing.T) {
	u := heapUMEM(t, smallConfig())
	for _, tt := range []struct {
		d        Desc
		len, cap int // len -1: nil
	}{
		{Desc{Addr: 0, Len: 2048}, 2048, 2048},
		{Desc{Addr: 256, Len: 60}, 60, 1792},
		{Desc{Addr: 2048 + 2047, Len: 1}, 1, 1},
		{Desc{Addr: 2048 + 2047, Len: 2}, -1, 0},
		{Desc{Addr: 1023 * 2048, Len: 2048}, 2048, 2048},
		{Desc{Addr: 1024 * 2048, Len: 1}, -1, 0},
		{Desc{Addr: ^uint64(0), Len: 1}, -1, 0},
		{Desc{Addr: ^uint64(0) - 2000, Len: ^uint32(0)}, -1, 0},
	} {
		f := u.Frame(tt.d)
		if tt.len < 0 && f != nil || tt.len >= 0 && (len(f) != tt.len || cap(f) != tt.cap) {
			t.Errorf("Frame(%+v) has len %d cap %d, want %d %d", tt.d, len(f), cap(f), tt.len, tt.cap)
		}
	}
}
