// Package httpapi is the HTTP face that both services share: they register typed
// operations, and everything around these is done here, once and in the same way.
//
// # What a request goes through
//
//  1. It gets an id (X-Request-Id, the caller's if it is a plain word) and its arrival on the monotonic clock.
//  2. No route: 404. A route without this method: 405 with Allow. Routes are those of
//     [http.ServeMux]; a path with empty or dot segments is no route.
//  3. A slot among at most Config.MaxInFlight requests in hand, or 503 overloaded. [Op.Long] ones have slots of their own,
//     and /livez, /readyz, /metrics and pages need none.
//  4. Its deadline, [Op.Timeout] or Config.RequestTimeout after the arrival. The context ends
//     then, and [Deadline] hands it down so that the database can judge it in the statement that acts.
//  5. Its principal by the API key, or 401; the operation's scope, or 403; the key's rate, or 429.
//  6. Path and query: unknown, repeated or empty parameters, NULs and broken UTF-8 are 422.
//  7. The Idempotency-Key, or 422. Its scope is tenant and path; the hash beside it covers
//     the body in canonical form, so white space and the order of members don't count, and the query.
//  8. The body: too long 413, too slow 408, cut short, missing or not JSON 400, and 422 for
//     what is JSON but can't be taken at its word (a member given twice, a NUL, half a surrogate pair, a number
//     beyond a float64, nesting deeper than 200) or doesn't fit the operation's schema,
//     unknown fields included.
//  9. The handler, with all of that in its context. Its error becomes a problem.
//
// The decoding and encoding of 8 and 9 is huma's, with reflection. A hot operation brings a [Codec] for
// the bodies that are usual, and leaves the unusual ones to huma: [RegisterWithCodec].
//
// # What doesn't fit into that
//
// [RegisterStream] is for answers without an end; with [Events] for server-sent ones. [RegisterImport]
// is for bodies of any length, read and answered bit by bit. Neither has a deadline, both have the
// slots of long requests, and what bounds them is that each reading and each writing must get on.
//
// # Problems
//
// Every refusal is application/problem+json with a stable code. An error that a handler
// returns is, in this order: a [Problem] already; one of the service's [Rule]s; one of the kernel's, among them
// pg.ErrCommitUnknown (503 commit_unknown: perhaps carried out, ask again with the key) and
// pg.ErrDeadline (503 request_timeout: not carried out); a database that can't be reached or is
// busy (503 with Retry-After); or a surprise: 500 internal, whose text goes to the log alone.
//
// # Keys
//
// Authentication is by the keys of package apikey, or off; then everyone is the tenant
// "default" with every scope, and [CheckOpen] keeps the server on loopback. A replica
// accepts a revoked key for at most apikey.CacheFor.
//
// # Draining
//
// When the context of [API.Serve] ends, /readyz turns 503, streams end, long polls learn of
// it by [Draining], and requests in hand have the drain's time. What is left then is cut off.
package httpapi
