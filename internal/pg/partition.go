package pg

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Span is how much time a partition holds.
type Span int

// Spans begin at midnight UTC.
const (
	Day Span = iota
	Month
)

func (s Span) format() string {
	if s == Day {
		return "20060102"
	}
	return "200601"
}

// start is the beginning of the span that is n after the one that t is in.
func (s Span) start(t time.Time, n int) time.Time {
	y, m, d := t.UTC().Date()
	if s == Day {
		return time.Date(y, m, d+n, 0, 0, 0, 0, time.UTC)
	}
	return time.Date(y, m+time.Month(n), 1, 0, 0, 0, 0, time.UTC)
}

// ahead is how many partitions are made before they are needed.
func (s Span) ahead() int {
	if s == Day {
		return 3
	}
	return 2
}

// Partitioned is a table that is partitioned by time, so that what is old can be dropped. The
// names of its partitions end in the day or the month.
type Partitioned struct {
	Schema, Table string
	Span          Span
	// ByID says that the key is a UUID of version 7, which begins with a time, and no time itself.
	ByID bool
	// Before, if set, runs in the transaction that drops a partition, with its qualified name.
	Before func(ctx context.Context, tx pgx.Tx, partition string) error
}

// dropWait bounds how long dropping a partition waits for its lock, since all that comes after
// it waits too.
const dropWait = "2s"

// Ensure makes the partitions from the one before today's to some ahead, by the database's clock.
// Replicas may call it at once.
func (p Partitioned) Ensure(ctx context.Context, pool *pgxpool.Pool) error {
	return InTx(ctx, pool, TxOptions{}, func(tx pgx.Tx) error {
		have, now, err := p.list(ctx, tx)
		if err != nil {
			return err
		}
		for n := -1; n <= p.Span.ahead(); n++ {
			from, to := p.Span.start(now, n), p.Span.start(now, n+1)
			if have[from] {
				continue
			}
			// Attaching, unlike CREATE TABLE … PARTITION OF, doesn't hold off those who are writing
			// to other partitions.
			name, parent := p.name(from), pgx.Identifier{p.Schema, p.Table}.Sanitize()
			if _, err := tx.Exec(ctx, fmt.Sprintf(`CREATE TABLE %s (LIKE %s INCLUDING ALL)`, name, parent)); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')`,
				parent, name, p.bound(from), p.bound(to))); err != nil {
				return err
			}
		}
		return nil
	})
}

// Drop drops the partitions that ended more than keep ago, by the database's clock, each in
// a transaction of its own, and says how many. Where others are reading one it gives up, with an
// error: it is to be called again.
func (p Partitioned) Drop(ctx context.Context, pool *pgxpool.Pool, keep time.Duration) (dropped int, err error) {
	for {
		some := false
		err := InTx(ctx, pool, TxOptions{}, func(tx pgx.Tx) error {
			some = false
			have, now, err := p.list(ctx, tx)
			if err != nil {
				return err
			}
			for from := range have {
				if p.Span.start(from, 1).Add(keep).After(now) {
					continue
				}
				name := p.name(from)
				if p.Before != nil {
					if err := p.Before(ctx, tx, name); err != nil {
						return fmt.Errorf("before dropping %s: %w", name, err)
					}
				}
				if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+dropWait+"'"); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, "DROP TABLE "+name); err != nil {
					return fmt.Errorf("drop %s: %w", name, err)
				}
				some = true
				return nil
			}
			return nil
		})
		if err != nil || !some {
			return dropped, err
		}
		dropped++
	}
}

func (p Partitioned) name(from time.Time) string {
	return pgx.Identifier{p.Schema, p.Table + "_" + from.Format(p.Span.format())}.Sanitize()
}

func (p Partitioned) bound(at time.Time) string {
	if !p.ByID {
		return at.Format(time.RFC3339)
	}
	return FirstID(at).String()
}

// list locks out rivals until tx ends, and lists the beginnings of the spans that have a partition.
func (p Partitioned) list(ctx context.Context, tx pgx.Tx) (have map[time.Time]bool, now time.Time, err error) {
	_, err = tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "holdfast.partitions."+p.Schema+"."+p.Table)
	if err != nil {
		return nil, now, err
	}
	if err := tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return nil, now, err
	}
	rows, err := tx.Query(ctx, `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = $1::regclass`, pgx.Identifier{p.Schema, p.Table}.Sanitize())
	if err != nil {
		return nil, now, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	have = map[time.Time]bool{}
	for _, name := range names {
		if from, err := time.Parse(p.Span.format(), strings.TrimPrefix(name, p.Table+"_")); err == nil {
			have[from] = true
		}
	}
	return have, now, err
}
