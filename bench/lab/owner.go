package lab

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ownerDir holds one record per lab. The process that built a lab holds an
// exclusive lock on its record; the kernel drops the lock when the process
// ends, however it ends, so a record that can be locked has no owner.
const ownerDir = "/run/zonehop-lab"

const recordSuffix = ".jsonl"

// entry is one line of a record. Lines are only ever appended, so a crash can
// tear no more than the last one.
type entry struct {
	PID     int    `json:"pid,omitempty"`
	Started string `json:"started,omitempty"`
	// Namespace is written before the namespace is made, and again with its
	// inode afterwards.
	Namespace string `json:"namespace,omitempty"`
	Inode     uint64 `json:"inode,omitempty"`
	// Kept: the owner asked that nobody cleans up.
	Kept bool `json:"kept,omitempty"`
}

// owner is the claim of this process on a prefix of namespace names.
type owner struct {
	file *os.File
	path string
}

// claim takes a prefix. It fails if any process, living or dead, has a record
// of it.
func claim(prefix string) (*owner, error) {
	unlock, err := lockOwners()
	if err != nil {
		return nil, err
	}
	defer unlock()
	path := filepath.Join(ownerDir, prefix+recordSuffix)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR|os.O_APPEND, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("claim prefix %s: another lab has it (%s)", prefix, path)
	}
	if err != nil {
		return nil, fmt.Errorf("claim prefix %s: %w", prefix, err)
	}
	o := &owner{file: file, path: path}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		o.release()
		return nil, fmt.Errorf("claim prefix %s: lock %s: %w", prefix, path, err)
	}
	if err := o.record(entry{PID: os.Getpid(), Started: time.Now().Format(time.RFC3339)}); err != nil {
		o.release()
		return nil, err
	}
	return o, nil
}

func (o *owner) record(e entry) error {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = o.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("record in %s: %w", o.path, err)
	}
	return nil
}

// namespace makes a namespace and records it as this owner's.
func (o *owner) namespace(name string) (*namespace, error) {
	if _, err := os.Lstat(filepath.Join(netnsDir, name)); err == nil {
		return nil, fmt.Errorf("namespace %s exists and is not ours", name)
	}
	if err := o.record(entry{Namespace: name}); err != nil {
		return nil, err
	}
	ns, err := newNamespace(name)
	if err != nil {
		return nil, err
	}
	if err := o.record(entry{Namespace: name, Inode: ns.ino}); err != nil {
		return nil, errors.Join(err, ns.remove())
	}
	return ns, nil
}

// release gives the claim up: everything it names is gone.
func (o *owner) release() error {
	return errors.Join(os.Remove(o.path), o.file.Close())
}

// keep leaves the record and what it names in place after this process.
func (o *owner) keep() error {
	return errors.Join(o.record(entry{Kept: true}), o.file.Close())
}

// RemoveLeftovers removes the namespaces of labs whose owner died without
// Close, and returns their names. Labs of living owners, labs that were kept
// and namespaces that no record lists are not touched. Build calls it.
func RemoveLeftovers() (removed []string, err error) {
	unlock, err := lockOwners()
	if err != nil {
		return nil, err
	}
	defer unlock()
	paths, err := filepath.Glob(filepath.Join(ownerDir, "*"+recordSuffix))
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, path := range paths {
		names, err := removeIfDead(path, false)
		removed = append(removed, names...)
		problems = append(problems, err)
	}
	return removed, errors.Join(problems...)
}

// Remove removes a lab that was kept, or whose owner is dead, by its prefix.
func Remove(prefix string) error {
	unlock, err := lockOwners()
	if err != nil {
		return err
	}
	defer unlock()
	path := filepath.Join(ownerDir, prefix+recordSuffix)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("remove lab %s: %w", prefix, err)
	}
	names, err := removeIfDead(path, true)
	if err == nil && names == nil {
		return fmt.Errorf("remove lab %s: its owner is alive", prefix)
	}
	return err
}

// removeIfDead removes what a record names and the record. A nil list means
// that it was left alone.
func removeIfDead(path string, evenKept bool) ([]string, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) { // its owner has just given it up
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	defer file.Close()
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil || st.Nlink == 0 {
		return nil, err // without a link: given up between the opening and the lock
	}
	inodes, kept, err := readRecord(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if kept && !evenKept {
		return nil, nil
	}
	names := []string{}
	for name, inode := range inodes {
		// A name with another inode was taken over by somebody else. Without
		// an inode the owner died between making and recording.
		if ns, err := openNamespace(name); err == nil {
			ns.file.Close()
			if inode != 0 && ns.ino != inode {
				continue
			}
		}
		if err := removeName(name); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, os.Remove(path)
}

func readRecord(file *os.File) (inodes map[string]uint64, kept bool, err error) {
	inodes = map[string]uint64{}
	for lines := bufio.NewScanner(file); ; {
		if !lines.Scan() {
			return inodes, kept, lines.Err()
		}
		var e entry
		if json.Unmarshal(bytes.TrimSpace(lines.Bytes()), &e) != nil {
			continue // torn by a crash
		}
		if e.Namespace != "" && !strings.ContainsRune(e.Namespace, '/') {
			inodes[e.Namespace] = e.Inode
		}
		kept = kept || e.Kept
	}
}

// lockOwners serialises claims and clean-ups of all processes, so that a
// record is never looked at between its creation and its lock.
func lockOwners() (unlock func(), err error) {
	if err := os.MkdirAll(ownerDir, 0o755); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", ownerDir, err)
	}
	file, err := os.OpenFile(filepath.Join(ownerDir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", ownerDir, err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", ownerDir, err)
	}
	return func() { file.Close() }, nil
}
