package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"zonehop/config"
	"zonehop/forwarder/xsk"
)

// hostCheck holds a configuration against the network of this host.
type hostCheck struct {
	config   *config.Config
	links    map[int]string // names of the listed interfaces that exist, by index
	own      map[netip.Addr]netlink.Addr
	findings []string
}

// checkLive reports what on this host would keep the configuration from working, each with its remedy.
// It reads the kernel's tables and changes nothing.
func checkLive(c *config.Config) []string {
	h := &hostCheck{config: c, links: make(map[int]string)}
	h.listAddresses()
	for _, i := range c.Interfaces {
		h.checkInterface(i)
		h.checkCPUs(i)
	}
	h.checkOwnAddresses()
	h.checkListener("health.listen", c.Health.Listen)
	h.checkListener("admin.metricsListen", c.Admin.MetricsListen)
	h.checkBackends()
	h.checkFiles()
	return h.findings
}

func (h *hostCheck) find(format string, args ...any) {
	h.findings = append(h.findings, fmt.Sprintf(format, args...))
}

func (h *hostCheck) checkInterface(i config.Interface) {
	link, err := netlink.LinkByName(i.Name)
	if err != nil {
		h.find("interface %s: %v; correct its name in interfaces (ip link lists them)", i.Name, err)
		return
	}
	a := link.Attrs()
	h.links[a.Index] = a.Name
	if a.Flags&net.FlagUp == 0 {
		h.find("interface %s is down; ip link set %s up", i.Name, i.Name)
	}
	frame := h.config.Tuning.FrameSize
	if most := xsk.MaxMTU(frame); a.MTU > most {
		remedy := fmt.Sprintf("ip link set %s mtu %d", i.Name, most)
		if larger := 2 * frame; larger <= 4096 && a.MTU <= xsk.MaxMTU(larger) {
			remedy += fmt.Sprintf(", or use tuning.frameSize: %d", larger)
		}
		h.find("interface %s has an MTU of %d, more than the %d that tuning.frameSize %d has room for; %s", i.Name, a.MTU, most, frame, remedy)
	}
	for _, q := range i.Queues {
		if a.NumRxQueues > 0 && q >= a.NumRxQueues {
			h.find("interface %s has no queue %d, only 0 to %d; correct queues, or raise their number with ethtool -L %s",
				i.Name, q, a.NumRxQueues-1, i.Name)
		}
	}
}

// checkCPUs reports processors that workers cannot be put on.
func (h *hostCheck) checkCPUs(i config.Interface) {
	var usable unix.CPUSet
	if err := unix.SchedGetaffinity(0, &usable); err != nil {
		h.find("list processors: %v", err)
		return
	}
	for _, cpu := range i.CPUs.List {
		if !usable.IsSet(cpu) {
			h.find("interface %s: cpus: CPU %d does not exist here, or is not allowed; nproc and taskset -p $$ show which are", i.Name, cpu)
		}
	}
}

func (h *hostCheck) listAddresses() {
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		h.find("list addresses: %v; run it where netlink is allowed", err)
		return
	}
	h.own = make(map[netip.Addr]netlink.Addr, len(addresses))
	for _, a := range addresses {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			h.own[ip.Unmap()] = a
		}
	}
}

// checkListener reports an address to listen on that this host does not have.
func (h *hostCheck) checkListener(key, listen string) {
	at, err := netip.ParseAddrPort(listen)
	if err != nil || h.own == nil { // none, or ":PORT" for all addresses
		return
	}
	a := at.Addr().Unmap().WithZone("")
	if _, have := h.own[a]; !have && !a.IsUnspecified() && !a.IsLoopback() {
		h.find("%s: %s is not an address of this host; use one that ip address shows, or :%d for all", key, a, at.Port())
	}
}

// checkOwnAddresses reports addresses that both this host and the appliance would answer for: the host
// would then reset connections, or serve its own services there, whenever the appliance is not running.
func (h *hostCheck) checkOwnAddresses() {
	said := make(map[netip.Addr]bool)
	claim := func(a netip.Addr, what string) {
		if on, taken := h.own[a]; taken && !said[a] {
			said[a] = true
			name := "its interface"
			if link, err := netlink.LinkByIndex(on.LinkIndex); err == nil {
				name = link.Attrs().Name
			}
			h.find("%s %s is an address of this host on %s, but the appliance answers for it itself; ip address delete %s dev %s", what, a, name, on.IPNet, name)
		}
	}
	for _, r := range h.config.ForwardingRules {
		claim(r.IPAddress, "forwarding rule "+r.Name+":")
	}
	for _, r := range h.config.Routes {
		claim(r.NextHopAddress, "route "+r.Name+": nextHopAddress")
	}
}

// checkBackends reports backends that layer 2 cannot reach: the kernel's route to them must be on-link
// through a listed interface.
func (h *hostCheck) checkBackends() {
	seen := make(map[netip.Addr]bool)
	for _, s := range h.config.BackendServices {
		for i := range s.Backends {
			for _, a := range s.Backends[i].Addresses() {
				if seen[a] {
					continue
				}
				seen[a] = true
				h.checkBackend(s.Backends[i].Name, a)
			}
		}
	}
}

func (h *hostCheck) checkBackend(name string, a netip.Addr) {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 {
		h.find("backend %s: no route to %s (%v); give the interface on its segment an address or a route", name, a, err)
		return
	}
	r := routes[0]
	_, listed := h.links[r.LinkIndex]
	switch {
	case r.Type == unix.RTN_LOCAL:
		h.find("backend %s: %s is an address of this host; a backend has to be another machine", name, a)
	case r.Type == unix.RTN_UNREACHABLE, r.Type == unix.RTN_BLACKHOLE, r.Type == unix.RTN_PROHIBIT:
		h.find("backend %s: the route to %s rejects packets; remove it (ip route get %s shows it)", name, a, a)
	case r.Gw != nil || r.Via != nil:
		h.find("backend %s: %s is behind the gateway %s, where layer 2 cannot deliver; connect the appliance to the backend's segment", name, a, gateway(r))
	case !listed:
		through := fmt.Sprintf("interface %d", r.LinkIndex)
		if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil {
			through = link.Attrs().Name
		}
		h.find("backend %s: %s is reached through %s, which interfaces does not list; add it, or correct the route", name, a, through)
	}
}

func gateway(r netlink.Route) string {
	if r.Gw != nil {
		return r.Gw.String()
	}
	return r.Via.String()
}

// checkFiles reports files that the configuration names and this host lacks.
func (h *hostCheck) checkFiles() {
	if h.config.ZoneMapFile != "" {
		if _, err := os.Stat(h.config.ZoneMapFile); err != nil {
			h.find("zoneMapFile: %v; create it or remove the key", err)
		}
	}
	if path := h.config.FlowTable.Path; path != "" {
		var fs unix.Statfs_t
		switch err := unix.Statfs(filepath.Dir(path), &fs); {
		case err != nil:
			h.find("flowTable.path: %s: %v; create the directory on a tmpfs", filepath.Dir(path), err)
		case fs.Type != unix.TMPFS_MAGIC:
			h.find("flowTable.path: %s is not on a tmpfs; use a path below /run or /dev/shm, or mount one", path)
		}
	}
	if h.config.HashKeyFile != "" {
		switch key, err := config.ReadFile(h.config.HashKeyFile, 64<<10); {
		case err != nil:
			h.find("hashKeyFile: %v; create it or use hashKey", err)
		case strings.TrimSpace(string(key)) == "":
			h.find("hashKeyFile: %s is empty; write the key into it", h.config.HashKeyFile)
		}
	}
}
