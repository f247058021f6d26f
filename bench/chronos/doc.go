// Command chronos measures Holdfast's Chronos beside what else people take to run things later, on
// PostgreSQL: River and graphile-worker as queues, River's periodic jobs and pg_cron as clocks, and, as a yardstick for deliveries, a loop
// that does nothing but send the same requests.
//
//	cd bench && go run ./chronos [-load noop,burst,…] [-rounds 3] [-out ../docs/benchmarks-chronos]
//
// It brings everything it needs: a private PostgreSQL that flushes every commit, two replicas of the real binary, a receiver, and
// graphile-worker from npm, if Node.js is there. All of them listen on loopback alone, work in a temporary folder, and end with it. pg_cron
// takes part if its extension is installed where PostgreSQL is (postgresql-15-cron on Debian).
//
// # Loads
//
//   - noop: runs that do nothing. They are in the table before the clock starts; a turn ends when the last is marked as done,
//     durably. Each turn has a new database. Holdfast works them in process, as River and graphile-worker do, and over HTTP.
//   - burst: many webhooks due at one instant, from the instant to the last arrival, beside a loop in a process of its own that sends
//     the same requests to the same receiver over as many connections.
//   - lateness: from the instant of a schedule to the arrival at the receiver, which is on the same clock. River's periodic jobs work in
//     process: from the instant to the first line of the worker.
//   - idle: what two replicas and their PostgreSQL use of a core while a million jobs wait for instants an hour away.
//   - cron: the same for pg_cron, which, in the version that Debian has, knows whole minutes only: its jobs are a statement each, due at one minute, so
//     that nothing but the lateness can be compared.
//   - leader: the leading replica is killed, frozen, or cut off without a packet that says so, while jobs tick each second. The gap is until another
//     leads, as the database has it; lost are instants that were never delivered, doubled are runs that arrived more than once.
//   - deadrows: runs that do nothing again, after a great many have passed through the tables while a transaction was open that keeps
//     all their dead rows from being cleared away; and the same without it.
//
// # Fairness
//
// Everybody works on the same machine and the same server settings, one after the other, in rounds: A B C A B C …. Ratios are taken within a
// round. The rivals have the settings that their own documentation gives for speed: River those of its own benchmark command, graphile-worker those of its page
// on performance. Tables are vacuumed and a checkpoint is made before a turn begins.
//
// # Correctness
//
// A figure counts only if the run was right: everything that was due was done, once where that is promised. Otherwise the row says so, and the program
// fails.
package main
