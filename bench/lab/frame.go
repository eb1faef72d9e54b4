package lab

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// SendFrame puts one complete Ethernet frame (without FCS) on the wire from
// an interface of the node, past its network stack: fragments, tags and
// malformed packets as a test wants them.
func (n *Node) SendFrame(iface string, frame []byte) error {
	err := n.Exec(func() error {
		dev, err := net.InterfaceByName(iface)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: dev.Index})
	})
	if err != nil {
		return fmt.Errorf("send frame from %s of %s: %w", iface, n.name, err)
	}
	return nil
}
