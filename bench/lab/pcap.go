package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

const captureSuffix = ".pcap"

// SaveCaptures writes every capture made so far into Dir and returns the
// paths, for a test that failed. Close then leaves Dir in place.
func (l *Lab) SaveCaptures() ([]string, error) {
	l.mu.Lock()
	captures := l.captures
	l.mu.Unlock()
	var paths []string
	for number, c := range captures {
		path := filepath.Join(l.dir, fmt.Sprintf("%d-%s%s", number, c.name, captureSuffix))
		if err := c.WriteFile(path); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// WriteFile writes the frames as a pcap file that tcpdump and Wireshark read.
func (c *Capture) WriteFile(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write capture: %w", err)
	}
	w := pcapgo.NewWriterNanos(file)
	err = w.WriteFileHeader(1<<16, layers.LinkTypeEthernet)
	for _, f := range c.Frames() {
		if err != nil {
			break
		}
		err = w.WritePacket(gopacket.CaptureInfo{Timestamp: f.Time, CaptureLength: len(f.Data), Length: len(f.Data)}, f.Data)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write capture %s: %w", path, err)
	}
	return nil
}
