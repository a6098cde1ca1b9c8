package ui

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// noun is a kind of thing that has a list and a page for each: the table below says what is its own.
type noun struct {
	name     string // of its list, in the API and here
	question string
	id       string // the member that its page is called by
	columns  []column
	parts    []part
	flat     bool // it has no page for each
}

// column is a member of the things of a list, with dots for members of members.
type column struct{ head, member string }

// part is a list that belongs to one thing.
type part struct {
	name    string
	id      string // "": its things have no pages
	columns []column
}

// nouns are in the order of the navigation, behind now and transactions.
var nouns = []noun{
	{
		name:     "queues",
		question: "Who waits behind whom?",
		id:       "name",
		columns: cols("queue", "name", "state", "state", "depth", "depth", "head", "head.state", "for", "head.since",
			"attempt", "attempt", "sender", "sender", "next", "next_at", "paused", "paused"),
	},
	{
		name:     "senders",
		question: "Which signer is held, by which queue, until when?",
		id:       "account",
		columns: cols("account", "account", "pool", "pool", "state", "state", "queue", "queue", "since", "bound_since",
			"blocked until", "blocked_until", "because", "block_reason", "paused", "paused"),
	},
	{
		name:     "pools",
		question: "Is a sender free?",
		id:       "name",
		columns: cols("pool", "name", "free", "free", "bound", "bound", "blocked", "blocked", "waiting", "waiting",
			"paused", "paused"),
	},
	{
		name:     "dispatchers",
		question: "How is a type sent, and what was refused last?",
		id:       "type",
		columns: cols("type", "type", "worker", "worker_url", "pool", "pool", "gate until", "gate.until",
			"because", "gate.reason", "paused", "paused"),
	},
	{
		name:     "processors",
		question: "Which batch is executed, and which wait?",
		id:       "name",
		columns: cols("processor", "name", "state", "state", "executing", "executing", "high", "high", "med", "med",
			"callbacks", "pending_callbacks", "height", "height"),
		parts: []part{{"batches", "id", cols("batch", "id", "state", "state", "priority", "priority", "by", "initiator",
			"retries", "retries", "created", "created_at")}},
	},
	{
		name:     "authorizations",
		question: "Who may send which batches?",
		id:       "label",
		columns: cols("label", "label", "state", "state", "running", "running", "spent", "spent",
			"priority", "priority", "ends", "ends_at"),
	},
	{
		name:     "sources",
		question: "Are events still read?",
		id:       "name",
		columns: cols("source", "name", "kind", "kind", "state", "state", "lag", "lag_seconds", "polled", "polled_at",
			"failures", "failures", "error", "last_error"),
	},
	{
		name:     "events",
		question: "What came of an event?",
		id:       "id",
		columns: cols("event", "id", "source", "source", "status", "status", "tool", "tool", "received", "created_at",
			"error", "error"),
	},
	{
		name:     "tools",
		question: "Is a tool ready?",
		id:       "fqn",
		columns: cols("tool", "fqn", "url", "url", "health", "health.state", "read", "read_at",
			"error", "refresh_error"),
	},
	{
		name:     "channels",
		question: "Do results and messages get through?",
		id:       "name",
		columns: cols("channel", "name", "kind", "kind", "state", "state", "queued", "queued", "offered", "offered",
			"active", "active", "dropped", "dropped", "blocked until", "blocked_until"),
		parts: []part{{"messages", "", cols("message", "id", "set", "set", "retries", "retries", "error", "error",
			"updated", "updated_at")}},
	},
	{
		name:     "flows",
		question: "Which jobs of a flow run, and which wait?",
		id:       "id",
		columns: cols("flow", "id", "ref", "ref", "status", "status", "finished", "finished_count", "of", "job_count",
			"started", "started_at", "ended", "ended_at", "error", "error"),
	},
	{
		name:     "jobs",
		question: "Where does a job run, and how did it end?",
		id:       "id",
		columns: cols("job", "id", "ref", "ref", "flow", "flow", "status", "status", "runner", "runner",
			"tries", "tries", "exit code", "exit_code", "started", "started_at", "error", "error"),
	},
	{
		name:     "runners",
		question: "Which runner takes jobs?",
		id:       "name",
		columns: cols("runner", "name", "type", "type", "state", "state", "held", "held", "slots", "slots",
			"seen", "seen_at", "missing", "missing"),
	},
	{
		name:     "subscriptions",
		question: "Who is told, and since when not?",
		id:       "name",
		columns: cols("subscription", "name", "kind", "kind", "enabled", "enabled", "url", "url", "pending", "pending",
			"failing since", "failing_since"),
	},
	{
		name:     "deliveries",
		question: "What was told to whom?",
		id:       "id",
		columns: cols("delivery", "id", "state", "state", "event", "event", "subscription", "subscription",
			"transaction", "transaction", "tries", "tries", "next", "next_at", "error", "error"),
	},
	{
		name:     "nodes",
		question: "Which processes work, and what do they hold?",
		id:       "name",
		columns: cols("node", "name", "state", "state", "draining", "draining", "heartbeat", "heartbeat_at",
			"TTL", "ttl", "queues", "queues", "calls", "calls", "of", "concurrency", "version", "version"),
	},
	{
		name:     "audit",
		question: "Who did what, and why?",
		flat:     true,
		columns: cols("when", "at", "actor", "actor", "via", "via", "action", "action", "object", "object",
			"reason", "reason"),
	},
	{
		name:     "contexts",
		question: "Which tenants are there?",
		id:       "name",
		columns:  cols("context", "name", "paused", "paused", "draining", "draining", "depth", "max_depth"),
	},
}

