package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
)

// ErrPrivilege is returned by Build when the process is not root.
var ErrPrivilege = errors.New("a lab of network namespaces needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN)")

// Options of Build. The zero value builds TwoZones.
type Options struct {
	// Prefix of all namespace names; "" means zonehop- and six random hex
	// digits. It must be free on this machine.
	Prefix string
	// Queues is the number of receive and transmit queues of the appliance's
	// interfaces; 0 means 2.
	Queues int
	// Cables are network cards for the first interfaces of the appliance; the
	// others are veth. Their number of queues stays as it is.
	Cables []Cable
	// Topology to build; nil means TwoZones.
	Topology *Topology
	// Dir receives logs of processes and captures. "" means a new temporary
	// directory, which Close removes unless something asked to keep it.
	Dir string
}

// Lab is a running network. See the package comment for its lifetime.
type Lab struct {
	prefix   string
	owner    *owner
	dir      string
	ownDir   bool
	sw       *segmentSwitch
	nodes    map[string]*Node
	backends []*Backend
	clients  []*Client
	// appliance is the node under test.
	appliance *Node

	mu         sync.Mutex // guards what follows
	namespaces []*namespace
	processes  []*Process
	captures   []*Capture
	kept       bool
	closed     bool
}

// Build removes what dead labs left and builds a new one: namespaces, links,
// servers. When it returns, every address answers and the switch snoops
// multicast. On error nothing is left behind.
func Build(ctx context.Context, o Options) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, ErrPrivilege
	}
	if o.Topology == nil {
		t := TwoZones()
		o.Topology = &t
	}
	if err := o.Topology.validate(); err != nil {
		return nil, fmt.Errorf("build lab: %w", err)
	}
	if o.Queues == 0 {
		o.Queues = 2
	}
	if o.Queues < 0 || o.Queues > 64 {
		return nil, fmt.Errorf("build lab: %d queues; use 1 to 64", o.Queues)
	}
	if o.Prefix == "" {
		var id [3]byte
		rand.Read(id[:])
		o.Prefix = "zonehop-" + hex.EncodeToString(id[:])
	}
	if _, err := RemoveLeftovers(); err != nil {
		return nil, fmt.Errorf("build lab: remove leftovers: %w", err)
	}
	l := &Lab{prefix: o.Prefix, dir: o.Dir, nodes: map[string]*Node{}}
	if err := l.build(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("build lab %s: %w", l.prefix, err), l.Close())
	}
	return l, nil
}

func (l *Lab) build(ctx context.Context, o Options) error {
	var err error
	if l.owner, err = claim(l.prefix); err != nil {
		return err
	}
	if err := l.makeDir(); err != nil {
		return err
	}
	ns, err := l.namespace(switchName)
	if err != nil {
		return err
	}
	if l.sw, err = newSwitch(ns, o.Topology.Segments); err != nil {
		return err
	}
	for number, spec := range o.Topology.nodes() {
		if err := ctx.Err(); err != nil {
			return err
		}
		ns, err := l.namespace(spec.Name)
		if err != nil {
			return err
		}
		queues, cables := 1, []Cable(nil)
		if number == 0 { // the appliance
			queues, cables = o.Queues, o.Cables
		}
		node, err := newNode(l, ns, spec, number+1, queues, number == 0, cables)
		l.nodes[spec.Name] = node
		if err != nil {
			return err
		}
	}
	l.appliance = l.nodes[o.Topology.Appliance.Name]
	for _, spec := range o.Topology.Clients {
		l.clients = append(l.clients, &Client{Node: l.nodes[spec.Name]})
	}
	for _, spec := range o.Topology.Backends {
		b := newBackend(l.nodes[spec.Name], spec)
		l.backends = append(l.backends, b)
		if err := b.start(); err != nil {
			return err
		}
	}
	return l.sw.startQuerier(ctx)
}

func (l *Lab) makeDir() error {
	var err error
	if l.dir == "" {
		l.ownDir = true
		l.dir, err = os.MkdirTemp("", l.prefix+"-")
	} else {
		err = os.MkdirAll(l.dir, 0o755)
	}
	if err != nil {
		return fmt.Errorf("make directory for logs: %w", err)
	}
	return nil
}

func (l *Lab) namespace(node string) (*namespace, error) {
	ns, err := l.owner.namespace(l.prefix + "-" + node)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.namespaces = append(l.namespaces, ns)
	return ns, nil
}

// Prefix is what all namespace names of this lab start with.
func (l *Lab) Prefix() string { return l.prefix }

// Dir is where logs and captures go.
func (l *Lab) Dir() string { return l.dir }

// Appliance is the node under test. It has no servers of ours.
func (l *Lab) Appliance() *Node { return l.appliance }

// Backends lists the nodes with servers in the order of the topology. The
// slice is the lab's.
func (l *Lab) Backends() []*Backend { return l.backends }

// Clients lists the clients in the order of the topology. The slice is the
// lab's.
func (l *Lab) Clients() []*Client { return l.clients }

// Node returns any node but the switch by its name. It panics on a name that
// is not in the topology, which is a mistake in the calling code.
func (l *Lab) Node(name string) *Node {
	if n := l.nodes[name]; n != nil {
		return n
	}
	panic(fmt.Sprintf("lab: no node %q in the topology", name))
}

// Backend returns a backend by its name and panics like Node.
func (l *Lab) Backend(name string) *Backend {
	for _, b := range l.backends {
		if b.name == name {
			return b
		}
	}
	panic(fmt.Sprintf("lab: no backend %q in the topology", name))
}

// Client returns a client by its name and panics like Node.
func (l *Lab) Client(name string) *Client {
	for _, c := range l.clients {
		if c.name == name {
			return c
		}
	}
	panic(fmt.Sprintf("lab: no client %q in the topology", name))
}

// Exec runs fn on a thread inside the namespace of a node; see Node.Exec.
func (l *Lab) Exec(node string, fn func() error) error { return l.Node(node).Exec(fn) }
