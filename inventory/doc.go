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
// the commit. BEGIN travels with the first statements and COMMIT with the last, so each of the
// last judges by itself: the rows that are written must be as they were decided on, and the time of no
// command over, or nothing stands and the transaction is repeated.
//
// The sale of one SKU while there is enough for everybody who asks is one statement, see takeSQL:
// it changes nothing unless it can serve the whole batch.
//
// # Locks
//
// A transaction locks idempotency keys first where it locks them at all, then reservations by id, and
// then stock rows in the order of (sku, location), all rows of a SKU at once. When stock is short, it
// turns back from the stock rows to the expired reservations
// that it gives back, and therefore never waits for one of those: it takes those that
// are free with SKIP LOCKED, and if any are left that count, it rolls back and starts over, so that
// their holder gets the stock row. So there is no cycle, and yet SKIP LOCKED never decides what
// counts.
//
// # Locations
//
// Stock is counted per location, and offered per SKU: what is free is on_hand + backorder_limit − held −
// safety_stock over all of them. A line that names a location takes from there; for others the request says
// in which order locations give. The location default always exists; its row carries the SKU's settings.
//
// # History
//
// A reservation that is over leaves the table reservations for reservation_history, in the
// transaction that takes its units out of held, so the table that every sale writes to holds what is held. The
// history and the ledger are kept by month, and what is old is dropped by the month, after the ledger's sums were
// carried over. What customers have bought of SKUs with a limit is counted apart, so it outlives them.
//
// Time is judged by clock_timestamp() in the statement that acts, since now() stands still
// while a transaction waits for a lock.
package inventory
