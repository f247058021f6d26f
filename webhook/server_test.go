package webhook_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"holdfast/webhook"
)

// patience is a deadline that a test doesn't expect to reach.
const patience = 30 * time.Second

// loopback is a client that may send to this machine, as `make up` does.
func loopback(t testing.TB, o webhook.Options) *webhook.Client {
	t.Helper()
	o.Guard = webhook.NewGuard(mustPrefixes(t, "127.0.0.0/8,::1/128")...)
	return newClient(t, o)
}

func newClient(t testing.TB, o webhook.Options) *webhook.Client {
	t.Helper()
	c := webhook.NewClient(o)
	t.Cleanup(c.CloseIdle)
	return c
}

func receiver(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// rawReceiver answers every connection by hand: each gets the request that was
// read, and is closed when answer returns. The count is of connections.
func rawReceiver(t testing.TB, answer func(*http.Request, net.Conn)) (url string, connections *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			go func() {
				defer conn.Close()
				if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					answer(req, conn)
				}
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return "http://" + l.Addr().String(), connections
}

// hungUp returns when the client has closed the connection.
func hungUp(conn net.Conn) { io.Copy(io.Discard, conn) }

func request(url string) webhook.Request {
	return webhook.Request{
		URL: url, Method: http.MethodPost, Body: []byte(`{"a":1}`),
		ID: "run-1", Secrets: []webhook.Secret{webhook.NewSecret()}, Timeout: patience,
	}
}

func send(t testing.TB, c *webhook.Client, r webhook.Request) webhook.Result {
	t.Helper()
	return c.Send(context.Background(), r)
}

func want(t testing.TB, got webhook.Result, outcome webhook.Outcome, class webhook.Class, status int) {
	t.Helper()
	if got.Outcome != outcome || got.Class != class || got.StatusCode != status {
		t.Errorf("got %+v, want %s, %s, %d", got, outcome, class, status)
	}
	if failed := class != webhook.ClassSuccess && class != webhook.ClassAccepted; failed != (got.Error != "") {
		t.Errorf("%s: a reason for failure, and only for that: got %q", got.Outcome, got.Error)
	}
}

func wantError(t testing.TB, got webhook.Result, part string) {
	t.Helper()
	if !strings.Contains(got.Error, part) {
		t.Errorf("error %q doesn't say %q", got.Error, part)
	}
}

// names is a resolver that knows only these names. It answers in memory: no
// packet leaves the process.
func names(t testing.TB, known map[string][]string) *net.Resolver {
	t.Helper()
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer ours.Close()
			for answerDNS(ours, known) == nil {
			}
		}()
		return theirs, nil
	}}
}

// answerDNS answers one question, framed as over TCP.
func answerDNS(conn net.Conn, known map[string][]string) error {
	var size uint16
	if err := binary.Read(conn, binary.BigEndian, &size); err != nil {
		return err
	}
	packet := make([]byte, size)
	if _, err := io.ReadFull(conn, packet); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(packet); err != nil {
		return err
	}
	question := m.Questions[0]
	addrs, ok := known[strings.TrimSuffix(question.Name.String(), ".")]
	answer := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true},
		Questions: m.Questions,
	}
	if !ok {
		answer.RCode = dnsmessage.RCodeNameError
	}
	for _, text := range addrs {
		header := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 60}
		addr := netip.MustParseAddr(text)
		switch {
		case addr.Is4() && question.Type == dnsmessage.TypeA:
			answer.Answers = append(answer.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && question.Type == dnsmessage.TypeAAAA:
			answer.Answers = append(answer.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	packet, err := answer.Pack()
	if err != nil {
		return err
	}
	_, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...))
	return err
}