// cols makes columns of heads and members by turns.
func cols(list ...string) (c []column) {
	for i := 0; i+1 < len(list); i += 2 {
		c = append(c, column{list[i], list[i+1]})
	}
	return c
}

func nounOf(name string) *noun {
	for i := range nouns {
		if nouns[i].name == name {
			return &nouns[i]
		}
	}
	return nil
}

// plain loads the list of a noun, one thing of it, or what belongs to that.
func (v *visit) plain(called, name, sub, id string) (*screen, error) {
	n := nounOf(called)
	if n == nil || n.flat && name != "" {
		return nil, fault.New(fault.NotFound, "not_found", "there is no page %s", fault.Clip(v.r.URL.Path))
	}
	switch {
	case name == "":
		l, err := v.listOf(pathTo(n.name), n.columns, n.id)
		if err != nil {
			return nil, err
		}
		l.Question = n.question
		return &screen{visit: v, Title: n.name, Data: l, file: "list.html"}, nil
	case sub == "":
		t, err := v.thing(pathTo(n.name, name), n.parts)
		if err != nil {
			return nil, err
		}
		if n.name == "dispatchers" {
			if err := v.failed(t, name); err != nil {
				return nil, err
			}
		}
		return &screen{visit: v, Title: name, Data: t, file: "thing.html"}, nil
	}
	for _, p := range n.parts {
		switch {
		case p.name != sub:
		case id == "":
			l, err := v.listOf(pathTo(n.name, name, sub), p.columns, p.id)
			if err != nil {
				return nil, err
			}
			return &screen{visit: v, Title: sub + " of " + name, Data: l, file: "list.html"}, nil
		case p.id != "":
			t, err := v.thing(pathTo(n.name, name, sub, id), nil)
			if err != nil {
				return nil, err
			}
			return &screen{visit: v, Title: sub + " " + id + " of " + name, Data: t, file: "thing.html"}, nil
		}
	}
	return nil, fault.New(fault.NotFound, "not_found", "there is no page %s", fault.Clip(v.r.URL.Path))
}

// listPage is a page of a list.
type listPage struct {
	Path, Question string
	Heads          []string
	Rows           [][]cell
	Filters        []filter
	Next           string // the URL of the next page
	First          string // that of the first one, where this is another
}

// cell is one value: a time, or a text that may lead to a page.
type cell struct {
	Text, URL, Time string
}

// Short says whether the text is to stay on one line.
func (c cell) Short() bool { return len(c.Text) <= 24 }

// filter is a field of the form that thins a list.
type filter struct {
	Name, Says, Value, Type string
	Enum                    []string
}

// listOf reads a page of a list, with the filters of the URL.
func (v *visit) listOf(path string, columns []column, id string) (*listPage, error) {
	ops, err := v.ui.operations(v.r)
	if err != nil {
		return nil, err
	}
	o := find(ops, http.MethodGet, path)
	if o == nil {
		return nil, fault.New(fault.NotFound, "not_found", "there is no list %s", fault.Clip(path))
	}
	var form []filter
	query := v.filters(o, &form)
	a, err := v.get(with(path, query))
	if err != nil {
		return nil, err
	}
	l := v.rows(path, a, columns, id)
	l.Filters = form
	l.Next, l.First = v.turns(a, query)
	return l, nil
}

