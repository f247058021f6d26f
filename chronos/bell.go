package chronos

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
)

const (
	// hintChannel is what replicas tell each other on.
	hintChannel = "holdfast_chronos"
	// hintPause is the least time between two hints of a replica.
	hintPause = 20 * time.Millisecond
	// hintQueues is how many queues a hint names at most: beyond that it means all.
	hintQueues = 20
	// hintTimeout bounds the sending of one.
	hintTimeout = 2 * time.Second
	// bellQueues bounds the queues that somebody waits for.
	bellQueues = 10_000
)

// bell tells those who wait for runs of a queue that something may have come due, and those
// who hold leases that one may have been taken from them: in this replica at once, and, as a hint that may
// be lost, in the others. All of them look by themselves, too.
type bell struct {
	mu      sync.Mutex
	waiting map[string]chan struct{} // by queue
	beat    chan struct{}            // holds a value when leases are to be looked after
	hint    hint                     // what the others haven't been told yet
	news    chan struct{}            // holds a value when there is some
}

// hint is what replicas tell each other.
type hint struct {
	From   string   `json:"from"`
	Due    []string `json:"due,omitempty"`    // queues that may have something
	All    bool     `json:"all,omitempty"`    // any of them may
	Leases bool     `json:"leases,omitempty"` // some may have been taken
}

func newBell() *bell {
	return &bell{waiting: map[string]chan struct{}{}, beat: make(chan struct{}, 1), news: make(chan struct{}, 1)}
}

// wait gives a channel that is closed when the queue's bell rings: ask for it before looking.
func (b *bell) wait(queue string) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= bellQueues {
		b.release(nil)
	}
	ch, ok := b.waiting[queue]
	if !ok {
		ch = make(chan struct{})
		b.waiting[queue] = ch
	}
	return ch
}

// release lets go those who wait for the queues; nil: all. The caller holds mu.
func (b *bell) release(queues []string) {
	for queue, ch := range b.waiting {
		if queues == nil || slices.Contains(queues, queue) {
			close(ch)
			delete(b.waiting, queue)
		}
	}
}

// ringHere rings for a queue in this replica alone.
func (b *bell) ringHere(queue string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ch, ok := b.waiting[queue]; ok {
		close(ch)
		delete(b.waiting, queue)
	}
}

// ring rings for a queue everywhere.
func (b *bell) ring(queue string) {
	b.ringHere(queue)
	b.tell(func(h *hint) {
		if !h.All && !slices.Contains(h.Due, queue) {
			h.Due = append(h.Due, queue)
		}
		if len(h.Due) > hintQueues {
			h.All, h.Due = true, nil
		}
	})
}

// ringAll rings for every queue, everywhere.
func (b *bell) ringAll() {
	b.mu.Lock()
	b.release(nil)
	b.mu.Unlock()
	b.tell(func(h *hint) { h.All, h.Due = true, nil })
}

// taken says, everywhere, that leases were taken from their holders.
func (b *bell) taken() {
	b.lookAfter()
	b.tell(func(h *hint) { h.Leases = true })
}

func (b *bell) lookAfter() {
	select {
	case b.beat <- struct{}{}:
	default:
	}
}

func (b *bell) tell(change func(*hint)) {
	b.mu.Lock()
	change(&b.hint)
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
}

func (b *bell) heard(h hint) {
	b.mu.Lock()
	if h.All {
		b.release(nil)
	} else {
		b.release(append([]string{}, h.Due...))
	}
	b.mu.Unlock()
	if h.Leases {
		b.lookAfter()
	}
}

// speak tells the other replicas what rang here, until ctx ends: one notification for all that came since
// the last, in a transaction of its own.
func (s *Service) speak(ctx context.Context) error {
	b := s.store.bell
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.news:
		}
		b.mu.Lock()
		h := b.hint
		b.hint = hint{}
		b.mu.Unlock()
		h.From = s.id.String()
		text, err := json.Marshal(h)
		if err != nil {
			return err
		}
		sendCtx, cancel := context.WithTimeout(ctx, hintTimeout)
		_, err = s.cfg.Pool.Exec(sendCtx, `SELECT pg_notify($1, $2)`, hintChannel, string(text))
		cancel()
		if err != nil && ctx.Err() == nil {
			s.log.Debug("couldn't tell the other replicas that something has come due: they look by themselves", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(hintPause):
		}
	}
}

// listen takes in what other replicas tell until ctx ends, on a session of its own.
func (s *Service) listen(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.hear(ctx); err != nil && ctx.Err() == nil {
			s.log.Debug("can't hear the other replicas, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

func (s *Service) hear(ctx context.Context) error {
	conn, err := pg.Connect(ctx, s.cfg.SessionURL, "holdfast chronos hints")
	if err != nil {
		return err
	}
	defer hangUp(ctx, conn, s.log)
	if _, err := conn.Exec(ctx, `LISTEN `+hintChannel); err != nil {
		return err
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		var h hint
		if err := json.Unmarshal([]byte(n.Payload), &h); err != nil {
			h = hint{All: true, Leases: true} // of a newer version: whatever it means, looking does no harm
		}
		if h.From != s.id.String() {
			s.store.bell.heard(h)
		}
	}
}

func hangUp(ctx context.Context, conn *pgx.Conn, log *slog.Logger) {
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := conn.Close(closeCtx); err != nil {
		log.Debug("a session didn't close", "error", err)
	}
}
