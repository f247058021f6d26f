// Package inventory holds stock: reservations that can't oversell, for many replicas
// on one PostgreSQL.
//
// # Protocol
//
// Stock is counted per SKU and location in one narrow row of the table stock. A
// reservation raises held on its rows, all or none; it leaves held once, when it is confirmed,
// released or expired. Every change of a counter writes a ledger entry in the same
// transaction. The invariants, after every commit:
//
//   - I1: 0 ≤ held ≤ on_hand, beyond that only within the backorder limit. (CHECK)
//   - I2: held is the sum of the lines of the reservations with status held.
//   - I3: on_hand + sold + written_off = received (CHECK), and the ledger adds up to on_hand and held.
//   - I4: a reservation leaves held once, and its units are credited once.
//   - I5: an acknowledged reservation is committed, so it survives any crash.
//   - I6: the same idempotency key gives the same outcome.
//   - I7: a hold counts as free from the instant of its expiry, reaper or no reaper.
//
// # Batches
//
// Reserve, confirm, release and extend go through lanes. A lane has one batch in flight, and what
// arrives meanwhile makes the next: one transaction that locks the rows of all its
// commands, reads the time and the idempotency keys under those locks, decides on the commands in the
// order of their arrival, and writes what came of it. Each command has its own outcome, told after
// the commit. The rows that are written must be as they were decided on, and the time of no
// command over, or the transaction is repeated.
//
// # Locks
//
// A transaction locks reservations first, by id, and stock rows after them, in the order of
// (sku, location). When stock is short, it turns back from the stock rows to the expired reservations
// that it gives back, and therefore never waits for one of those: it takes those that
// are free with SKIP LOCKED, and if any are left that count, it rolls back and starts over, so that
// their holder gets the stock row. So there is no cycle, and yet SKIP LOCKED never decides what
// counts.
//
// Time is judged by clock_timestamp() in the statement that acts, since now() stands still
// while a transaction waits for a lock.
package inventory
