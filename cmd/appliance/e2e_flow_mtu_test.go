package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// ICMP types and codes of errors (RFC 792, RFC 4443).
const (
	unreachable4, parameterProblem4               = 3, 12
	fragmentationNeeded                           = 4 // code of unreachable4
	unreachable6, tooBig6, parameterProblem6 byte = 1, 2, 4
)

// isTooBig matches a router's message to a virtual address that a packet to a
// client was too big for its next link.
func isTooBig(f lab.Frame, to, about netip.Addr) bool {
	p, ok := readIP(f)
	if !ok || p.dst != to || len(p.l4) < 8+20 {
		return false
	}
	quote := p.l4[8:]
	if to.Is4() {
		return p.proto == protoICMP && p.l4[0] == unreachable4 && p.l4[1] == fragmentationNeeded &&
			binary.BigEndian.Uint16(p.l4[6:]) == narrowMTU && netip.AddrFrom4([4]byte(quote[16:])) == about
	}
	return p.proto == protoICMPv6 && p.l4[0] == tooBig6 && binary.BigEndian.Uint32(p.l4[4:]) == narrowMTU &&
		len(quote) >= 40 && netip.AddrFrom16([16]byte(quote[24:])) == about
}

// TestPathMTU lets clients behind a narrow link download through the appliance.
// Their servers answer directly and learn of the narrow link only if the
// router's error, which goes to the virtual address, reaches the right one.
func TestPathMTU(t *testing.T) {
	r := newFlowRig(t, "flowTable: {entries: 65536}", "flowTable: {entries: 1024}")
	for i := range 6 {
		r.net.must(r.net.Client("far").AddAddress("eth0", farAddress(1+i, 4+i%2*2)))
	}
	leaves := r.net.capture(r.net.Node("router"), "eth0")
	var sent [][]byte
	owner := make(map[string]string) // of an error
	r.part("tracked", func(r *flowRig) {
		for i, version := range []int{4, 6} {
			errors, backend := r.download(leaves, 1+i, version, true)
			for _, e := range errors {
				sent, owner[string(e)] = append(sent, e), backend
			}
		}
	})
	// An appliance that knows nothing of the flows: the hash alone decides.
	r.stop()
	r.run()
	r.ready()
	r.part("after a restart", func(r *flowRig) {
		if len(sent) == 0 {
			r.net.Fatal("the router sent no errors before")
		}
		r.forgetFrames()
		for _, frame := range sent {
			r.net.send(r.net.Node("router"), "eth0", frame)
			r.arrives(frame, owner[string(frame)])
			r.forgetFrames()
		}
		if s := r.balanced(); s.FlowTable.Used != 0 {
			r.net.Errorf("errors made %d entries", s.FlowTable.Used)
		}
	})
	r.part("full table", func(r *flowRig) {
		r.fillTable()
		for i, version := range []int{4, 6, 4, 6} {
			r.download(leaves, 3+i, version, false)
		}
	})
	r.balanced()
	r.stop()
}

// farAddress is one of the addresses of the client behind the router. Each is
// used once: the servers remember what they learnt about the way to it.
func farAddress(number, version int) netip.Prefix {
	if version == 6 {
		return netip.MustParsePrefix(fmt.Sprintf("fd21::1:%d/16", number))
	}
	return netip.MustParsePrefix(fmt.Sprintf("172.21.1.%d/16", number))
}

// download fetches a megabyte from an address of its own and returns the
// router's errors on the way, each of which reached the server, and the server.
func (r *flowRig) download(leaves *lab.Capture, number, version int, tracked bool) (errors [][]byte, backend string) {
	r.net.Helper()
	const size = 1 << 20
	far, to := r.net.Client("far"), vip("web", version)
	from := farAddress(number, version)
	r.forgetFrames()
	start := time.Now()
	reply, err := far.HTTP(r.net.soon(), lab.Request{
		To: netip.AddrPortFrom(to, lab.HTTPPort), From: netip.AddrPortFrom(from.Addr(), 0), Path: fmt.Sprintf("/bytes?n=%d", size),
	})
	r.net.must(err)
	want := make([]byte, size)
	lab.Pattern(0, want)
	if !bytes.Equal(reply.Body, want) {
		r.net.Fatalf("%d bytes came of %d, or they differ", len(reply.Body), size)
	}
	errors = framesOf(leaves, going(lab.Out, func(f lab.Frame) bool { return isTooBig(f, to, from.Addr()) }))
	if len(errors) == 0 {
		r.net.Fatal("the router found no packet too big: the test tests nothing")
	}
	for _, e := range errors {
		if version == 4 && e[14+20+8+6]&(dontFragment>>8) == 0 {
			r.net.Errorf("the quoted packet may be fragmented: %x", e)
		}
		r.arrives(e, reply.Backend)
	}
	r.net.Logf("IPv%d: %s sent %d KiB in %v; %d errors reached it", version, reply.Backend, size>>10, time.Since(start).Round(time.Millisecond), len(errors))
	if flows := r.tracked(reply.Client); (len(flows) > 0) != tracked {
		r.net.Errorf("the flow is tracked as %+v, want any: %v", flows, tracked)
	}
	return errors, reply.Backend
}

