package main

import (
	"net"
	"sync"
)

// relay stands between a replica and PostgreSQL, and can go silent: then it passes nothing on any more, either way, and closes
// nothing, as a cable that is cut does.
type relay struct {
	ln     net.Listener
	target string

	mu    sync.Mutex
	conns []net.Conn
	held  chan struct{} // closed: silent
}

func newRelay(target string) (*relay, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{ln: ln, target: target, held: make(chan struct{})}
	go r.accept()
	return r, nil
}

func (r *relay) accept() {
	for {
		near, err := r.ln.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, near, far)
		r.mu.Unlock()
		go r.pass(near, far)
		go r.pass(far, near)
	}
}

func (r *relay) pass(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-r.held:
			return // what has been read goes nowhere
		default:
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = to.Close()
}

// silence cuts the cable.
func (r *relay) silence() { close(r.held) }

func (r *relay) close() {
	_ = r.ln.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
}
