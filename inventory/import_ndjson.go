package inventory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

func (r *ImportRows) nextObject() (row importRow, err error) {
	length, tooLong, err := r.text.nextLine()
	if tooLong != nil || err != nil {
		if tooLong != nil {
			row = *tooLong
		}
		return row, err
	}
	row.line = r.text.line
	text := trimBreak(r.text.take(length))
	if row.bad = textFault(text); row.bad == nil {
		row.bad = row.readObject(bytes.TrimSpace(text))
	}
	row.check()
	return row, nil
}

// readObject reads a row's members. null says the same as leaving a member out.
func (r *importRow) readObject(text []byte) *rowError {
	if !json.Valid(text) {
		return malformed("isn't JSON: %v", jsonFault(text))
	}
	if text[0] != '{' {
		return malformed("isn't a JSON object")
	}
	var seen []string
	// It is valid JSON, so what follows only has to find its way.
	for rest := trimJSON(text[1:]); rest[0] != '}'; {
		end := valueEnd(rest)
		name, bad := jsonString(rest[:end])
		if bad != "" {
			return malformed("the name of a member %s", bad)
		}
		rest = trimJSON(trimJSON(rest[end:])[1:]) // the colon
		end = valueEnd(rest)
		value := rest[:end]
		if rest = trimJSON(rest[end:]); rest[0] == ',' {
			rest = trimJSON(rest[1:])
		}
		if !isImportColumn(name) {
			return &rowError{field: fieldName(name), code: codeInvalid, reason: "unknown member; there may be " + strings.Join(importColumns, ", ")}
		}
		for _, other := range seen {
			if other == name {
				return badField(name, "is given twice")
			}
		}
		seen = append(seen, name)
		isNumber := r.number(name) != nil
		switch {
		case string(value) == "null":
		case isNumber && (value[0] == '-' || value[0] >= '0' && value[0] <= '9'):
			r.set(name, string(value))
		case isNumber:
			return badField(name, "must be a whole number, not %s", jsonKind(value))
		case value[0] != '"':
			return badField(name, "must be a string, not %s", jsonKind(value))
		default:
			text, bad := jsonString(value)
			if bad != "" {
				return badField(name, "%s", bad)
			}
			if text == "" && name != "name" {
				return badField(name, "must not be empty")
			}
			r.set(name, text)
		}
	}
	return r.bad
}

// fieldName is the name of a member that isn't known, as far as it can be shown.
func fieldName(name string) string {
	if len(name) > 64 || strings.IndexByte(name, 0) >= 0 {
		return ""
	}
	return name
}

func jsonFault(text []byte) error {
	var any any
	err := json.Unmarshal(text, &any)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("%w, at byte %d", syntax, syntax.Offset)
	}
	return err
}

func jsonKind(value []byte) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	}
	return "a number"
}

func trimJSON(text []byte) []byte { return bytes.TrimLeft(text, " \t\r\n") }

// valueEnd is how long the value is that a valid text begins with.
func valueEnd(text []byte) int {
	switch text[0] {
	case '"':
		for i := 1; ; i++ {
			switch text[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
	case '{', '[':
		for i, depth := 0, 0; ; i++ {
			switch text[i] {
			case '"':
				i += valueEnd(text[i:]) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	return bytes.IndexAny(text, ",}] \t\r\n")
}

// jsonString reads a string of valid JSON, and says what is wrong with it.
func jsonString(quoted []byte) (text, bad string) {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), ""
	}
	if err := json.Unmarshal(quoted, &text); err != nil {
		return "", "can't be read"
	}
	// Half a surrogate pair is read as the replacement character, which nobody wrote.
	written := strings.ToLower(string(inner))
	if strings.ContainsRune(text, utf8.RuneError) && !strings.Contains(written, `\ufffd`) && !strings.ContainsRune(written, utf8.RuneError) {
		return "", "holds half a surrogate pair"
	}
	return text, ""
}
