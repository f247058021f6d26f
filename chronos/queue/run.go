package queue

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Status is where a run is. The first three are in job_runs, the rest are final.
type Status string

const (
	Pending   Status = "pending"   // waits until it is due, or for a worker
	Leased    Status = "leased"    // a worker has it
	Running   Status = "running"   // and has renewed, or said that it goes on
	Succeeded Status = "succeeded" // done
	Failed    Status = "failed"    // the last attempt failed
	Cancelled Status = "cancelled" // somebody didn't want it any more
	Skipped   Status = "skipped"   // its instant came, but it was not to run then
	Missed    Status = "missed"    // its instant passed while nobody could run it
)

// Trigger is what made a run.
type Trigger string

const (
	Schedule Trigger = "schedule" // its instant came
	Manual   Trigger = "manual"   // somebody asked
	Backfill Trigger = "backfill" // a stretch of the past was asked for
	CatchUp  Trigger = "catch_up" // it makes up for an instant that was missed
)

// Why a run was skipped, missed or cancelled. Words may be added, none changes its meaning.
const (
	ReasonPaused     = "paused"      // its job was paused
	ReasonOverlap    = "overlap"     // as many runs as may be were still going
	ReasonQueueFull  = "queue_full"  // so were they, and as many as may be were waiting
	ReasonReplaced   = "replaced"    // a later instant came
	ReasonExcluded   = "excluded"    // a calendar of its job has its date
	ReasonSkipNext   = "skip_next"   // somebody asked to have it skipped
	ReasonOutage     = "outage"      // nobody could run it, and it is too old to make up for
	ReasonJobDeleted = "job_deleted" // its job is gone
	ReasonRequested  = "requested"   // somebody cancelled it
)

// Outcomes of attempts that the queue itself gives.
const (
	OutcomeLeaseExpired = "lease_expired"
	OutcomeReleased     = "released" // given back, not counted
	OutcomeCancelled    = "cancelled"
)

var (
	// ErrLeaseLost means that the token isn't the run's current one or that its lease has
	// ended; nothing was changed.
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrNotFound means that there is no such run.
	ErrNotFound = errors.New("no such run")
	// ErrState means that the run's status stands in the way; see [StateError].
	ErrState = errors.New("the run's status doesn't allow it")
)

// StateError names the status behind [ErrState].
type StateError struct {
	ID     uuid.UUID
	Status Status
	Detail string
}

func (e *StateError) Error() string {
	text := fmt.Sprintf("run %s is %s", e.ID, e.Status)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Is matches [ErrState].
func (e *StateError) Is(target error) bool { return target == ErrState }

// ScheduledID is the id of the run of a job at an instant: a version 8 UUID of the instant's
// Unix milliseconds and the job's id. So whoever plans it gives it the same id, and ids
// sort by time.
func ScheduledID(job int64, at time.Time) uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[0:], uint64(at.UnixMilli())<<16)
	binary.BigEndian.PutUint64(id[8:], uint64(job))
	id[6] = 0x80 | id[6]&0x0f // version 8
	id[8] = 0x80 | id[8]&0x3f // variant of RFC 9562
	return id
}

// BackfillPriority is below all that jobs have.
const BackfillPriority = -1

// BackfillID is the id of the run that a backfill makes of a job's instant: another than
// [ScheduledID], since there may be a record that the instant was missed.
func BackfillID(job int64, at time.Time) uuid.UUID {
	id := ScheduledID(job, at)
	id[7] = 1
	return id
}

// Stretch is a row of instants that one record stands for.
type Stretch struct {
	From  time.Time `json:"from"` // the first
	To    time.Time `json:"to"`   // the last
	Count int       `json:"count"`
}

// Attempt is one delivery of a run, as it is kept.
type Attempt struct {
	Number     int        `json:"number"`
	Worker     string     `json:"worker"`
	StartedAt  *time.Time `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	Outcome    string     `json:"outcome"`
	StatusCode int        `json:"status_code,omitempty"`
	LatencyMS  *int64     `json:"latency_ms,omitempty"`
	Response   string     `json:"response,omitempty"`
	Error      string     `json:"error,omitempty"`

	// How its holder finished it, so that the same finish can be answered the same again.
	Token     *uuid.UUID `json:"token,omitempty"`
	Finish    Kind       `json:"finish,omitempty"`
	Then      Status     `json:"then,omitempty"`
	NextDueAt *time.Time `json:"next_due_at,omitempty"`
}

// native are ids as pgx encodes them without a detour by their text, which costs more than the query.
func native(ids []uuid.UUID) [][16]byte {
	out := make([][16]byte, len(ids))
	for i, id := range ids {
		out[i] = id
	}
	return out
}

// raw is where pgx puts an id without that detour.
func raw(id *uuid.UUID) *[16]byte { return (*[16]byte)(id) }

// Holding is a lease as its holder knows it.
type Holding struct {
	Run   uuid.UUID
	Token uuid.UUID
}

// Run is a leased run: what its worker needs.
type Run struct {
	ID           uuid.UUID
	Token        uuid.UUID
	JobID        int64
	Job          string // its name
	Tenant       string
	Spec         json.RawMessage // the job's
	Target       int64           // the job's
	Trigger      Trigger
	ScheduledFor time.Time
	Attempt      int // this one's number, from 1
	Spent        int // attempts before that count towards MaxAttempts
	MaxAttempts  int
	StartedAt    time.Time // when it was leased, by the database's clock
	LeasedUntil  time.Time // by the database's clock
	Late         time.Duration
	Payload      json.RawMessage // nil: none
	// Waited is how long after it was asked for the lease began, at the least, where that was a while.
	Waited time.Duration
}

// Holding is the run's lease.
func (r *Run) Holding() Holding { return Holding{r.ID, r.Token} }
