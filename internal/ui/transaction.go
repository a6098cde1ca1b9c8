package ui

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
)

// transactionPage is all that is known of one transaction.
type transactionPage struct {
	T        doc
	ID       string
	Facts    []property
	Data     string
	Result   string
	Error    doc
	Why      *whyPage
	History  []doc
	Attempts []doc
	Cut      int // so many attempts are shown, the last ones; 0: all
	Graph    template.HTML
	Levers   []*lever
}

// events are the events of the machine by which a lever shows: it is offered where the table has the event. Levers that
// are no events are told by fits.
var events = map[string]string{
	"cancel":       "Cancel",
	"abandon":      "Abandoned",
	"was-done":     "FoundDone",
	"was-not-done": "FoundNotDone",
}

// attemptsMost is how many attempts a page shows.
const attemptsMost = 100

// transaction loads the page of one.
func transaction(v *visit) (*screen, error) {
	id := v.r.PathValue("name")
	path := pathTo("transactions", id)
	a, err := v.get(path)
	if err != nil {
		return nil, err
	}
	p := transactionPage{T: a.doc, ID: id}
	p.Facts = v.facts(a.doc, "data", "result", "error", "depends_on", "state", "context")
	p.Error, _ = a.doc["error"].(doc)
	if a.doc["data"] != nil {
		p.Data = pretty(a.doc["data"])
	}
	if a.doc["result"] != nil {
		p.Result = pretty(a.doc["result"])
	}
	if p.Why, err = v.why(path + "/why"); err != nil {
		return nil, err
	}
	for _, x := range []struct {
		path string
		into *[]doc
	}{{"/history", &p.History}, {fmt.Sprintf("/attempts?last=true&limit=%d", attemptsMost), &p.Attempts}} {
		a, err := v.get(path + x.path)
		if err != nil {
			return nil, err
		}
		*x.into = a.items()
	}
	if len(p.Attempts) == attemptsMost {
		p.Cut = attemptsMost
	}
	if p.Graph, err = v.dependencies(a.doc); err != nil {
		return nil, err
	}
	p.Levers, err = v.leversOf(path, func(verb string) bool {
		return p.Why.has(path+"/"+verb) || !v.fits(verb, a.doc)
	})
	return &screen{
		visit: v,
		Title: str(a.doc, "uid"),
		Data:  p,
		Live:  v.At("transactions", id) + "?live=1",
		file:  "transaction.html",
	}, err
}

// fits says whether a lever may fit a transaction as it is: by the machine where the lever is one of its events.
func (v *visit) fits(verb string, t doc) bool {
	state := str(t, "state")
	machine, err := v.get("/machines/transaction")
	if err != nil {
		return true // then the API says whether it does
	}
	ended := slices.Contains(texts(machine.doc["terminal"]), state)
	if event := events[verb]; event != "" {
		if verb == "was-done" || verb == "was-not-done" {
			return t["held"] == true
		}
		return moves(machine.doc, state, event)
	}
	switch verb {
	case "redrive":
		return ended && state != "DONE" && str(t, "redriven_by") == ""
	case "resume":
		return t["suspended"] == true
	case "suspend":
		return !ended && t["suspended"] != true
	case "move":
		return state == "WAITING"
	}
	return !ended
}

// shownMost is how many dependencies are drawn.
const shownMost = 12

// dependencies draws what a transaction waits for.
func (v *visit) dependencies(t doc) (template.HTML, error) {
	ids := texts(t["depends_on"])
	if len(ids) == 0 {
		return "", nil
	}
	var nodes []box
	for _, id := range ids[:min(len(ids), shownMost)] {
		a, err := v.get(pathTo("transactions", id))
		var refused *refusal
		switch {
		case errors.As(err, &refused) && (refused.status == http.StatusNotFound || refused.status == http.StatusGone):
			nodes = append(nodes, box{Name: id, Note: "gone"})
			continue
		case err != nil:
			nodes = append(nodes, box{Name: id, Note: "not read", URL: v.At("transactions", id)})
			continue
		}
		nodes = append(nodes, box{Name: str(a.doc, "uid"), Note: str(a.doc, "state"), URL: v.At("transactions", id)})
	}
	if more := len(ids) - len(nodes); more > 0 {
		nodes = append(nodes, box{Name: "and more", Note: "not drawn"})
	}
	return fan(nodes, box{Name: str(t, "uid"), Note: str(t, "state")}), nil
}
