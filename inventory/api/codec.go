package api

import (
	"encoding/hex"

	"github.com/google/uuid"

	"holdfast/internal/httpapi"
	"holdfast/inventory"
)

// The hot routes' codecs: see [httpapi.Codec] for why there are any. Members are asked for in
// the order of their names. A member that only huma knows makes a body take huma's way, so
// nothing breaks when one is missing here; an answer's member has no such way out, and a
// test compares with encoding/json.
var (
	reserveCodec = httpapi.Codec[reserveInput, inventory.Reservation]{Decode: decodeReserve, Append: appendReservation}
	confirmCodec = httpapi.Codec[confirmInput, inventory.Reservation]{Decode: decodeConfirm, Append: appendReservation}
	releaseCodec = httpapi.Codec[releaseInput, inventory.Reservation]{Decode: decodeRelease, Append: appendReservation}
	extendCodec  = httpapi.Codec[extendInput, inventory.Reservation]{Decode: decodeExtend, Append: appendReservation}
)

func decodeReserve(in *reserveInput, _ string, body []byte) bool {
	c := httpapi.NewCursor(body)
	b := &in.Body
	c.Open()
	if c.Member("allocate") {
		switch b.Allocate = c.String(1, 7); inventory.Allocation(b.Allocate) {
		case inventory.Prefer, inventory.Fewest, inventory.Spread:
		default:
			return false
		}
	}
	if c.Member("allow_partial") {
		b.AllowPartial = c.Bool()
	}
	if c.Member("customer") {
		b.Customer = c.String(1, 255)
	}
	if !c.Member("lines") {
		return false
	}
	b.Lines = decodeLines(&c)
	if c.Member("reference") {
		b.Reference = c.String(1, 255)
	}
	if c.Member("ttl") {
		ttl := c.Duration()
		b.TTL = &ttl
	}
	c.Close()
	return c.Done()
}

func decodeConfirm(in *confirmInput, id string, body []byte) bool {
	in.ID = id
	if body == nil {
		return true
	}
	c := httpapi.NewCursor(body)
	c.Open()
	in.Body = new(confirmBody)
	if c.Member("lines") {
		in.Body.Lines = decodeLines(&c)
	}
	if c.Member("retake") {
		in.Body.Retake = c.Bool()
	}
	c.Close()
	return c.Done()
}

func decodeRelease(in *releaseInput, id string, body []byte) bool {
	in.ID = id
	if body == nil {
		return true
	}
	in.Body = new(struct{})
	return string(body) == "{}"
}

func decodeExtend(in *extendInput, id string, body []byte) bool {
	in.ID = id
	c := httpapi.NewCursor(body)
	c.Open()
	if !c.Member("ttl") {
		return false
	}
	in.Body.TTL = c.Duration()
	c.Close()
	return c.Done()
}

// decodeLines reads 1 to [inventory.MaxLines] lines.
func decodeLines(c *httpapi.Cursor) []wantedLine {
	lines := make([]wantedLine, 0, 1) // most have one
	for c.List(); c.Item(); {
		var l wantedLine
		c.Open()
		if c.Member("location") {
			l.Location = c.String(1, 128)
		}
		if !c.Member("quantity") {
			c.Fail()
		}
		l.Quantity = c.Int(1, inventory.MaxUnits)
		if !c.Member("sku") {
			c.Fail()
		}
		l.SKU = c.String(1, 128)
		c.Close()
		lines = append(lines, l)
	}
	if len(lines) == 0 || len(lines) > inventory.MaxLines {
		c.Fail()
	}
	return lines
}

func appendReservation(out []byte, r *inventory.Reservation) []byte {
	out = append(out, `{"id":`...)
	out = appendID(out, r.ID)
	out = append(out, `,"status":`...)
	out = httpapi.AppendString(out, string(r.Status))
	out = append(out, `,"lines":`...)
	out = httpapi.AppendList(out, r.Lines, appendLine)
	if r.Customer != "" {
		out = httpapi.AppendString(append(out, `,"customer":`...), r.Customer)
	}
	if r.Reference != "" {
		out = httpapi.AppendString(append(out, `,"reference":`...), r.Reference)
	}
	out = httpapi.AppendTime(append(out, `,"created_at":`...), r.CreatedAt)
	out = httpapi.AppendTime(append(out, `,"expires_at":`...), r.ExpiresAt)
	if r.SettledAt != nil {
		out = httpapi.AppendTime(append(out, `,"settled_at":`...), *r.SettledAt)
	}
	if len(r.Shortages) > 0 {
		out = httpapi.AppendList(append(out, `,"shortages":`...), r.Shortages, appendShortage)
	}
	return append(out, '}')
}

func appendLine(out []byte, l *inventory.Line) []byte {
	out = httpapi.AppendString(append(out, `{"sku":`...), l.SKU)
	out = httpapi.AppendString(append(out, `,"location":`...), l.Location)
	out = httpapi.AppendInt(append(out, `,"quantity":`...), l.Quantity)
	if l.Wanted != nil {
		out = httpapi.AppendInt(append(out, `,"wanted":`...), *l.Wanted)
	}
	if l.Confirmed != nil {
		out = httpapi.AppendInt(append(out, `,"confirmed":`...), *l.Confirmed)
	}
	if l.Returned != nil {
		out = httpapi.AppendInt(append(out, `,"returned":`...), *l.Returned)
	}
	return append(out, '}')
}

func appendShortage(out []byte, s *inventory.Shortage) []byte {
	out = httpapi.AppendString(append(out, `{"sku":`...), s.SKU)
	out = httpapi.AppendString(append(out, `,"location":`...), s.Location)
	out = httpapi.AppendInt(append(out, `,"wanted":`...), s.Wanted)
	out = httpapi.AppendInt(append(out, `,"available":`...), s.Available)
	return append(out, '}')
}

// appendID spells an id as [uuid.UUID.String] does.
func appendID(out []byte, id uuid.UUID) []byte {
	out = append(out, '"')
	from := 0
	for _, to := range [...]int{4, 6, 8, 10, 16} {
		if from > 0 {
			out = append(out, '-')
		}
		out = hex.AppendEncode(out, id[from:to])
		from = to
	}
	return append(out, '"')
}
