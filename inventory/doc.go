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
// # Locks
//
// Whoever changes a reservation locks its row first and its stock rows after it, in
// the order of (sku, location); that waits for a reservation only while
// holding nothing. Reserve goes the other way round, from the stock rows to the expired
// reservations that it gives back when stock is short, and therefore never waits
// for one: it takes those that are free with SKIP LOCKED, and if any are left that count, it
// rolls back and starts over, so that their holder gets the stock row. So there is
// no cycle, and yet SKIP LOCKED never decides what counts.
//
// Time is judged by clock_timestamp() in the statement that acts, since now() stands still
// while a transaction waits for a lock.
package inventory
