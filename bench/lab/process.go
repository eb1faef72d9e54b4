package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopTime is how long a process has between SIGTERM and SIGKILL in Close.
const stopTime = 10 * time.Second

// Process is a real process inside a node. The kernel kills it when the lab's
// process dies.
type Process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error // of Wait; valid once done is closed
}

// Command starts a program inside a node, as `ip netns exec` would: with the
// node's network and its own view of /sys. Its output goes to a log file.
func (l *Lab) Command(node, name string, args ...string) (*Process, error) {
	return l.Start(node, exec.Command(name, args...))
}

// Start starts a prepared command inside a node. Stdout and Stderr, where not
// set, go to a log file; SysProcAttr is the lab's. Close of the lab ends it.
func (l *Lab) Start(node string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errors.New("start process: the lab is closed")
	}
	p.log = filepath.Join(l.dir, fmt.Sprintf("%s-%s-%d.log", node, filepath.Base(cmd.Path), len(l.processes)))
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	defer log.Close() // the child has its own
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	if cmd.Stderr == nil {
		cmd.Stderr = log
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go p.run(l.Node(node).ns, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", cmd.Path, node, err)
	}
	l.processes = append(l.processes, p)
	return p, nil
}

// run starts the command on a thread that is inside the namespace, with a
// mount namespace of its own whose /sys shows that network, and waits for it
// there: the death signal is sent when the thread that started it ends, and
// this one, being never unlocked, ends with the goroutine.
func (p *Process) run(ns *namespace, started chan<- error) {
	runtime.LockOSThread()
	if err := isolate(ns); err != nil {
		started <- err
		return
	}
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	p.err = p.cmd.Wait()
	close(p.done)
}

func isolate(ns *namespace) error {
	if err := unix.Setns(int(ns.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", ns.name, err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("create mount namespace: %w", err)
	}
	// Changes go no further than here; those of the host still come in, so
	// that the names of removed namespaces do not live on in the child.
	if err := unix.Mount("", "/", "none", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("separate mounts: %w", err)
	}
	if err := unix.Mount(ns.name, "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	return nil
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Log is the path of the log file.
func (p *Process) Log() string { return p.log }

// Output is what is in the log so far.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Signal sends a signal. A process that has ended is an error.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill kills the process (SIGKILL) and waits for its end.
func (p *Process) Kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the process, or of ctx, and returns the exit
// status, or minus the number of the signal that killed it.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for %s: %w", p.cmd.Path, ctx.Err())
	}
	if p.cmd.ProcessState == nil {
		return 0, p.err
	}
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return -int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

// WaitLog waits until the log contains a text. It fails with the log if the
// process ends first or the time is over.
func (p *Process) WaitLog(ctx context.Context, text string, within time.Duration) error {
	err := Wait(ctx, fmt.Sprintf("%q in the log", text), within, func() (bool, error) {
		if strings.Contains(p.Output(), text) {
			return true, nil
		}
		select {
		case <-p.done:
			return false, errors.New("the process has ended")
		default:
			return false, nil
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", p.cmd.Path, err, p.Output())
	}
	return nil
}

// stop ends the process, politely first.
func (p *Process) stop() {
	if p.Signal(syscall.SIGTERM) == nil {
		select {
		case <-p.done:
			return
		case <-time.After(stopTime):
		}
	}
	p.Kill() // an error means that it has ended
}

// Run runs a program inside a node to its end and returns its output and exit
// status. err is set only if it could not be run or ctx ended; then the
// process has been killed.
func (l *Lab) Run(ctx context.Context, node, name string, args ...string) (stdout, stderr string, status int, err error) {
	var out, problems bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	p, err := l.Start(node, cmd)
	if err != nil {
		return "", "", 0, err
	}
	status, err = p.Wait(ctx)
	if err != nil {
		p.Kill()
	}
	return out.String(), problems.String(), status, err
}
