package cron_test

import (
	"strings"
	"testing"
	"time"

	"holdfast/chronos/cron"
)

func BenchmarkParse(b *testing.B) {
	for _, expr := range []string{"* * * * *", "*/15 * * * *", "30 2 * * *", "0 9-17 * * MON-FRI", "0 0 1,15 * *", "0 0 LW * *", "H H * * *", "@daily"} {
		b.Run(expr, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := cron.Parse(expr, cron.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNext(b *testing.B) {
	for _, zone := range []string{"UTC", "Europe/Berlin"} {
		loc := mustLoad(b, zone)
		from := time.Date(2026, 6, 15, 12, 34, 56, 0, time.UTC)
		for _, expr := range []string{"* * * * *", "*/15 * * * *", "30 2 * * *", "0 9-17 * * MON-FRI", "0 0 1 * *", "0 0 LW * *", "0 0 29 2 *", "0 0 29 2 +MON"} {
			b.Run(zone+"/"+expr, func(b *testing.B) {
				s := mustParse(b, expr, cron.Options{Location: loc})
				b.ReportAllocs()
				for b.Loop() {
					s.Next(from)
				}
			})
		}
	}
}

// BenchmarkRefuse is about the inputs that take longest to refuse.
func BenchmarkRefuse(b *testing.B) {
	for name, expr := range map[string]string{
		"impossible":    "0 0 31 2 *",
		"no such year":  "0 0 0 29 2 * 2027-9999/2",
		"many years":    "0 0 0 29 2 * " + strings.Repeat("1971/2,", 34) + "2027",
		"many entries":  strings.Repeat("0-59/1,", 35) + "x * * * *",
		"commas":        strings.Repeat(",", 10_000),
		"out of range":  "61 * * * *",
		"three fields":  "* * *",
		"past":          "0 0 0 29 2 +MON 1970-2025",
		"many in a row": "0 0 30 2 " + strings.Repeat("1#1,", 60) + "x",
	} {
		b.Run(name, func(b *testing.B) {
			o := cron.Options{Anchor: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), DayMatch: cron.DayAll}
			for b.Loop() {
				if _, err := cron.Parse(expr, o); err == nil {
					b.Fatal("not refused")
				}
			}
		})
	}
	b.Run("unknown zone", func(b *testing.B) {
		for b.Loop() {
			if _, err := cron.LoadLocation("Mars/Olympus"); err == nil {
				b.Fatal("not refused")
			}
		}
	})
}

// BenchmarkNextPastTheEnd searches the years in vain.
func BenchmarkNextPastTheEnd(b *testing.B) {
	s := mustParse(b, "0 0 0 29 2 * 2028,"+strings.Repeat("1971/2,", 32)+"2027", cron.Options{Location: mustLoad(b, "Europe/Berlin")})
	from := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for b.Loop() {
		if at, ok := s.Next(from); ok {
			b.Fatal(at)
		}
	}
}
