package demo

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"

	"zonehop/bench/lab"
)

// compareBytes sends TCP, UDP and IPv6 traffic while it is captured on its way
// out of a client and into the backends, and compares every frame: above the
// MAC addresses, what a backend receives is what the client sent.
func (d *demo) compareBytes() error {
	client := d.lab.Client(clientB)
	sent, err := client.Capture("eth0")
	if err != nil {
		return err
	}
	defer sent.Stop()
	var received []*lab.Capture
	for _, b := range d.lab.Backends() {
		c, err := b.Capture("eth0")
		if err != nil {
			return err
		}
		defer c.Stop()
		received = append(received, c)
	}
	body := bytes.Repeat([]byte("zonehop "), 4096)
	for _, to := range []netip.Addr{vip, vip6} {
		if _, err := client.HTTP(d.ctx, lab.Request{To: netip.AddrPortFrom(to, lab.HTTPPort), Path: "/echo", Body: body}); err != nil {
			return err
		}
	}
	for n := range 20 {
		payload := bytes.Repeat([]byte{byte(n)}, 1+70*n)
		if _, _, err := client.UDP(d.ctx, netip.AddrPortFrom(vip, lab.EchoPort), netip.AddrPort{}, payload); err != nil {
			return err
		}
	}
	r := &d.report.ByteExact
	toVIP := func(f lab.Frame, dir lab.Direction) bool {
		return f.Direction == dir && destinationIs(f.Data, vip, vip6)
	}
	err = lab.Wait(d.ctx, "the captures to have every frame", settle, func() (bool, error) {
		out, in := make(map[string]int), make(map[string]int)
		r.Frames = 0
		for _, f := range sent.Frames() {
			if toVIP(f, lab.Out) {
				out[string(f.Data[12:])]++
				r.Frames++
			}
		}
		for _, c := range received {
			for _, f := range c.Frames() {
				if toVIP(f, lab.In) {
					in[string(f.Data[12:])]++
				}
			}
		}
		for frame, n := range out {
			if in[frame] != n {
				return false, fmt.Errorf("a frame of %d bytes was sent %d times and arrived %d times", 12+len(frame), n, in[frame])
			}
		}
		return r.Frames > 0, nil
	})
	r.OK = err == nil
	if err != nil {
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		r.Problem = err.Error()
		d.problem("frames are not what was sent: %v", err)
	}
	return nil
}

// destinationIs reports whether an untagged frame is an IP packet to one of
// the addresses.
func destinationIs(frame []byte, addrs ...netip.Addr) bool {
	if len(frame) < 54 {
		return false
	}
	var dst netip.Addr
	switch {
	case frame[12] == 0x08 && frame[13] == 0x00:
		dst, _ = netip.AddrFromSlice(frame[30:34])
	case frame[12] == 0x86 && frame[13] == 0xdd:
		dst, _ = netip.AddrFromSlice(frame[38:54])
	default:
		return false
	}
	for _, a := range addrs {
		if a == dst {
			return true
		}
	}
	return false
}
