package conntrack

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"
)

// writeUntilKilled names the environment variable that makes the test binary a
// process that writes to the table at its value until it is killed.
const writeUntilKilled = "ZONEHOP_TEST_WRITE_TABLE"

func TestMain(m *testing.M) {
	if path := os.Getenv(writeUntilKilled); path != "" {
		fmt.Println(writeForEver(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// backendFor is the only backend that an entry of a key may have.
func backendFor(k *Key) Backend { return MakeBackend(uint32(k.Hash(77)%1000+1), 5) }

func writeForEver(path string) error {
	table, _, err := Open(path, Options{Lines: 1 << 12, HalfOpenShare: 1, Seed: 3}, 0)
	if err != nil {
		return err
	}
	if err := table.SaveApplication([]byte("x")); err != nil {
		return err
	}
	var now atomic.Uint32
	for n := range uint64(3) {
		go func() {
			w := table.NewWriter()
			for r := rand.New(rand.NewPCG(n, 2)); ; {
				k := flowKey(r.Uint64N(6000))
				hash, at := k.Hash(table.Seed()), Tick(now.Add(1)/4096)
				_, _, ref, ok := w.Lookup(&k, hash, at)
				switch {
				case !ok:
					w.Insert(&k, hash, backendFor(&k), at, 60, r.IntN(2) == 0)
				case r.IntN(3) == 0:
					w.Remove(ref)
				case r.IntN(3) == 0:
					w.Reselect(&k, hash, ref, backendFor(&k), at, 60)
				default:
					w.Hit(ref, at, 60, r.IntN(9) == 0)
				}
				if r.IntN(100) == 0 {
					w.Sweep(at, 256)
				}
			}
		}()
	}
	fmt.Println("writing")
	for n := 0; ; n++ {
		if err := table.SaveApplication(fmt.Append(nil, "section ", n)); err != nil {
			return err
		}
	}
}

// TestKilled kills a process in the middle of its writing, again and again: the
// next one finds a sound table without an entry that was never made.
func TestKilled(t *testing.T) {
	path := shmPath(t)
	entries, emptied := 0, 0
	for round := range 20 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writeUntilKilled+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(out).ReadString('\n')
		time.Sleep(time.Duration(5+rand.IntN(20)) * time.Millisecond) // anywhere in its work
		cmd.Process.Kill()
		cmd.Wait()
		if line != "writing\n" {
			t.Fatalf("the writer ended: %s", line)
		}
		lines := 1 << 12
		if round%4 == 3 {
			lines = 1 << 13
		}
		const late = 1 << 20
		table, found := openTable(t, path, lines, late)
		if found.Refused != nil || found.Application == nil {
			t.Fatalf("found %+v", found)
		}
		checkSound(t, table)
		for k, e := range entriesOf(table, 0) {
			if e.Backend != backendFor(&k) {
				t.Fatalf("entry %+v has a backend it was never given", e)
			}
			entries++
		}
		emptied += found.Emptied
		closeTable(t, table)
	}
	t.Logf("%d entries found after 20 kills, %d lines were half written", entries, emptied)
	if entries == 0 {
		t.Error("no entry was ever found")
	}
}
