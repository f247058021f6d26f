package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/inventory"
)

const (
	// heartbeatEvery is how often a listener that hears nothing gets a comment.
	heartbeatEvery = 15 * time.Second
	// streamPatience is how long a listener may keep one event from being sent.
	streamPatience = 10 * time.Second
)

type streamInput struct {
	SKUs        []string `query:"sku,explode" maxItems:"100" doc:"May be repeated; without: all SKUs"`
	LastEventID string   `header:"Last-Event-ID" doc:"The id of the last event seen: only what has changed since is sent first"`
}

func registerStream(a *httpapi.API, store *inventory.Store) {
	httpapi.RegisterStream(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/stream", Scope: apikey.Read, Tag: "Stock",
		Summary: "Listen to stock", Codes: []string{"sku_not_found", "too_many_listeners"},
		Description: "Server-sent events: first the state of each SKU, or with `Last-Event-ID` of those that have changed since, then the newest state after each change. Changes that follow each " +
			"other closely come as one.\n\n" +
			"`event: stock`, `data: {sku, on_hand, held, available, sold, low_stock?, deleted?, seq, at}`. `event: dropped`, `data: {reason}` is the last one of a listener that reads too slowly (`too_slow`) or " +
			"whose server is about to stop (`draining`): come back, with `Last-Event-ID`. A comment every 15 seconds keeps the connection alive.",
	}, httpapi.EventStream,
		func(ctx context.Context, in *streamInput, w http.ResponseWriter) error {
			l, err := store.Listen(ctx, httpapi.Tenant(ctx), in.SKUs, in.LastEventID)
			if err != nil {
				return err
			}
			defer l.Close()
			events, err := httpapi.NewEvents(w, streamPatience)
			if err != nil {
				return err
			}
			for ctx.Err() == nil {
				updates, err := l.Next(ctx, heartbeatEvery)
				switch {
				case errors.Is(err, inventory.ErrTooSlow), errors.Is(err, inventory.ErrStreamEnded):
					return events.Send("dropped", "", `{"reason":"`+err.Error()+`"}`)
				case err != nil:
					return err
				case len(updates) == 0 && ctx.Err() == nil:
					if err := events.Ping(); err != nil {
						return err
					}
				}
				for _, u := range updates {
					if err := events.Send("stock", u.ID, u.Data); err != nil {
						return err
					}
				}
			}
			return nil
		})
}
