package inventory

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
)

// decide gives a command its outcome and books what it changes. A refused command changes nothing.
func (b *books) decide(t *task) {
	t.answer, t.replayed, t.err = Reservation{}, false, nil
	if stored, ok := b.keys[t.caller.Key.ID()]; ok {
		t.answer, t.err = b.replay(stored, t.caller.Key)
		t.replayed = t.err == nil
		return
	}
	if t.deadline != nil && !b.now.Before(*t.deadline) {
		t.err = pg.ErrDeadline
		return
	}
	changes := len(b.made) + len(b.changed)
	switch {
	case t.reserve != nil:
		t.answer, t.err = b.reserve(t)
	case t.confirm != nil:
		t.answer, t.err = b.onReservation(t, b.confirm)
	case t.release != nil:
		t.answer, t.err = b.onReservation(t, b.release)
	case t.extend != nil:
		t.answer, t.err = b.onReservation(t, b.extend)
	}
	if t.err != nil {
		return
	}
	if t.caller.Key.Value != "" {
		b.answered = append(b.answered, t)
	}
	for _, sku := range b.freed {
		b.serve(sku)
	}
	b.freed = b.freed[:0]
	if len(b.made)+len(b.changed) > changes && t.deadline != nil && (b.deadline == nil || t.deadline.Before(*b.deadline)) {
		b.deadline = t.deadline
	}
}

func (b *books) replay(stored idempotency.Stored, key idempotency.Key) (r Reservation, err error) {
	if !stored.IsFor(key) {
		return r, idempotency.ErrReused
	}
	if stored.Made != uuid.Nil { // by takeSQL
		first := b.first[stored.Made]
		if first == nil {
			return r, fmt.Errorf("the stored answer is reservation %s, which isn't there", stored.Made)
		}
		return *first, nil
	}
	if err := json.Unmarshal(stored.Text, &r); err != nil {
		return r, fmt.Errorf("read the stored answer: %w", err)
	}
	r.CreatedAt, r.ExpiresAt = r.CreatedAt.UTC(), r.ExpiresAt.UTC()
	return r, nil
}

func (b *books) reserve(t *task) (Reservation, error) {
	cmd := t.reserve
	for _, l := range cmd.Lines {
		i := b.items[l.SKU]
		if i == nil || !i.active {
			return Reservation{}, &NotFoundError{Kind: ErrSKUNotFound, Name: l.SKU}
		}
		if l.Location != "" && !i.isAt(l.Location) && !b.locations[l.Location] {
			return Reservation{}, &NotFoundError{Kind: ErrLocationNotFound, Name: l.Location}
		}
	}
	if err := b.checkCustomer(cmd.Customer, cmd.Lines); err != nil {
		return Reservation{}, err
	}
	d := allot(b.items, cmd.Lines, cmd.Allocate, cmd.AllowPartial)
	b.short = append(b.short, d.shortages...)
	if len(d.shortages) > 0 && (!cmd.AllowPartial || len(d.lines) == 0) {
		return Reservation{}, &ShortageError{Kind: ErrSoldOut, Shortages: d.shortages}
	}
	ttl := b.ttlOf(cmd, d.lines)
	r := &record{firstTTL: ttl, stored: Held, Reservation: Reservation{
		ID: t.newID, Status: Held, Lines: d.lines, Customer: cmd.Customer, Reference: cmd.Reference,
		CreatedAt: b.now.UTC(), ExpiresAt: b.now.Add(ttl).UTC(),
	}}
	b.hold(r, t.caller.Actor)
	answer := r.Reservation
	answer.Shortages = d.shortages
	return answer, nil
}

// hold books a new reservation.
func (b *books) hold(r *record, actor string) {
	event := eventHeld
	for _, l := range r.Lines {
		b.book(r, l, "hold", event, 0, l.Quantity, actor)
		b.addToCustomer(r.Customer, l.SKU, l.Quantity)
		event = ""
	}
	b.made = append(b.made, r)
}

// onReservation finds the reservation and brings its status up to the instant.
func (b *books) onReservation(t *task, act func(*task, *record) error) (Reservation, error) {
	r := b.reservations[t.reservation()]
	if r == nil {
		return Reservation{}, ErrReservationNotFound
	}
	if r.Status == Held && !r.ExpiresAt.After(b.now) {
		r.Status = Expired
	}
	if err := act(t, r); err != nil {
		return Reservation{}, err
	}
	return r.Reservation, nil
}

