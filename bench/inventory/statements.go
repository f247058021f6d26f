package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
)

// statementsSetting lets PostgreSQL keep count of its statements, which costs it a little.
const statementsSetting = "shared_preload_libraries=pg_stat_statements"

// dearestSQL finds the statements that PostgreSQL spent most time on, but for what this program sets up.
const dearestSQL = `
SELECT d.datname, s.calls, s.rows, s.total_exec_time, s.mean_exec_time * 1000, s.wal_bytes::bigint, regexp_replace(s.query, '\s+', ' ', 'g')
  FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
 WHERE d.datname <> 'postgres'
 ORDER BY d.datname, s.total_exec_time DESC`

// writeStatements tells for each database which statements took longest since the last reset.
func (s *stage) writeStatements(ctx context.Context, to io.Writer) error {
	rows, err := s.admin.Query(ctx, dearestSQL)
	if err != nil {
		return err
	}
	const most, width = 12, 110
	out := tabwriter.NewWriter(to, 0, 4, 2, ' ', tabwriter.AlignRight)
	var last, database, query string
	var calls, count, wal int64
	var total, mean float64
	shown := 0
	_, err = pgx.ForEachRow(rows, []any{&database, &calls, &count, &total, &mean, &wal, &query}, func() error {
		if database != last {
			fmt.Fprintf(out, "%s\ncalls\trows\ttotal ms\tmean µs\tWAL KB\t\n", database)
			last, shown = database, 0
		}
		if shown++; shown <= most {
			fmt.Fprintf(out, "%d\t%d\t%.0f\t%.0f\t%d\t  %s\n", calls, count, total, mean, wal/1024, strings.TrimSpace(query)[:min(width, len(strings.TrimSpace(query)))])
		}
		return nil
	})
	if err != nil {
		return err
	}
	return out.Flush()
}

// resetStatements begins the count anew.
func (s *stage) resetStatements(ctx context.Context) error {
	_, err := s.admin.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements; SELECT pg_stat_statements_reset()")
	return err
}
