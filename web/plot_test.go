package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"holdfast/inventory"
)

func TestSpell(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0s"},
		{59 * time.Second, "59s"},
		{time.Minute, "1m"},
		{9*time.Minute + 12*time.Second, "9m 12s"},
		{time.Hour, "1h"},
		{2*time.Hour + 30*time.Minute + 5*time.Second, "2h 30m"},
		{24 * time.Hour, "1d"},
		{76*time.Hour + 59*time.Minute, "3d 4h"},
	} {
		if got := spell(c.d); got != c.want {
			t.Errorf("spell(%v) is %q, want %q", c.d, got, c.want)
		}
	}
}

func TestMoments(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		t               time.Time
		clock, relative string
	}{
		{now.Add(500 * time.Millisecond), "12:00:00", "now"},
		{now.Add(90 * time.Second), "12:01:30", "in 1m 30s"},
		{now.Add(-2 * time.Hour), "10:00:00", "2h ago"},
		{now.Add(36 * time.Hour).In(time.FixedZone("", 3600)), "2 Dec 00:00", "in 1d 12h"},
		{now.AddDate(1, 0, 0), "30 Nov 2027 12:00", "in 365d"},
	} {
		m := at(now, c.t)
		if m.Clock() != c.clock || m.Relative() != c.relative {
			t.Errorf("%v: %q, %q; want %q, %q", c.t, m.Clock(), m.Relative(), c.clock, c.relative)
		}
	}
	if at(now, (*time.Time)(nil)).Given() || at(now, time.Time{}).Given() {
		t.Error("a time that isn't given is shown")
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "−1,234,567"} {
		if got := number(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	if signed(0) != "" || signed(5) != "+5" || signed(-5) != "−5" {
		t.Error("signs")
	}
}

func TestRoundUp(t *testing.T) {
	t.Parallel()
	for n := int64(0); n < 20_000; n++ {
		top := roundUp(n)
		if top < n || top%2 != 0 || top > max(2, 2*n) {
			t.Fatalf("roundUp(%d) is %d", n, top)
		}
	}
	if roundUp(120) != 120 || roundUp(1_000_000_001) != 1_200_000_000 {
		t.Errorf("%d, %d", roundUp(120), roundUp(1_000_000_001))
	}
}

// Each ledger entry has its own location's counters; the plot shows the SKU's.
func TestLevelsAddUpLocations(t *testing.T) {
	t.Parallel()
	k := inventory.SKU{Locations: []inventory.Stock{{Location: "east", OnHand: 7, Held: 2}, {Location: "north", OnHand: 100}, {Location: "west", OnHand: 3}}}
	newestFirst := []inventory.Entry{
		{Location: "east", DeltaHeld: 2, OnHand: 7, Held: 2},
		{Location: "west", DeltaOnHand: 3, OnHand: 3},
		{Location: "east", DeltaOnHand: 2, OnHand: 7},
	}
	var got [][2]int64
	for _, l := range levelsOf(k, newestFirst) {
		got = append(got, [2]int64{l.onHand, l.held})
	}
	if want := [][2]int64{{107, 0}, {110, 0}, {110, 2}}; !slices.Equal(got, want) {
		t.Errorf("levels %v, want %v", got, want)
	}
}

func TestStepPlot(t *testing.T) {
	t.Parallel()
	p := newStepPlot([]level{{onHand: 10}, {onHand: 10, held: 5}})
	if p.Line != "M0 0.0H500.00V0.0H1000.00" || p.Area != "M0 200.0V200.0H500.00V100.0H1000.00V200.0Z" {
		t.Errorf("line %s, area %s", p.Line, p.Area)
	}
	if newStepPlot(nil) != nil {
		t.Error("a plot of nothing")
	}
}

func TestBarPlot(t *testing.T) {
	t.Parallel()
	p := newBarPlot([]took{{kind: "skipped"}, {long: 150 * time.Millisecond, timed: true, kind: "failed"}})
	if !slices.Equal(p.Scale, []string{"160 ms", "80 ms", "0"}) || p.Bars[0].Height != 3 || p.Bars[1].Height != 187.5 || p.Bars[1].Kind != "failed" {
		t.Errorf("%+v", p)
	}
	if newBarPlot([]took{{kind: "skipped"}}) != nil {
		t.Error("a plot though nothing has run")
	}
}

// Watching never takes the connections that work needs: a page waits for its turn.
func TestPagesWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	s := newSite("Test", nil, time.Now, nil)
	for range pagesAtOnce {
		s.slots <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v := visit{Request: httptest.NewRequest(http.MethodGet, "/", nil)}
	_, err := s.answer(ctx, &v, func(context.Context, visit) (page, error) {
		t.Error("a page was made without a turn")
		return page{}, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("waiting ended with %v", err)
	}
	<-s.slots
	made := false
	_, err = s.answer(t.Context(), &v, func(context.Context, visit) (page, error) {
		made = true
		return page{}, nil
	})
	if err != nil || !made || len(s.slots) != pagesAtOnce-1 {
		t.Errorf("made %t, %v, %d turns taken", made, err, len(s.slots))
	}
}
