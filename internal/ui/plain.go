package ui

import (
	"github.com/postern-dev/postern/internal/fault"
)

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
		switch n.name {
		case "dispatchers":
			err = v.failed(t, name)
		case "nodes":
			err = v.held(t, name)
		case "contexts":
			pages := property{Name: "pages", Cell: cell{Text: "of the context " + name, URL: v.In(name)}}
			t.Facts = append([]property{pages}, t.Facts...)
		}
		if err != nil {
			return nil, err
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
			heading := title(p.columns[0].head) + " " + id + " of " + name
			return &screen{visit: v, Title: heading, Data: t, file: "thing.html"}, nil
		}
	}
	return nil, fault.New(fault.NotFound, "not_found", "there is no page %s", fault.Clip(v.r.URL.Path))
}
