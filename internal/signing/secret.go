package signing

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"holdfast/internal/pg"
)

// previousFor is how long a secret goes on signing after it was replaced.
const previousFor = 24 * time.Hour

// Secrets are those of a service. It is safe for concurrent use.
type Secrets struct {
	Schema string        // where its table is
	New    func() string // makes the text of a new secret
}

// Pair is what a tenant's deliveries are signed with.
type Pair struct {
	Secret   string    // the current one; "" if there is none yet
	Previous *Previous // signs too; nil: none
}

// Previous is a replaced secret that still signs.
type Previous struct {
	Secret     string
	ValidUntil time.Time
}

// executor is a connection, a pool or a transaction.
type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (s Secrets) table() string { return pgx.Identifier{s.Schema, "signing_secrets"}.Sanitize() }

// Ensure makes the tenant's first secret, unless there is one.
func (s Secrets) Ensure(ctx context.Context, db executor, tenant string) error {
	_, err := db.Exec(ctx, `INSERT INTO `+s.table()+` (tenant, secret) VALUES ($1, $2)
		ON CONFLICT (tenant) WHERE valid_until IS NULL DO NOTHING`, tenant, s.New())
	return err
}

// Get reads the tenant's secrets; the first question makes the first secret.
func (s Secrets) Get(ctx context.Context, db executor, tenant string) (Pair, error) {
	pair, err := s.read(ctx, db, tenant)
	if err != nil || pair.Secret != "" {
		return pair, err
	}
	if err := s.Ensure(ctx, db, tenant); err != nil {
		return Pair{}, err
	}
	return s.read(ctx, db, tenant)
}

func (s Secrets) read(ctx context.Context, db executor, tenant string) (Pair, error) {
	var pair Pair
	rows, err := db.Query(ctx, `SELECT secret, valid_until FROM `+s.table()+`
		WHERE tenant = $1 AND (valid_until IS NULL OR valid_until > clock_timestamp())`, tenant)
	if err != nil {
		return pair, err
	}
	var text string
	var until *time.Time
	_, err = pgx.ForEachRow(rows, []any{&text, &until}, func() error {
		if until == nil {
			pair.Secret = text
		} else {
			pair.Previous = &Previous{text, *until}
		}
		return nil
	})
	return pair, err
}

// Rotate makes a new secret. The one until now signs too for 24 h; one from before that ends.
func (s Secrets) Rotate(ctx context.Context, tx pgx.Tx, tenant string) (Pair, error) {
	if err := s.Ensure(ctx, tx, tenant); err != nil {
		return Pair{}, err
	}
	// Rivals wait here for each other, so that each sees the one before it as current.
	if _, err := tx.Exec(ctx, `SELECT 1 FROM `+s.table()+` WHERE tenant = $1 FOR UPDATE`, tenant); err != nil {
		return Pair{}, err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM `+s.table()+` WHERE tenant = $1 AND valid_until IS NOT NULL`, tenant); err != nil {
		return Pair{}, err
	}
	pair := Pair{Secret: s.New(), Previous: &Previous{}}
	err := tx.QueryRow(ctx, `UPDATE `+s.table()+` SET valid_until = clock_timestamp() + make_interval(secs => $2)
		WHERE tenant = $1 AND valid_until IS NULL RETURNING secret, valid_until`, tenant, previousFor.Seconds()).
		Scan(&pair.Previous.Secret, &pair.Previous.ValidUntil)
	if err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			err = pg.ErrRepeat
		}
		return Pair{}, err
	}
	_, err = tx.Exec(ctx, `INSERT INTO `+s.table()+` (tenant, secret) VALUES ($1, $2)`, tenant, pair.Secret)
	return pair, err
}
