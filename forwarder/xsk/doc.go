// Package xsk moves frames between network interfaces and one worker through
// AF_XDP sockets, and holds the XDP program that decides which frames leave
// the kernel's own path.
//
// # Model
//
// A UMEM is one block of memory cut into chunks of equal size. A Socket is one
// queue of one interface on a UMEM and has four rings, each with one producer
// and one consumer, one of which is the kernel:
//
//	          Alloc             Transmit
//	  ┌─free──────────► worker ─────────► TX ring ──► kernel ──┐
//	  │  ▲ ▲              ▲                                    ▼
//	  │  │ └─ Free ───────┤                             completion ring
//	  │  └────────────────┼────────────── Complete ────────────┘
//	Fill                  └─ Receive ── RX ring ◄──┐
//	  └──► fill ring ──► kernel ───────────────────┘
//
// A frame (the bytes in a chunk) is in exactly one of these places. The UMEM
// keeps one owner byte per chunk (free, worker, fill side of a socket, transmit
// side of a socket) and checks it at each step, so an address the kernel should
// not have handed out is counted and never followed, and the frames of a socket
// that is gone can be taken back.
//
// # Concurrency
//
// A UMEM and its sockets belong to one goroutine, the worker; nothing on the
// data path is locked. Three things may be done elsewhere, as their comments
// say: Socket.Bind, Socket.Close and Socket.Stats. Program is safe for
// concurrent use.
//
// # Lifetime
//
// Detach the program first, then let the worker stop using a socket, then Close
// it (any goroutine), then the worker calls UMEM.Reclaim, and at the end
// UMEM.Close. Slices from UMEM.Frame are dead after UMEM.Close.
//
// Sockets and programs are created in the network namespace of the calling
// thread. Nothing here logs, and no data-path method returns an error: what the
// kernel refuses is counted.
package xsk
