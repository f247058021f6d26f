package main

import (
	"fmt"
	"slices"
	"time"
)

// verdict is what a library makes of a vector.
type verdict struct {
	kind kind
	text string // how it is wrong
}

type kind int

const (
	right   kind = iota
	wrong        // it takes the expression and runs at other times, or never
	notRead      // it doesn't take it, and doesn't claim to
)

// patience is how long a library may take for one vector.
const patience = 3 * time.Second

// judge asks a library about a vector. One that doesn't answer in time goes on in the
// background until the program ends.
func judge(l library, v vector) verdict {
	answer := make(chan verdict, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				answer <- verdict{wrong, "panics"}
			}
		}()
		answer <- compareRuns(l, v)
	}()
	select {
	case got := <-answer:
		return got
	case <-time.After(patience):
		return verdict{wrong, fmt.Sprintf("no answer within %v", patience)}
	}
}

func compareRuns(l library, v vector) verdict {
	next, err := l.read(v.expr, v.loc)
	switch {
	case v.never && err != nil:
		return verdict{kind: right}
	case v.never:
		began := time.Now()
		at := next(time.Date(2026, 1, 1, 0, 0, 0, 0, v.loc))
		took := time.Since(began).Round(10 * time.Microsecond)
		if at.IsZero() {
			return verdict{wrong, fmt.Sprintf("takes it; finds nothing after %v", took)}
		}
		return verdict{wrong, "takes it, runs " + write(at, v)}
	case err != nil:
		return verdict{kind: notRead}
	}
	var got []time.Time
	at := v.from.Add(-1)
	for len(got) <= len(v.runs)+1 {
		following := next(at)
		if !following.IsZero() && !following.After(at) {
			return verdict{wrong, fmt.Sprintf("after %s gives %s, which isn't later", write(at, v), write(following, v))}
		}
		if following.IsZero() || !following.Before(v.until) {
			break
		}
		got = append(got, following)
		at = following
	}
	return difference(got, v)
}

// difference tells the first one.
func difference(got []time.Time, v vector) verdict {
	for i, at := range v.runs {
		switch {
		case i < len(got) && got[i].Equal(at):
			continue
		case i < len(got) && got[i].Before(at):
			return verdict{wrong, "runs " + write(got[i], v)}
		case !slices.ContainsFunc(got, at.Before):
			return verdict{wrong, "leaves out " + write(at, v) + " and all after"}
		}
		return verdict{wrong, "leaves out " + write(at, v)}
	}
	if len(got) > len(v.runs) {
		return verdict{wrong, "runs " + write(got[len(v.runs)], v)}
	}
	return verdict{kind: right}
}

func write(at time.Time, v vector) string {
	layout := "2006-01-02 15:04 -07"
	if at.Second() != 0 {
		layout = "2006-01-02 15:04:05 -07"
	}
	return at.In(v.loc).Format(layout)
}