// fillTable fills the flow table with confirmed entries, until even a second
// attempt with as many new flows finds no place.
func (r *flowRig) fillTable() {
	r.net.Helper()
	to := netip.AddrPortFrom(vip("ports", 4), 9)
	next := 0
	round := func() {
		for range 16 << 10 / 64 {
			var frames [][]byte
			for range 64 {
				from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(next >> 8), byte(next)}), 4000)
				f := r.frame(ipHead{src: from.Addr(), dst: to.Addr(), proto: protoUDP}.packet(udpHeader(from, to, nil)))
				frames = append(frames, f, f)
				next++
			}
			r.queues[next/64%2].send(frames...)
		}
	}
	used := -1
	r.wait("the flow table to be full", func() error {
		before := used
		round()
		used = r.balanced().FlowTable.Used
		if used != before {
			return fmt.Errorf("%d entries, %d before", used, before)
		}
		return nil
	})
	s := r.status().FlowTable
	if s.RejectedFull == 0 {
		r.net.Errorf("no packet found the table full: %+v", s)
	}
	r.net.Logf("full with %d entries of %d", s.Used, s.Capacity)
}

// TestErrorsFollowTheirFlow sends errors of all kinds about flows of both
// kinds: tracked ones, whose backend the hash would no longer choose, and ones
// that nobody has seen.
func TestErrorsFollowTheirFlow(t *testing.T) {
	r := newFlowRig(t)
	for _, version := range []int{4, 6} {
		far := far4.Addr()
		if version == 6 {
			far = far6.Addr()
		}
		for rule, to := range map[string]netip.Addr{"web-tcp": vip("web", version), "inspect": far} {
			r.part(fmt.Sprintf("IPv%d/%s", version, rule), func(r *flowRig) {
				r.errorsFollow(nameOf(rule, version), netip.AddrPortFrom(to, lab.EchoTLS))
			})
		}
		r.part(fmt.Sprintf("IPv%d/errors about nothing of ours", version), func(r *flowRig) { r.unmatchedErrors(version) })
	}
	r.balanced()
	r.stop()
}

// errorsFollow sends errors about packets from an address, that of a rule or one
// behind a route.
func (r *flowRig) errorsFollow(rule string, to netip.AddrPort) {
	r.net.Helper()
	r.weigh(nil)
	s := r.net.stream("client", to, "")
	r.weigh(map[string]int{s.Backend: 0}) // new flows go elsewhere
	unseen := netip.AddrPortFrom(r.client.Addr(to.Addr()), 999)
	elsewhere := r.explain(rule, unseen, to).Backend
	if elsewhere == s.Backend || elsewhere == "" {
		r.net.Fatalf("new flows go to %q, the old one is at %s", elsewhere, s.Backend)
	}
	for _, e := range quotes(to) {
		r.errorAbout(e, s.LocalAddr(), to, s.Backend)
		r.errorAbout(e, unseen, to, elsewhere)
	}
	if flows := r.tracked(unseen); len(flows) != 0 {
		r.net.Errorf("errors made the entries %+v", flows)
	}
	r.net.flowing(s)
	if state := s.Close(); state.Err != nil {
		r.net.Error(state.Err)
	}
}

// nameOf is the name of a rule or route of testdata/flow.yaml in an IP version.
func nameOf(rule string, version int) string {
	if version == 6 {
		return rule + "6"
	}
	return rule
}

// explain says where a TCP flow goes that is not tracked.
func (r *flowRig) explain(rule string, from, to netip.AddrPort) admin.Explanation {
	r.net.Helper()
	e, err := r.Explain(admin.ExplainRequest{Rule: rule, Tuple: admin.Tuple{
		Client: from.Addr().String(), Dst: to.Addr().String(), Protocol: protoTCP, SrcPort: from.Port(), DstPort: to.Port(),
	}})
	r.net.must(err)
	return e
}

// quotedError is an error with what of a packet it quotes.
type quotedError struct {
	name       string
	kind, code byte
	word       uint32
	behind     int // bytes quoted behind the IP header
	head       func(h *ipHead)
}

