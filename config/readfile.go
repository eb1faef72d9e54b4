package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// The most bytes that files may have. Sixty thousand backends take 6 MiB.
const (
	maxConfigBytes  = 32 << 20
	maxZoneMapBytes = 256 << 20
)

// pipePatience is how long the other end of a pipe may take.
const pipePatience = 10 * time.Second

// ReadFile reads a file of at most limit bytes, which may be a pipe, such as a
// shell's <(…). It never waits for a pipe that nobody writes to, nor for one
// that is not closed within ten seconds, and a device without an end is as any
// file that is too long: a running appliance reads what it is given.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_ = f.SetReadDeadline(time.Now().Add(pipePatience)) // files on disks have none
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("read %s: nothing more comes from this pipe; give a file", path)
	case err != nil:
		return nil, err
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("read %s: it has more than %d bytes, the most that is read; give the right file", path, limit)
	}
	return data, nil
}
