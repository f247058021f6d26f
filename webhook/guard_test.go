package webhook_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"holdfast/webhook"
)

func mustPrefixes(t testing.TB, list string) []netip.Prefix {
	t.Helper()
	p, err := webhook.ParsePrefixes(list)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func dial(g *webhook.Guard, addr string) error {
	ap := netip.AddrPortFrom(netip.MustParseAddr(addr), 5432)
	network := "tcp4"
	if ap.Addr().Is6() {
		network = "tcp6"
	}
	return g.Control(network, ap.String(), nil)
}

func TestGuardRefusesSpecialAddresses(t *testing.T) {
	t.Parallel()
	g := webhook.NewGuard()
	for addr, kind := range map[string]string{
		"127.0.0.1": "loopback", "127.255.255.254": "loopback", "::1": "loopback",
		"10.0.0.1": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.1.1": "private",
		"fd00::1": "private", "fd00:ec2::254": "private",
		"169.254.169.254": "link-local", "169.254.170.2": "link-local", "fe80::1": "link-local", "fe80::1%lo": "link-local",
		"0.0.0.0": "unspecified", "::": "unspecified",
		"224.0.0.1": "multicast", "239.1.2.3": "multicast", "ff02::1": "multicast", "ff0e::1": "multicast",
		"0.1.2.3": "reserved", "100.64.0.1": "reserved", "100.100.100.200": "reserved", "168.63.129.16": "reserved",
		"192.0.0.192": "reserved", "192.0.2.1": "reserved", "198.18.0.1": "reserved", "240.0.0.1": "reserved",
		"255.255.255.255": "reserved", "2001:db8::1": "reserved", "fec0::1": "reserved", "100::1": "reserved",
		"::ffff:127.0.0.1": "loopback", "::ffff:10.0.0.1": "private", "::ffff:8.8.8.8": "reserved", // mapped
		"::127.0.0.1": "reserved", "::ffff:0:127.0.0.1": "reserved", // compatible, translated
		"64:ff9b::7f00:1": "reserved", "64:ff9b::808:808": "reserved", "64:ff9b:1::7f00:1": "reserved", // NAT64
		"2002:7f00:1::1": "reserved", "2002:808:808::1": "reserved", // 6to4
		"2001:0:7f00:1::1": "reserved", // Teredo
	} {
		err := dial(g, addr)
		if !errors.Is(err, webhook.ErrTargetForbidden) {
			t.Errorf("%s: got %v, want it refused", addr, err)
			continue
		}
		if !strings.Contains(err.Error(), kind) || strings.Contains(err.Error(), addr) {
			t.Errorf("%s: %q should say %s and not the address", addr, err, kind)
		}
	}
	for _, addr := range []string{"8.8.8.8", "93.184.215.14", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450:4001::1"} {
		if err := dial(g, addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

func TestGuardRefusesWhatIsNotTCP(t *testing.T) {
	t.Parallel()
	g := webhook.NewGuard()
	for network, address := range map[string]string{"udp4": "8.8.8.8:53", "unix": "/run/x.sock", "tcp4": "no address"} {
		if err := g.Control(network, address, nil); !errors.Is(err, webhook.ErrTargetForbidden) {
			t.Errorf("%s %s: %v", network, address, err)
		}
	}
}

func TestGuardAllowsOnlyWhatIsNamed(t *testing.T) {
	t.Parallel()
	g := webhook.NewGuard(mustPrefixes(t, "127.0.0.0/8, ::1/128, 10.1.2.3, 64:ff9b::/96")...)
	for _, addr := range []string{"127.0.0.1", "127.9.9.9", "::1", "10.1.2.3", "64:ff9b::808:808", "8.8.8.8"} {
		if err := dial(g, addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{"10.1.2.4", "::2", "::", "0.0.0.0", "fe80::1", "::1%lo"} {
		if err := dial(g, addr); !errors.Is(err, webhook.ErrTargetForbidden) {
			t.Errorf("%s: got %v, want it refused", addr, err)
		}
	}
}

func TestParsePrefixes(t *testing.T) {
	t.Parallel()
	for _, empty := range []string{"", "  "} {
		if p := mustPrefixes(t, empty); len(p) != 0 {
			t.Errorf("%q gave %v", empty, p)
		}
	}
	for list, reason := range map[string]string{
		"127.0.0.0/8,":            "empty prefix",
		",":                       "empty prefix",
		"localhost":               `"localhost" is not an address range`,
		"10.0.0.0/33":             `"10.0.0.0/33" is not an address range`,
		"10.0.0/8":                `"10.0.0/8" is not an address range`,
		"fe80::1%eth0":            "is not an address range",
		"fe80::1%eth0/64":         "is not an address range",
		"::1/128;127.0.0.0/8":     "is not an address range",
		"127.0.0.1/8":             "write 127.0.0.0/8, or 127.0.0.1/32",
		"fd00::1/8":               "write fd00::/8, or fd00::1/128",
		"::ffff:127.0.0.0/104":    "write it as IPv4",
		"::1/128, ::ffff:1.2.3.4": "write it as IPv4",
	} {
		p, err := webhook.ParsePrefixes(list)
		if err == nil || p != nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: got %v and %v, want %q", list, p, err, reason)
		}
	}
}
