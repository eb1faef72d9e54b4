package config

import (
	"fmt"
	"net/netip"
	"strings"

	"gopkg.in/yaml.v3"
)

// address is one unicast IP address of a machine, of either family unless only is 4 or 6.
func address(only int) kind[netip.Addr] {
	allowed := map[int]string{0: "an IPv4 or IPv6 address", 4: "an IPv4 address", 6: "an IPv6 address"}[only]
	return leaf(allowed, func(text string) (netip.Addr, error) {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil && strings.Contains(text, "/"):
			return a, fmt.Errorf("%s is a range; use %s without a length", show(text), allowed)
		case err != nil:
			return a, fmt.Errorf("%s is not an IP address; use %s", show(text), allowed)
		case a.Is4In6():
			return a, fmt.Errorf("%s is an IPv4 address in IPv6 form; write %s", text, a.Unmap())
		case a.Zone() != "":
			return a, fmt.Errorf("%s names an interface; use %s without %s", show(text), allowed, show("%"+a.Zone()))
		case only == 4 && !a.Is4(), only == 6 && !a.Is6():
			return a, fmt.Errorf("%s is of the other family; use %s", text, allowed)
		}
		if what := special(a); what != "" {
			return a, fmt.Errorf("%s is %s; use %s of one machine", text, what, allowed)
		}
		return a, nil
	}, func(v netip.Addr) *yaml.Node {
		if !v.IsValid() {
			return word("")
		}
		return word(v.String())
	}, schema{"type": "string"})
}

// special says why an address cannot be that of one machine on a network, or nothing.
func special(a netip.Addr) string {
	switch {
	case a.IsUnspecified():
		return "the unspecified address"
	case a.IsLoopback():
		return "a loopback address"
	case a.IsMulticast():
		return "a multicast address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the broadcast address"
	case a.Is4() && a.As4()[0] == 0:
		return "of this network (RFC 791)"
	case a.Is4() && a.As4()[0] >= 240:
		return "in the reserved range 240.0.0.0/4"
	}
	return ""
}

var prefix = leaf("a range such as 10.1.0.0/24", parsePrefix, func(v netip.Prefix) *yaml.Node {
	if !v.IsValid() {
		return word("")
	}
	return word(v.String())
}, schema{"type": "string"})

func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		if a, err := netip.ParseAddr(text); err == nil && !a.Is4In6() && a.Zone() == "" {
			return p, fmt.Errorf("%s has no length; write %s/%d for the one address", text, text, a.BitLen())
		}
		return p, fmt.Errorf("%s is not an address range; use an address and a length such as 10.1.0.0/24 or fd00::/64", show(text))
	}
	if a := p.Addr(); a.Is4In6() {
		if p.Bits() < 96 {
			return p, fmt.Errorf("%s is an IPv4 address in IPv6 form; write an IPv4 range such as 10.1.0.0/24", text)
		}
		return p, fmt.Errorf("%s is an IPv4 range in IPv6 form; write %s", text, netip.PrefixFrom(a.Unmap(), p.Bits()-96).Masked())
	}
	if p.Masked() != p {
		return p, fmt.Errorf("%s has bits set past its length; write %s, or %s/%d for the one address", text, p.Masked(), p.Addr(), p.Addr().BitLen())
	}
	return p, nil
}

// listen is an address and port to listen on; empty turns the listener off.
var listen = leaf("an address and port such as 127.0.0.1:9109, or \"\" for none", func(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	colon := strings.LastIndexByte(text, ':')
	port, err := parseInteger(text[colon+1:], "")
	if colon < 0 || err != nil || port < 0 || port > 65535 {
		return "", fmt.Errorf("%s has no port from 0 to 65535; use an address and port such as 127.0.0.1:9109", show(text))
	}
	if colon == 0 {
		return text, nil
	}
	if _, err := netip.ParseAddrPort(text); err != nil {
		return "", fmt.Errorf("%s is not an IP address and port; use one such as 127.0.0.1:9109, [::1]:9109 or :9109", show(text))
	}
	return text, nil
}, word, schema{"type": "string"})
