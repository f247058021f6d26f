package cron_test

import (
	"errors"
	"fmt"
	"time"

	"holdfast/chronos/cron"
)

func ExampleParse() {
	berlin, err := cron.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := cron.Parse("30 2 * * *", cron.Options{Location: berlin})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Describe())
	at := time.Date(2026, 3, 27, 12, 0, 0, 0, berlin)
	for range 3 {
		at, _ = s.Next(at)
		fmt.Println(at.Format("Mon 2 Jan 15:04 -0700"))
		if note, ok := s.Note(at); ok {
			fmt.Println("   ", note.Text)
		}
	}
	// Output:
	// At 02:30 every day (Europe/Berlin)
	// Sat 28 Mar 02:30 +0100
	// Sun 29 Mar 03:00 +0200
	//     2026-03-29 02:30 doesn't exist: the clock jumps from 2026-03-29 02:00 to 2026-03-29 03:00
	// Mon 30 Mar 02:30 +0200
}

func ExampleParse_refused() {
	_, err := cron.Parse("0 0 31 2 *", cron.Options{})
	fmt.Println(err)
	var e *cron.Error
	fmt.Println(errors.Is(err, cron.ErrInvalidSchedule), errors.As(err, &e), e.Field)
	// Output:
	// day_of_month: "31" never comes in month 2
	// true true day_of_month
}

func ExampleEvery() {
	anchor := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	s, err := cron.Every(90*time.Second, anchor)
	if err != nil {
		fmt.Println(err)
		return
	}
	next, _ := s.Next(anchor)
	fmt.Println(s, next.Format(time.TimeOnly))
	// Output:
	// @every 1m30s 12:01:30
}

func ExampleAt() {
	berlin, err := cron.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := cron.At("2026-12-24T18:00:00", berlin)
	if err != nil {
		fmt.Println(err)
		return
	}
	next, ok := s.Next(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC))
	fmt.Println(next, ok)
	_, ok = s.Next(next)
	fmt.Println(ok)
	// Output:
	// 2026-12-24 18:00:00 +0100 CET true
	// false
}

func ExampleSchedule_Between() {
	s, err := cron.Parse("0 9 * * MON#1", cron.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	from := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for at := range s.Between(from, from.AddDate(0, 3, 0)) {
		fmt.Println(at.Format(time.DateTime))
	}
	// Output:
	// 2026-06-01 09:00:00
	// 2026-07-06 09:00:00
	// 2026-08-03 09:00:00
}

func ExampleSchedule_Lint() {
	s, err := cron.Parse("* 2 31 * *", cron.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, w := range s.Lint() {
		fmt.Printf("%s: %s\n", w.Code, w.Message)
	}
	// Output:
	// frequent: runs 60 times an hour in hour 2
	// short_months: never runs in February, April, June, September and November: no such day
}