// filters are those of the contract that the URL sets, and the form that sets them.
func (v *visit) filters(o *operation, form *[]filter) url.Values {
	query, asked := url.Values{}, v.r.URL.Query()
	for _, name := range o.order {
		p := o.params[name]
		if p.in != "query" {
			continue
		}
		values := slices.DeleteFunc(slices.Clone(asked[name]), func(s string) bool { return s == "" })
		if len(values) > 0 {
			query[name] = values
		}
		if name == "cursor" || name == "limit" || name == "include" {
			continue
		}
		f := filter{Name: name, Says: p.says, Value: strings.Join(values, ","), Enum: p.enum, Type: "text"}
		if p.integer {
			f.Type = "number"
		}
		*form = append(*form, f)
	}
	return query
}

// turns are the URLs of the next page of a list, and of its first one.
func (v *visit) turns(a *answer, query url.Values) (next, first string) {
	q := maps.Clone(query)
	if q.Get("cursor") != "" {
		q.Del("cursor")
		first = with(v.r.URL.Path, q)
	}
	if at := str(a.doc, "next"); at != "" {
		q.Set("cursor", at)
		next = with(v.r.URL.Path, q)
	}
	return next, first
}

// with is a path with a query.
func with(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// member finds a value by its name, with dots.
func member(d doc, name string) any {
	first, rest, deep := strings.Cut(name, ".")
	if !deep {
		return d[first]
	}
	inner, ok := d[first].(doc)
	if !ok {
		return nil
	}
	return member(inner, rest)
}

// isTime says whether a member of a name holds a time.
func isTime(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return strings.HasSuffix(last, "_at") || strings.HasSuffix(last, "_until") || strings.HasSuffix(last, "since") ||
		last == "at" || last == "until" || last == "not_before" || last == "timestamp"
}

// leads says to which noun the value of a member belongs.
var leads = map[string]string{
	"queue":        "queues",
	"sender":       "senders",
	"pool":         "pools",
	"subscription": "subscriptions",
	"transaction":  "transactions",
	"processor":    "processors",
	"source":       "sources",
	"tool":         "tools",
	"node":         "nodes",
	"redrive_of":   "transactions",
	"redriven_by":  "transactions",
	"cap":          "channels",
	"flow":         "flows",
	"job":          "jobs",
	"runner":       "runners",
}

// cell shows a member of a thing in a list.
func (v *visit) cell(path string, d doc, name, id string) cell {
	value := member(d, name)
	if value == nil {
		return cell{}
	}
	c := cell{Text: clip(value)}
	switch value := value.(type) {
	case bool:
		c.Text = map[bool]string{true: "yes", false: ""}[value]
	case doc, []any:
		c.Text = clip(pretty(value))
	}
	switch {
	case isTime(name):
		c.Time = fmt.Sprint(value)
	case name == id && id != "":
		c.URL = v.At(append(partsOf(path), c.Text)...)
		if full := fmt.Sprint(value); full != c.Text {
			c.URL = v.At(append(partsOf(path), full)...)
		}
	case name == "object":
		c.URL = v.Page(value)
	case leads[name] != "":
		c.URL = v.At(leads[name], value)
	}
	return c
}

func partsOf(path string) (list []any) {
	for p := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if name, err := url.PathUnescape(p); err == nil {
			p = name
		}
		list = append(list, p)
	}
	return list
}

// thingPage is all that is said of one thing.
type thingPage struct {
	Path    string
	Facts   []property
	Why     *whyPage
	History []doc
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
	}
	for _, p := range parts {
		l, err := v.partOf(path, p)
		if err != nil {
			return nil, err
		}
		t.Parts = append(t.Parts, *l)
	}
	t.Levers, err = v.leversOf(path, func(verb string) bool { return t.Why.has(path + "/" + verb) })
	return t, err
}

// failed adds to the page of a type which of its transactions failed last, and why.
func (v *visit) failed(t *thingPage, typ string) error {
	query := url.Values{"type": {typ}, "state": {"FAILED"}, "limit": {"5"}}
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
	t.Parts = append(t.Parts, partPage{"failed last", with(v.At("transactions"), query), l})
	return nil
}

// rows are the things of a list in columns.
func (v *visit) rows(path string, a *answer, columns []column, id string) *listPage {
	l := &listPage{Path: path}
	for _, c := range columns {
		l.Heads = append(l.Heads, c.head)
	}
	for _, item := range a.items() {
		var row []cell
		for _, c := range columns {
			row = append(row, v.cell(path, item, c.member, id))
		}
		l.Rows = append(l.Rows, row)
	}
	return l
}

// partOf is the first page of a list that belongs to a thing. It has a page of its own for the rest.
func (v *visit) partOf(path string, p part) (*partPage, error) {
	at := path + "/" + p.name
	a, err := v.get(at + "?limit=20")
	if err != nil {
		return nil, err
	}
	return &partPage{p.name, v.At(partsOf(at)...), v.rows(at, a, p.columns, p.id)}, nil
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
