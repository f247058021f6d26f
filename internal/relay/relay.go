// Package relay stands between a client and a TCP server like a cable that can be cut and mended, for tests
// and benchmarks of what happens then.
//
// While it is cut it passes nothing on, either way, and closes nothing: neither end is told, as when a
// machine on the way loses its power. What was sent meanwhile arrives when it is mended, as far as the ends
// still wait for it.
package relay

import (
	"net"
	"sync"
)

// Relay passes on what arrives at its address. It is safe for concurrent use.
type Relay struct {
	ln     net.Listener
	target string
	closed chan struct{}
	over   sync.WaitGroup

	mu    sync.Mutex
	whole chan struct{} // closed while it isn't cut
	conns []net.Conn
}

// New listens on a free port of the loopback interface and passes connections on to the target, a host and port.
func New(target string) (*Relay, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{ln: ln, target: target, closed: make(chan struct{}), whole: make(chan struct{})}
	close(r.whole)
	r.over.Go(r.accept)
	return r, nil
}

// Address is where the relay listens.
func (r *Relay) Address() string { return r.ln.Addr().String() }

// Cut stops passing on. To cut what is cut already does nothing.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.whole:
		r.whole = make(chan struct{})
	default:
	}
}

// Mend passes on again, first what has been waiting. To mend what is whole does nothing.
func (r *Relay) Mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.whole:
	default:
		close(r.whole)
	}
}

// Close ends all connections, and returns when nothing goes on any more. It is called once.
func (r *Relay) Close() {
	close(r.closed)
	_ = r.ln.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.over.Wait()
}

func (r *Relay) accept() {
	for {
		near, err := r.ln.Accept()
		if err != nil {
			return
		}
		r.over.Go(func() { r.connect(near) })
	}
}

func (r *Relay) connect(near net.Conn) {
	if !r.keep(near) || !r.passable() {
		return
	}
	far, err := net.Dial("tcp", r.target)
	if err != nil {
		_ = near.Close()
		return
	}
	if r.keep(far) {
		r.over.Go(func() { r.pass(near, far) })
		r.pass(far, near)
	}
}

// keep has Close close the connection, or closes it if that has been.
func (r *Relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.closed:
		_ = c.Close()
		return false
	default:
		r.conns = append(r.conns, c)
		return true
	}
}

// passable waits while the relay is cut; false: it is closed.
func (r *Relay) passable() bool {
	r.mu.Lock()
	whole := r.whole
	r.mu.Unlock()
	select {
	case <-r.closed:
		return false
	case <-whole:
		return true
	}
}

func (r *Relay) pass(from, to net.Conn) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !r.passable() {
			return
		}
		if _, writeErr := to.Write(buffer[:n]); writeErr != nil || err != nil {
			return
		}
	}
}
