package httpapi

import (
	"context"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// streamsPerConnection bounds the HTTP/2 requests of one connection.
	streamsPerConnection = 1000
	pingAfter            = 15 * time.Second
	// cutOffTime is for requests to end after they have been cut off.
	cutOffTime = 2 * time.Second
)

// Serve answers HTTP/1.1 and unencrypted HTTP/2 on ln until ctx ends, then drains: /readyz
// says 503, no new connection is taken, streams end, long polls are told by [Draining], and the
// requests in hand have the given time to end. Those that then are left are cut off.
// It returns nil after a drain, or what kept the server from going on. Call it once.
func (a *API) Serve(ctx context.Context, ln net.Listener, drain time.Duration) error {
	base, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	var open connections
	server := &http.Server{
		Handler:           a,
		Protocols:         &protocols,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streamsPerConnection, SendPingTimeout: pingAfter, PingTimeout: pingAfter},
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       open.open,
		ConnState:         open.changed,
		ErrorLog:          serverLog(a.log),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	a.startDrain()
	bounded, cancel := context.WithTimeout(base, drain)
	defer cancel()
	err := server.Shutdown(bounded)
	cutOff()
	if err != nil {
		a.log.Warn("drain: time is over, cutting off the requests that are left", "drain", drain)
		// Their contexts have ended, so most now come to an answer that says so.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutOffTime)
		defer cancel()
		if err = server.Shutdown(last); err != nil {
			err = server.Close()
		}
	}
	<-served
	return err
}

// serverLog takes in what net/http says about single connections. Scanners and clients
// that hang up cause most of it, hence debug.
func serverLog(to *slog.Logger) *log.Logger { return slog.NewLogLogger(to.Handler(), slog.LevelDebug) }
