// Command inventory measures Holdfast's inventory beside what else people take for a hot row: one
// transaction per click in three forms, a script in Redis, and, as a yardstick, an HTTP server
// whose handler does nothing.
//
//	cd bench && go run ./inventory [-load hot,clicks,…] [-conns 512] [-for 5s] [-rounds 3] [-out ../docs/benchmarks]
//
// It brings everything it needs: a private PostgreSQL that flushes every commit, two Redis servers
// if one is installed, two replicas of the real binary, two servers that do nothing. All of them listen on
// loopback alone, work in a temporary folder, and end with it.
//
// # Fairness
//
// Everybody works on the same machine, one after the other, in rounds: A B C A B C …. Ratios are taken
// within a round, and their median and spread over the rounds are told. A turn begins after a checkpoint,
// with a part that isn't measured. Callers work in a closed loop: each sends its
// next command when it has its answer.
//
//   - One transaction per click has what its statements need and nothing else: no ledger, no locations,
//     no expired holds to give back. Each form runs at the pool size that suits it best, which is tried out
//     in the same run, and, where it says so, with a connection for each caller.
//   - The Redis script checks, takes, records with an expiry and remembers the key, in one atomic step, over
//     pipelined connections as deep as there are callers; how many is tried out too. The file isn't rewritten
//     during the run.
//   - The server that does nothing is net/http, set up as a replica's, reads the same requests and answers
//     with what a replica answered.
//   - Commands carry idempotency keys in all of them, or, with -keys=false, in none.
//
// What it can lose when the machine loses power: PostgreSQL, with any of the forms and in Holdfast, nothing
// that was acknowledged; Redis nothing with appendfsync always, and up to a second or two with everysec.
//
// # Correctness
//
// A figure counts only if the run was right: every answer was understood and none was an error, the counters are what callers were
// told, and Holdfast's verify finds no difference. Otherwise the row says so, and the program fails.
package main
