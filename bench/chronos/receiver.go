package main

import (
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// receiver takes deliveries and notes when each came.
type receiver struct {
	url    string
	server *http.Server

	mu       sync.Mutex
	arrivals map[string]int // by run
	first    time.Time
	last     time.Time // of the first arrivals of each
	late     *hdrhistogram.Histogram
	instants map[time.Time]int // by instant, the jobs that arrived
	sample   http.Header       // of one delivery
	wanted   int
	all      chan struct{} // closed when as many runs have come as are wanted
}

// newReceiver makes a receiver that waits for a number of runs; 0: for none in particular.
func newReceiver(wanted int) (*receiver, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{
		url: "http://" + ln.Addr().String() + "/", arrivals: make(map[string]int, wanted), wanted: wanted, all: make(chan struct{}),
		late: hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3), instants: map[time.Time]int{},
	}
	r.server = &http.Server{Handler: http.HandlerFunc(r.take)}
	go func() { _ = r.server.Serve(ln) }()
	return r, nil
}

func (r *receiver) close() error { return r.server.Close() }

func (r *receiver) take(_ http.ResponseWriter, req *http.Request) {
	now := time.Now()
	id := req.Header.Get("webhook-id")
	at, err := time.Parse(time.RFC3339Nano, req.Header.Get("chronos-scheduled-for"))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrivals[id]++
	if r.arrivals[id] > 1 {
		return
	}
	if r.first.IsZero() {
		r.first, r.sample = now, req.Header.Clone()
	}
	r.last = now
	if err == nil {
		_ = r.late.RecordValue(max(1, now.Sub(at).Microseconds()))
		r.instants[at.UTC()]++
	}
	if len(r.arrivals) == r.wanted {
		close(r.all)
	}
}

// reset forgets what has come.
func (r *receiver) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.arrivals)
	clear(r.instants)
	r.late.Reset()
	r.first = time.Time{}
}

// twice counts the runs that came more than once.
func (r *receiver) twice() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, times := range r.arrivals {
		if times > 1 {
			n++
		}
	}
	return n
}

// measured adds what was late to a row.
func (r *receiver) measured(row *Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	row.add(p50, float64(r.late.ValueAtQuantile(50)))
	row.add(p99, float64(r.late.ValueAtQuantile(99)))
	row.add(highest, float64(r.late.Max()))
	row.add(samples, float64(r.late.TotalCount()))
}
