// Package worker works runs of Chronos's queues, over its HTTP API and on nothing but the standard
// library.
//
// # Protocol
//
// A worker asks a replica for runs of a queue (POST /v1/leases), and waits there until one is due. Each
// run comes with a lease, which the worker renews while the handler works, and a token, without which
// nobody renews or ends it. What the handler returns ends the attempt: no error completes the run, an
// error fails it, and it is tried again as its job says unless the error is [Final]. A panic is an error.
//
// A lease is counted from before the worker asked for it, or asked for its renewal, by the worker's own
// monotonic clock: whatever the time of day is here or there, the worker never takes a lease for longer
// than it is. If it can't renew one, the handler's context ends [Config.Margin] before the lease does, so
// that the handler has stopped when somebody else may start. The context's cause then is [ErrLeaseLost]. A
// replica that says that the lease is lost, because the run was cancelled, say, ends the context at once.
//
// A handler has to heed its context. A run may come again: after a lost lease, or after an
// answer to Chronos that didn't arrive. Its [Run.ID] is the same on every attempt.
//
// # Replicas
//
// A worker knows several replicas, and goes on with the next when one doesn't answer, is overloaded or
// shuts down; when none does, it waits, longer each time and never in step with others, and at least
// as long as Retry-After says. A request that may have been carried out is repeated so that
// it counts once: leases with an idempotency key, the end of a run by its token.
//
// # The end
//
// When the context of [Worker.Run] ends, no more runs are leased. Handlers have [Config.Drain] to return,
// and their leases are renewed meanwhile. Then their contexts end, with the cause [ErrDrained]; the run
// of one that then returns an error is given back: it is due at once, and the attempt doesn't count.
//
// While a machine is suspended, Go's monotonic clock stands still on some systems. A handler
// may then work for a moment after its lease has ended; what it reports is refused.
package worker
