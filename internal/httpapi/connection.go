package httpapi

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// connection ends the requests of one HTTP/1 connection whose time is over. They come one after
// the other, so they can share a context and a timer: a context.WithDeadline for each would be
// the most expensive thing in a small request. When a time is over, the context under all of
// the connection's requests ends, with [context.DeadlineExceeded] as its cause; so the
// connection takes no more of them, and the answer says so.
type connection struct {
	context.Context // of the connection; ends with it
	end             context.CancelCauseFunc

	mu       sync.Mutex
	timer    *time.Timer // nil until the first request
	rings    time.Time   // when the timer will; zero: it doesn't run
	deadline time.Time   // of the request in hand; zero: there is none
}

type connectionKey struct{}

func newConnection(ctx context.Context) *connection {
	c := &connection{}
	ctx, c.end = context.WithCancelCause(ctx)
	c.Context = context.WithValue(ctx, connectionKey{}, c)
	return c
}

// connectionOf finds the connection of an HTTP/1 request that [API.Serve] serves; nil if it has none.
func connectionOf(r *http.Request) *connection {
	if r.ProtoMajor != 1 {
		return nil
	}
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	return c
}

// begin bounds the request that has come. The timer runs on from request to request, and is
// set anew when it finds that it has rung too early, or would ring too late.
func (c *connection) begin(deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = deadline
	if c.rings.IsZero() || deadline.Before(c.rings) {
		c.wind()
	}
}

// wind makes the timer ring at the deadline.
func (c *connection) wind() {
	c.rings = c.deadline
	if c.timer == nil {
		c.timer = time.AfterFunc(time.Until(c.deadline), c.rung)
	} else {
		c.timer.Reset(time.Until(c.deadline))
	}
}

// finish says that the request has been answered.
func (c *connection) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = time.Time{}
}

func (c *connection) rung() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rings = time.Time{}
	switch {
	case c.deadline.IsZero():
	case time.Until(c.deadline) > 0:
		c.wind()
	default:
		c.end(context.DeadlineExceeded)
	}
}

// close lets go of what the connection has.
func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.end(nil)
}

// connections are those of a server.
type connections struct{ all sync.Map } // net.Conn → *connection

func (cs *connections) open(ctx context.Context, nc net.Conn) context.Context {
	c := newConnection(ctx)
	cs.all.Store(nc, c)
	return c
}

func (cs *connections) changed(nc net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	if c, ok := cs.all.LoadAndDelete(nc); ok {
		c.(*connection).close()
	}
}
