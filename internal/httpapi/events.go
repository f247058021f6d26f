package httpapi

import (
	"cmp"
	"net/http"
	"strings"
	"time"
)

// EventStream is the content type of server-sent events.
const EventStream = "text/event-stream"

const defaultPatience = 10 * time.Second

// Events writes server-sent events to one listener, in an operation of [RegisterStream]. It has no
// goroutine and no queue: a listener costs its connection alone. One goroutine at a time may use it.
type Events struct {
	w        http.ResponseWriter
	rc       *http.ResponseController
	patience time.Duration
	buf      []byte
}

// NewEvents begins the stream: its headers are sent at once. Patience bounds the sending of one event, which
// first goes into the buffers of the connection and takes no time while there is room; zero means 10 s.
func NewEvents(w http.ResponseWriter, patience time.Duration) (*Events, error) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would keep events back
	e := &Events{w: w, rc: http.NewResponseController(w), patience: cmp.Or(patience, defaultPatience)}
	w.WriteHeader(http.StatusOK)
	return e, e.send()
}

// Send sends an event. Its id, which a listener comes back with in Last-Event-ID, may be empty; its data
// is one line, such as JSON. It fails when the listener has gone, or has read so little that it lost
// the patience with it; the handler should then return.
func (e *Events) Send(event, id, data string) error {
	e.buf = e.buf[:0]
	for _, field := range [...]struct{ name, value string }{{"event: ", event}, {"id: ", id}, {"data: ", data}} {
		if strings.ContainsAny(field.value, "\r\n\x00") {
			panic("httpapi: an event's " + field.name + "isn't one line")
		}
		if field.value != "" {
			e.buf = append(e.buf, field.name...)
			e.buf = append(e.buf, field.value...)
			e.buf = append(e.buf, '\n')
		}
	}
	e.buf = append(e.buf, '\n')
	return e.send()
}

// Ping sends a comment. A stream that is quiet should send one every now and then: it finds out
// that a listener has gone, and keeps what lies between from ending the connection.
func (e *Events) Ping() error {
	e.buf = append(e.buf[:0], ":\n\n"...)
	return e.send()
}

func (e *Events) send() error {
	if err := e.rc.SetWriteDeadline(time.Now().Add(e.patience)); err != nil {
		return err
	}
	if _, err := e.w.Write(e.buf); err != nil {
		return err
	}
	return e.rc.Flush()
}
