package web

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/inventory"
)

// How many rows Inventory's pages show.
const (
	skusPerPage         = 25
	latestReservations  = 15
	reservationsPerPage = 50
	entriesPerPage      = 50
	entriesPlotted      = 200
	firstInLine         = 10
)

// Inventory adds Inventory's dashboard to its API: / and the pages below /skus and /reservations. Nil keys
// mean that authentication is off. Call it once, before face serves.
func Inventory(face *httpapi.API, store *inventory.Store, keys *apikey.Store) {
	s := newSite("Inventory", keys, store.Now, []link{{"/", "Stock"}, {"/reservations", "Reservations"}},
		inventory.ErrSKUNotFound, inventory.ErrReservationNotFound)
	p := stockPages{store}
	s.mount(face, map[string]func(context.Context, visit) (page, error){
		"GET /{$}":               p.stock,
		"GET /skus/{sku}":        p.sku,
		"GET /reservations":      p.reservations,
		"GET /reservations/{id}": p.reservation,
	}, "GET /skus", "GET /skus/", "GET /reservations/")
}

type stockPages struct{ store *inventory.Store }

// skuRow is a SKU with its bar.
type skuRow struct {
	inventory.SKU
	Bar stack
}

func rowOf(k inventory.SKU) skuRow {
	row := skuRow{SKU: k}
	// What is neither held nor offered is kept back as safety stock. Backorders make the bar
	// longer than what there is, as they should.
	kept := max(0, k.OnHand-k.Held-k.Available)
	total := k.Sold + k.Held + k.Available + kept
	row.Bar.add("available", "available", k.Available, total)
	row.Bar.add("held", "held", k.Held, total)
	row.Bar.add("kept", "kept back", kept, total)
	row.Bar.add("sold", "sold", k.Sold, total)
	return row
}

// reservationList is reservations as the pages' shared part shows them.
type reservationList struct {
	Now   time.Time
	Items []inventory.Reservation
}

type stockView struct {
	SKUs         []skuRow
	Next         *string // cursor
	Paged        bool    // not the first page
	Reservations reservationList
}

func (p stockPages) stock(ctx context.Context, v visit) (page, error) {
	const kind = "skus" // as in the API, so that the cursors are the same
	var after string
	paged, err := listParams(v, skusPerPage).After(kind, &after)
	if err != nil {
		return page{}, err
	}
	found, err := p.store.ListSKUs(ctx, v.tenant, after, skusPerPage+1)
	if err != nil {
		return page{}, err
	}
	skus := httpapi.NewPage(found, skusPerPage, kind, func(last inventory.SKU) string { return last.SKU })
	latest, err := p.store.ListReservations(ctx, v.tenant, inventory.ReservationFilter{}, inventory.Position{}, latestReservations)
	if err != nil {
		return page{}, err
	}
	body := stockView{Next: skus.NextCursor, Paged: paged, Reservations: reservationList{v.now, latest}}
	for _, k := range skus.Items {
		body.SKUs = append(body.SKUs, rowOf(k))
	}
	return page{name: "stock", title: "Stock", body: body}, nil
}

func listParams(v visit, limit int) httpapi.ListParams {
	return httpapi.ListParams{Limit: limit, Cursor: v.URL.Query().Get("cursor")}
}

type skuView struct {
	skuRow
	Plot    *stepPlot
	Entries []inventory.Entry
	Next    *string
	Paged   bool
	Holds   reservationList
	More    bool // holds than are shown
	Line    lineView
}

// lineView is the head of a SKU's waiting list.
type lineView struct {
	Waiting int64
	First   []inventory.Place
}

func (l lineView) More() bool { return l.Waiting > int64(len(l.First)) }

