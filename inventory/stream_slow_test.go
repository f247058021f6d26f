package inventory

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// A listener that doesn't take what is there keeps only the newest of each SKU, and is dropped in the end.
func TestASlowListenerGetsTheNewestAndIsDropped(t *testing.T) {
	t.Parallel()
	s := newStream(10)
	l := &Listener{stream: s, tenant: "acme", skus: []string{"mug"}, signal: make(chan struct{}, 1), pending: map[string]Update{}}
	if err := s.join(l); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i := range 1000 {
		l.put("mug", Update{Data: fmt.Sprint(i)}, now)
	}
	if got, err := l.Next(t.Context(), time.Minute); err != nil || len(got) != 1 || got[0].Data != "999" {
		t.Errorf("%v, %v", got, err)
	}
	l.put("mug", Update{}, now)
	l.put("mug", Update{}, now.Add(slowAfter))
	if _, err := l.Next(t.Context(), time.Minute); err != nil {
		t.Errorf("in time: %v", err)
	}
	l.put("mug", Update{}, now)
	l.put("mug", Update{}, now.Add(slowAfter+1))
	if _, err := l.Next(t.Context(), time.Minute); !errors.Is(err, ErrTooSlow) {
		t.Errorf("too late: %v", err)
	}
	l.Close()
	if s.count != 0 || len(s.tenants) != 0 {
		t.Errorf("%d listeners, %d tenants are left", s.count, len(s.tenants))
	}
	far := &Listener{stream: s, tenant: "acme", signal: make(chan struct{}, 1), pending: map[string]Update{}}
	for i := range maxPending + 2 {
		far.put(fmt.Sprint(i), Update{}, now)
	}
	if _, err := far.Next(t.Context(), time.Minute); !errors.Is(err, ErrTooSlow) {
		t.Errorf("too much: %v", err)
	}
}
