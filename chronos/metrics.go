package chronos

import (
	"github.com/prometheus/client_golang/prometheus"

	"holdfast/chronos/queue"
)

// metrics count what this replica does. None of them asks the database to count.
type metrics struct {
	started    prometheus.Counter
	attempts   *prometheus.CounterVec
	finished   *prometheus.CounterVec
	lateness   prometheus.Histogram
	reclaimed  prometheus.Counter
	inFlight   prometheus.Gauge
	plannerLag prometheus.Gauge
	oldestXmin prometheus.Gauge
	breakers   prometheus.Gauge
	instants   *prometheus.GaugeVec
	setAside   prometheus.Gauge

	alerts        *prometheus.CounterVec
	alertAttempts *prometheus.CounterVec
	alertsPending prometheus.Gauge
	alertsOldest  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		started: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_chronos_deliveries_started_total", Help: "Attempts that this replica has begun to deliver.",
		}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_chronos_deliveries_total", Help: "Attempts that this replica has delivered, by outcome.",
		}, []string{"outcome"}),
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_chronos_runs_finished_total", Help: "Runs that this replica has brought to an end, by status.",
		}, []string{"status"}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_chronos_start_lateness_seconds", Help: "From the instant at which a run was due to its lease, by the database's clock.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600},
		}),
		reclaimed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_chronos_leases_reclaimed_total", Help: "Ended leases that this replica's reaper has taken back.",
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_chronos_deliveries_in_flight", Help: "Deliveries that this replica has in hand.",
		}),
		plannerLag: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_chronos_planner_lag_seconds", Help: "How late the oldest instant was that the planner found unplanned; 0 on replicas that don't lead.",
		}),
		oldestXmin: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_chronos_oldest_xmin_age", Help: "How many transactions ago the oldest one began that keeps dead rows from being cleared away, as far as this role may see.",
		}),
	}
	m.breakers = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "holdfast_chronos_breakers_open", Help: "Targets (scheme, host and port) that this replica leaves alone for now, because delivery after delivery failed there.",
	})
	m.alerts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_chronos_alerts_total", Help: "Alerts that this replica has delivered, or given up as failed.",
	}, []string{"status"})
	m.alertAttempts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_chronos_alert_deliveries_total", Help: "Attempts of this replica to deliver an alert, by outcome.",
	}, []string{"outcome"})
	m.alertsPending = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "holdfast_chronos_alerts_pending", Help: "Alerts that wait to be delivered, by any replica; counted up to 1000.",
	})
	m.alertsOldest = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "holdfast_chronos_alerts_oldest_pending_seconds", Help: "How long the oldest alert has waited that is still to be delivered; 0: there is none.",
	})
	m.instants = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "holdfast_chronos_selfcheck_instants",
		Help: "Of the instants that the schedules of some jobs had in the last day: expected, fired, recorded as skipped or missed, and missing, which should be 0.",
	}, []string{"state"})
	m.setAside = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "holdfast_chronos_selfcheck_set_aside_jobs", Help: "Jobs among those looked at that the planner can't make sense of.",
	})
	if reg != nil {
		reg.MustRegister(m.alerts, m.alertAttempts, m.alertsPending, m.alertsOldest)
		reg.MustRegister(m.started, m.attempts, m.finished, m.lateness, m.reclaimed, m.inFlight, m.plannerLag, m.oldestXmin, m.breakers, m.instants, m.setAside)
	}
	return m
}

// ended counts a run that has ended; other statuses aren't ends.
func (m *metrics) ended(status queue.Status) {
	switch status {
	case "", queue.Pending, queue.Leased, queue.Running:
	default:
		m.finished.WithLabelValues(string(status)).Inc()
	}
}

// checked shows a self-check.
func (m *metrics) checked(c SelfCheck) {
	for state, n := range map[string]int{"expected": c.Expected, "fired": c.Fired, "recorded": c.Recorded, "missing": c.Missing} {
		m.instants.WithLabelValues(state).Set(float64(n))
	}
	m.setAside.Set(float64(c.SetAside))
}
