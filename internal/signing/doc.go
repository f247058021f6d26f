// Package signing keeps the secrets that a service signs its deliveries with.
//
// A tenant has one current secret, made when it is first asked for. Rotation makes a new one;
// the one until then signs too for a day, so that receivers can change over. Each service has
// its own secrets, in the table signing_secrets of its schema. Here a secret is its text: what it
// consists of is for the package that signs.
package signing
