package ui

// domainPage is a domain: which node coordinates, and when each was heard.
type domainPage struct {
	*thingPage

	D      doc
	Active string // the node that coordinates, as far as this one knows; "" for none
	Nodes  []doc  // the other ones
}

// domain loads the page of one.
func domain(v *visit) (*screen, error) {
	name := v.r.PathValue("name")
	path := pathTo("domains", name)
	t, err := v.thing(path, nounOf("domains").parts)
	if err != nil {
		return nil, err
	}
	a, err := v.get(path)
	if err != nil {
		return nil, err
	}
	p := domainPage{thingPage: t, D: a.doc, Nodes: docs(a.doc["others"])}
	t.Facts = without(t.Facts, "name", "state", "coordinator", "originator", "height", "others", "intents", "works")
	heard := ""
	for _, n := range p.Nodes {
		if at := str(n, "heard_at"); str(n, "state") == "Active" && at > heard {
			p.Active, heard = str(n, "name"), at
		}
	}
	if str(a.doc, "coordinator") == "Active" {
		p.Active = str(a.doc, "self")
	}
	return &screen{
		visit: v,
		Title: name,
		Data:  p,
		Live:  v.At("domains", name) + "?live=1",
		file:  "domain.html",
	}, nil
}
