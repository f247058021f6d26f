package webhook

import "time"

// Backoff says how long to wait before the next attempt. The zero Backoff waits
// only as long as the receiver asks.
type Backoff struct {
	// Base is the wait after the first failed attempt; it doubles with each one.
	Base time.Duration
	// Max bounds the doubling, not what a receiver asks for. Less than Base
	// counts as Base.
	Max time.Duration
}

// jitterShare is the largest part of a wait that chance adds to it: enough to
// part runs that failed together, little enough that a wait stays what it says.
const jitterShare = 5

// Delay is the wait after the attempt-th failed attempt (from 1): the later of
// the doubled base and what the receiver asked for, and then up to a fifth more.
// It is a pure function; random is a number in [0, 1), [rand.Float64]'s say.
// Jitter only delays, so no receiver sees an attempt before the time it gave.
func (b Backoff) Delay(attempt int, retryAfter time.Duration, random float64) time.Duration {
	limit := max(b.Base, b.Max)
	wait := max(b.Base, 0)
	for i := 1; i < attempt && 0 < wait && wait < limit; i++ {
		if wait > limit/2 {
			wait = limit
		} else {
			wait *= 2
		}
	}
	wait = max(wait, min(retryAfter, MaxRetryAfter))
	return wait + time.Duration(random*float64(wait/jitterShare))
}
