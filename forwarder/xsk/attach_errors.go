package xsk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// explainAttach adds to a refused attachment what can be done about it.
func explainAttach(ifindex int, mode AttachMode, err error) error {
	name := interfaceName(ifindex)
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno // without the library's words, which say the same again
	}
	wrap := func(remedy string) error {
		return fmt.Errorf("attach xdp to %s: %w; %s", name, err, remedy)
	}
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return wrap(fmt.Sprintf("%s is attached there; detach it first (ip link set %s xdp off, or end the program that holds its link)", attachedProgram(ifindex), name))
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return wrap(capabilityRemedy(unix.CAP_NET_ADMIN, unix.CAP_BPF))
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO), interfaceMTU(ifindex) == 0:
		return wrap("there is no such interface in this network namespace")
	case mode == Generic:
		return wrap("generic mode needs receive offloads off: ethtool -K " + name + " lro off")
	case errors.Is(err, unix.EOPNOTSUPP):
		return wrap(fmt.Sprintf("driver %q refuses native XDP: it may not have it at all (bonds, teams and VLAN devices do not: use the interfaces below them), "+
			"or not with LRO or hardware GRO (ethtool -K %s lro off rx-gro-hw off), or not with as many queues as are set (ethtool -L); mode generic works, slowly", driverName(name), name))
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.E2BIG), errors.Is(err, unix.ERANGE):
		return wrap(fmt.Sprintf("the MTU of %d (on veth, that of the peer) may be too large for the driver's single-buffer XDP (lower it to 3498 or less, on some drivers 1500: ip link set %s mtu 1500), "+
			"or LRO or hardware GRO is on (ethtool -K %s lro off rx-gro-hw off)", interfaceMTU(ifindex), name, name))
	case errors.Is(err, unix.ENOMEM):
		return wrap("the driver has no memory or no spare queues for XDP; lower the number of queues with ethtool -L " + name)
	}
	return fmt.Errorf("attach xdp to %s: %w", name, err)
}

func interfaceMTU(ifindex int) int {
	if i, err := net.InterfaceByIndex(ifindex); err == nil {
		return i.MTU
	}
	return 0
}

// attachedProgram describes the XDP program of an interface, for a message.
func attachedProgram(ifindex int) string {
	id, err := attachedProgramID(ifindex)
	if err != nil || id == 0 {
		return "another XDP program"
	}
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return fmt.Sprintf("XDP program %d", id)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return fmt.Sprintf("XDP program %d", id)
	}
	return fmt.Sprintf("XDP program %d (%s)", id, info.Name)
}

// attachedProgramID asks the kernel which XDP program an interface has; 0 is none.
func attachedProgramID(ifindex int) (uint32, error) {
	rib, err := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return 0, fmt.Errorf("list interfaces: %w", err)
	}
	messages, err := syscall.ParseNetlinkMessage(rib)
	if err != nil {
		return 0, fmt.Errorf("list interfaces: %w", err)
	}
	for i := range messages {
		m := &messages[i]
		var head unix.IfInfomsg
		if m.Header.Type != unix.RTM_NEWLINK || binary.Read(bytes.NewReader(m.Data), binary.NativeEndian, &head) != nil || int(head.Index) != ifindex {
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(m)
		if err != nil {
			return 0, fmt.Errorf("read interface: %w", err)
		}
		for _, a := range attrs {
			if a.Attr.Type&^unix.NLA_F_NESTED == unix.IFLA_XDP {
				return programIDIn(a.Value), nil
			}
		}
	}
	return 0, nil
}

// programIDIn finds the program's number in the nested attributes of IFLA_XDP.
func programIDIn(b []byte) uint32 {
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		kind := binary.NativeEndian.Uint16(b[2:])
		if size < unix.SizeofRtAttr || size > len(b) {
			return 0
		}
		if kind == unix.IFLA_XDP_PROG_ID && size >= unix.SizeofRtAttr+4 {
			return binary.NativeEndian.Uint32(b[unix.SizeofRtAttr:])
		}
		b = b[min(len(b), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
	return 0
}
