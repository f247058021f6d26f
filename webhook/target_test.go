package webhook_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/webhook"
)

func TestCheckURLAccepts(t *testing.T) {
	t.Parallel()
	g := webhook.NewGuard()
	long := "https://example.com/"
	long += strings.Repeat("a", webhook.MaxURL-len(long))
	for _, u := range []string{
		"https://example.com", "http://example.com/", "HTTPS://Example.COM:8443/hook?a=b%20c#part", "http://example.com.",
		"http://8.8.8.8/", "http://[2606:4700::1111]:80/", "http://my_service:8080/", "https://bücher.example/", "http://xn--bcher-kva.example/",
		"http://localhost.example.com/", "http://1.example", "http://example.com:/", "http://0xdead.example/", "http://dead.beef", long,
	} {
		if err := g.CheckURL(u); err != nil {
			t.Errorf("%.60s: %v", u, err)
		}
	}
}

func TestCheckURLRefusesMalformed(t *testing.T) {
	t.Parallel()
	g := webhook.NewGuard(mustPrefixes(t, "0.0.0.0/0,::/0")...) // malformed is malformed, whatever is allowed
	tooLong := "https://example.com/"
	tooLong += strings.Repeat("a", webhook.MaxURL+1-len(tooLong))
	for u, reason := range map[string]string{
		"":                             "is empty",
		tooLong:                        "2049 bytes",
		"ftp://example.com/":           "http:// or https://",
		"file:///etc/passwd":           "http:// or https://",
		"javascript:alert(1)":          "http:// or https://",
		"example.com/hook":             "http:// or https://",
		"//example.com/":               "http:// or https://",
		"http:example.com":             "no host",
		"http:///hook":                 "no host",
		"http://:80/":                  "no host",
		"http://user:pw@example.com/":  "user part",
		"http://@example.com/":         "user part",
		"http://a@b@example.com/":      "user part",
		"http://example.com:0/":        "port",
		"http://example.com:65536/":    "port",
		"http://example.com:http/":     "can't be parsed",
		"http://exa mple.com/":         "space",
		"http://example.com/a b":       "space",
		"http://example.com/?a b":      "space",
		`http://example.com\@8.8.8.8/`: "backslash",
		"http://example.com/\n":        "can't be parsed",
		"http://example.com/\x00":      "can't be parsed",
		"http://example.com/%zz":       "can't be parsed",
		"http://exam\xffple.com/":      "UTF-8",
		"http://%31%32%37.0.0.1/":      "can't be parsed",
		"http://[::1/":                 "can't be parsed",
		"http://exam!ple.com/":         "valid name",
		"http://a..b/":                 "valid name",
		"http://./":                    "valid name",
		"http://" + strings.Repeat("a", 64) + ".example/":  "valid name",
		"http://" + strings.Repeat("a.", 127) + "example/": "253 bytes",
		"http://bad\u200ejoin.example/":                    "international name",
	} {
		wantRefused(t, g, u, webhook.ErrInvalid, reason)
	}
}

func TestCheckURLRefusesAddressesInEverySpelling(t *testing.T) {
	t.Parallel()
	g := webhook.NewGuard()
	for u, reason := range map[string]string{
		"http://127.0.0.1/":              "loopback",
		"http://127.0.0.1:8080/":         "loopback",
		"https://10.0.0.1/":              "private",
		"http://169.254.169.254/latest/": "link-local",
		"http://100.64.0.1/":             "reserved",
		"http://0.0.0.0/":                "unspecified",
		"http://224.0.0.1/":              "multicast",
		"http://[::1]/":                  "loopback",
		"http://[::]/":                   "unspecified",
		"http://[fe80::1%25eth0]/":       "link-local",
		"http://[fd00:ec2::254]/":        "private",
		"http://[::ffff:127.0.0.1]/":     "IPv4 address written as IPv6",
		"http://[::ffff:7f00:1]/":        "IPv4 address written as IPv6",
		"http://[::ffff:8.8.8.8]/":       "IPv4 address written as IPv6",
		"http://[64:ff9b::7f00:1]/":      "reserved",
		"http://[2002:7f00:1::]/":        "reserved",
		"http://[::127.0.0.1]/":          "reserved",
		"http://2130706433/":             "four decimal numbers",
		"http://0x7f000001/":             "four decimal numbers",
		"http://0X7F000001/":             "four decimal numbers",
		"http://017700000001/":           "four decimal numbers",
		"http://0177.0.0.1/":             "four decimal numbers",
		"http://0x7f.0x0.0x0.0x1/":       "four decimal numbers",
		"http://127.1/":                  "four decimal numbers",
		"http://127.0.1/":                "four decimal numbers",
		"http://127.0.0.01/":             "four decimal numbers",
		"http://127.0.0.1./":             "four decimal numbers",
		"http://0/":                      "four decimal numbers",
		"http://0x/":                     "four decimal numbers",
		"http://999.999.999.999/":        "four decimal numbers",
		"http://example.1/":              "four decimal numbers",
		"http://１２７.0.0.1/":              "loopback",
		"http://127。0。0。1/":              "loopback",
		"http://①②⑦.0.0.1/":              "loopback",
		"http://localhost/":              "localhost",
		"http://LocalHost:80/":           "localhost",
		"http://localhost./":             "localhost",
		"http://a.b.localhost/":          "localhost",
		"http://ⓛocalhost/":              "localhost",
	} {
		wantRefused(t, g, u, webhook.ErrTargetForbidden, reason)
	}
}

