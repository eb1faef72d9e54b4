package conntrack

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"zonehop/bench/needs"
)

// shmPath is a path for a table on a tmpfs.
func shmPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "zonehop-test-")
	if err != nil {
		needs.Missing(t, "no tmpfs at /dev/shm: "+err.Error())
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "flows")
}

func openTable(t testing.TB, path string, lines int, now Tick) (*Table, Opened) {
	t.Helper()
	table, found, err := Open(path, Options{Lines: lines, Seed: 3}, now)
	if err != nil {
		t.Fatal(err)
	}
	return table, found
}

func closeTable(t testing.TB, table *Table) {
	t.Helper()
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
}

func saveSection(t testing.TB, table *Table, section string) {
	t.Helper()
	if err := table.SaveApplication([]byte(section)); err != nil {
		t.Fatal(err)
	}
}

// entriesOf reads a whole table.
func entriesOf(table *Table, now Tick) map[Key]Entry {
	out := map[Key]Entry{}
	table.All(now, func(e Entry) bool {
		out[e.Key] = e
		return true
	})
	return out
}

// fillRandom makes n entries of all states and ages.
func fillRandom(table *Table, n int, now Tick) {
	r := rand.New(rand.NewPCG(1, 2))
	w := table.NewWriter()
	defer w.Close()
	for i := range uint64(n) {
		k := flowKey(i)
		hash := k.Hash(table.Seed())
		at := now - Tick(r.IntN(300))
		w.Insert(&k, hash, MakeBackend(uint32(i%50+1), uint16(i%7)), at, 60, false)
		for range r.IntN(3) {
			if _, _, ref, ok := w.Lookup(&k, hash, at); ok {
				w.Hit(ref, at, uint32(r.IntN(1500)), r.IntN(4) == 0)
			}
		}
	}
}

