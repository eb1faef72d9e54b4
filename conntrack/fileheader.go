package conntrack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
)

// A flow table's file, in the byte order of its machine:
//
//	0          header: what the lines mean; written once
//	1024, 2048 two slots: where the application section is; written in turn
//	4096       one bit per region of 64 lines that was ever used
//	…          lines, 64 bytes each
//	…          application sections
//
// The file is of use to the boot that wrote it only: ticks count from there,
// and tmpfs does not outlive it.
const (
	pageLen     = 4096
	headerLen   = pageLen
	slotsAt     = 1024 // of the first slot; the second is as far from it
	fileMagic   = "zonehop\x00"
	fileVersion = 1 // of everything in the file: header, lines, hash and states
	fileOrder   = 0x0a0b0c0d
	bootIDPath  = "/proc/sys/kernel/random/boot_id"
)

// fileHeader is the fixed part of the file.
type fileHeader struct {
	Magic   [8]byte
	Version uint32
	Order   uint32 // tells machines of different byte order apart
	Lines   uint64
	Seed    uint64
	TickLen uint64 // nanoseconds of CLOCK_BOOTTIME
	BootID  [36]byte
	Sum     uint32 // CRC-32C of what is before
}

// Errors why a file is refused and a fresh table takes its place.
var (
	ErrForeign   = errors.New("it is not a flow table of this version")
	ErrDamaged   = errors.New("it is damaged")
	ErrOtherBoot = errors.New("it is of another boot of this machine: its times mean nothing now")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func bootID() (id [36]byte, err error) {
	text, err := os.ReadFile(bootIDPath)
	if err != nil {
		return id, fmt.Errorf("read the boot id: %w", err)
	}
	if copy(id[:], strings.TrimSpace(string(text))) != len(id) {
		return id, fmt.Errorf("read the boot id: %s holds %q", bootIDPath, text)
	}
	return id, nil
}

// encode completes a header and returns its bytes.
func (h *fileHeader) encode() []byte {
	copy(h.Magic[:], fileMagic)
	h.Version, h.Order, h.TickLen = fileVersion, fileOrder, uint64(tickLen)
	b := appendFixed(nil, h)
	sum := crc32.Checksum(b[:len(b)-4], castagnoli)
	binary.NativeEndian.PutUint32(b[len(b)-4:], sum)
	return b
}

// decodeHeader reads a header and checks that the file of sizeLen bytes can be
// used in this boot.
func decodeHeader(b []byte, sizeLen int64, boot [36]byte) (h fileHeader, err error) {
	n := binary.Size(h)
	if len(b) < n || !bytes.HasPrefix(b, []byte(fileMagic)) {
		return h, ErrForeign
	}
	if _, err := binary.Decode(b, binary.NativeEndian, &h); err != nil {
		return h, ErrForeign
	}
	switch {
	case h.Order != fileOrder || h.Version != fileVersion || h.TickLen != uint64(tickLen):
		return h, ErrForeign
	case h.Sum != crc32.Checksum(b[:n-4], castagnoli):
		return h, fmt.Errorf("%w: its header does not match its checksum", ErrDamaged)
	case h.BootID != boot:
		return h, ErrOtherBoot
	case h.Lines < minLines || h.Lines > maxLines || h.Lines&(h.Lines-1) != 0:
		return h, fmt.Errorf("%w: it has %d lines", ErrDamaged, h.Lines)
	case sizeLen < layoutOf(int(h.Lines)).end:
		return h, fmt.Errorf("%w: it has %d bytes of %d", ErrDamaged, sizeLen, layoutOf(int(h.Lines)).end)
	}
	return h, nil
}

// fileLayout is where the parts of a file are.
type fileLayout struct{ touched, lines, end int64 }

func layoutOf(n int) fileLayout {
	touchedLen := int64(touchedWords(n)*8+pageLen-1) / pageLen * pageLen
	l := fileLayout{touched: headerLen, lines: headerLen + touchedLen}
	l.end = l.lines + int64(n)*lineLen
	return l
}

// appendFixed appends a struct of fixed size.
func appendFixed(b []byte, v any) []byte {
	b, err := binary.Append(b, binary.NativeEndian, v)
	if err != nil {
		panic("conntrack: encode a struct of fixed size: " + err.Error())
	}
	return b
}
