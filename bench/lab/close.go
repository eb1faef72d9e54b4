package lab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Keep makes Close leave the namespaces, links and logs for a person, and
// writes how to use and remove them. The servers end with Close all the same:
// they live in this process.
func (l *Lab) Keep(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = true
	fmt.Fprintf(w, "The network stays. Namespaces: ip netns list | grep ^%s-\n", l.prefix)
	fmt.Fprintf(w, "  look around  ip netns exec %s-%s ip addr\n", l.prefix, l.appliance.name)
	if len(l.clients) > 0 {
		fmt.Fprintf(w, "  be a client  ip netns exec %s-%s bash\n", l.prefix, l.clients[0].name)
	}
	fmt.Fprintf(w, "  watch        ip netns exec %s-%s tcpdump -eni %s\n", l.prefix, switchName, portName(l.appliance.name, 0))
	fmt.Fprintf(w, "  logs         %s\n", l.dir)
	fmt.Fprintf(w, "  remove       for n in $(ip netns list | grep -o ^%s-[^\\ ]*); do ip netns del $n; done; rm -r %s %s\n", l.prefix, l.owner.path, l.dir)
}

// Close ends everything the lab started and removes the network, unless Keep
// was called. It returns what could not be removed. Calling it again does
// nothing.
func (l *Lab) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	processes, captures, kept := l.processes, l.captures, l.kept
	l.mu.Unlock()

	for _, p := range processes {
		p.stop()
	}
	for _, c := range captures {
		c.Stop()
	}
	for _, b := range l.backends {
		b.stop()
	}
	var problems []error
	for _, n := range l.nodes {
		if !kept {
			problems = append(problems, n.giveBack())
		}
		n.close()
	}
	if l.sw != nil {
		l.sw.close()
	}
	for _, ns := range l.namespaces {
		if kept {
			problems = append(problems, ns.file.Close())
		} else {
			problems = append(problems, ns.remove())
		}
	}
	if l.owner != nil {
		if kept {
			problems = append(problems, l.owner.keep())
		} else {
			problems = append(problems, l.owner.release())
		}
	}
	if l.ownDir && !kept && l.dir != "" {
		problems = append(problems, l.removeDir())
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("close lab %s: %w", l.prefix, err)
	}
	return nil
}

// removeDir removes the temporary directory; saved captures stay, with the
// logs beside them, for they were saved because something went wrong.
func (l *Lab) removeDir() error {
	saved, err := filepath.Glob(filepath.Join(l.dir, "*"+captureSuffix))
	if err != nil || len(saved) > 0 {
		return err
	}
	return os.RemoveAll(l.dir)
}
