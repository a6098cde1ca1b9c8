package ui

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// bulks are the levers on many things of a list, in the order in which they are offered.
var bulks = map[string]struct {
	verbs []string
	made  string // the member that says when a thing came into the list
	max   int    // of one part
	takes []string
	flags []string
}{
	"/transactions": {
		verbs: []string{"cancel", "retry", "suspend", "resume", "move", "redrive", "was-done", "was-not-done"},
		made:  "received",
		max:   1000,
		takes: []string{"queue", "type", "state", "sender", "error_class", "error_code", "id", "uid", "redrive_of",
			"received_after", "received_before", "done_after", "done_before", "suspended", "held"},
		flags: []string{"suspended", "held"},
	},
	"/events": {
		verbs: []string{"redrive"},
		made:  "created",
		max:   1000,
		takes: []string{"source", "tool", "digest", "created_after", "created_before"},
	},
}

// offer makes the levers on all that a filter finds: of the query of a list, which a answers, and what is in filter
// besides. Things that come after the page was made are not meant, so that a lever acts on those that were tried, and
// on none that has come since. A query that no lever can be given has none: it would act on more than the page shows.
func (l *listPage) offer(v *visit, path string, query url.Values, a *answer, filter doc) error {
	b, ok := bulks[path]
	if !ok {
		return nil
	}
	for name, values := range query {
		switch {
		case slices.Contains([]string{"cursor", "limit", "order", "include"}, name):
			continue
		case path == "/events" && name == "status" && slices.Equal(values, []string{"Dead"}): // no others are redriven
		case !slices.Contains(b.takes, name):
			return nil
		case slices.Contains(b.flags, name):
			filter[name] = values[0] == "true"
		case name == "redrive_of", strings.HasSuffix(name, "_after"), strings.HasSuffix(name, "_before"):
			filter[name] = values[0]
		default:
			filter[name] = values
		}
		l.Filter += fmt.Sprintf("%s %s; ", strings.ReplaceAll(name, "_", " "), strings.Join(values, " or "))
	}
	l.Filter = strings.TrimSuffix(l.Filter, "; ")
	if name := b.made + "_before"; filter[name] == nil {
		end, err := v.newest(path, b.made+"_at", query, a)
		if err != nil {
			return err
		}
		filter[name] = end
	}
	for _, verb := range b.verbs {
		o, err := v.leverOf(http.MethodPost, path+":"+verb, doc{"filter": filter, "max": b.max})
		if err != nil {
			return err
		}
		if o == nil {
			continue
		}
		if o.Said != nil && v.Given["body"] != "" {
			o.Body = o.Said.onward(v.Given["body"]) // the same filter as was tried
			ids, tried := v.Given["ids"]
			switch {
			case o.Said.OK && o.Said.Dry && (o.Said.IDs != "" || o.Said.None):
				o.Tried = o.Said
			case !o.Said.OK && tried: // the form is shown again with what it had
				o.Tried = &said{IDs: ids, Most: v.Given["most"], Next: v.Given["next"], None: ids == ""}
			}
		}
		o.Bulk = "no filter"
		if l.Filter != "" {
			o.Bulk = l.Filter
		}
		o.Fields = slices.DeleteFunc(o.Fields, func(f field) bool { return f.Name == "after" })
		l.Bulk = append(l.Bulk, o)
	}
	return nil
}

// newest is the moment behind the newest thing that a filter finds, by the clock that wrote it: no process's own clock
// says what a page has shown. One queue is listed by position, and after a move its newest may be on any page: it has
// the time of the first page besides. Where there is nothing, it is the time of now. a is the answer to the query.
func (v *visit) newest(path, at string, query url.Values, a *answer) (string, error) {
	if query.Get("cursor") != "" || query.Get("order") == "asc" {
		query = maps.Clone(query)
		for _, name := range []string{"cursor", "order", "include"} {
			query.Del(name)
		}
		var err error
		if a, err = v.get(with(path, query)); err != nil {
			return "", err
		}
	}
	var end time.Time
	for _, item := range a.items() {
		made, err := time.Parse(time.RFC3339Nano, str(item, at))
		if err != nil {
			return "", fmt.Errorf("%s of a thing in %s: %w", at, path, err)
		}
		if made.After(end) {
			end = made
		}
	}
	if path == "/transactions" && len(query["queue"]) == 1 { // by position, not by time
		now, err := v.get("/now")
		if err != nil {
			return "", err
		}
		if seen, err := time.Parse(time.RFC3339Nano, str(now.doc, "as_of")); err == nil && seen.After(end) {
			end = seen
		}
	}
	if end.IsZero() {
		end = v.ui.Now()
	}
	return end.Add(time.Microsecond).UTC().Format(time.RFC3339Nano), nil
}
