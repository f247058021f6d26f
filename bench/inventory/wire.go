package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// overHTTP lets each buyer work on a keep-alive connection of its own, to the servers in turn.
//
// Client and servers share the machine, so what the client uses is missing from the figure: it
// writes requests and reads answers by hand. A goroutine for each connection costs less here than
// loops around epoll did (10.5 against 12.7 µs a request, most of it the kernel's).
func overHTTP(addresses []string) play {
	return func(ctx context.Context, buyers []*buyer, w *stopwatch) []timing {
		timings := make([]timing, len(buyers))
		var all sync.WaitGroup
		for i, b := range buyers {
			all.Go(func() {
				if err := exchange(ctx, addresses[i%len(addresses)], b, w, &timings[i]); err != nil {
					timings[i].failed(err)
				}
			})
		}
		all.Wait()
		return timings
	}
}

// exchange sends the buyer's requests over one connection, each when the one before is answered.
func exchange(ctx context.Context, address string, b *buyer, w *stopwatch, t *timing) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	out, in := make([]byte, 0, 1<<10), make([]byte, 4<<10)
	for began := time.Now(); w.more(began); {
		c := b.next()
		out = appendRequest(out[:0], address, c)
		if _, err := conn.Write(out); err != nil {
			return err
		}
		status, body, err := readHTTP(conn, &in)
		if err != nil {
			return err
		}
		ended := time.Now()
		id, o, err := understand(c, status, body)
		if err != nil {
			t.failed(err)
		} else {
			b.answered(c, id, o)
			t.note(w, began, ended)
		}
		began = ended
	}
	return nil
}

// readHTTP reads one answer into the buffer, which grows if it must.
func readHTTP(conn net.Conn, in *[]byte) (status int, body []byte, err error) {
	for have := 0; ; {
		if have == len(*in) {
			*in = append(*in, make([]byte, have)...)
		}
		n, err := conn.Read((*in)[have:])
		if err != nil {
			return 0, nil, err
		}
		have += n
		status, body, whole, err := parseAnswer((*in)[:have])
		if err != nil || whole {
			return status, body, err
		}
	}
}

func appendRequest(out []byte, host string, c command) []byte {
	out = append(out, "POST /v1/reservations"...)
	switch c.kind {
	case confirm:
		out = append(append(append(out, '/'), c.id...), "/confirm"...)
	case release:
		out = append(append(append(out, '/'), c.id...), "/release"...)
	}
	out = append(append(out, " HTTP/1.1\r\nHost: "...), host...)
	if c.key != "" {
		out = append(append(out, "\r\nIdempotency-Key: "...), c.key...)
	}
	if c.kind != reserve {
		return append(out, "\r\nContent-Length: 0\r\n\r\n"...)
	}
	const opening, perLine, closing = len(`{"lines":[`), len(`{"sku":"","quantity":},`), len(`]}`) - len(`,`)
	size := opening + closing
	for _, l := range c.lines {
		size += perLine + len(l.sku) + digits(l.quantity)
	}
	out = append(out, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	out = append(strconv.AppendInt(out, int64(size), 10), "\r\n\r\n"+`{"lines":[`...)
	for i, l := range c.lines {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, `{"sku":"`...), l.sku...)
		out = append(strconv.AppendInt(append(out, `","quantity":`...), l.quantity, 10), '}')
	}
	return append(out, "]}"...)
}

func digits(n int64) int {
	count := 1
	for ; n >= 10; n /= 10 {
		count++
	}
	return count
}

var (
	endOfHeader   = []byte("\r\n\r\n")
	contentLength = []byte("\r\nContent-Length: ")
	idMember      = []byte(`"id":"`)
	soldOutCode   = []byte(`"code":"sold_out"`)
)

// parseAnswer finds an answer's status and body, once all of it is there. Only answers with a
// length are understood, as net/http gives those of this size.
func parseAnswer(in []byte) (status int, body []byte, whole bool, err error) {
	end := bytes.Index(in, endOfHeader)
	if end < 0 {
		return 0, nil, false, nil
	}
	header, rest := in[:end+2], in[end+4:]
	if len(header) < len("HTTP/1.1 200") {
		return 0, nil, false, fmt.Errorf("not an answer: %q", header)
	}
	status, err = strconv.Atoi(string(header[len("HTTP/1.1 "):len("HTTP/1.1 200")]))
	at := bytes.Index(header, contentLength)
	if err != nil || at < 0 {
		return 0, nil, false, fmt.Errorf("an answer without status or length: %q", header)
	}
	length := 0
	for _, digit := range header[at+len(contentLength):] {
		if digit < '0' || digit > '9' {
			break
		}
		length = length*10 + int(digit-'0')
	}
	if len(rest) < length {
		return 0, nil, false, nil
	}
	return status, rest[:length], true, nil
}

// understand makes of an answer what it means for the buyer.
func understand(c command, status int, body []byte) (id string, o outcome, err error) {
	const uuidLength = 36
	switch {
	case c.kind == reserve && status == http.StatusCreated:
		at := bytes.Index(body, idMember) + len(idMember)
		if at < len(idMember) || len(body) < at+uuidLength {
			return "", done, fmt.Errorf("no id in %q", body)
		}
		return string(body[at : at+uuidLength]), done, nil
	case c.kind != reserve && status == http.StatusOK:
		return "", done, nil
	case c.kind == reserve && status == http.StatusConflict && bytes.Contains(body, soldOutCode):
		return "", soldOut, nil
	}
	return "", done, fmt.Errorf("%d %s", status, bytes.TrimSpace(body))
}
