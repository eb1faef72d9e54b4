package packet

import (
	"net/netip"
	"testing"
)

func TestMartian(t *testing.T) {
	for addr, want := range map[string]bool{
		"0.0.0.0": true, "0.1.2.3": true, "127.0.0.1": true, "169.254.1.1": true, "224.0.0.1": true, "255.255.255.255": true,
		"10.0.0.1": false, "192.168.1.1": false, "223.255.255.255": false, "169.253.1.1": false, "128.0.0.1": false,
		"::": true, "::1": true, "fe80::1": true, "febf::1": true, "ff02::1": true,
		"2001:db8::1": false, "fd00::1": false, "fec0::1": false, "::2": false,
	} {
		if got := Martian(Addr(netip.MustParseAddr(addr))); got != want {
			t.Errorf("Martian(%s) = %v, want %v", addr, got, want)
		}
	}
}
