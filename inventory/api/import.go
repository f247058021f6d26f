package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/inventory"
)

const (
	typeCSV    = "text/csv"
	typeNDJSON = "application/x-ndjson"

	maxImport = 1 << 30 // bytes
	// maxImports bounds the imports that one replica carries out at once, and with that their share of
	// its memory and its connections.
	maxImports = 4
	// maxUnsent is how much of an answer is kept until the body has come: some clients don't read before.
	maxUnsent = 8 << 20
	// signOfLife is how long a client, or a proxy between, hears nothing at most.
	signOfLife = 5 * time.Second
)

const importDescription = `Changes what is on hand, never what is held, row by row. The good rows stand; a bad row changes nothing, holds up no other, and is told with its
line and the reason. A SKU that isn't there is made.

A row has ` + "`sku`, `name`, and one of `delta`" + ` (units received, or written off if negative) and ` + "`counted`" + ` (what is on hand from now on). It may have ` +
	"`expected`" + ` (refuse unless this was on hand before the count), ` + "`location`, `reason`, `reference`, `safety_stock`, `backorder_limit`, `max_per_customer` and `default_ttl`" + `. What is left out, empty or null stays as it is.

- ` + "`text/csv`" + `: RFC 4180, UTF-8, commas, with a header that names the columns. A header that can't be right is 422, and then nothing was done.
- ` + "`application/x-ndjson`" + `: a JSON object on each line.

A row may have 64 KiB, the whole 1 GiB. Rows are carried out in their order, 250 in a transaction, while stock is sold; the same SKU may come again. Each 10 s some of the body must come.

**Answer:** ` + "`errors`" + ` has every bad row; with ` + "`results=all`" + ` there is ` + "`results`" + ` instead, with every row. The numbers come after them, so ` +
	"`complete`" + ` is known at the end: where it is false, ` + "`incomplete`" + ` says why the import ended early and in which line the first row begins that wasn't carried out. The rows before stand. Up to 8 MiB of
the answer wait until the body has come; a client that expects more should read while it sends.

**Again:** with an ` + "`Idempotency-Key`" + `, send the same body with the same key until it is complete: what is done isn't done again, on any replica, and the answer is the same. Other rows under the
key are refused with ` + "`idempotency_key_reused`" + ` at the first batch that differs. Without a key, deltas that are sent again are applied again.`

type importInput struct {
	Results  string `query:"results" enum:"errors,all" default:"errors" doc:"Tell of the bad rows, or of all"`
	DryRun   bool   `query:"dry_run" doc:"Check, and change nothing. Each 250 rows are judged by the stock as it is"`
	Location string `query:"location" pattern:"^[A-Za-z0-9._:-]{1,128}$" doc:"Of the rows that name none; default: default"`
	Reason   string `query:"reason" minLength:"1" maxLength:"500" doc:"For the ledger, of the rows that give none; default: import"`
}

// imported is the answer to an import, as a client sees it in the end.
type imported struct {
	Errors  []inventory.RowResult `json:"errors,omitempty" doc:"The bad rows"`
	Results []inventory.RowResult `json:"results,omitempty" doc:"With results=all, instead of errors: every row"`
	inventory.ImportTotals
	DryRun     bool        `json:"dry_run"`
	Complete   bool        `json:"complete" doc:"Whether every row was looked at"`
	Incomplete *incomplete `json:"incomplete,omitempty"`
}

// incomplete says why an import ended early.
type incomplete struct {
	Code     string `json:"code" doc:"As of problems"`
	Reason   string `json:"reason"`
	NextLine int64  `json:"next_line" doc:"Where the first row begins that wasn't carried out"`
}

func registerImports(a *httpapi.API, store *inventory.Store) {
	running := make(chan struct{}, maxImports)
	op := httpapi.Op{
		Method: http.MethodPost, Path: "/v1/imports", Scope: apikey.Write, Tag: "Stock", Summary: "Import stock", Description: importDescription,
		Codes: []string{"import_stopped"}, MaxBody: maxImport, Answer: reflect.TypeFor[imported](),
	}
	httpapi.RegisterImport(a, op, []string{typeCSV, typeNDJSON}, "application/json", func(ctx context.Context, in *importInput, body *httpapi.Import) error {
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
		default:
			return &httpapi.Problem{
				Status: http.StatusServiceUnavailable, Code: httpapi.CodeOverloaded, RetryAfter: signOfLife,
				Detail: fmt.Sprintf("%d imports are in hand here already. Nothing was done; ask again.", maxImports),
			}
		}
		c := callerOf(ctx)
		c.Key.Body = body.Sum() // nothing has been read: of the parameters alone
		answer := importAnswer{body: body, sent: time.Now(), list: "errors"}
		im := inventory.Import{
			Location: in.Location, Reason: in.Reason, All: in.Results == "all", DryRun: in.DryRun, Stop: httpapi.Draining(ctx),
		}
		if im.All {
			answer.list = "results"
		}
		if body.ContentType == typeNDJSON {
			im.Rows = inventory.NewImportNDJSON(body)
		} else {
			var err error
			if im.Rows, err = inventory.NewImportCSV(body); err != nil {
				return err
			}
		}
		done, err := store.Import(ctx, c, im, answer.tell)
		// Where nothing was done and nothing has been said, an ordinary problem says so. A client that is
		// gone isn't told anything.
		if err != nil && (done.Fresh == 0 && !answer.begun || answer.failed != nil || ctx.Err() != nil) {
			return err
		}
		var early *incomplete
		if err != nil {
			p := a.ProblemOf(ctx, err)
			early = &incomplete{Code: p.Code, Reason: p.Detail, NextLine: done.NextLine}
		}
		httpapi.SetReplayed(ctx, c.Key.Value != "" && done.Fresh == 0 && err == nil && !in.DryRun)
		return answer.end(done.ImportTotals, in.DryRun, early)
	})
}

// importAnswer is an answer that grows. It is sent when the body has come, or when it has become long.
type importAnswer struct {
	body   *httpapi.Import
	list   string // the name of its list
	unsent []byte
	rows   int
	begun  bool
	sent   time.Time // the last of it
	failed error     // why no more can be sent
}

// tell adds what became of some rows.
func (a *importAnswer) tell(results []inventory.RowResult) error {
	for _, r := range results {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		a.unsent = append(append(a.unsent, a.separator()...), text...)
		a.rows++
	}
	if len(a.unsent) > maxUnsent {
		a.send(a.unsent)
		a.unsent = a.unsent[:0]
	} else if time.Since(a.sent) > signOfLife {
		a.send([]byte("\n")) // between two of its parts, or before the first, it means nothing
	}
	return a.failed
}

func (a *importAnswer) separator() string {
	if a.rows == 0 {
		return `{"` + a.list + `":[` + "\n"
	}
	return ",\n"
}

func (a *importAnswer) end(totals inventory.ImportTotals, dryRun bool, early *incomplete) error {
	if a.rows == 0 {
		a.unsent = append(a.unsent, a.separator()...)
	}
	text, err := json.Marshal(imported{ImportTotals: totals, DryRun: dryRun, Complete: early == nil, Incomplete: early})
	if err != nil {
		return err
	}
	a.unsent = append(append(a.unsent, "],"...), text[1:]...) // its other members
	a.unsent = append(a.unsent, '\n')
	a.send(a.unsent)
	return a.failed
}

func (a *importAnswer) send(text []byte) {
	a.begun, a.sent = true, time.Now()
	_, err := a.body.Write(text)
	a.failed = errors.Join(a.failed, err, a.body.Flush())
}
