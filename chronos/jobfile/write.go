package jobfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// order is how the members of a job or calendar are written; others follow as they come.
var order = []string{
	"kind", "name", "schedule", "timezone", "grace", "target", "dates", "retry", "overlap", "max_concurrent", "catch_up", "jitter",
	"start_at", "end_at", "max_runs", "exclude", "priority", "dst_gap", "dst_overlap", "day_match", "labels", "alerts", "paused",
}

// defaults are the values that needn't be written, as the API shows them.
var defaults = map[string]string{
	"timezone": `"UTC"`, "overlap": `"skip"`, "max_concurrent": `1`, "jitter": `"0s"`, "start_at": `null`, "end_at": `null`, "max_runs": `null`,
	"exclude": `[]`, "priority": `0`, "dst_gap": `"run"`, "dst_overlap": `"once"`, "day_match": `"any"`, "labels": `{}`, "alerts": `[]`, "paused": `false`,
	"retry.max_attempts": `5`, "retry.backoff": `"10s"`, "retry.max_backoff": `"1h"`,
	"catch_up.policy": `"latest"`, "catch_up.window": `"1h"`, "catch_up.max": `10`,
	"target.webhook.method": `"POST"`, "target.webhook.headers": `{}`, "target.webhook.body": `{}`, "target.webhook.timeout": `"10s"`,
	"target.pull.payload": `null`, "retry": `{}`, "catch_up": `{}`,
}

// told is what the API adds to what was put.
var told = []string{
	"unreadable", "pause_reason", "paused_at", "paused_until", "skips", "next_at", "revision", "created_at", "updated_at",
	"state", "expected_at", "deadline", "started_at", "last_check_in_at", "last_duration", "failures", "failing_since",
}

// member is one of an object, which keeps its order.
type member struct {
	name  string
	value json.RawMessage
}

func members(object json.RawMessage) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		return nil, fmt.Errorf("not an object: %.100s", object)
	}
	var found []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		found = append(found, member{fmt.Sprint(name), value})
	}
	return found, nil
}

// Trim reduces a job, calendar or monitor, as the API shows it, to what has to be written to have it again: without what
// the API adds, the labels in without, and what has its default.
func Trim(shown json.RawMessage, without ...string) (json.RawMessage, error) {
	all, err := members(shown)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(m member) bool { return slices.Contains(told, m.name) })
	slices.SortStableFunc(all, func(a, b member) int { return place(a.name) - place(b.name) })
	for i, m := range all {
		if m.name != "labels" {
			continue
		}
		labels, err := members(m.value)
		if err != nil {
			return nil, err
		}
		all[i].value = object(slices.DeleteFunc(labels, func(l member) bool { return slices.Contains(without, l.name) }))
	}
	return trim("", object(all))
}

func place(name string) int {
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

func object(all []member) json.RawMessage {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range all {
		if i > 0 {
			out.WriteByte(',')
		}
		name, _ := json.Marshal(m.name)
		out.Write(name)
		out.WriteByte(':')
		out.Write(m.value)
	}
	out.WriteByte('}')
	return out.Bytes()
}

// trim leaves out members with defaults, in those objects whose members the API fills in.
func trim(path string, value json.RawMessage) (json.RawMessage, error) {
	all, err := members(value)
	if err != nil {
		return nil, err
	}
	var kept []member
	for _, m := range all {
		at := m.name
		if path != "" {
			at = path + "." + m.name
		}
		switch at {
		case "retry", "catch_up", "target", "target.webhook", "target.pull":
			if m.value, err = trim(at, m.value); err != nil {
				return nil, err
			}
		}
		if def, ok := defaults[at]; !ok || def != compact(m.value) {
			kept = append(kept, m)
		}
	}
	return object(kept), nil
}

func compact(value json.RawMessage) string {
	var out bytes.Buffer
	if json.Compact(&out, value) != nil {
		return string(value)
	}
	return out.String()
}

// Encode writes objects as documents of a YAML file, which [Parse] reads as they are.
func Encode(objects []json.RawMessage) ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	for _, o := range objects {
		n, err := node(o)
		if err != nil {
			return nil, err
		}
		if err := enc.Encode(n); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), enc.Close()
}

// node is a JSON value as YAML that reads as the same.
func node(value json.RawMessage) (*yaml.Node, error) {
	value = bytes.TrimSpace(value)
	switch {
	case bytes.HasPrefix(value, []byte("{")):
		all, err := members(value)
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, m := range all {
			child, err := node(m.value)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, text(m.name), child)
		}
		if len(all) == 0 {
			n.Style = yaml.FlowStyle
		}
		return n, err
	case bytes.HasPrefix(value, []byte("[")):
		var items []json.RawMessage
		err := json.Unmarshal(value, &items)
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, item := range items {
			child, err := node(item)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		if len(items) == 0 {
			n.Style = yaml.FlowStyle
		}
		return n, err
	case bytes.HasPrefix(value, []byte(`"`)):
		var s string
		err := json.Unmarshal(value, &s)
		return text(s), err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: string(value)} // a number, true, false or null
	return n, nil
}

// text is a string, in quotes where it would be something else without.
func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	plain := yaml.Node{Kind: yaml.ScalarNode, Value: s}
	if n.Style == 0 && plain.ShortTag() != "!!str" && plain.ShortTag() != "!!timestamp" {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}
