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
//   - I8: nobody waits for what is free, see Waiting lists.
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
// # Imports
//
// An import carries its rows out in batches too, of a fixed number, each in a transaction that locks the stock rows of
// all its SKUs, decides on the rows in their order and writes what came of the good ones. With a key, each batch is
// remembered with the hash of all rows up to its end, so that an import is gone on with where it ended.
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
// # Waiting lists
//
// Each SKU has a line of places, each of which waits for a number of units, all or none, for a bounded time. What is
// free is given out in the order of the line: each place that wants no more than is free gets it, and one that wants more
// stays where it is and holds up nobody. So after every commit no place that waits wants as little as is free
// (I8); and a reservation, or a retake, takes only what was free when the line before it had been served, expired
// holds given back first. The order of the line is that of joining, which is that of the lock of the SKU's stock.
//
// What a place gets is an ordinary reservation: the hold of an offer. It is made in the transaction that
// freed the units, before anything else is decided on them: a batch serves the line before its first command, and again
// after each that frees something; any other transaction calls serveLines at its end. So the units are never seen
// free by anybody. takeSQL, which serves no line, refuses where stock.waiting says that there is one.
// The ledger has an entry of the kind offer beside the hold's own, with the event waitlist.offered.
//
// A place leaves the table waitlist once, under the lock of its SKU's stock, for waitlist_history: offered, left, or
// lapsed, because its time was over, its customer had reached the limit of the SKU when the turn came, or the SKU was
// deleted. What becomes of an offer is its reservation's affair, and the place reads accordingly: lapsed when the
// hold has run out, left when it was released. A place whose time is over lapses by the clock, whether or
// not it was moved yet.
//
// One transaction looks at so many places of a line at most (maxLineWindow). If then something is still free that others
// in the line may want, it is refused to whoever comes, and KeepLines serves on: until it is done, I8 waits.
//
// # History
//
// A reservation that is over leaves the table reservations for reservation_history, in the
// transaction that takes its units out of held, so the table that every sale writes to holds what is held. The
// history and the ledger are kept by month, and what is old is dropped by the month, after the ledger's sums were
// carried over. What customers have bought of SKUs with a limit is counted apart, so it outlives them.
//
// # Events
//
// The ledger is also the outbox. One replica at a time makes deliveries of what is new in it, in the
// transaction that moves the position in the ledger, so each event is made once per subscription. A
// delivery is attempted until it arrives, at least once, with one id; those of a reservation, and
// those of a SKU, in their order: what they belong to, the topic, is leased as a whole, by the database's
// clock and with a token that fences. Nothing that holds a lock waits for a receiver, and no
// transaction that sells notifies anybody: what is new is found by looking, see tail.go.
//
// Time is judged by clock_timestamp() in the statement that acts, since now() stands still
// while a transaction waits for a lock.
package inventory
