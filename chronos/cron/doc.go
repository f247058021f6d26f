// Package cron is the schedule language of Chronos: it says at which instants
// a schedule runs, in a zone whose clock jumps, and explains itself. It is
// pure: no database, no network, no state. A Schedule is a set of instants;
// everything that it tells (Next, Prev, Between) is that same set, so a preview
// shows what will run. A Timetable is that set within bounds.
//
// # Expressions
//
// Five fields, separated by spaces or tabs; six with the seconds first; seven
// with a year last as well. Without seconds, the second is 0.
//
//	second        0-59
//	minute        0-59
//	hour          0-23
//	day of month  1-31, and L, L-n, LW, nW
//	month         1-12 or JAN-DEC
//	day of week   0-7 or SUN-SAT (0 and 7 are Sunday), and dL, d#n, d#L
//	year          1970-9999
//
// A field is a list of entries with commas between them, and holds the values
// of all its entries. Letters may be of either case. An entry is
//
//	a          the value a
//	*          every value; ? is the same, in the two day fields
//	a-b        the values from a to b; if b comes before a, round the end of
//	           the field (22-4, FRI-MON, NOV-FEB), except in the year
//	*/n a-b/n  every nth of them, counted along the range: 22-4/3 is 22, 1, 4
//	a/n        every nth from a to the end of the field (Saturday in the day
//	           of week); n is at most the number of values that the field has
//	H          one value for this job, always the same, spread by its name
//	           (Options.Seed) so that not all jobs run at once; in the day of
//	           month at most 28; not in the year
//	H(a-b)     one value from a to b
//	H/n        every nth, from one of the first n; also H(a-b)/n
//
// In the day of month
//
//	L     the last day of the month
//	L-n   n days before it
//	nW    the weekday, Monday to Friday, nearest to day n within the month:
//	      a Saturday's Friday, a Sunday's Monday, but the Monday after a
//	      Saturday 1st and the Friday before a Sunday that ends the month;
//	      31W doesn't occur in a month without a 31st
//	LW    the last weekday of the month
//
// and in the day of week
//
//	d#n   the nth weekday d of the month, n from 1 to 5: MON#2
//	dL    the last weekday d of the month: 5L, FRIL; also d#L
//
// Instead of fields: @yearly or @annually, @monthly, @weekly, @daily or
// @midnight, @hourly; and @every with a duration of whole seconds (@every 90s).
// The instants of @every are anchor + n×duration for n ≥ 1, so they don't drift
// and don't depend on the zone. These names are lower case. At makes a schedule
// of one instant.
//
// # Days
//
// A day must be in the month and year fields and satisfy the day fields. If
// either day field begins with *, both must match, so that a plain * leaves
// the choice to the other field and */2 still filters. If neither does, either
// is enough: "0 0 1 * MON" runs on the 1st and on Mondays. It takes both if
// the day of week begins with + ("0 0 1 * +MON") or Options.DayMatch is
// DayAll. The patterns of the Open Cron Pattern Specification 1.0 to 1.4 mean
// what they mean there, except that days that never come are refused and a
// time in a gap runs after it.
//
// # Clocks that jump
//
// A schedule is fixed-time if none of its second (if given), minute and hour
// begins with *. Its times are appointments: each runs once, at the first
// instant at which the zone's clock has reached it. So, where the clock is put
// forward over a time, it runs at the first instant after the gap, once for
// all the times in the gap and for one that is due at that instant anyway,
// even if the gap swallowed a whole date; and where the clock is put back, it
// runs in the first pass. GapSkip and OverlapTwice change that. All other
// schedules follow real time: they run whenever the clock shows a time that
// matches, so "*/15 * * * *" keeps its rhythm through both. Any change of the
// zone's offset counts as a jump, whatever its reason and size.
//
// # Bounds and days without runs
//
// A Timetable is a schedule from a start (included) to an end (excluded), with
// the Calendars whose dates it leaves out. Its instants are what is previewed,
// shown and planned. An instant on such a date, judged on the calendar's own
// clock, stays one of them and is marked, so that it can be accounted for.
//
// # Refusals
//
// What can't be run is refused at once with an *Error that names field, value
// and reason: bad syntax, values outside their field, a date that never comes
// (30 February), a year that is past, an unknown zone, a TZ= prefix, @reboot, a
// lone L as day of week, more than 256 bytes. Everything that occurs at all is
// found, between the years 1 and 9999, however rare: "0 0 29 2 +MON" once in
// 12, 28 or 40 years. The time to parse and to search is bounded and small.
//
// # Zone data
//
// LoadLocation reads the IANA database that is embedded in the binary and
// nothing else, so that replicas of one version agree. ZoneDataVersion names
// its release. Instants are whole seconds, except those of an interval or
// instant that was given fractions.
package cron
