package main

import (
	"errors"
	"time"

	"github.com/adhocore/gronx"
	netresearch "github.com/netresearch/go-cron"
	robfig "github.com/robfig/cron/v3"

	"holdfast/chronos/cron"
)

// schedule gives the first instant after t; zero: none.
type schedule func(t time.Time) time.Time

// library is one of those that are compared, set up to mean what cron means where it has the
// choice.
type library struct {
	name   string
	module string // its path, by which the version is found
	remark string
	parse  func(expr string) error // what is timed as Parse: the library's own call in UTC
	read   func(expr string, loc *time.Location) (schedule, error)
}

var (
	robfigParser = robfig.NewParser(robfig.SecondOptional | robfig.Minute | robfig.Hour | robfig.Dom | robfig.Month | robfig.Dow | robfig.Descriptor)
	// Without DowOrDom, a day would have to match both day fields.
	netresearchParser = netresearch.MustNewParser(netresearch.SecondOptional | netresearch.Minute | netresearch.Hour | netresearch.Dom | netresearch.Month |
		netresearch.Dow | netresearch.Descriptor | netresearch.YearOptional | netresearch.Extended | netresearch.DowOrDom).WithMaxSearchYears(400)
)

var errNotRead = errors.New("not valid")

// ours is the first of the libraries.
const ours = 0

var libraries = []library{
	{
		name: "chronos/cron", module: "holdfast",
		parse: func(expr string) error {
			_, err := cron.Parse(expr, cron.Options{Location: time.UTC})
			return err
		},
		read: func(expr string, loc *time.Location) (schedule, error) {
			s, err := cron.Parse(expr, cron.Options{Location: loc})
			return func(t time.Time) time.Time {
				next, _ := s.Next(t)
				return next
			}, err
		},
	},
	{
		name: "robfig/cron", module: "github.com/robfig/cron/v3", remark: "with optional seconds",
		parse: func(expr string) error {
			_, err := robfigParser.Parse(expr)
			return err
		},
		read: func(expr string, _ *time.Location) (schedule, error) {
			s, err := robfigParser.Parse(expr) // its zone is that of the time that it is asked about
			if err != nil {
				return nil, err
			}
			return s.Next, nil
		},
	},
	{
		name: "gronx", module: "github.com/adhocore/gronx",
		remark: "has no parsed form: each Next reads the expression again, and Parse is IsValid",
		parse: func(expr string) error {
			if !gronx.IsValid(expr) {
				return errNotRead
			}
			return nil
		},
		read: func(expr string, _ *time.Location) (schedule, error) {
			if !gronx.IsValid(expr) {
				return nil, errNotRead
			}
			return func(t time.Time) time.Time {
				next, err := gronx.NextTickAfter(expr, t, false)
				if err != nil {
					return time.Time{}
				}
				return next
			}, nil
		},
	},
	{
		name: "go-cron", module: "github.com/netresearch/go-cron",
		remark: "with optional seconds and year, its extended fields, either day field enough, a search of 400 years, and no cache",
		parse: func(expr string) error {
			_, err := netresearchParser.Parse(expr)
			return err
		},
		read: func(expr string, _ *time.Location) (schedule, error) {
			s, err := netresearchParser.Parse(expr)
			if err != nil {
				return nil, err
			}
			return s.Next, nil
		},
	},
}