func (b *books) confirm(t *task, r *record) error {
	sell, err := unitsToSell(r.Reservation, t.confirm.Lines)
	if err != nil {
		return err
	}
	switch r.Status {
	case Confirmed:
		if !soldAs(r.Reservation, sell) {
			return stateError(r.Reservation, "with other lines")
		}
		return nil
	case Released:
		return stateError(r.Reservation, "")
	case Expired:
		if !t.confirm.Retake {
			return stateError(r.Reservation, "")
		}
		return b.retake(t, r, sell)
	}
	event := eventConfirmed
	for i, l := range r.Lines {
		if sell[i] > 0 {
			b.book(r, l, "confirm", event, -sell[i], -sell[i], t.caller.Actor)
			b.sell(r.Customer, l.SKU, sell[i])
			event = ""
		}
	}
	for i, l := range r.Lines {
		if rest := l.Quantity - sell[i]; rest > 0 {
			b.book(r, l, "release", "", 0, -rest, t.caller.Actor)
			b.addToCustomer(r.Customer, l.SKU, -rest)
		}
	}
	b.settle(r, Confirmed, sell)
	return nil
}

// retake sells an expired reservation's units if they are free, in the same step.
func (b *books) retake(t *task, r *record, sell []int64) error {
	// While its expiry isn't booked yet, this transaction must not hold on to it: rivals for the
	// same units would find it in their way, as this one would find theirs.
	if r.stored == Held {
		return &reapFirstError{[]Due{{ID: r.ID, Tenant: b.tenant}}}
	}
	wanted := make([]Line, 0, len(sell))
	for i, l := range r.Lines {
		if sell[i] == 0 {
			continue
		}
		if i := b.items[l.SKU]; i == nil || !i.active {
			return &NotFoundError{Kind: ErrSKUNotFound, Name: l.SKU}
		}
		l.Quantity = sell[i]
		wanted = append(wanted, l)
	}
	if err := b.checkCustomer(r.Customer, wanted); err != nil {
		return err
	}
	if d := allot(b.items, wanted, Prefer, false); len(d.shortages) > 0 {
		b.short = append(b.short, d.shortages...)
		return &ShortageError{Kind: ErrExpiredSoldOut, Shortages: d.shortages}
	}
	event := eventConfirmed
	for _, l := range wanted {
		b.book(r, l, "retake", event, -l.Quantity, 0, t.caller.Actor)
		b.addToCustomer(r.Customer, l.SKU, l.Quantity)
		b.sell(r.Customer, l.SKU, l.Quantity)
		event = ""
	}
	b.settle(r, Confirmed, sell)
	return nil
}

func (b *books) release(t *task, r *record) error {
	switch r.Status {
	case Confirmed:
		return stateError(r.Reservation, "")
	case Released, Expired:
		return nil
	}
	event := eventReleased
	for _, l := range r.Lines {
		b.book(r, l, "release", event, 0, -l.Quantity, t.caller.Actor)
		b.addToCustomer(r.Customer, l.SKU, -l.Quantity)
		event = ""
	}
	b.settle(r, Released, nil)
	return nil
}

// extend moves the expiry, never nearer, and not past the cap that counts from the creation.
func (b *books) extend(t *task, r *record) error {
	if r.Status != Held {
		return stateError(r.Reservation, "")
	}
	until := b.now.Add(t.extend.TTL).UTC()
	if !until.After(r.ExpiresAt) {
		return nil
	}
	if until.After(r.CreatedAt.Add(max(r.firstTTL, b.maxHold))) {
		return ErrExtensionLimit
	}
	r.ExpiresAt, r.extended = until, true
	b.touch(r)
	return nil
}

// What becomes of a reservation; the ledger says it on one entry of each transition.
const (
	eventHeld      = "reservation.held"
	eventConfirmed = "reservation.confirmed"
	eventReleased  = "reservation.released"
	eventExpired   = "reservation.expired"
)

// book changes the counters of a line's shelf and notes it.
func (b *books) book(r *record, l Line, kind, event string, deltaOnHand, deltaHeld int64, actor string) {
	i := b.items[l.SKU]
	s := i.at(l.Location)
	if deltaOnHand > deltaHeld && i.waiting > 0 {
		b.freed = append(b.freed, l.SKU)
	}
	s.onHand += deltaOnHand
	s.held += deltaHeld
	s.sold -= deltaOnHand
	b.entries = append(b.entries, entry{
		place: s.place, kind: kind, event: event, deltaOnHand: deltaOnHand, deltaHeld: deltaHeld, onHand: s.onHand, held: s.held,
		reservation: r.ID, reference: r.Reference, actor: actor,
	})
}

func (b *books) settle(r *record, status Status, sold []int64) {
	at := b.now.UTC()
	r.Status, r.SettledAt = status, &at
	if sold != nil {
		r.Lines = slices.Clone(r.Lines)
		for i := range r.Lines {
			r.Lines[i].Confirmed = &sold[i]
		}
	}
	b.touch(r)
}

func (b *books) touch(r *record) {
	if !r.touched {
		r.touched = true
		b.changed = append(b.changed, r)
	}
}

func (b *books) ttlOf(cmd *Reserve, lines []Line) time.Duration {
	if cmd.TTL != 0 {
		return cmd.TTL
	}
	var shortest time.Duration
	for _, l := range lines {
		if own := b.items[l.SKU].defaultTTL; own != nil && (shortest == 0 || *own < shortest) {
			shortest = *own
		}
	}
	if shortest == 0 {
		return DefaultTTL
	}
	return shortest
}
