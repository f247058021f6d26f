package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

const (
	// MaxURL is the longest URL, in bytes.
	MaxURL = 2048
	// DefaultTimeout is an attempt's deadline where none is given.
	DefaultTimeout = 10 * time.Second
	// MaxTimeout is the longest deadline of an attempt.
	MaxTimeout = 15 * time.Minute

	maxHost  = 253 // bytes of a name in DNS
	maxLabel = 63
)

// Methods are the methods that a delivery may use.
var Methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// CheckMethod fails with a [FieldError] unless method is one of [Methods], in
// capitals.
func CheckMethod(method string) error {
	if !slices.Contains(Methods, method) {
		return invalid("method", "must be one of "+strings.Join(Methods, ", "))
	}
	return nil
}

// CheckTimeout fails with a [FieldError] unless d is above zero and at most
// [MaxTimeout].
func CheckTimeout(d time.Duration) error {
	if d <= 0 || d > MaxTimeout {
		return invalid("timeout", "must be above 0s and at most 15m")
	}
	return nil
}

// CheckURL refuses, with a [FieldError], what can be seen to be wrong with a
// target without asking DNS: a URL that isn't http or https, has a user part or
// no host, is over [MaxURL] bytes ([ErrInvalid]), or whose host is an address
// that the guard refuses, an address in a spelling that only some resolvers
// read, or localhost ([ErrTargetForbidden]). A fragment is fine; it isn't sent.
// A URL that passes can still be refused when it is dialled.
func (g *Guard) CheckURL(raw string) error {
	_, err := g.parse(raw)
	return err
}

// Origin is what answers at a URL that [Guard.CheckURL] takes, in small letters: its scheme, its host, and its port unless that is
// the scheme's own. It is empty for what can't be read.
func Origin(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return ""
	}
	host := u.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := strings.TrimLeft(u.Port(), "0"); port != "" && port != map[string]string{"http": "80", "https": "443"}[u.Scheme] {
		host += ":" + port
	}
	return strings.ToLower(u.Scheme + "://" + host)
}

func (g *Guard) parse(raw string) (*url.URL, error) {
	switch {
	case raw == "":
		return nil, invalid("url", "is empty")
	case len(raw) > MaxURL:
		return nil, invalid("url", fmt.Sprintf("has %d bytes, at most %d are allowed", len(raw), MaxURL))
	case !utf8.ValidString(raw):
		return nil, invalid("url", "isn't valid UTF-8")
	case strings.ContainsAny(raw, " \\"):
		// A space would split the request line; a backslash is read as a slash
		// by some parsers, which then see another host.
		return nil, invalid("url", "has a space or a backslash: percent-encode it")
	}
	u, err := url.Parse(raw)
	if err != nil {
		// url.Error repeats the URL, and with it a password.
		reason := "can't be parsed"
		if parse := (*url.Error)(nil); errors.As(err, &parse) {
			reason += ": " + clean(parse.Err.Error(), maxErrorText)
		}
		return nil, invalid("url", reason)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, invalid("url", "must begin with http:// or https://")
	case u.User != nil:
		return nil, invalid("url", "has a user part: send credentials in a header")
	case u.Hostname() == "":
		return nil, invalid("url", "has no host")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, invalid("url", "has a port that isn't 1 to 65535")
		}
	}
	if strings.HasPrefix(u.Host, "[") {
		return u, g.checkIPv6(u.Hostname())
	}
	return u, g.checkHost(u.Hostname())
}

func (g *Guard) checkIPv6(host string) error {
	addr, err := netip.ParseAddr(host)
	switch {
	case err != nil || addr.Is4():
		return invalid("url", "has a host in brackets that isn't an IPv6 address")
	case addr.Is4In6():
		// It would be dialled as IPv4; only one spelling of an address is taken.
		return forbidden("has an IPv4 address written as IPv6")
	case !g.allows(addr):
		return forbidden("has a " + rangeName(addr) + " address as its host")
	}
	return nil
}

func (g *Guard) checkHost(host string) error {
	// The transport does the same: digits and dots from other scripts become
	// ASCII, and so may turn into an address.
	if !isASCII(host) {
		ascii, err := idna.Lookup.ToASCII(host)
		if err != nil {
			return invalid("url", "has a host that isn't a valid international name")
		}
		host = ascii
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if !g.allows(addr) {
			return forbidden("has a " + rangeName(addr) + " address as its host")
		}
		return nil
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if len(name) > maxHost {
		return invalid("url", fmt.Sprintf("has a host of over %d bytes", maxHost))
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > maxLabel || strings.IndexFunc(label, notHost) >= 0 {
			return invalid("url", "has a host that isn't a valid name")
		}
	}
	last := labels[len(labels)-1]
	switch {
	case isNumber(last):
		// 2130706433, 0x7f.1, 0177.0.0.1, 127.1: the system's resolver reads
		// these as addresses, DNS has no such names.
		return forbidden("has an address as its host that isn't four decimal numbers without leading zeros")
	case last == "localhost" && !g.allows(loopback4) && !g.allows(loopback6):
		return forbidden("has localhost as its host")
	}
	return nil
}

var (
	loopback4 = netip.MustParseAddr("127.0.0.1")
	loopback6 = netip.MustParseAddr("::1")
)

// notHost lets the underscore pass: container networks use it in names.
func notHost(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_')
}

// isNumber tells whether a host that ends in this label is read as an IPv4
// address: decimal, octal or hexadecimal.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
