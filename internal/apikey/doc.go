// Package apikey keeps the keys that clients of a service present.
//
// A key is "hf_" and 52 characters that spell 256 random bits. It is shown once, when it
// is created; the service's schema keeps its SHA-256 (nothing slower is needed, since a
// random key can't be guessed), its tenant, its name and its scopes. A tenant is a name that
// its keys share: it begins with its first key and sees only what carries its name.
//
// A replica remembers a key that it has found for at most [CacheFor], counted from before
// the question was put to the database. So a revocation is in force on every replica [CacheFor]
// after it has committed, and a new key works at once, since keys that
// aren't found are never remembered.
package apikey
