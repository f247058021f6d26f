package webhook_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"holdfast/webhook"
)

func TestCheckHeadersAccepts(t *testing.T) {
	t.Parallel()
	for _, h := range []map[string]string{
		nil,
		{"Authorization": "Bearer x", "x-empty": "", "Content-Type": "text/plain; charset=utf-8", "User-Agent": "shop", "x-tab": "a\tb", "X-Ünicode"[:2] + "u": "grün"},
		{"hosting": "x", "webhook": "x", "chronos": "x"},
		{"x-long": strings.Repeat("v", 16<<10-len("x-long"))},
	} {
		if err := webhook.CheckHeaders(h); err != nil {
			t.Errorf("%.60v: %v", h, err)
		}
	}
}

func TestCheckHeadersRefuses(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range 51 {
		many[fmt.Sprint("x-", i)] = "v"
	}
	cases := []struct {
		headers       map[string]string
		field, reason string
	}{
		{map[string]string{"Webhook-Id": "x"}, "headers.Webhook-Id", "sender's own"},
		{map[string]string{"webhook-anything": "x"}, "headers.webhook-anything", "sender's own"},
		{map[string]string{"CHRONOS-lease-token": "x"}, "headers.CHRONOS-lease-token", "sender's own"},
		{map[string]string{"": "x"}, "headers", "empty name"},
		{map[string]string{"x y": "x"}, "headers.x y", "valid header name"},
		{map[string]string{"x:": "x"}, "headers.x:", "valid header name"},
		{map[string]string{"x\r\nHost": "x"}, "headers.x\r\nHost", "valid header name"},
		{map[string]string{"ü": "x"}, "headers.ü", "valid header name"},
		{map[string]string{"x": "a\r\nHost: b"}, "headers.x", "control character"},
		{map[string]string{"x": "a\x00"}, "headers.x", "control character"},
		{map[string]string{"x": " a"}, "headers.x", "space around"},
		{map[string]string{"x-a": "1", "X-A": "2"}, "headers.x-a", "twice"},
		{map[string]string{"x": strings.Repeat("v", 16<<10)}, "headers", "16385 bytes"},
		{many, "headers", "51 headers"},
	}
	for _, name := range []string{"Host", "content-length", "Connection", "keep-alive", "Proxy-Authenticate", "proxy-authorization", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "upgrade"} {
		cases = append(cases, struct {
			headers       map[string]string
			field, reason string
		}{map[string]string{name: "x"}, "headers." + name, "belongs to the connection"})
	}
	for _, c := range cases {
		err := webhook.CheckHeaders(c.headers)
		var field *webhook.FieldError
		if !errors.Is(err, webhook.ErrInvalid) || !errors.As(err, &field) || field.Field != c.field || !strings.Contains(field.Reason, c.reason) {
			t.Errorf("%.60v: got %v, want %s %s", c.headers, err, c.field, c.reason)
		}
	}
}