func quotes(to netip.AddrPort) []quotedError {
	fragment := func(h *ipHead) { h.frag = moreFragments }
	options := func(h *ipHead) { h.ext = []byte{7, 7, 4, 0, 0, 0, 0, 1} } // record route (RFC 791), no operation
	if to.Addr().Is4() {
		return []quotedError{
			{name: "too big, 8 bytes", kind: unreachable4, code: fragmentationNeeded, word: 1400, behind: 8},
			{name: "too big, all", kind: unreachable4, code: fragmentationNeeded, word: 1400, behind: 20},
			{name: "too big, IP options", kind: unreachable4, code: fragmentationNeeded, word: 1400, behind: 8, head: options},
			{name: "too big, first fragment", kind: unreachable4, code: fragmentationNeeded, word: 1400, behind: 8, head: fragment},
			{name: "unreachable", kind: unreachable4, code: 1, behind: 8},
			{name: "time exceeded", kind: timeExceeded4, behind: 8},
			{name: "parameter problem", kind: parameterProblem4, behind: 8},
		}
	}
	extension := func(next uint8, ext ...byte) func(h *ipHead) {
		return func(h *ipHead) { h.ext, h.proto = append([]byte{h.proto}, ext...), next }
	}
	return []quotedError{
		{name: "too big, 8 bytes", kind: tooBig6, word: 1400, behind: 8},
		{name: "too big, all", kind: tooBig6, word: 1400, behind: 20},
		{name: "too big, destination options", kind: tooBig6, word: 1400, behind: 8, head: extension(protoDstOpts, 0, 1, 4, 0, 0, 0, 0)},
		{name: "too big, hop-by-hop", kind: tooBig6, word: 1400, behind: 8, head: extension(protoHopByHop, 0, 1, 4, 0, 0, 0, 0)},
		{name: "too big, first fragment", kind: tooBig6, word: 1400, behind: 8, head: extension(protoFragment, 0, 0, 1, 0, 0, 0, 9)},
		{name: "unreachable", kind: unreachable6, behind: 8},
		{name: "time exceeded", kind: timeExceeded6, behind: 8},
		{name: "parameter problem", kind: parameterProblem6, behind: 8},
	}
}

// errorAbout has the router send an error about a packet from a server to a
// client, and checks that it reaches the backend alone, unchanged.
func (r *flowRig) errorAbout(e quotedError, client, server netip.AddrPort, backend string) {
	r.net.Helper()
	h := ipHead{src: server.Addr(), dst: client.Addr(), proto: protoTCP}
	if h.src.Is4() {
		h.frag = dontFragment
	}
	if e.head != nil {
		e.head(&h)
	}
	segment := tcpHeader(server, client, tcpACK)
	quote := h.packet(append(segment, make([]byte, 1400)...))
	quote = quote[:len(quote)-1400-len(segment)+e.behind]
	router := r.net.Node("router")
	frame := ethernet(r.lb, r.net.mac(router, "eth0"), icmpAbout(router.Addr(client.Addr()), server.Addr(), e.kind, e.code, e.word, quote))
	r.forgetFrames()
	r.net.send(router, "eth0", frame)
	if at := r.arrives(frame, ""); at != backend {
		r.net.Errorf("%s about %s reached %s, want %s", e.name, client, at, backend)
	}
}

// unmatchedErrors sends errors that no backend may see.
func (r *flowRig) unmatchedErrors(version int) {
	r.quiet()
	to, router := vip("web", version), r.net.Node("router")
	kind, word := byte(unreachable4), uint32(0)
	if version == 6 {
		kind = unreachable6
	}
	client := netip.AddrPortFrom(r.client.Addr(to), 999)
	quote := func(src, dst netip.AddrPort) []byte {
		return ipHead{src: src.Addr(), dst: dst.Addr(), proto: protoTCP}.packet(tcpHeader(src, dst, tcpACK))
	}
	for name, q := range map[string][]byte{
		"a port without a rule":        quote(netip.AddrPortFrom(to, 81), client),
		"somebody else's packet":       quote(client, netip.AddrPortFrom(to, 443)),
		"a quote that is cut short":    quote(netip.AddrPortFrom(to, 443), client)[:16],
		"a later fragment, no ports":   ipHead{src: to, dst: client.Addr(), proto: protoTCP}.fragment(5, make([]byte, 64), 24, 48),
		"a quote without a transport":  quote(netip.AddrPortFrom(to, 443), client)[:headerLen(version)],
		"a quote that is no IP packet": make([]byte, 64),
	} {
		frame := ethernet(r.lb, r.net.mac(router, "eth0"), icmpAbout(router.Addr(to), to, kind, 0, word, q))
		r.forgetFrames()
		before := r.balanced().Accounting
		r.net.send(router, "eth0", frame)
		r.counted(name+": dropped", dropped("icmp_unmatched"), before.Dropped["icmp_unmatched"]+1)
		after := r.balanced().Accounting
		got := change(&before, &after)
		delete(got, "forwarded") // ends of connections that were before
		if got["icmp_unmatched"] != 1 || len(got) != 1 {
			r.net.Errorf("%s: counted as %v, want one icmp_unmatched", name, got)
		}
		if at := r.got(frame, false); len(at) != 0 {
			r.net.Errorf("%s: reached %v", name, at)
		}
	}
	// Under a rule for all ports the ports of a fragment do not matter.
	all := vip("ports", version)
	h := ipHead{src: all, dst: client.Addr(), proto: protoUDP}
	frame := ethernet(r.lb, r.net.mac(router, "eth0"), icmpAbout(router.Addr(to), all, kind, 0, word, h.fragment(6, make([]byte, 64), 24, 48)))
	r.forgetFrames()
	r.net.send(router, "eth0", frame)
	if at := r.arrives(frame, ""); !slices.Contains([]string{"web-1", "web-2", "web-3"}, at) {
		r.net.Errorf("an error about a later fragment reached %s", at)
	}
}

func headerLen(version int) int {
	if version == 6 {
		return 40
	}
	return 20
}
