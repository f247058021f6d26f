// Package queue is the table job_runs: the runs that have no end yet, who holds them, and
// how they leave.
//
// # Protocol
//
// A run is pending until it is due; then one worker leases it ([Lease]): it gets a token
// that is known to nobody else, and the time until which the lease lasts, which it moves on by
// renewing ([Renew]). A lease ends in one of four ways: its holder finishes the run
// ([Finish]) or gives it back ([Release]), somebody cancels the run ([Cancel]), or the time
// passes and a reaper takes it back ([ReclaimExpiredLeases]). A run that ends is moved
// to run_history by the statement that ends it, so job_runs holds only what is still to do.
//
//	pending ──Lease──▶ leased ──Renew, Accept──▶ running
//	   ▲                  └───────────┬─────────────┘
//	   ├── Release, Finish (to be retried), ReclaimExpiredLeases ──┤
//	                                  └── Finish, Cancel, last attempt reaped ──▶ run_history
//
// # Invariants
//
//   - C1: the id of a scheduled run is made from its job and instant ([ScheduledID]), so the
//     primary key allows one row for each.
//   - C4: a lease is given by an UPDATE that requires the status pending, under the row's lock;
//     so two never hold one run.
//   - C5: what a holder changes is fenced in the UPDATE or DELETE itself by id, token and
//     leased_until > clock_timestamp(). A lease that has ended is lost, reaped or not.
//   - C6: a lease is reclaimed only by an UPDATE that requires leased_until < clock_timestamp().
//
// The database's clock alone judges, by clock_timestamp() after any wait for a lock.
//
// # Locks
//
// A run's row is locked before its job's row, and whoever holds a job's row takes its
// runs only with SKIP LOCKED; several job rows are locked in the order of their ids. So
// there is no cycle. [Lease] looks for rivals of a run only after it holds the job's row,
// in a statement of its own, whose snapshot shows what every earlier holder has committed.
package queue
