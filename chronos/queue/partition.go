package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/internal/pg"
)

const (
	partitionPrefix = "run_history_"
	partitionDay    = "20060102"
	// daysAhead is how many days' partitions are made before they are needed.
	daysAhead = 7
	// dropWait bounds how long dropping a partition waits for its lock, since all
	// that comes after it waits too.
	dropWait = "2s"
)

// InTx is [pg.InTx] for transactions that may write history: if the day's partition is
// missing, it is made and the transaction runs again.
func InTx(ctx context.Context, pool *pgxpool.Pool, o pg.TxOptions, fn func(pgx.Tx) error) error {
	err := pg.InTx(ctx, pool, o, fn)
	if !partitionMissing(err) {
		return err
	}
	if err := EnsurePartitions(ctx, pool); err != nil {
		return err
	}
	return pg.InTx(ctx, pool, o, fn)
}

// partitionMissing tells a row without a partition from a violated CHECK, which has a name.
func partitionMissing(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == pgerrcode.CheckViolation && pgErr.ConstraintName == "" &&
		strings.HasPrefix(pgErr.TableName, "run_history")
}

// EnsurePartitions makes the partitions of history from yesterday to a week ahead, by the
// database's clock. Replicas may call it at once.
func EnsurePartitions(ctx context.Context, pool *pgxpool.Pool) error {
	return pg.InTx(ctx, pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		have, today, err := partitions(ctx, tx)
		if err != nil {
			return err
		}
		for day := today.AddDate(0, 0, -1); !day.After(today.AddDate(0, 0, daysAhead)); day = day.AddDate(0, 0, 1) {
			if have[day] {
				continue
			}
			// Attaching, unlike CREATE TABLE … PARTITION OF, doesn't hold off those who
			// are writing to other partitions.
			name := pgx.Identifier{"chronos", partitionPrefix + day.Format(partitionDay)}.Sanitize()
			_, err := tx.Exec(ctx, fmt.Sprintf(`CREATE TABLE %s (LIKE chronos.run_history INCLUDING ALL)`, name))
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, fmt.Sprintf(`ALTER TABLE chronos.run_history ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')`,
				name, day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339)))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// DropPartitions drops the days of history that ended more than keep ago, by the
// database's clock, and says how many. It gives up, with an error, where others are
// reading them: it is to be called again.
func DropPartitions(ctx context.Context, pool *pgxpool.Pool, keep time.Duration) (dropped int, err error) {
	err = pg.InTx(ctx, pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		dropped = 0
		have, today, err := partitions(ctx, tx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+dropWait+"'"); err != nil {
			return err
		}
		for day := range have {
			if day.AddDate(0, 0, 1).Add(keep).After(today) {
				continue
			}
			name := pgx.Identifier{"chronos", partitionPrefix + day.Format(partitionDay)}.Sanitize()
			if _, err := tx.Exec(ctx, "DROP TABLE "+name); err != nil {
				return fmt.Errorf("drop %s: %w", name, err)
			}
			dropped++
		}
		return nil
	})
	return dropped, err
}

// partitions locks out rivals until tx ends, and lists the days that have a partition.
func partitions(ctx context.Context, tx pgx.Tx) (have map[time.Time]bool, today time.Time, err error) {
	_, err = tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('holdfast.chronos.run_history', 0))")
	if err != nil {
		return nil, today, err
	}
	rows, err := tx.Query(ctx, `
		SELECT c.relname, NULL::timestamptz FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		 WHERE i.inhparent = 'chronos.run_history'::regclass
		UNION ALL SELECT '', clock_timestamp()`)
	if err != nil {
		return nil, today, err
	}
	have = map[time.Time]bool{}
	var (
		name string
		now  *time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &now}, func() error {
		if now != nil {
			today = now.UTC().Truncate(24 * time.Hour)
		} else if day, err := time.Parse(partitionDay, strings.TrimPrefix(name, partitionPrefix)); err == nil {
			have[day] = true
		}
		return nil
	})
	return have, today, err
}
