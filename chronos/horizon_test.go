package chronos

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// Pitfall 35: a transaction that is left open shows as a metric.
func TestPitfall35AnOldTransactionIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	s := w.service(Config{Metrics: reg})
	tx, err := w.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM chronos.jobs`); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		w.Exec(t, `SELECT pg_current_xact_id()`) // each takes a transaction's number
	}
	if _, err := s.watchHorizon(t.Context()); err != nil {
		t.Fatal(err)
	}
	found, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range found {
		if family.GetName() == "holdfast_chronos_oldest_xmin_age" {
			if age := family.GetMetric()[0].GetGauge().GetValue(); age < 50 {
				t.Errorf("the oldest transaction is %v behind", age)
			}
			return
		}
	}
	t.Error("there is no such metric")
}
