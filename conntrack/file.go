package conntrack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// file is the file of a table: locked by its owner for as long as it is open.
type file struct {
	os      *os.File
	path    string
	mem     []byte // header, touched bits and lines, mapped
	slots   [2]slot
	current int   // slot of the section in force
	end     int64 // length of the file, bytes
}

// Opened says what Open found.
type Opened struct {
	// Application is the section that the file's last owner stored; nil if
	// there was no file, or it was refused.
	Application []byte
	// Refused is why the file that was there is not used: ErrForeign,
	// ErrDamaged or ErrOtherBoot, with details. nil if it is, or there was none.
	Refused error
	Entries int // taken over
	Emptied int // lines that a writer left half written, and the like
	// Of a table that had another size: how many lines, and how many entries
	// found no room in the new one.
	PreviousLines, Lost int
}

// Open makes a table in the file at path, which must be on a tmpfs, with the
// entries of the file that is there, if any. The memory of all lines is
// reserved first: if the tmpfs has less room the result is an error, not a
// fault later. A file that cannot be used is replaced by a fresh one; a foreign
// one is kept beside it, named path.refused. If the number of lines has
// changed, a new file is filled aside and then put in the place of the old one.
//
// o.Seed is for a fresh table; one that is taken over keeps its own. The
// caller must store an application section before it inserts anything.
// Errors: the file is in use by another process, is not on a tmpfs, has no
// room, or cannot be opened; an option out of range.
func Open(path string, o Options, now Tick) (*Table, Opened, error) {
	var found Opened
	n, err := o.complete()
	if err != nil {
		return nil, found, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, found, err
	}
	old, err := lockFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t, err := create(path, n, o, boot)
		if err != nil {
			return nil, found, err
		}
		return t, found, t.install()
	}
	if err != nil {
		return nil, found, err
	}
	h, err := old.readHeader(boot)
	if err == nil {
		found.Application, err = old.load()
	}
	if err != nil {
		found.Refused = fmt.Errorf("flow table %s: %w", path, err)
		t, err := old.replace(errors.Is(found.Refused, ErrForeign), n, o, boot)
		return t, found, err
	}
	o.Seed = h.Seed
	t, err := old.table(int(h.Lines), o)
	if err != nil {
		return nil, found, errors.Join(err, old.os.Close())
	}
	found.Emptied = t.Recover(now)
	if int(h.Lines) != n {
		found.PreviousLines = int(h.Lines)
		if t, found.Lost, err = t.resize(n, o, boot, found.Application); err != nil {
			return nil, found, err
		}
	}
	found.Entries = int(t.Stats().Used)
	return t, found, nil
}

// Create is Open for an owner who cannot use the application section that Open
// returned: it makes a fresh table in the place of t, and closes t.
func Create(t *Table, o Options) (*Table, error) {
	n, err := o.complete()
	if err != nil {
		return nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	next, err := create(t.file.path, n, o, boot)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return next, errors.Join(next.install(), t.Close())
}

// Remove removes the file of a table that nobody has open. Errors: ErrForeign
// if it is something else; it is in use, or not there (fs.ErrNotExist).
func Remove(path string) error {
	f, err := lockFile(path)
	if err != nil {
		return err
	}
	defer f.os.Close()
	if _, err := f.readHeader([36]byte{}); errors.Is(err, ErrForeign) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.Remove(path)
}

// lockFile opens and locks the file at path.
func lockFile(path string) (*file, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("open flow table: %w", err)
		}
		locked, err := lock(f)
		if err == nil && locked.isAt(path) {
			return locked, locked.onTmpfs()
		}
		f.Close()
		if err != nil {
			return nil, err
		}
		// The owner put another file in its place before letting go of this one.
	}
}

// lock takes the lock of an open file, until that is closed.
func lock(f *os.File) (*file, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("flow table %s is in use by another appliance; stop it, or set flowTable.path to another file", f.Name())
	}
	if err != nil {
		return nil, fmt.Errorf("lock flow table %s: %w", f.Name(), err)
	}
	return &file{os: f, path: f.Name()}, nil
}

func (f *file) isAt(path string) bool {
	mine, err := f.os.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}

// tmpfsMagic is TMPFS_MAGIC of linux/magic.h.
const tmpfsMagic = 0x01021994

