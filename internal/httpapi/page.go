package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
)

// ListParams are the query parameters of every list. Embed it in an operation's input.
type ListParams struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"How many items to give at most"`
	Cursor string `query:"cursor" maxLength:"2048" doc:"next_cursor of the page before"`
}

// Page is one page of a list.
type Page[T any] struct {
	Items      []T     `json:"items" nullable:"false"`
	NextCursor *string `json:"next_cursor" doc:"Gives the next page; null on the last"`
}

// NewPage makes a page of at most limit items from rows, which should hold one more if
// there are more. The cursor keeps after(last item), from which [ListParams.After]
// continues. Kind names the list, so that no other list takes its cursors.
func NewPage[T, C any](rows []T, limit int, kind string, after func(last T) C) Page[T] {
	page := Page[T]{Items: rows}
	if len(rows) > limit {
		page.Items = rows[:limit]
		cursor := encodeCursor(kind, after(page.Items[limit-1]))
		page.NextCursor = &cursor
	}
	if page.Items == nil {
		page.Items = []T{}
	}
	return page
}

// After reads the cursor into position, which is of the type that the list's pages are
// made with, and reports whether there is one. A cursor that this list didn't give is a 422.
func (l ListParams) After(kind string, position any) (bool, error) {
	if l.Cursor == "" {
		return false, nil
	}
	if !decodeCursor(kind, l.Cursor, position) {
		return false, &Problem{
			Status: http.StatusUnprocessableEntity, Code: CodeInvalidCursor,
			Detail: "The cursor isn't one that this list has given.",
			Errors: []FieldError{{"query.cursor", "not a cursor of this list"}},
		}
	}
	return true, nil
}

// cursorSum is the length of the check sum that tells a cursor from garbage. It guards
// nothing: a cursor only says where to go on in the caller's own list.
const cursorSum = 6

func encodeCursor(kind string, position any) string {
	payload, err := json.Marshal(position)
	if err != nil {
		panic("httpapi: a cursor of " + kind + " can't be JSON: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(append(sumOf(kind, payload), payload...))
}

func decodeCursor(kind, cursor string, position any) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(raw) < cursorSum || !bytes.Equal(raw[:cursorSum], sumOf(kind, raw[cursorSum:])) {
		return false
	}
	dec := json.NewDecoder(bytes.NewReader(raw[cursorSum:]))
	dec.DisallowUnknownFields() // a cursor of another version
	if dec.Decode(position) != nil {
		return false
	}
	_, err = dec.Token()
	return err == io.EOF
}

func sumOf(kind string, payload []byte) []byte {
	h := sha256.New()
	h.Write([]byte(kind))
	h.Write([]byte{0})
	h.Write(payload)
	return h.Sum(nil)[:cursorSum:cursorSum]
}
