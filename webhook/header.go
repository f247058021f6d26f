package webhook

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

const (
	maxHeaders     = 50
	maxHeaderBytes = 16 << 10 // names and values; many servers take little more
)

// ownPrefixes are the header families that only the sender sets: a receiver
// trusts them to be ours.
var ownPrefixes = []string{"webhook-", "chronos-"}

// transportHeaders frame the message or belong to one connection (RFC 9110,
// 7.6.1): setting them would change what is sent, not describe it.
var transportHeaders = []string{
	"connection", "content-length", "host", "keep-alive", "proxy-authenticate", "proxy-authorization",
	"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

// CheckHeaders refuses, with a [FieldError] that names the header, what a tenant
// may not set: host, content-length, hop-by-hop headers, webhook-* and
// chronos-*, names that aren't tokens, values with control characters, one name
// in two spellings, more than 50 headers or 16 KiB together.
func CheckHeaders(headers map[string]string) error {
	if len(headers) > maxHeaders {
		return invalid("headers", fmt.Sprintf("has %d headers, at most %d are allowed", len(headers), maxHeaders))
	}
	if len(headers) == 0 {
		return nil
	}
	size := 0
	seen := make(map[string]bool, len(headers))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if err := checkHeader(name, headers[name]); err != nil {
			return err
		}
		lower := strings.ToLower(name)
		owned := func(prefix string) bool { return strings.HasPrefix(lower, prefix) }
		switch {
		case slices.Contains(transportHeaders, lower):
			return invalid("headers."+name, "may not be set: it belongs to the connection")
		case slices.ContainsFunc(ownPrefixes, owned):
			return invalid("headers."+name, "may not be set: webhook-* and chronos-* are the sender's own")
		case seen[lower]:
			return invalid("headers."+name, "is there twice, in different spellings")
		}
		seen[lower] = true
		size += len(name) + len(headers[name])
	}
	if size > maxHeaderBytes {
		return invalid("headers", fmt.Sprintf("has %d bytes, at most %d are allowed", size, maxHeaderBytes))
	}
	return nil
}

func checkHeader(name, value string) error {
	var reason string
	switch {
	case name == "":
		return invalid("headers", "has an empty name")
	case !httpguts.ValidHeaderFieldName(name):
		reason = "isn't a valid header name"
	case !httpguts.ValidHeaderFieldValue(value):
		reason = "has a control character in its value"
	case strings.Trim(value, " \t") != value:
		reason = "has space around its value" // which receivers strip, so it would be lost on the way
	default:
		return nil
	}
	return invalid("headers."+clean(name, maxErrorText), reason)
}

// setHeaders fills h: first the tenant's, which can't touch the rest, then the
// caller's own, then the signature.
func (r *Request) setHeaders(h http.Header) error {
	if err := CheckHeaders(r.Headers); err != nil {
		return err
	}
	for name, value := range r.Headers {
		h.Set(name, value)
	}
	for name, value := range r.Own {
		if err := checkHeader(name, value); err != nil {
			return err
		}
		h.Set(name, value)
	}
	h.Set(HeaderID, r.ID)
	h.Set(HeaderTimestamp, strconv.FormatInt(r.Timestamp.Unix(), 10))
	h.Set(HeaderSignature, Signature(r.ID, r.Timestamp, r.Body, r.Secrets...))
	return nil
}
