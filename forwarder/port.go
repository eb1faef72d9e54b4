package forwarder

import (
	"zonehop/forwarder/xsk"
)

// Port is one queue of one interface, as a worker drives it: batches of
// descriptors go in and out, and nothing is called per packet. [xsk.Socket] is
// the real one; tests use one in memory.
//
// A port belongs to one worker at a time and is not safe for concurrent use.
type Port interface {
	// Receive takes up to len(d) frames from the RX ring. They belong to the
	// caller until given to Transmit or freed to the UMEM.
	Receive(d []xsk.Desc) int
	// TXFree is the number of frames that Transmit accepts now.
	TXFree() int
	// Transmit puts frames on the TX ring and returns how many it took, from
	// the front of d. Kick makes the kernel send them.
	Transmit(d []xsk.Desc) int
	// Kick asks the kernel to send what is on the TX ring, if it needs asking.
	Kick()
	// Complete returns frames the kernel has sent to the UMEM's free stack.
	Complete() int
	// Fill hands free frames to the kernel for receiving.
	Fill()
	// FD is the descriptor to poll, or -1.
	FD() int
	// Census says where the frames of this port are.
	Census() xsk.Census
}
