package lab

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// passProgram is the XDP program of the appliance's bridge ports. It passes
// every frame; its presence makes veth poll on that end, which is what lets it
// take XDP frames (XDP_TX, redirects) from the other one.
type passProgram struct {
	mu   sync.Mutex
	prog *ebpf.Program
}

const xdpPass = 2 // linux/bpf.h, enum xdp_action

// attach hangs the program to the device itself rather than to a BPF link: it
// ends with the device, so a kept lab works on after this process.
func (p *passProgram) attach(ns *namespace, port string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.prog == nil {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "zonehop_pass", Type: ebpf.XDP, License: "Apache-2.0",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
		})
		if err != nil {
			return fmt.Errorf("load xdp program for port %s: %w; loading needs CAP_BPF and CONFIG_BPF_SYSCALL", port, err)
		}
		p.prog = prog
	}
	return ns.do(func() error {
		link, err := netlink.LinkByName(port)
		if err == nil {
			err = netlink.LinkSetXdpFdWithFlags(link, p.prog.FD(), unix.XDP_FLAGS_DRV_MODE)
		}
		if err != nil {
			return fmt.Errorf("attach xdp program to port %s: %w", port, err)
		}
		return nil
	})
}

func (p *passProgram) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.prog != nil {
		p.prog.Close()
		p.prog = nil
	}
}
