package probe

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/net/http2/hpack"
)

// HTTP/2 framing for one request on one connection (RFC 9113). A probe needs
// no streams, windows or goroutines beyond that, and a client that has them
// could outlive it. The receive window is never enlarged, so a backend can
// send at most 64 KiB of body; everything else is bounded by maxH2Bytes.

// Frame types and flags, RFC 9113 section 6.
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	frameResetStream  = 0x3
	frameSettings     = 0x4
	framePushPromise  = 0x5
	framePing         = 0x6
	frameGoAway       = 0x7
	frameContinuation = 0x9

	flagAck        = 0x1 // SETTINGS, PING
	flagEndStream  = 0x1 // DATA, HEADERS
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20

	settingEnablePush = 0x2 // RFC 9113 section 6.5.2

	frameHeaderLen = 9
	maxFrameLen    = 1 << 14 // the initial SETTINGS_MAX_FRAME_SIZE, which we keep
	h2Preface      = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	maxH2Bytes     = 512 << 10 // received in all
	h2Stream       = 1         // the only stream
)

// appendFrame appends a frame with its header.
func appendFrame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// h2Request returns all bytes of a request: preface, settings, fields, body.
func h2Request(fields []hpack.HeaderField, body []byte) []byte {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range fields {
		_ = enc.WriteField(f) // writes to memory
	}
	b := append([]byte(nil), h2Preface...)
	b = appendFrame(b, frameSettings, 0, 0, []byte{0, settingEnablePush, 0, 0, 0, 0})
	if body == nil {
		return appendFrame(b, frameHeaders, flagEndHeaders|flagEndStream, h2Stream, block.Bytes())
	}
	b = appendFrame(b, frameHeaders, flagEndHeaders, h2Stream, block.Bytes())
	return appendFrame(b, frameData, flagEndStream, h2Stream, body)
}

// h2Event is the next part of the response: fields or data. With end it is the
// last.
type h2Event struct {
	fields []hpack.HeaderField // header or trailer fields; nil for data
	data   []byte              // valid until the next event
	end    bool
}

// values returns the last value of a field and how often it occurs.
func (e *h2Event) values(name string) (last string, n int) {
	for _, f := range e.fields {
		if f.Name == name {
			last, n = f.Value, n+1
		}
	}
	return last, n
}

func (e *h2Event) value(name string) string {
	v, _ := e.values(name)
	return v
}

// h2Exchange reads the response on one connection.
type h2Exchange struct {
	conn    net.Conn
	r       *bufio.Reader
	buf     []byte
	decoder *hpack.Decoder
	budget  int
}

func newH2Exchange(conn net.Conn) *h2Exchange {
	x := &h2Exchange{conn: conn, r: bufio.NewReader(conn), budget: maxH2Bytes}
	x.decoder = hpack.NewDecoder(4096, nil) // the initial SETTINGS_HEADER_TABLE_SIZE
	x.decoder.SetMaxStringLength(maxHeaderBytes)
	return x
}

// next returns the next event of the stream, after answering what the
// connection itself requires.
func (x *h2Exchange) next() (h2Event, error) {
	for {
		kind, flags, stream, payload, err := x.frame()
		if err != nil {
			return h2Event{}, err
		}
		switch kind {
		case frameData, frameHeaders:
			if stream != h2Stream {
				return h2Event{}, fmt.Errorf("frame on stream %d, which was never opened", stream)
			}
			return x.part(kind, flags, payload)
		case frameSettings:
			if flags&flagAck == 0 {
				err = x.reply(frameSettings, nil)
			}
		case framePing:
			if flags&flagAck == 0 {
				err = x.reply(framePing, payload)
			}
		case frameResetStream:
			return h2Event{}, errors.New("stream reset by the backend" + errorCode(payload, 0))
		case frameGoAway:
			if len(payload) < 8 || binary.BigEndian.Uint32(payload)&(1<<31-1) < h2Stream {
				return h2Event{}, errors.New("connection refused by the backend" + errorCode(payload, 4))
			}
		case framePushPromise, frameContinuation:
			return h2Event{}, fmt.Errorf("unexpected frame of type %d", kind)
		}
		if err != nil {
			return h2Event{}, err
		}
	}
}

// reply sends an acknowledgement.
func (x *h2Exchange) reply(kind byte, payload []byte) error {
	_, err := x.conn.Write(appendFrame(nil, kind, flagAck, 0, payload))
	return err
}

// frame reads one frame. The payload is valid until the next call.
func (x *h2Exchange) frame() (kind, flags byte, stream uint32, payload []byte, err error) {
	var head [frameHeaderLen]byte
	if _, err = io.ReadFull(x.r, head[:]); err != nil {
		return 0, 0, 0, nil, err
	}
	n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	if n > maxFrameLen {
		return 0, 0, 0, nil, fmt.Errorf("not HTTP/2, or a frame of %d bytes", n)
	}
	if x.budget -= frameHeaderLen + n; x.budget < 0 {
		return 0, 0, 0, nil, fmt.Errorf("more than %d bytes", maxH2Bytes)
	}
	if cap(x.buf) < n {
		x.buf = make([]byte, n)
	}
	payload = x.buf[:n]
	if _, err = io.ReadFull(x.r, payload); err != nil {
		return 0, 0, 0, nil, err
	}
	return head[3], head[4], binary.BigEndian.Uint32(head[5:]) & (1<<31 - 1), payload, nil
}

// part turns a DATA or HEADERS frame into an event.
func (x *h2Exchange) part(kind, flags byte, payload []byte) (h2Event, error) {
	payload, err := unpad(kind, flags, payload)
	if err != nil {
		return h2Event{}, err
	}
	e := h2Event{data: payload, end: flags&flagEndStream != 0}
	if kind == frameData {
		return e, nil
	}
	block := bytes.Clone(payload)
	for flags&flagEndHeaders == 0 {
		var stream uint32
		kind, flags, stream, payload, err = x.frame()
		if err != nil {
			return h2Event{}, err
		}
		if kind != frameContinuation || stream != h2Stream {
			return h2Event{}, errors.New("field block is interrupted")
		}
		block = append(block, payload...)
	}
	fields, err := x.decoder.DecodeFull(block)
	if err != nil {
		return h2Event{}, err
	}
	e.data, e.fields = nil, append([]hpack.HeaderField{}, fields...) // not nil: nil means data
	return e, nil
}

// unpad removes padding (RFC 9113 section 6.1) and priority (section 6.2).
func unpad(kind, flags byte, b []byte) ([]byte, error) {
	front, back := 0, 0
	if flags&flagPadded != 0 {
		if len(b) == 0 {
			return nil, io.ErrUnexpectedEOF
		}
		front, back = 1, int(b[0])
	}
	if kind == frameHeaders && flags&flagPriority != 0 {
		front += 5
	}
	if front+back > len(b) {
		return nil, errors.New("padding is longer than the frame")
	}
	return b[front : len(b)-back], nil
}

// errorCode renders the 32-bit error code at offset (RFC 9113 section 7).
func errorCode(b []byte, offset int) string {
	if len(b) < offset+4 {
		return ""
	}
	return fmt.Sprintf(" (error code %#x)", binary.BigEndian.Uint32(b[offset:]))
}
