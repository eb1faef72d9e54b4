package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
)

// minSection is the least room an application section is given, in bytes.
const minSection = 1 << 16

// slot says where an application section is. The one with the highest sequence
// whose checksums are right is in force.
type slot struct {
	Sequence           uint64
	Offset, Len, Room  uint64 // bytes
	SectionSum, OwnSum uint32 // CRC-32C
}

// SaveApplication stores what the lines mean to the owner of the table: which
// backends and services their numbers name. It must be stored before the first
// entry that needs it is inserted. A writer that dies at any point leaves the
// section stored last, or this one.
//
// On an error neither is valid any more: a table whose numbers may mean
// something else must not be taken over. The next success repairs that.
// It is not safe for concurrent use. The table must be one of Open or Create.
func (t *Table) SaveApplication(section []byte) error {
	err := t.file.save(section)
	if err != nil {
		err = errors.Join(fmt.Errorf("store %d bytes about the flow table's backends: %w", len(section), err), t.file.forget())
	}
	return err
}

func (f *file) save(section []byte) error {
	next := 1 - f.current
	s := f.slots[next]
	if uint64(len(section)) > s.Room {
		s.Room = max(minSection, uint64(1)<<bits.Len64(uint64(len(section)-1)))
		if err := reserve(f.os, f.end, int64(s.Room)); err != nil {
			return err
		}
		s.Offset = uint64(f.end)
		f.end += int64(s.Room)
	}
	if _, err := f.os.WriteAt(section, int64(s.Offset)); err != nil {
		return err
	}
	s.Sequence, s.Len = f.slots[f.current].Sequence+1, uint64(len(section))
	s.SectionSum = crc32.Checksum(section, castagnoli)
	if _, err := f.os.WriteAt(s.encode(), slotAt(next)); err != nil {
		return err
	}
	f.slots[next], f.current = s, next
	return nil
}

// forget makes both slots invalid. Their room was reserved with the header, so
// this does not need any.
func (f *file) forget() error {
	for n := range f.slots {
		if _, err := f.os.WriteAt(make([]byte, binary.Size(slot{})), slotAt(n)); err != nil {
			return err
		}
	}
	return nil
}

// load finds the section in force.
func (f *file) load() ([]byte, error) {
	var found []byte
	for n := range f.slots {
		s, section, ok := f.readSlot(n)
		if !ok {
			continue
		}
		f.slots[n] = s
		if found == nil || s.Sequence > f.slots[f.current].Sequence {
			found, f.current = section, n
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: it does not say which backends its entries mean", ErrDamaged)
	}
	return found, nil
}

func (f *file) readSlot(n int) (s slot, section []byte, ok bool) {
	b := make([]byte, binary.Size(s))
	if _, err := f.os.ReadAt(b, slotAt(n)); err != nil {
		return s, nil, false
	}
	if _, err := binary.Decode(b, binary.NativeEndian, &s); err != nil {
		return s, nil, false
	}
	size := uint64(f.end)
	if s.Sequence == 0 || s.OwnSum != crc32.Checksum(b[:len(b)-4], castagnoli) ||
		s.Len > s.Room || s.Room > size || s.Offset > size-s.Room {
		return s, nil, false
	}
	section = make([]byte, s.Len)
	if _, err := f.os.ReadAt(section, int64(s.Offset)); err != nil {
		return s, nil, false
	}
	return s, section, s.SectionSum == crc32.Checksum(section, castagnoli)
}

func (s *slot) encode() []byte {
	b := appendFixed(nil, s)
	s.OwnSum = crc32.Checksum(b[:len(b)-4], castagnoli)
	binary.NativeEndian.PutUint32(b[len(b)-4:], s.OwnSum)
	return b
}

func slotAt(n int) int64 { return int64(n+1) * slotsAt }
