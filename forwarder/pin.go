package forwarder

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// pin binds the worker's thread to a CPU, or with cpu < 0 to those it had at
// its start. It runs on the worker's thread.
func (w *Worker) pin(cpu int) error {
	if w.anyCPU == nil {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(0, &set); err != nil {
			return fmt.Errorf("worker %d: read the CPUs of its thread: %w", w.Index, err)
		}
		w.anyCPU = &set
	}
	set := *w.anyCPU
	if cpu >= 0 {
		set.Zero()
		set.Set(cpu)
	} else if !w.pinned {
		return nil
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("worker %d: pin to cpu %d: %w; use cpus: none, or a CPU that exists", w.Index, cpu, err)
	}
	w.pinned = cpu >= 0
	return nil
}