func (p stockPages) sku(ctx context.Context, v visit) (page, error) {
	const kind = "latest ledger"
	k, err := p.store.GetSKU(ctx, v.tenant, v.PathValue("sku"))
	if err != nil {
		return page{}, err
	}
	var before int64
	paged, err := listParams(v, entriesPerPage).After(kind, &before)
	if err != nil {
		return page{}, err
	}
	entries, err := p.store.LatestEntries(ctx, v.tenant, k.SKU, before, entriesPlotted)
	if err != nil {
		return page{}, err
	}
	shown := httpapi.NewPage(entries, entriesPerPage, kind, func(last inventory.Entry) int64 { return last.Seq })
	holds, err := p.store.ListReservations(ctx, v.tenant,
		inventory.ReservationFilter{SKU: k.SKU, Status: inventory.Held}, inventory.Position{}, latestReservations+1)
	if err != nil {
		return page{}, err
	}
	line := lineView{}
	if line.First, err = p.store.ListPlaces(ctx, v.tenant, k.SKU, "", 0, firstInLine); err != nil {
		return page{}, err
	}
	if line.Waiting, err = p.store.CountWaiting(ctx, v.tenant, k.SKU); err != nil {
		return page{}, err
	}
	body := skuView{
		skuRow: rowOf(k), Plot: newStepPlot(levelsOf(k, entries)), Entries: shown.Items, Next: shown.NextCursor, Paged: paged,
		More: len(holds) > latestReservations, Holds: reservationList{v.now, holds[:min(len(holds), latestReservations)]}, Line: line,
	}
	return page{name: "sku", title: k.SKU, body: body}, nil
}

// levelsOf is a SKU's counters after each of its latest entries, oldest first, over all
// locations: each entry has its own location's alone.
func levelsOf(k inventory.SKU, newestFirst []inventory.Entry) []level {
	type counters struct{ onHand, held int64 }
	here := map[string]counters{}
	for _, l := range k.Locations {
		here[l.Location] = counters{l.OnHand, l.Held}
	}
	for _, e := range newestFirst { // the oldest entry of a location decides what was before
		here[e.Location] = counters{e.OnHand - e.DeltaOnHand, e.Held - e.DeltaHeld}
	}
	var levels []level
	for _, e := range slices.Backward(newestFirst) {
		here[e.Location] = counters{e.OnHand, e.Held}
		l := level{at: e.At}
		for _, c := range here {
			l.onHand += c.onHand
			l.held += c.held
		}
		l.text = fmt.Sprintf("%s, %s: %s on hand, %s held", e.At.Format("2 Jan 15:04:05"), e.Kind, number(l.onHand), number(l.held))
		levels = append(levels, l)
	}
	return levels
}

var statuses = []inventory.Status{inventory.Held, inventory.Confirmed, inventory.Released, inventory.Expired}

type reservationsView struct {
	Filter   inventory.ReservationFilter
	Statuses []inventory.Status
	List     reservationList
	Next     string // the address of the next page
	Paged    bool
}

func (p stockPages) reservations(ctx context.Context, v visit) (page, error) {
	const kind = "reservations"
	query := v.URL.Query()
	filter := inventory.ReservationFilter{
		SKU: query.Get("sku"), Status: inventory.Status(query.Get("status")), Customer: query.Get("customer"), Reference: query.Get("reference"),
	}
	if filter.Status != "" && !slices.Contains(statuses, filter.Status) {
		return page{}, unusable("A reservation's status is held, confirmed, released or expired, not " + strconv.Quote(string(filter.Status)) + ".")
	}
	var before inventory.Position
	paged, err := listParams(v, reservationsPerPage).After(kind, &before)
	if err != nil {
		return page{}, err
	}
	found, err := p.store.ListReservations(ctx, v.tenant, filter, before, reservationsPerPage+1)
	if err != nil {
		return page{}, err
	}
	list := httpapi.NewPage(found, reservationsPerPage, kind, inventory.Reservation.Position)
	body := reservationsView{Filter: filter, Statuses: statuses, List: reservationList{v.now, list.Items}, Paged: paged}
	if list.NextCursor != nil {
		query.Set("cursor", *list.NextCursor)
		body.Next = "/reservations?" + query.Encode()
	}
	// No index finds what has none of these: such a list may look through all there ever was.
	indexed := filter.Status == "" || filter.Status == inventory.Held || filter.Customer != "" || filter.Reference != ""
	return page{name: "reservations", title: "Reservations", body: body, still: !indexed}, nil
}

func (p stockPages) reservation(ctx context.Context, v visit) (page, error) {
	id, err := uuid.Parse(v.PathValue("id"))
	if err != nil {
		return page{}, notFound
	}
	r, err := p.store.GetReservation(ctx, v.tenant, id)
	return page{name: "reservation", title: "Reservation " + id.String(), body: r}, err
}
