package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

var errTaken = errors.New("the table is taken")

type bookInput struct {
	Table string `path:"table" maxLength:"128"`
	Body  booking
}

type booking struct {
	Guests int64            `json:"guests" minimum:"1" maximum:"12"`
	For    httpapi.Duration `json:"for"`
}

// A service registers an operation; everything around it is done for it.
func Example() {
	api := httpapi.New(httpapi.Config{
		Title: "Tables", Version: "1",
		Errors: []httpapi.Rule{{Err: errTaken, Status: http.StatusConflict, Code: "taken"}},
		Log:    slog.New(slog.DiscardHandler),
	})
	httpapi.Register(api, httpapi.Op{
		Method: "POST", Path: "/v1/tables/{table}/bookings", Scope: apikey.Write, Summary: "Book a table", Status: 201, Codes: []string{"taken"},
	}, func(ctx context.Context, in *bookInput) (booking, error) {
		if in.Body.Guests > 4 {
			return booking{}, fmt.Errorf("table %s: %w", in.Table, errTaken)
		}
		return in.Body, nil // and httpapi.SetReplayed(ctx, …), if the key was known
	})
	server := httptest.NewServer(api)
	defer server.Close()

	for _, body := range []string{`{"guests": 2, "for": "90m"}`, `{"guests": 5, "for": "2h"}`, `{"guests": 0, "for": "2h"}`} {
		res, err := server.Client().Post(server.URL+"/v1/tables/window/bookings", "application/json", strings.NewReader(body))
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = res.Body.Close()
		fmt.Println(res.Status, res.Header.Get("Content-Type"))
	}
	// Output:
	// 201 Created application/json
	// 409 Conflict application/problem+json
	// 422 Unprocessable Entity application/problem+json
}
