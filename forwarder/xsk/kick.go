package xsk

import (
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Kick asks the kernel to send what is on the TX ring, if there is anything and
// the kernel needs to be asked. What it refuses stays on the ring for the next
// call; the reasons are counted (Stats.KickErrors).
//
// In copy mode one system call sends a limited number of frames and answers
// EAGAIN when more are left, so Kick repeats as long as the ring gets emptier.
func (s *Socket) Kick() {
	left := s.unsent()
	for left != 0 {
		if !s.copies && !s.tx.needWakeup() {
			s.count.kicksSaved.Add(1)
			return
		}
		s.count.kicks.Add(1)
		errno := s.kickTX(s.fd)
		s.countErrno(errno)
		now := s.unsent()
		if now >= left || errno != 0 && errno != unix.EAGAIN {
			return
		}
		left = now
	}
}

// unsent is the number of frames on the TX ring that the kernel has not picked up.
func (s *Socket) unsent() uint32 {
	return s.tx.next - atomic.LoadUint32(s.tx.consumer)
}

// wakeRX makes the driver look at the fill ring again, if it asked for that or
// always is set.
func (s *Socket) wakeRX(always bool) {
	if !always && !s.fill.needWakeup() {
		s.count.wakesSaved.Add(1)
		return
	}
	s.count.wakes.Add(1)
	s.countErrno(s.kickRX(s.fd))
}

// countErrno files what a kick answered. The named errors are normal: the ring or
// the device is busy, or the link is down. Others, such as ENXIO after the device
// vanished, mean that the socket is of no more use.
func (s *Socket) countErrno(errno syscall.Errno) {
	switch errno {
	case 0:
	case unix.EAGAIN:
		s.count.again.Add(1)
	case unix.EBUSY:
		s.count.busy.Add(1)
	case unix.ENOBUFS:
		s.count.noBufs.Add(1)
	case unix.ENETDOWN:
		s.count.netDown.Add(1)
	case unix.EINTR:
		s.count.interrupted.Add(1)
	default:
		s.count.other.Add(1)
		s.count.lastOther.Store(uint32(errno))
	}
}

// sendtoNothing is the transmit kick. It goes through the scheduler's system
// call hooks, since a copy-mode kick sends a whole batch and takes long.
func sendtoNothing(fd int) syscall.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}

// recvfromNothing is the receive kick.
func recvfromNothing(fd int) syscall.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}
