// Package pg is what both services know about PostgreSQL: how to open a pool,
// run a transaction that may be repeated, tell errors apart, migrate a schema,
// read the database's clock, and run a private cluster for people who have no
// server.
//
// The rules that everything above relies on:
//
//   - A transaction given to [InTx] may run more than once: its function must
//     have no effect outside the database. Serialization failures and deadlocks
//     are repeated; nothing else is, unless the caller says that it can be.
//   - A commit whose answer was lost is [ErrCommitUnknown], never "failed": the
//     change may stand. Only a caller who can recognise its own earlier attempt
//     (an idempotency key, a fixed id) may repeat it.
//   - Time that decides anything is the database's, read by clock_timestamp()
//     in the statement that decides. [Clock] carries it into a replica only to
//     fix a request's deadline at its arrival.
package pg
