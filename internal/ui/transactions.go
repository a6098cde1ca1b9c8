package ui

import "net/http"

// transactionsPage is a page of the list, and the levers on all that its filter finds.
type transactionsPage struct {
	*listPage

	Dev []*lever // that development wants
}

var transactionColumns = cols("transaction", "uid", "queue", "queue", "type", "type", "state", "state",
	"attempt", "attempt", "sender", "sender", "received", "received_at", "next", "next_at", "error", "error.message")

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
	filter := doc{}
	if p.Window != "" {
		filter["received_after"] = p.Window
	}
	return &screen{visit: v, Title: "transactions", Data: &p, file: "transactions.html"},
		p.offer(v, "/transactions", query, a, filter)
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
