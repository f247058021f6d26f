// Package webhook signs and sends HTTP callbacks to addresses that a tenant
// chose, and says what the answer means. It keeps nothing: when to send, how
// often and what to remember is the caller's.
//
// # One attempt
//
// [Client.Send] makes one attempt: at most one exchange, never a redirect,
// never a proxy, always signed. What came of it is one stable word
// ([Outcome]), and what to do next is one of five ([Class]):
//
//	success   a 2xx, from the moment its headers are in
//	accepted  a 202 with "chronos-async: accepted": the work goes on and is
//	          reported later
//	retry     408, 425, 429, 5xx, and everything that kept an answer from
//	          arriving whole
//	gone      410: the receiver wants no more of these
//	final     every other answer, redirects too, and requests that mustn't or
//	          can't be sent
//
// The status decides; the body is read to 4 KiB, or to the deadline, only to be
// shown to people. (To keep the connection, net/http may throw away up to 256 KiB
// more, for 50 ms at most and outside the attempt.) So a receiver that answers
// 200 and then trickles its body costs its own attempt the rest of its deadline,
// but can't make it fail.
//
// (The exception to "at most one" is what net/http takes to be harmless: a GET,
// or a request on which the tenant set an Idempotency-Key, is sent again when a
// kept connection turns out to be dead before any answer.)
//
// # Signatures
//
// Deliveries carry Standard Webhooks signatures: webhook-id is the same on
// every attempt and is what a receiver drops repeats by, webhook-timestamp is
// the attempt's time in Unix seconds, webhook-signature has one "v1,<base64>"
// per secret, so that a receiver can change secrets while both sign. The signed
// text is "<id>.<timestamp>.<body>"; an id with a dot in it would make that
// ambiguous and is refused.
//
// # The guard
//
// A tenant's URL must not reach what only this machine can reach. What decides
// is the address that is about to be dialled, after DNS, on every new
// connection ([Guard.Control]): a name that changes its answer between a check
// and the dial gains nothing. Loopback, private, link-local (the metadata
// services), shared, multicast, unspecified and reserved ranges are refused,
// and so is every IPv6 form that carries an IPv4 address, unless the operator's
// allow-list names the address. [Guard.CheckURL] refuses earlier, for a clear
// answer when a target is created, what can be seen without DNS.
//
// Not covered: a public address that the operator's own network treats as
// trusted, and a NAT64 prefix of the operator's own choosing. Those belong in a
// firewall.
//
// # One slow receiver
//
// Connections are kept and bounded per host, HTTP/1.1 only: one exchange holds
// one connection, and no receiver shares a connection, a window or a wait with
// another. How many attempts one target may have in flight is the caller's to
// bound.
package webhook
