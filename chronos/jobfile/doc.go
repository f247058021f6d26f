// Package jobfile reads and writes files of jobs, calendars and monitors, in YAML or JSON.
//
// A file has any number of documents. Each is one object, in the words of Chronos's API: a job as PUT
// /v1/jobs/{name} takes it, with its name, or a calendar or monitor as PUT /v1/calendars/{name} and PUT /v1/monitors/{name} do. The
// member kind says which it is; left out, what has dates is a calendar, what has a grace a monitor, and all else a job. A
// document may be a list of such objects too.
//
//	name: nightly-report
//	schedule: 30 2 * * *
//	timezone: Europe/Berlin
//	target:
//	  webhook: {url: https://example.com/hook, timeout: 1m}
//	---
//	kind: calendar
//	name: feasts
//	timezone: Europe/Berlin
//	dates: [2026-12-25, {from: 2026-12-30, to: 2026-12-31}]
//
// Whether the values can be is for the API to say; this package knows where each stands, so that its user
// can place what the API says. It refuses what isn't meant: duplicate names, names that aren't strings, tags of other
// types, and structures that expand beyond measure.
package jobfile