// onTmpfs refuses other file systems: the kernel would write the mapped lines
// to disk, and stop workers while it does. On refusal the file is closed.
func (f *file) onTmpfs() error {
	var st syscall.Statfs_t
	err := syscall.Fstatfs(int(f.os.Fd()), &st)
	if err == nil && st.Type != tmpfsMagic {
		err = errors.New("it is not on a tmpfs, and writing it to disk would stall the workers; use a path below /dev/shm, or mount a tmpfs for it")
	}
	if err != nil {
		f.os.Close()
		return fmt.Errorf("flow table %s: %w", f.path, err)
	}
	return nil
}

func (f *file) readHeader(boot [36]byte) (fileHeader, error) {
	st, err := f.os.Stat()
	if err != nil {
		return fileHeader{}, err
	}
	f.end = st.Size()
	b := make([]byte, headerLen)
	n, _ := f.os.ReadAt(b, 0) // short: no header
	return decodeHeader(b[:n], f.end, boot)
}

// asideName is where a file is made before it takes its place.
func asideName(path string) string { return path + ".new" }

// create makes a fresh table beside path, for install to put there.
func create(path string, n int, o Options, boot [36]byte) (t *Table, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create directory of the flow table: %w", err)
	}
	aside := asideName(path)
	handle, err := os.OpenFile(aside, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create flow table: %w", err)
	}
	f, err := lock(handle)
	if err != nil {
		handle.Close()
		return nil, err
	}
	if err := f.onTmpfs(); err != nil {
		os.Remove(aside)
		return nil, err
	}
	f.path = path
	l := layoutOf(n)
	if err = handle.Truncate(0); err == nil {
		if err = reserve(handle, 0, l.end); err != nil {
			err = fmt.Errorf("reserve %d MiB for %d entries: %w; free room on that tmpfs, enlarge it (mount -o remount,size=…), or lower flowTable.entries", l.end>>20, n, err)
		}
	}
	if err == nil {
		h := fileHeader{Lines: uint64(n), Seed: o.Seed, BootID: boot}
		_, err = handle.WriteAt(h.encode(), 0)
	}
	if err == nil {
		f.end = l.end
		t, err = f.table(n, o)
	}
	if err != nil {
		os.Remove(aside)
		return nil, errors.Join(fmt.Errorf("create flow table %s: %w", path, err), handle.Close())
	}
	return t, nil
}

// reserveStep is how much is reserved at once, in bytes: a signal, such as the
// Go scheduler sends, makes the kernel give up and free the whole step.
const reserveStep = 8 << 20

// reserve gives a file memory for a range, so that writing there through a
// mapping cannot fault.
func reserve(f *os.File, offset, length int64) error {
	for length > 0 {
		step := min(length, reserveStep)
		err := syscall.Fallocate(int(f.Fd()), 0, offset, step)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		offset, length = offset+step, length-step
	}
	return nil
}

// table maps the file and makes a table of it.
func (f *file) table(n int, o Options) (*Table, error) {
	l := layoutOf(n)
	mem, err := syscall.Mmap(int(f.os.Fd()), 0, int(l.end), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of the flow table: %w", l.end, err)
	}
	f.mem = mem
	touched := wordsOf(mem[l.touched : l.touched+int64(touchedWords(n))*8])
	t, err := tableOf(mem[l.lines:l.end], touched, f.close, o)
	if err != nil {
		return nil, errors.Join(err, syscall.Munmap(mem))
	}
	t.file = f
	return t, nil
}

func (f *file) close() error { return errors.Join(syscall.Munmap(f.mem), f.os.Close()) }

// install puts the file of a table that create made in its place. On an error
// the table is closed.
func (t *Table) install() error {
	if err := os.Rename(asideName(t.file.path), t.file.path); err != nil {
		return errors.Join(fmt.Errorf("put flow table in place: %w", err), t.Close())
	}
	return nil
}

// replace makes a fresh table in the place of a refused file.
func (f *file) replace(keep bool, n int, o Options, boot [36]byte) (*Table, error) {
	defer f.os.Close()
	move := func() error { return os.Remove(f.path) } // first: its memory may be needed
	if keep {
		move = func() error { return os.Rename(f.path, f.path+".refused") }
	}
	if err := move(); err != nil {
		return nil, fmt.Errorf("put refused flow table aside: %w", err)
	}
	t, err := create(f.path, n, o, boot)
	if err != nil {
		return nil, err
	}
	return t, t.install()
}
