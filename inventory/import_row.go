package inventory

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// importRow is one row of an import, as it was read.
type importRow struct {
	line      int64 // where it begins, from 1
	sku       string
	location  string // "": the import's
	reason    string // "": the import's
	reference string
	name      *string
	// Exactly one of them is set.
	delta, counted *int64
	expected       *int64
	settings       rowSettings
	bad            *rowError // why it can't be taken
}

// rowSettings are the settings of its SKU that a row changes; nil leaves one as it is.
type rowSettings struct {
	safetyStock, backorderLimit, maxPerCustomer *int64
	defaultTTL                                  *time.Duration
}

// rowError says what is wrong with a row.
type rowError struct{ field, code, reason string }

// Codes of rows that can't be carried out. The others are those of [importCode].
const (
	codeMalformed = "malformed_row"     // it can't be read
	codeInvalid   = "validation_failed" // a field is missing or can't be right
)

func malformed(reason string, args ...any) *rowError {
	return &rowError{code: codeMalformed, reason: fmt.Sprintf(reason, args...)}
}

func badField(field, reason string, args ...any) *rowError {
	return &rowError{field: field, code: codeInvalid, reason: fmt.Sprintf(reason, args...)}
}

// importColumns are what a row may have: a CSV file's columns and an object's members.
var importColumns = []string{
	"sku", "name", "delta", "counted", "expected", "location", "reason", "reference",
	"safety_stock", "backorder_limit", "max_per_customer", "default_ttl",
}

func isImportColumn(name string) bool { return slices.Contains(importColumns, name) }

// number is where a row keeps a column of whole numbers; nil where the column isn't one.
func (r *importRow) number(column string) **int64 {
	switch column {
	case "delta":
		return &r.delta
	case "counted":
		return &r.counted
	case "expected":
		return &r.expected
	case "safety_stock":
		return &r.settings.safetyStock
	case "backorder_limit":
		return &r.settings.backorderLimit
	case "max_per_customer":
		return &r.settings.maxPerCustomer
	}
	return nil
}

// set gives a column its value. Only the first thing that is wrong with a row is kept.
func (r *importRow) set(column, text string) {
	if number := r.number(column); number != nil {
		if n, ok := wholeNumber(text); ok {
			*number = &n
		} else {
			r.refuse(badField(column, "must be a whole number of at most 18 digits, not %s", quoted(text)))
		}
		return
	}
	switch column {
	case "sku":
		r.sku = text
	case "name":
		r.name = &text
	case "location":
		r.location = text
	case "reason":
		r.reason = text
	case "reference":
		r.reference = text
	case "default_ttl":
		ttl, err := time.ParseDuration(text)
		if err != nil {
			r.refuse(badField(column, `must be a duration such as "90s" or "10m", not %s`, quoted(text)))
		}
		r.settings.defaultTTL = &ttl
	}
}

func (r *importRow) refuse(bad *rowError) {
	if r.bad == nil {
		r.bad = bad
	}
}

// wholeNumber reads what is a whole number and fits.
func wholeNumber(text string) (int64, bool) {
	digits := strings.TrimLeft(text, "+-")
	if len(text)-len(digits) > 1 || len(digits) > 18 {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// quoted shows a value in a reason, shortened.
func quoted(text string) string {
	const most = 40
	if len(text) > most {
		cut := most
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return strconv.Quote(text)
}

// check refuses what can't be right whatever is in stock.
func (r *importRow) check() {
	if r.bad == nil {
		r.bad = r.fault()
	}
}

func (r *importRow) fault() *rowError {
	if r.sku == "" {
		return badField("sku", "is missing")
	}
	if err := checkSKU("sku", r.sku); err != nil {
		return fieldFault(err)
	}
	switch {
	case r.delta == nil && r.counted == nil:
		return badField("delta", "neither delta nor counted is given")
	case r.delta != nil && r.counted != nil:
		return badField("counted", "both delta and counted are given")
	case r.delta != nil && (*r.delta == 0 || *r.delta > MaxUnits || *r.delta < -MaxUnits):
		return badField("delta", "must be from -%d to %d and not 0, not %d", MaxUnits, MaxUnits, *r.delta)
	case r.counted != nil && (*r.counted < 0 || *r.counted > MaxUnits):
		return badField("counted", "must be from 0 to %d, not %d", MaxUnits, *r.counted)
	case r.expected != nil && r.counted == nil:
		return badField("expected", "goes with counted alone")
	}
	if r.location != "" {
		if err := checkSKU("location", r.location); err != nil {
			return fieldFault(err)
		}
	}
	settings := Settings{
		SKU: r.sku, Name: Change[string]{Value: r.name}, SafetyStock: Change[int64]{Value: r.settings.safetyStock},
		BackorderLimit: Change[int64]{Value: r.settings.backorderLimit}, MaxPerCustomer: Change[int64]{Value: r.settings.maxPerCustomer},
		DefaultTTL: Change[time.Duration]{Value: r.settings.defaultTTL},
	}
	for _, err := range []error{settings.check(), checkText("reason", r.reason, 500), checkText("reference", r.reference, 255)} {
		if err != nil {
			return fieldFault(err)
		}
	}
	return nil
}

// fieldFault is what a command that did the same as the row would have been refused for.
func fieldFault(err error) *rowError {
	var bad *InvalidError
	if errors.As(err, &bad) {
		return badField(bad.Field, "%s", bad.Reason)
	}
	return malformed("%v", err)
}
