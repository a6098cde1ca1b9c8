package ui

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// transactionsPage is a page of the list, and the levers on all that its filter finds.
type transactionsPage struct {
	*listPage

	Window string // since when the list looks, where the URL does not say it
	Bulk   []*lever
	Dev    []*lever // that development wants
	Filter string   // as people read it
}

var transactionColumns = cols("transaction", "uid", "queue", "queue", "type", "type", "state", "state",
	"attempt", "attempt", "sender", "sender", "received", "received_at", "next", "next_at", "error", "error.message")

// bulkVerbs are the levers on many, in the order in which they are offered.
var bulkVerbs = []string{"cancel", "retry", "suspend", "resume", "redrive", "was-done", "was-not-done"}

// transactions loads the list.
func transactions(v *visit) (*screen, error) {
	ops, err := v.ui.operations(v.r)
	if err != nil {
		return nil, err
	}
	var form []filter
	query := v.filters(find(ops, http.MethodGet, "/transactions"), &form)
	a, err := v.get(with("/transactions", query))
	if err != nil {
		return nil, err
	}
	p := transactionsPage{listPage: v.rows("/transactions", a, transactionColumns, "")}
	p.Question, p.Filters = "What happened?", form
	for i, item := range a.items() {
		p.Rows[i][0].URL = v.At("transactions", item["id"])
	}
	p.Next, p.First = v.turns(a, query)
	p.Window = str(dig(a.doc, "window"), "received_after")
	if err := p.develop(v); err != nil {
		return nil, err
	}
	return &screen{visit: v, Title: "transactions", Data: &p, file: "transactions.html"}, p.offer(v, query)
}

// develop makes the forms that post a transaction and move the clock, in development alone.
func (p *transactionsPage) develop(v *visit) error {
	if !v.ui.Dev {
		return nil
	}
	for _, x := range []struct {
		path string
		want doc
	}{
		{"/transactions", doc{"queue": "greetings", "type": "HELLO", "data": doc{"to": "world"}}},
		{"/debug/clock", doc{"advance": "1h"}},
	} {
		l, err := v.leverOf(http.MethodPost, x.path, x.want)
		if err != nil {
			return err
		}
		if l != nil {
			p.Dev = append(p.Dev, l)
		}
	}
	return nil
}

// offer makes the levers on all that the filter finds. Transactions that are received after the page was made are not
// meant, so that a lever acts on those that were tried, and on none that has come since.
func (p *transactionsPage) offer(v *visit, query url.Values) error {
	filter := doc{}
	for name, values := range query {
		switch name {
		case "cursor", "limit", "order", "include":
			continue
		case "suspended", "held":
			filter[name] = values[0] == "true"
		case "redrive_of", "received_after", "received_before", "done_after", "done_before":
			filter[name] = values[0]
		default:
			filter[name] = values
		}
		p.Filter += fmt.Sprintf("%s %s; ", strings.ReplaceAll(name, "_", " "), strings.Join(values, " or "))
	}
	if p.Window != "" {
		filter["received_after"] = p.Window
	}
	if filter["received_before"] == nil {
		filter["received_before"] = v.moment()
	}
	p.Filter = strings.TrimSuffix(p.Filter, "; ")
	for _, verb := range bulkVerbs {
		l, err := v.leverOf(http.MethodPost, "/transactions:"+verb, doc{"filter": filter, "max": 1000})
		if err != nil {
			return err
		}
		if l == nil {
			continue
		}
		if l.Said != nil && v.Given["body"] != "" {
			l.Body = l.Said.onward(v.Given["body"]) // the same filter as was tried
		}
		l.Bulk = p.Filter
		l.Fields = slices.DeleteFunc(l.Fields, func(f field) bool { return f.Name == "after" })
		p.Bulk = append(p.Bulk, l)
	}
	return nil
}

// moment is the time at which a page is made, by the clock of the API where it tells it.
func (v *visit) moment() string { return time.Now().UTC().Format(time.RFC3339Nano) }
