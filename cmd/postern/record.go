package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/postern-dev/postern/internal/outbox"
)

// record is an object of the API, as JSON has it; whatever a later server adds is in it, too.
type record map[string]any

// at returns the value at a path such as error.code, nil if there is none.
func (r record) at(path string) any {
	var v any = map[string]any(r)
	for part := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[part]
	}
	return v
}

// text is the value at a path as a cell shows it: nothing for null and false, JSON for what is nested.
func (r record) text(path string) string {
	switch v := r.at(path).(type) {
	case nil:
		return ""
	case bool:
		if v {
			return "yes"
		}
		return ""
	case string:
		return clean(v)
	case json.Number:
		return v.String()
	default:
		b, _ := json.Marshal(v)
		return clean(string(b))
	}
}

// writtenJSON are fields that hold what people have written, as they wrote it.
var writtenJSON = []string{"data", "result", "attributes", "before", "after", "schema"}

// flat is text, with the fields of an object, or the items of a list, one after the other where none of them holds
// more of that kind.
func (r record) flat(name string) string {
	var parts []string
	plain := func(v any) bool {
		switch v.(type) {
		case map[string]any, []any:
			return false
		}
		return true
	}
	switch v := r.at(name).(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if !plain(v[k]) {
				return r.text(name)
			}
			if s := record(v).text(k); s != "" {
				parts = append(parts, strings.ReplaceAll(k, "_", " ")+" "+s)
			}
		}
	case []any:
		for _, item := range v {
			if !plain(item) {
				return r.text(name)
			}
			parts = append(parts, record{"": item}.text(""))
		}
	}
	if len(parts) == 0 || slices.Contains(writtenJSON, name) {
		return r.text(name)
	}
	return strings.Join(parts, ", ")
}

// whole is the whole number at a path, 0 if there is none.
func (r record) whole(path string) int64 {
	n, _ := r.at(path).(json.Number)
	i, _ := n.Int64()
	return i
}

// moment is the time at a path, zero if there is none.
func (r record) moment(path string) time.Time {
	s, _ := r.at(path).(string)
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// records are the objects at a path.
func (r record) records(path string) []record {
	list, _ := r.at(path).([]any)
	var all []record
	for _, v := range list {
		if m, ok := v.(map[string]any); ok {
			all = append(all, m)
		}
	}
	return all
}

// clean takes out of a text what would move a terminal's cursor: errors are written by workers.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, s)
}

// ago is how long before now t was, or "in" how long it will be; coarse, as people say it.
func ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return ""
	case d < 0:
		return "in " + coarse(-d)
	default:
		return coarse(d)
	}
}

// coarse is a duration with its two largest units, or from 100 days on in days alone.
func coarse(d time.Duration) string {
	switch {
	case d < time.Minute:
		d = d.Round(time.Second)
	case d < time.Hour:
		d = d.Truncate(time.Second)
	case d < 24*time.Hour:
		d = d.Truncate(time.Minute)
	case d >= 100*24*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	default:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
	return outbox.Duration(d).String()
}
