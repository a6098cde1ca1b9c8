package ui

import (
	"fmt"
	"html/template"
	"net/url"
)

// queuePage is a queue with the line around its head.
type queuePage struct {
	Q      doc
	Facts  []property
	Line   template.HTML
	Rows   []doc
	Why    *whyPage
	Levers []*lever
}

// lineMost is how many of a line are shown, drawnMost how many are drawn.
const lineMost, drawnMost = 20, 8

// queue loads the page of one.
func queue(v *visit) (*screen, error) {
	name := v.r.PathValue("name")
	path := pathTo("queues", name)
	a, err := v.get(path)
	if err != nil {
		return nil, err
	}
	ops, err := v.ui.operations(v.r)
	if err != nil {
		return nil, err
	}
	p := queuePage{Q: a.doc, Facts: v.facts(a.doc, "state", "depth", "head", "name")}
	if err := p.line(v, name); err != nil {
		return nil, err
	}
	if p.Why, err = v.why(path + "/why"); err != nil {
		return nil, err
	}
	p.Levers, err = v.leversOf(path, func(verb string) bool {
		return p.Why.has(path+"/"+verb) || leavesAsItIs(ops, path, verb, a.doc)
	})
	return &screen{visit: v, Title: name, Data: p, Live: v.At("queues", name) + "?live=1", file: "queue.html"}, err
}

// line reads what goes out next.
func (p *queuePage) line(v *visit, name string) error {
	list, err := v.get(with(pathTo("queues", name, "line"), url.Values{"limit": {fmt.Sprint(lineMost)}}))
	if err != nil {
		return err
	}
	var boxes []box
	for _, t := range list.items() {
		p.Rows = append(p.Rows, t)
		if len(boxes) < drawnMost {
			boxes = append(boxes, box{Name: str(t, "uid"), Note: str(t, "state"), URL: v.At("transactions", t["id"])})
		}
	}
	p.Line = row(boxes, str(p.Q, "depth"))
	return nil
}

// Short says whether the queue has more than is shown.
func (p queuePage) Short() bool { return len(p.Rows) == lineMost }
