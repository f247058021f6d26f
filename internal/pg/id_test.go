package pg_test

import (
	"bytes"
	"testing"
	"time"

	"holdfast/internal/pg"
)

// Ids of one millisecond sort by the instant too, whoever made them.
func TestIDsSortByTheirInstant(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 12, 1, 2, 30, 0, 0, time.UTC)
	last := pg.FirstID(start)
	for i := range 5000 { // across several milliseconds
		id, err := pg.NewID(start.Add(time.Duration(i) * time.Microsecond))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Compare(last[:], id[:]) >= 0 {
			t.Fatalf("after %d µs: %s isn't later than %s", i, id, last)
		}
		if id.Version() != 7 || id.Variant().String() != "RFC4122" {
			t.Fatalf("%s is of version %d, %s", id, id.Version(), id.Variant())
		}
		last = id
	}
}