func wantEntries(t *testing.T, table *Table, want map[Key]Entry, now Tick) {
	t.Helper()
	checkSound(t, table)
	got := entriesOf(table, now)
	for k, e := range want {
		if got[k] != e {
			t.Fatalf("entry %+v, want %+v", got[k], e)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
}

// TestReopen checks that a table opened again is what it was, also with
// another number of lines, and that it can be used.
func TestReopen(t *testing.T) {
	const now = 5000
	for _, lines := range []int{1 << 14, 1 << 16, 1 << 13} {
		path := shmPath(t)
		table, found := openTable(t, path, 1<<14, now)
		if found.Application != nil || found.Refused != nil || found.Entries != 0 {
			t.Fatalf("a fresh table found %+v", found)
		}
		saveSection(t, table, "first")
		saveSection(t, table, "second")
		fillRandom(table, 4000, now)
		want, before := entriesOf(table, now), table.Stats()
		closeTable(t, table)

		table, found = openTable(t, path, lines, now)
		if string(found.Application) != "second" || found.Refused != nil || found.Entries != len(want) || found.Emptied != 0 || found.Lost != 0 {
			t.Fatalf("found %+v, want %d entries", found, len(want))
		}
		if table.Lines() != lines {
			t.Fatalf("%d lines, want %d", table.Lines(), lines)
		}
		wantEntries(t, table, want, now)
		s := table.Stats()
		if s.Used != before.Used || s.Confirmed != before.Confirmed || s.Closing != before.Closing || s.Removed != 0 {
			t.Fatalf("%+v, want %+v", s, before)
		}
		fillRandom(table, 4100, now)
		checkSound(t, table)
		saveSection(t, table, "third")
		closeTable(t, table)
		if names, _ := filepath.Glob(path + "*"); len(names) != 1 {
			t.Fatalf("left %v", names)
		}
	}
}

// TestShrinkTooFar checks that what has no room is counted, and nothing else
// is lost.
func TestShrinkTooFar(t *testing.T) {
	path := shmPath(t)
	table, _ := openTable(t, path, 1<<13, 100)
	saveSection(t, table, "x")
	fillRandom(table, 3000, 100)
	n := len(entriesOf(table, 100))
	closeTable(t, table)
	table, found := openTable(t, path, 1024, 100)
	defer closeTable(t, table)
	if found.Lost == 0 || found.Entries+found.Lost != n || found.Entries < 900 {
		t.Fatalf("%d of %d entries taken over, %d lost", found.Entries, n, found.Lost)
	}
	checkSound(t, table)
}

// TestRefused damages a file in every way and checks that a fresh table
// replaces it and the reason is told.
func TestRefused(t *testing.T) {
	path := shmPath(t)
	table, _ := openTable(t, path, 1024, 0)
	saveSection(t, table, "x")
	fillRandom(table, 100, 10)
	closeTable(t, table)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := layoutOf(1024).end
	other, _ := decodeHeader(whole, int64(len(whole)), [36]byte{})
	other.BootID[5]++
	flip := func(at int) []byte {
		b := bytes.Clone(whole)
		b[at] ^= 0x10
		return b
	}
	type damage struct {
		name string
		file []byte
		want error
	}
	cases := []damage{
		{"empty", nil, ErrForeign},
		{"text", []byte("PID 1234\n"), ErrForeign},
		{"another version", flip(8), ErrForeign},
		{"another byte order", flip(12), ErrForeign},
		{"another boot", append(other.encode(), whole[len(other.encode()):]...), ErrOtherBoot},
		{"lines cut", whole[:lines-1], ErrDamaged},
		{"sections cut", whole[:lines], ErrDamaged},
		{"section changed", flip(int(lines)), ErrDamaged},
		{"slots zero", append(append(bytes.Clone(whole[:slotsAt]), make([]byte, 2*slotsAt)...), whole[3*slotsAt:]...), ErrDamaged},
	}
	for at := 16; at < 16+3*8+36+4; at++ {
		if at < 32 || at >= 40 {
			cases = append(cases, damage{"header changed", flip(at), ErrDamaged})
		}
	}
	for _, n := range []int64{1, 8, 100, headerLen, headerLen + 9} {
		want := ErrDamaged
		if n < 100 {
			want = ErrForeign
		}
		cases = append(cases, damage{"cut", whole[:n], want})
	}
	for _, c := range cases {
		if err := os.WriteFile(path, c.file, 0o600); err != nil {
			t.Fatal(err)
		}
		table, found, err := Open(path, Options{Lines: 1024, Seed: 9}, 10)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if !errors.Is(found.Refused, c.want) || found.Application != nil || !strings.Contains(found.Refused.Error(), path) {
			t.Errorf("%s: refused with %v, want %v", c.name, found.Refused, c.want)
		}
		if n := table.Stats().Used; n != 0 || table.Seed() != 9 {
			t.Errorf("%s: %d entries, seed %d in a fresh table", c.name, n, table.Seed())
		}
		closeTable(t, table)
		kept, err := os.ReadFile(path + ".refused")
		if foreign := c.want == ErrForeign; (err == nil) != foreign || foreign && !bytes.Equal(kept, c.file) {
			t.Errorf("%s: foreign file kept: %v", c.name, err)
		}
		os.Remove(path + ".refused")
	}
}

// TestSectionCrash stops storing a section after each byte: the one before or
// the new one is there.
func TestSectionCrash(t *testing.T) {
	path := shmPath(t)
	table, _ := openTable(t, path, 1024, 0)
	for _, s := range []string{"one", "two"} { // both slots have room
		saveSection(t, table, s)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	section := strings.Repeat("the third section, ", 10)
	saveSection(t, table, section)
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := table.file.current
	at := int(table.file.slots[n].Offset)
	closeTable(t, table)
	seen := map[string]int{}
	try := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		table, found := openTable(t, path, 1024, 0)
		seen[string(found.Application)]++
		if found.Refused != nil {
			t.Fatal(found.Refused)
		}
		saveSection(t, table, "next")
		closeTable(t, table)
		table, found = openTable(t, path, 1024, 0)
		if string(found.Application) != "next" {
			t.Fatalf("stored next, found %q", found.Application)
		}
		closeTable(t, table)
	}
	b := bytes.Clone(before)
	for i := range len(section) {
		b[at+i] = after[at+i]
		try(b)
	}
	for i := range int(slotsAt) {
		if i := int(slotAt(n)) + i; b[i] != after[i] {
			b[i] = after[i]
			try(b)
		}
	}
	if len(seen) != 2 || seen["two"] < len(section) || seen[section] == 0 {
		t.Errorf("found %v", seen)
	}
}

// TestSectionFails checks that a table whose section could not be stored is not
// taken over, and that the next success repairs it.
func TestSectionFails(t *testing.T) {
	dir := smallTmpfs(t, "256k")
	path := filepath.Join(dir, "flows")
	table, _ := openTable(t, path, 1024, 0)
	saveSection(t, table, "small")
	if err := table.SaveApplication(make([]byte, 1<<20)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("SaveApplication = %v, want ENOSPC", err)
	}
	closeTable(t, table)
	table, found := openTable(t, path, 1024, 0)
	if !errors.Is(found.Refused, ErrDamaged) {
		t.Fatalf("refused with %v", found.Refused)
	}
	saveSection(t, table, "small")
	table.SaveApplication(make([]byte, 1<<20))
	saveSection(t, table, "small again")
	closeTable(t, table)
	table, found = openTable(t, path, 1024, 0)
	if string(found.Application) != "small again" {
		t.Fatalf("found %+v", found)
	}
	closeTable(t, table)
}

// smallTmpfs mounts a tmpfs of its own.
func smallTmpfs(t *testing.T, size string) string {
	t.Helper()
	needs.Root(t, "mounting a tmpfs")
	dir := t.TempDir()
	if err := syscall.Mount("zonehop-test", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFullTmpfs checks that too little room is an error before anything is
// mapped, and that what was there stays.
func TestFullTmpfs(t *testing.T) {
	dir := smallTmpfs(t, "512k")
	path := filepath.Join(dir, "flows")
	_, _, err := Open(path, Options{Lines: 1 << 20}, 0)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "lower flowTable.entries") {
		t.Fatalf("Open = %v, want ENOSPC and what to do", err)
	}
	if names, _ := filepath.Glob(path + "*"); len(names) != 0 {
		t.Fatalf("left %v", names)
	}
	table, _ := openTable(t, path, 2048, 0)
	saveSection(t, table, "x")
	fillRandom(table, 100, 10)
	want := entriesOf(table, 10)
	closeTable(t, table)
	if _, _, err := Open(path, Options{Lines: 1 << 14}, 10); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "room for both") {
		t.Fatalf("Open with more lines = %v", err)
	}
	table, found := openTable(t, path, 2048, 10)
	defer closeTable(t, table)
	if found.Refused != nil {
		t.Fatal(found.Refused)
	}
	wantEntries(t, table, want, 10)
}

func TestOpenErrors(t *testing.T) {
	path := shmPath(t)
	table, _ := openTable(t, path, 1024, 0)
	saveSection(t, table, "x")
	if _, _, err := Open(path, Options{Lines: 1024}, 0); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("second Open = %v", err)
	}
	fresh, err := Create(table, Options{Lines: 2048, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(path, Options{Lines: 1024}, 0); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("Open beside Create = %v", err)
	}
	if err := Remove(path); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("Remove of an open table = %v", err)
	}
	closeTable(t, fresh)
	if err := Remove(path); err != nil {
		t.Error(err)
	}
	if err := Remove(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("second Remove = %v", err)
	}
	if err := os.WriteFile(path, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(path); !errors.Is(err, ErrForeign) {
		t.Errorf("Remove of another file = %v", err)
	}
	if _, _, err := Open(path, Options{Lines: 1024, Idle: -time.Second}, 0); err == nil {
		t.Error("a negative timeout was accepted")
	}
	disk := t.TempDir()
	var st syscall.Statfs_t
	if err := syscall.Statfs(disk, &st); err != nil {
		t.Fatal(err)
	}
	if st.Type == tmpfsMagic {
		t.Log("the temporary directory is a tmpfs: refusing others was not tried")
		return
	}
	if _, _, err := Open(filepath.Join(disk, "flows"), Options{Lines: 1024}, 0); err == nil || !strings.Contains(err.Error(), "tmpfs") {
		t.Errorf("Open on a disk = %v", err)
	}
	if names, _ := os.ReadDir(disk); len(names) != 0 {
		t.Errorf("left %v", names)
	}
}
