package ui

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// thingPage is all that is said of one thing.
type thingPage struct {
	Path    string
	Facts   []property
	Why     *whyPage
	History []doc
	Seconds []fact // in each state, in the order in which it was in them
	Parts   []partPage
	Levers  []*lever
}

// property is a member of a thing: a value on a line, or a text of several.
type property struct {
	Name string
	Cell cell
	Long string
}

type partPage struct {
	Name, URL string
	List      *listPage
	Sets      []count // the list shows one set at a time: these are the other ones
}

// thing reads one thing, and beside it what the API has on it: why, history, parts and levers.
func (v *visit) thing(path string, parts []part) (*thingPage, error) {
	a, err := v.get(path)
	if err != nil {
		return nil, err
	}
	t := &thingPage{Path: path, Facts: v.facts(a.doc)}
	ops, err := v.ui.operations(v.r)
	if err != nil {
		return nil, err
	}
	if find(ops, http.MethodGet, path+"/why") != nil {
		if t.Why, err = v.why(path + "/why"); err != nil {
			return nil, err
		}
	}
	if find(ops, http.MethodGet, path+"/history") != nil {
		h, err := v.get(path + "/history")
		if err != nil {
			return nil, err
		}
		t.History = h.items()
		t.Seconds = seconds(dig(h.doc, "seconds"), t.History)
	}
	for _, p := range parts {
		l, err := v.partOf(ops, path, p, a.doc)
		if err != nil {
			return nil, err
		}
		t.Parts = append(t.Parts, *l)
	}
	t.Levers, err = v.leversOf(path, func(verb string) bool {
		return t.Why.has(path+"/"+verb) || leavesAsItIs(ops, path, verb, a.doc) ||
			!v.suits(path, verb, a.doc)
	})
	return t, err
}

// leavesAsItIs says whether a lever would change nothing of a thing: what it begins is so, or what it ends is not.
func leavesAsItIs(ops []operation, path, verb string, thing doc) bool {
	state := strings.ToLower(str(thing, "state"))
	paused, draining := thing["paused"] == true || state == "paused", thing["draining"] == true
	switch verb {
	case "pause":
		return paused
	case "drain":
		return draining
	case "unblock":
		return str(thing, "blocked_until") == "" && str(thing, "block_reason") == ""
	case "resume":
		ends := func(verb string) bool { return find(ops, http.MethodPost, path+"/"+verb) != nil }
		return (ends("pause") || ends("drain")) && !paused && !draining && state != "failed"
	}
	return false
}

// seconds are those in each state, in the order of the history.
func seconds(in doc, history []doc) (list []fact) {
	for _, h := range history {
		state := str(h, "to")
		n, ok := in[state].(json.Number)
		if !ok || slices.ContainsFunc(list, func(f fact) bool { return f.Name == state }) {
			continue
		}
		took, _ := n.Float64()
		list = append(list, fact{state, fmt.Sprintf("%.3f s", took)})
	}
	return list
}

// failed adds to the page of a type which of its transactions ended badly last, of those received in a week, and why.
func (v *visit) failed(t *thingPage, typ string) error {
	week := v.ui.Now().UTC().AddDate(0, 0, -7).Truncate(time.Hour)
	query := url.Values{"type": {typ}, "state": {"FAILED", "UNRESOLVED"}, "limit": {"5"},
		"received_after": {week.Format(time.RFC3339)}}
	a, err := v.get(with("/transactions", query))
	if err != nil {
		return err
	}
	columns := cols("transaction", "uid", "queue", "queue", "ended", "done_at", "class", "error.class",
		"code", "error.code", "error", "error.message")
	l := v.rows("/transactions", a, columns, "uid")
	for i, item := range a.items() {
		l.Rows[i][0].URL = v.At("transactions", item["id"])
	}
	query.Del("limit")
	t.Parts = append(t.Parts, partPage{"failed last, of a week", with(v.At("transactions"), query), l, nil})
	return nil
}

// held adds to the page of a node which queues of the context it has leased.
func (v *visit) held(t *thingPage, node string) error {
	queues := nounOf("queues")
	a, err := v.get(with("/queues", url.Values{"node": {node}, "limit": {"20"}}))
	if err != nil {
		return err
	}
	l := v.rows("/queues", a, queues.columns, queues.id)
	all := with(v.At("queues"), url.Values{"node": {node}})
	t.Parts = append(t.Parts, partPage{"queues that it holds", all, l, nil})
	return nil
}

// partOf is the first page of a list that belongs to a thing. It has a page of its own for the rest. Where the list
// shows one set at a time, it is the first one, and the thing says how much is in each.
func (v *visit) partOf(ops []operation, path string, p part, thing doc) (*partPage, error) {
	at := path + "/" + p.name
	page, query := &partPage{Name: p.name, URL: v.At(partsOf(at)...)}, url.Values{"limit": {"20"}}
	if o := find(ops, http.MethodGet, at); o != nil {
		for i, set := range o.params["set"].enum {
			of := with(page.URL, url.Values{"set": {set}})
			if i > 0 {
				page.Sets = append(page.Sets, count{set, str(thing, set), of})
				continue
			}
			query.Set("set", set)
			page.Name = p.name + ": " + set
		}
	}
	a, err := v.get(with(at, query))
	if err != nil {
		return nil, err
	}
	page.List = v.rows(at, a, p.columns, p.id)
	return page, nil
}

// facts are the members of a thing by name, without those that are empty; long ones come last.
func (v *visit) facts(d doc, skip ...string) (list []property) {
	for name, value := range d {
		if value == nil || value == "" || value == false || slices.Contains(skip, name) {
			continue
		}
		m := property{Name: name}
		switch value := value.(type) {
		case doc, []any:
			if text := pretty(value); text != "[]" && text != "{}" {
				m.Long = text
			} else {
				continue
			}
		default:
			m.Cell = v.cell("", d, name, "")
			if text := fmt.Sprint(value); len(text) > 160 || strings.ContainsAny(text, "\n") {
				m.Long = text
			}
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b property) int {
		return cmp.Or(cmp.Compare(min(1, len(a.Long)), min(1, len(b.Long))), cmp.Compare(a.Name, b.Name))
	})
	return list
}
