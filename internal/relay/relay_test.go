package relay_test

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/internal/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo says back what it hears.
func echo(t *testing.T) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	return ln.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func say(t *testing.T, conn net.Conn, word string) {
	t.Helper()
	if _, err := conn.Write([]byte(word)); err != nil {
		t.Fatal(err)
	}
}

func hear(conn net.Conn, n int, patience time.Duration) (string, error) {
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	heard := make([]byte, n)
	_, err := io.ReadFull(conn, heard)
	return string(heard), err
}

// A relay that is cut passes nothing on and closes nothing; what was sent meanwhile arrives when it is mended.
func TestACutIsSilentAndIsMended(t *testing.T) {
	t.Parallel()
	r, err := relay.New(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	conn := dial(t, r.Address())
	say(t, conn, "one")
	if heard, err := hear(conn, 3, time.Minute); heard != "one" {
		t.Fatalf("heard %q, %v", heard, err)
	}
	r.Cut()
	r.Cut()
	say(t, conn, "two")
	late := dial(t, r.Address())
	say(t, late, "new")
	for _, c := range []net.Conn{conn, late} {
		if _, err := hear(c, 1, 100*time.Millisecond); !os.IsTimeout(err) {
			t.Errorf("while it is cut: %v", err)
		}
	}
	r.Mend()
	r.Mend()
	for c, want := range map[net.Conn]string{conn: "two", late: "new"} {
		if heard, err := hear(c, 3, time.Minute); heard != want {
			t.Errorf("heard %q, %v, want %q", heard, err, want)
		}
	}
	_ = conn.Close()
	r.Cut()
}
