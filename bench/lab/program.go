package lab

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// program is an eBPF program of the appliance's bridge ports, loaded with the
// first port. It hangs on the devices themselves rather than on BPF links: it
// ends with the device, so a kept lab works on after this process.
type program struct {
	spec ebpf.ProgramSpec

	mu     sync.Mutex // guards what follows
	loaded *ebpf.Program
}

// Verdicts of linux/bpf.h and linux/pkt_cls.h.
const (
	xdpPass  = 2
	tcActOK  = 0
	priority = 1 // of the only filter there
)

// newPass is an XDP program that passes every frame. Its presence makes veth
// poll on that end, which is what lets it take XDP frames (XDP_TX, redirects)
// from the other one.
func newPass() *program {
	return &program{spec: ebpf.ProgramSpec{
		Name: "zonehop_pass", Type: ebpf.XDP, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
	}}
}

// newRehash is a program for the way out that makes the kernel compute a
// packet's hash from its addresses and ports before XPS picks a queue by it.
// The hash that a packet comes with is its socket's: a random number, another
// one for each socket and after each timeout (sk_txhash of net/sock.h). By that
// one a connection takes another queue than the rest of an earlier one from the
// same port, and overtakes it. Receive side scaling never does that.
func newRehash() *program {
	return &program{spec: ebpf.ProgramSpec{
		Name: "zonehop_rehash", Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.FnSetHashInvalid.Call(), asm.Mov.Imm(asm.R0, tcActOK), asm.Return()},
	}}
}

// load returns the program's descriptor, which is the program's.
func (p *program) load() (fd int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loaded == nil {
		if p.loaded, err = ebpf.NewProgram(&p.spec); err != nil {
			return 0, fmt.Errorf("load program %s: %w; loading needs CAP_BPF and CONFIG_BPF_SYSCALL", p.spec.Name, err)
		}
	}
	return p.loaded.FD(), nil
}

// attachXDP hangs the program on a port for what comes from the node.
func (p *program) attachXDP(ns *namespace, port string) error {
	fd, err := p.load()
	if err != nil {
		return err
	}
	return ns.do(func() error {
		link, err := netlink.LinkByName(port)
		if err == nil {
			err = netlink.LinkSetXdpFdWithFlags(link, fd, unix.XDP_FLAGS_DRV_MODE)
		}
		if err != nil {
			return fmt.Errorf("attach xdp program to port %s: %w", port, err)
		}
		return nil
	})
}

// attachEgress hangs the program on a port for what goes to the node. The
// kernel runs it before it picks the queue (__dev_queue_xmit).
func (p *program) attachEgress(ns *namespace, port string) error {
	fd, err := p.load()
	if err != nil {
		return err
	}
	return ns.do(func() error {
		link, err := netlink.LinkByName(port)
		if err != nil {
			return fmt.Errorf("find port %s: %w", port, err)
		}
		err = netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}})
		if err == nil {
			err = netlink.FilterAdd(&netlink.BpfFilter{
				FilterAttrs: netlink.FilterAttrs{
					LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Priority: priority, Protocol: unix.ETH_P_ALL,
				},
				Fd: fd, Name: p.spec.Name, DirectAction: true,
			})
		}
		if err != nil {
			return fmt.Errorf("attach program to what leaves by port %s: %w; the kernel needs CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF", port, err)
		}
		return nil
	})
}

func (p *program) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loaded != nil {
		p.loaded.Close()
		p.loaded = nil
	}
}
