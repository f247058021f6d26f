// Package alert decides what is told to people when a job or monitor goes wrong or right
// again, and writes it to the table alerts.
//
// # Protocol
//
// A [Rule] says which kinds of news go to which URL. What has gone wrong with a job since its last
// success is its [Incident], kept in its row. News is told on the change, not on every run: of one incident each URL
// gets at most one failed and one missed, and then one recovered; one late until a run begins in time again. So a
// job that fails every second makes two alerts, however long that lasts.
//
// An alert is written by the transaction that makes it true: the one that ends a run ([RunsEnded]), records missed
// instants ([InstantsMissed]), or finds that a run hasn't begun ([FindLate]). Delivering it is another matter.
//
// # Cost
//
// A run knows whether its job has alerts, so that nothing here is called for jobs that have none.
//
// # Locks
//
// Incidents are changed by who holds the row of the job or monitor. Runs are locked before jobs, jobs in the order of
// their ids, as package queue does it; a unique index over source, kind and cause stands behind that.
package alert
