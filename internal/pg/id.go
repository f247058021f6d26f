package pg

import (
	"time"

	"github.com/google/uuid"
)

// NewID makes a UUID of version 7 for something that is made at the given instant of the
// database's clock. Ids sort by that instant, whichever replica makes them.
func NewID(at time.Time) (uuid.UUID, error) {
	id, err := uuid.NewV7()
	setMillis(&id, at)
	// The twelve bits after the version are the part of the millisecond, by the same clock.
	part := uint16(at.Nanosecond() % int(time.Millisecond) << 12 / int(time.Millisecond))
	id[6], id[7] = 0x70|byte(part>>8), byte(part)
	return id, err
}

// FirstID is the lowest that [NewID] may give from an instant on.
func FirstID(at time.Time) uuid.UUID {
	var id uuid.UUID
	setMillis(&id, at)
	return id
}

func setMillis(id *uuid.UUID, at time.Time) {
	for i, ms := 5, at.UnixMilli(); i >= 0; i-- {
		id[i] = byte(ms)
		ms >>= 8
	}
}
