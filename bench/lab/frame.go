package lab

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Direction of a frame as seen from the interface it was captured on.
type Direction uint8

const (
	In  Direction = iota // the interface received it
	Out                  // the interface sends it
)

func (d Direction) String() string {
	if d == Out {
		return "out"
	}
	return "in"
}

// Frame is one captured frame.
type Frame struct {
	Time      time.Time
	Direction Direction
	Data      []byte // Ethernet header to payload, VLAN tags in place, no FCS
}

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

// withMetadata copies the frame, with the VLAN tag back in that the kernel
// keeps beside it, and sets its time of arrival.
func withMetadata(f *Frame, data, oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return append([]byte(nil), data...)
	}
	var tag []byte
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16:
			f.Time = time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		case m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 20:
			// struct tpacket_auxdata of linux/if_packet.h
			status := binary.NativeEndian.Uint32(m.Data)
			if status&unix.TP_STATUS_VLAN_VALID == 0 {
				continue
			}
			tpid := uint16(unix.ETH_P_8021Q)
			if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
				tpid = binary.NativeEndian.Uint16(m.Data[18:])
			}
			tag = binary.BigEndian.AppendUint16(nil, tpid)
			tag = binary.BigEndian.AppendUint16(tag, binary.NativeEndian.Uint16(m.Data[16:]))
		}
	}
	out := make([]byte, 0, len(data)+len(tag))
	at := min(12, len(data)) // after the addresses
	out = append(append(out, data[:at]...), tag...)
	return append(out, data[at:]...)
}

func htons(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}
