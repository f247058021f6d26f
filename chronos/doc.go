// Package chronos is cron as a service: jobs with schedules, runs that are delivered at
// least once, on any number of replicas and nothing but PostgreSQL.
//
// # From schedule to delivery
//
// A job's row holds its watermark, next_at: every instant before it has its run, or its record
// in history; none from it on has. [plan] decides what becomes of the instants up to a few seconds
// ahead of now: a run in job_runs, or a record of why there is none. Runs, records and the new
// watermark are one transaction under the lock of the job's row.
//
// The planner does this for all jobs that are near. It works on one replica at a time, its
// leader, but only to save the others the trouble: whoever changes a job plans it
// too, in the same transaction, and two planners at once do no harm. Since it plans ahead,
// the death of a leader leaves no gap.
//
// Every replica has a dispatcher, which sleeps until the next run of a webhook is due, leases what it can
// start (see package queue), delivers, and finishes. Pull workers lease over the API instead.
// One heartbeat renews all leases of a replica on a connection of its own; a
// delivery whose lease can't be renewed is stopped before the lease ends, by the monotonic clock.
// Every replica has a reaper for leases whose holders are gone.
//
// # Invariants
//
//   - C1: one row for each job and instant: the id is made of both.
//   - C2: inserting a run and moving the watermark are one transaction.
//   - C3: every instant of an active job ends as fired, skipped or missed, with a reason; a
//     long outage as one record with its range and count.
//   - C4, C5, C6: see package queue.
//   - C7: a run that was delivered was delivered at least once; its id is the same on every attempt.
//   - C8: leadership saves work; correctness rests on row locks, the watermark and ids.
//
// # Alerts and monitors
//
// What goes wrong with a job that has alerts is written to an outbox by the transaction in which it does (see package
// alert), and delivered by any replica. Monitors watch jobs that run elsewhere and check in; what was awaited while no
// replica could receive it is unknown, not missed.
//
// # Time
//
// What is due, leased or late is judged by the database's clock. A replica's wall clock is
// never asked; its monotonic clock measures waits and the part of a lease that is left.
package chronos
