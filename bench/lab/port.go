package lab

// Port is the switch's end of an interface, for measurements that send and
// count frames on the wire itself, before the bridge sees them.
type Port struct {
	Name string // in the switch's namespace
	ns   *namespace
}

// Port returns the switch's end of an interface of the node.
func (n *Node) Port(name string) (Port, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, err := n.find(name)
	if err != nil {
		return Port{}, err
	}
	return Port{Name: i.port, ns: n.sw.ns}, nil
}

// Exec runs fn inside the switch's namespace, as Node.Exec does inside a
// node's.
func (p Port) Exec(fn func() error) error { return p.ns.do(fn) }
