package webhook

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
)

// azureWire is where Azure's metadata and host agent answer: the one such
// service that sits in public space.
var azureWire = netip.MustParsePrefix("168.63.129.16/32")

// Guard decides which addresses may be dialled. It never changes and is safe
// for concurrent use.
type Guard struct{ guardian *ssrf.Guardian }

// NewGuard refuses every special range except what allow names, as
// [ParsePrefixes] gives it. Any port is fine: what listens beside a web server
// on a public address is public.
func NewGuard(allow ...netip.Prefix) *Guard {
	var v4, v6 []netip.Prefix
	for _, p := range allow {
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	return &Guard{ssrf.New(
		ssrf.WithAnyPort(),
		ssrf.WithAllowedV4Prefixes(v4...),
		ssrf.WithAllowedV6Prefixes(v6...),
		ssrf.WithDeniedV4Prefixes(azureWire),
	)}
}

// ParsePrefixes reads a flag such as "127.0.0.0/8,::1/128": prefixes or single
// addresses, separated by commas. The empty string is no prefix. The error
// names the part that is wrong and how to write it.
func ParsePrefixes(list string) ([]netip.Prefix, error) {
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	var prefixes []netip.Prefix
	for part := range strings.SplitSeq(list, ",") {
		p, err := parsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, fmt.Errorf("empty prefix between commas")
	}
	p, err := netip.ParsePrefix(text)
	if addr, single := netip.ParseAddr(text); single == nil && addr.Zone() == "" {
		p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch {
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("%q is not an address range: write it like 10.0.0.0/8 or fd00::/8", text)
	case p.Addr().Is4In6():
		// Such an address is dialled as IPv4: the prefix would never match.
		return netip.Prefix{}, fmt.Errorf("%q is an IPv4 range written as IPv6: write it as IPv4", text)
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("%q has bits set after its length: write %s, or %s/%d for the one address",
			text, p.Masked(), p.Addr(), p.Addr().BitLen())
	}
	return p, nil
}

// Control is a [net.Dialer]'s Control: it refuses, with [ErrTargetForbidden],
// a connection that is about to be made. The address is the one that the system
// will connect to, so nothing can change between the check and the use.
func (g *Guard) Control(network, address string, conn syscall.RawConn) error {
	if g.guardian.Safe(network, address, conn) == nil {
		return nil
	}
	kind := "refused"
	if ap, err := netip.ParseAddrPort(address); err == nil {
		kind = rangeName(ap.Addr())
	}
	// The address itself stays out: it would let a tenant read internal DNS.
	return forbidden("has a host that resolves to a " + kind + " address")
}

func (g *Guard) allows(addr netip.Addr) bool { return g.guardian.SafeAddr(addr) == nil }

// rangeName tells a person what kind of address was refused.
func rangeName(addr netip.Addr) string {
	switch plain := addr.Unmap(); {
	case plain.IsLoopback():
		return "loopback"
	case plain.IsPrivate():
		return "private"
	case plain.IsLinkLocalUnicast():
		return "link-local"
	case plain.IsMulticast():
		return "multicast"
	case plain.IsUnspecified():
		return "unspecified"
	}
	return "reserved"
}
