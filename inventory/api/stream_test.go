package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast/internal/httpapi"
	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
	"holdfast/inventory"
	"holdfast/inventory/api"
)

// station is one replica that works, with its API on loopback.
type station struct {
	*testing.T
	store *inventory.Store
	addr  string
	stop  func()
}

func newStation(t *testing.T) *station {
	t.Helper()
	db := pgtest.New(t, inventory.Schema())
	clock, err := pg.NewClock(t.Context(), db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	s := &station{T: t, store: inventory.NewStore(db.Pool, clock, inventory.Options{})}
	log := slog.New(slog.DiscardHandler)
	face := api.New(s.store, db.Pool, httpapi.Config{Log: log})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	all.Go(func() {
		if err := face.Serve(ctx, ln, 10*time.Second); err != nil {
			t.Error(err)
		}
	})
	all.Go(func() {
		if err := s.store.Run(ctx, log, prometheus.NewRegistry()); err != nil {
			t.Error(err)
		}
	})
	s.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	t.Cleanup(s.stop)
	return s
}

func (s *station) stock(sku string, units int64) {
	s.Helper()
	c := inventory.Caller{Tenant: "default", Actor: "test"}
	if _, _, err := s.store.PutSKU(s.Context(), c, inventory.Settings{SKU: sku}); err != nil {
		s.Fatal(err)
	}
	if _, _, err := s.store.Adjust(s.Context(), c, inventory.Adjustment{SKU: sku, Delta: units, Reason: "delivery"}); err != nil {
		s.Fatal(err)
	}
}

// radio is an open stream.
type radio struct {
	*testing.T
	net.Conn
	events *bufio.Reader
}

func (s *station) listen(query, lastID string) *radio {
	s.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	if lastID != "" {
		lastID = "Last-Event-ID: " + lastID + "\r\n"
	}
	_, _ = io.WriteString(conn, "GET /v1/stream"+query+" HTTP/1.1\r\nHost: localhost\r\n"+lastID+"\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(60 * time.Second))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != 200 || res.Header.Get("Content-Type") != httpapi.EventStream {
		s.Fatalf("%+v, %v", res, err)
	}
	return &radio{s.T, conn, bufio.NewReader(res.Body)}
}

// next reads an event.
func (r *radio) next() (event, id string, data object, err error) {
	for {
		line, err := r.events.ReadString('\n')
		if err != nil {
			return "", "", nil, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "event":
			event = value
		case "id":
			id = value
		case "data":
			if err := json.Unmarshal([]byte(value), &data); err != nil {
				return "", "", nil, err
			}
		case "":
			if event != "" {
				return event, id, data, nil
			}
		}
	}
}

// hear reads until the available units are so many.
func (r *radio) hear(available int) (id string, err error) {
	for {
		event, id, data, err := r.next()
		if err != nil {
			return "", err
		}
		if event == "stock" && fmt.Sprint(data["available"]) == fmt.Sprint(available) {
			return id, nil
		}
	}
}

func TestStreamIsServerSentEvents(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.stock("mug", 5)
	s.stock("cup", 6)
	r := s.listen("?sku=mug&sku=cup", "")
	for range 2 {
		if event, id, data, err := r.next(); err != nil || event != "stock" || id == "" || data["on_hand"] == nil || data["held"] == nil || data["sold"] == nil {
			t.Fatalf("%q %q %v %v", event, id, data, err)
		}
	}
	s.stock("mug", 3)
	id, err := r.hear(8)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	s.stock("cup", 4)
	if _, err := s.listen("?sku=mug&sku=cup", id).hear(10); err != nil {
		t.Error(err)
	}
	last := s.listen("", "")
	if _, err := last.hear(10); err != nil {
		t.Error(err)
	}
	s.stop()
	for {
		event, _, data, err := last.next()
		if err == io.EOF {
			break // the drain ended it
		}
		if err != nil || event == "dropped" && data["reason"] != "draining" {
			t.Fatalf("%v %v", data, err)
		}
	}
}

// Two thousand listen to one SKU while it sells, and some of them don't read: everybody else hears of the end, and
// selling doesn't wait for anybody.
func TestTwoThousandListeners(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.stock("mug", 1000)
	const listeners, deaf = 2000, 50
	radios := make([]*radio, listeners)
	for i := range radios {
		radios[i] = s.listen("?sku=mug", "")
	}
	for range 20 {
		s.stock("mug", 1)
	}
	var all sync.WaitGroup
	for _, r := range radios[deaf:] {
		all.Go(func() {
			if _, err := r.hear(1020); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
