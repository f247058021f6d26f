package jobfile

import (
	"encoding/json"
	"slices"
)

// Field is a member that differs.
type Field struct {
	Path   string          `json:"path"` // such as retry.max_attempts
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// Diff lists what differs between two jobs, or calendars, as the API shows them; not what the API adds. Payloads and
// lists are compared as a whole.
func Diff(before, after json.RawMessage) []Field {
	return diff("", before, after)
}

func diff(path string, before, after json.RawMessage) []Field {
	a, err1 := members(before)
	b, err2 := members(after)
	switch {
	case err1 != nil || err2 != nil || path == "target.webhook.body" || path == "target.pull.payload":
		if compact(before) == compact(after) {
			return nil
		}
		return []Field{{path, before, after}}
	}
	var names []string
	values := [2]map[string]json.RawMessage{{}, {}}
	for i, list := range [][]member{a, b} {
		for _, m := range list {
			if path == "" && slices.Contains(told, m.name) {
				continue
			}
			if !slices.Contains(names, m.name) {
				names = append(names, m.name)
			}
			values[i][m.name] = m.value
		}
	}
	if path == "" {
		slices.SortStableFunc(names, func(x, y string) int { return place(x) - place(y) })
	}
	var found []Field
	for _, name := range names {
		at := name
		if path != "" {
			at = path + "." + name
		}
		was, is := values[0][name], values[1][name]
		if was == nil || is == nil {
			found = append(found, Field{at, was, is})
			continue
		}
		found = append(found, diff(at, was, is)...)
	}
	return found
}