func TestCheckURLHonoursTheAllowList(t *testing.T) {
	t.Parallel()
	g := webhook.NewGuard(mustPrefixes(t, "127.0.0.0/8,::1/128")...)
	for _, u := range []string{"http://127.0.0.1:9000/", "http://127.1.2.3/", "http://[::1]:9000/", "http://localhost:9000/", "http://x.localhost/"} {
		if err := g.CheckURL(u); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
	// Other addresses and other spellings stay refused.
	for _, u := range []string{"http://10.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://2130706433/", "http://0.0.0.0/", "http://[::]/"} {
		if err := g.CheckURL(u); !errors.Is(err, webhook.ErrTargetForbidden) {
			t.Errorf("%s: got %v, want it refused", u, err)
		}
	}
}

// TestNoSpellingOfARefusedAddressPasses draws addresses from the refused ranges
// and writes each in every way that some resolver reads.
func TestNoSpellingOfARefusedAddressPasses(t *testing.T) {
	t.Parallel()
	g := webhook.NewGuard()
	ranges := mustPrefixes(t, "127.0.0.0/8,10.0.0.0/8,169.254.0.0/16,192.168.0.0/16,100.64.0.0/10,224.0.0.0/4,0.0.0.0/8")
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(ranges).Draw(t, "range")
		base := p.Addr().As4()
		n := binary.BigEndian.Uint32(base[:]) | rapid.Uint32().Draw(t, "bits")>>p.Bits()
		a, b, c, d := n>>24, n>>16&0xff, n>>8&0xff, n&0xff
		var four [4]byte
		binary.BigEndian.PutUint32(four[:], n)
		sixteen := netip.AddrFrom4(four).As16()
		hosts := []string{
			fmt.Sprintf("%d.%d.%d.%d", a, b, c, d), fmt.Sprintf("%d", n), fmt.Sprintf("%#x", n), fmt.Sprintf("0%o", n),
			fmt.Sprintf("%#x.%#x.%#x.%#x", a, b, c, d), fmt.Sprintf("0%o.0%o.0%o.0%o", a, b, c, d),
			fmt.Sprintf("%d.%d", a, n&0xffffff), fmt.Sprintf("%d.%d.%d", a, b, n&0xffff), fmt.Sprintf("%d.%#x.0%o", a, b, n&0xffff),
			fmt.Sprintf("[%s]", netip.AddrFrom16(sixteen)), fmt.Sprintf("[::%x:%x]", n>>16, n&0xffff),
			fmt.Sprintf("[64:ff9b::%x:%x]", n>>16, n&0xffff), fmt.Sprintf("[2002:%x:%x::1]", n>>16, n&0xffff),
		}
		for _, host := range hosts {
			if err := g.CheckURL("http://" + host + "/"); !errors.Is(err, webhook.ErrTargetForbidden) {
				t.Errorf("%s: got %v, want it refused", host, err)
			}
		}
	})
}

func TestCheckURLNeverRepeatsThePassword(t *testing.T) {
	t.Parallel()
	for _, u := range []string{"http://user:hunter2@example.com/", "http://user:hunter2@exam ple.com/", "http://user:hunter2@example.com/%zz"} {
		if err := webhook.NewGuard().CheckURL(u); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", u, err)
		}
	}
}

func TestCheckMethodAndTimeout(t *testing.T) {
	t.Parallel()
	for _, m := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		if err := webhook.CheckMethod(m); err != nil {
			t.Errorf("%s: %v", m, err)
		}
	}
	for _, m := range []string{"", "post", "HEAD", "OPTIONS", "CONNECT", "TRACE", "GET "} {
		if err := webhook.CheckMethod(m); !errors.Is(err, webhook.ErrInvalid) {
			t.Errorf("%q: %v", m, err)
		}
	}
	for d, ok := range map[time.Duration]bool{1: true, webhook.MaxTimeout: true, 0: false, -1: false, webhook.MaxTimeout + 1: false} {
		if err := webhook.CheckTimeout(d); (err == nil) != ok {
			t.Errorf("%s: %v", d, err)
		}
	}
}

func wantRefused(t *testing.T, g *webhook.Guard, url string, kind error, reason string) {
	t.Helper()
	err := g.CheckURL(url)
	var field *webhook.FieldError
	if !errors.Is(err, kind) || !errors.As(err, &field) || field.Field != "url" || !strings.Contains(field.Reason, reason) {
		t.Errorf("%.80q: got %v, want %v with %q", url, err, kind, reason)
	}
}

func TestOriginIsOneForAllThatGoesToOnePlace(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://Example.com/a?b#c":     "https://example.com",
		"HTTPS://example.com:443":       "https://example.com",
		"http://example.com:0080/x":     "http://example.com",
		"http://example.com:443/":       "http://example.com:443",
		"http://example.com:8080":       "http://example.com:8080",
		"http://[2001:DB8::1]/":         "http://[2001:db8::1]",
		"http://[2001:db8::1]:8080/a/b": "http://[2001:db8::1]:8080",
		"/relative":                     "",
		"http://%zz":                    "",
	} {
		if got := webhook.Origin(url); got != want {
			t.Errorf("the origin of %s is %q, want %q", url, got, want)
		}
	}
}
