package httpapi

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics count requests by the pattern of their route, so that labels stay few.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

func newMetrics(registry *prometheus.Registry) *metrics {
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	m := &metrics{
		registry: registry,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_http_requests_total", Help: "Requests answered, by route pattern, method and status.",
		}, []string{"route", "method", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_http_request_duration_seconds", Help: "From a request's arrival to the end of its answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route", "method"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_http_requests_in_flight", Help: "Requests that have come in and aren't answered yet.",
		}),
	}
	m.registry.MustRegister(m.requests, m.duration, m.inFlight,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) observe(rec *recorder, took time.Duration) {
	method := rec.r.Method
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = "other" // a client may make up any number of them
	}
	if rec.rt != nil && method == rec.rt.op.Method && rec.status-100 < len(rec.rt.tally.requests) {
		m.observeRoute(rec.rt, rec.status, took)
		return
	}
	m.requests.WithLabelValues(rec.route(), method, strconv.Itoa(rec.status)).Inc()
	m.duration.WithLabelValues(rec.route(), method).Observe(took.Seconds())
}

// tally keeps the series of an operation at hand, which are found once and not for each request.
type tally struct {
	duration atomic.Pointer[prometheus.Observer]
	requests [500]atomic.Pointer[prometheus.Counter] // by status, from 100 on
}

func (m *metrics) observeRoute(rt *route, status int, took time.Duration) {
	duration := rt.tally.duration.Load()
	if duration == nil {
		found := m.duration.WithLabelValues(rt.op.Path, rt.op.Method)
		duration = &found
		rt.tally.duration.Store(duration)
	}
	(*duration).Observe(took.Seconds())
	slot := &rt.tally.requests[status-100]
	requests := slot.Load()
	if requests == nil {
		found := m.requests.WithLabelValues(rt.op.Path, rt.op.Method, strconv.Itoa(status))
		requests = &found
		slot.Store(requests)
	}
	(*requests).Inc()
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
