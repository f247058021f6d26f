package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOptionsThatCannotBe(t *testing.T) {
	t.Parallel()
	if o, err := parse(nil); err != nil || len(o.loads) != len(loads) || len(o.jobs) != 2 || len(o.rates) != 3 {
		t.Errorf("%+v, %v", o, err)
	}
	for want, args := range map[string][]string{
		"isn't one of": {"-load", "nop"}, "-rounds": {"-rounds", "0"}, "-runs": {"-runs", "1"}, "-jobs": {"-jobs", "1,x"}, "-rates": {"-rates", "5000"},
		"-for": {"-for", "1ms"}, "-render": {"-render"}, "what is": {"x"},
	} {
		if _, err := parse(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// Every goal finds its row in a run of everything, and every table its place in the page.
func TestARunOfEverythingFillsThePage(t *testing.T) {
	t.Parallel()
	figures := map[string][]float64{
		perSecond: {100, 200}, seconds: {1, 2}, p50: {1e3, 2e3}, p99: {2e3, 3e3}, highest: {5e3, 6e3}, gap: {900, 1000}, lost: {0, 0}, coreReplica: {0.2, 0.3}, coreServer: {0.2, 0.3}, doubled: {0, 0}, samples: {10, 10},
	}
	row := func(name string, f family) Row { return Row{Name: name, Family: f, Figures: figures} }
	all := Results{
		"noop":  {Rows: []Row{row(nameOurs, familyHoldfast), row("River", familyRiver), row("graphile-worker", familyGraphile), {Name: "x", Wrong: "it was"}}},
		"burst": {Rows: []Row{row(nameBurst, familyHoldfast), row(nameBare, familyBare)}},
		"lateness": {Rows: []Row{
			row(latenessName(string(familyHoldfast), cohort{jobs: 1_000_000, rate: 1000, spread: true}), familyHoldfast),
			row(latenessName(string(familyHoldfast), cohort{jobs: 1_000_000, rate: 1000}), familyHoldfast),
		}},
		"idle":     {Rows: []Row{row(nameIdle, familyHoldfast)}},
		"cron":     {Rows: []Row{row("pg_cron", familyPgCron)}},
		"deadrows": {Rows: []Row{row(nameOurs+without, familyHoldfast), row(nameOurs+with, familyHoldfast)}},
	}
	leader := Result{}
	for _, l := range losses {
		leader.Rows = append(leader.Rows, row("Leader "+l.name, familyHoldfast))
	}
	all["leader"] = leader
	if text := all.summary(); strings.Contains(text, "not run") || strings.Count(text, "(missed)") != 2 {
		t.Errorf("the goals are\n%s", text)
	}
	page, err := os.ReadFile("../../docs/benchmarks-chronos.md")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "chronos")
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(out+".md", page, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := render(out, all); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out + ".md")
	if err != nil || strings.Contains(string(text), "Not run.") || !strings.Contains(string(text), "the run wasn't correct") {
		t.Errorf("%v in\n%s", err, text)
	}
	if plots, _ := filepath.Glob(filepath.Join(out, "*.svg")); len(plots) != 4 {
		t.Errorf("plots: %v", plots)
	}
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	t.Parallel()
	row := func(rates ...float64) Row { return Row{Figures: map[string][]float64{perSecond: rates}} }
	// A machine that was half as fast in the second round changes no ratio.
	if s := ratio(row(100, 50, 100), row(200, 100, 200), perSecond); s.Low != 0.5 || s.Median != 0.5 || s.High != 0.5 {
		t.Errorf("%+v", s)
	}
}

func TestRiversScheduleKeepsItsPartOfTheSecond(t *testing.T) {
	t.Parallel()
	e := each{250 * time.Millisecond}
	at := e.Next(time.Unix(100, 250e6))
	if want := time.Unix(101, 250e6); !at.Equal(want) {
		t.Errorf("next is %v, want %v", at, want)
	}
}
