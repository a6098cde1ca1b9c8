package ui

import (
	"html/template"
	"net/http"
	"slices"
)

// flowPage is a flow with its jobs, drawn.
type flowPage struct {
	*thingPage

	F     doc
	Graph template.HTML
	Jobs  []doc
}

// flow loads the page of one.
func flow(v *visit) (*screen, error) {
	id := v.r.PathValue("name")
	path := pathTo("flows", id)
	t, err := v.thing(path, nil)
	if err != nil {
		return nil, err
	}
	a, err := v.get(path)
	if err != nil {
		return nil, err
	}
	p := flowPage{thingPage: t, F: a.doc, Jobs: docs(a.doc["jobs"])}
	t.Facts = without(t.Facts, "id", "jobs", "status", "finished_count", "job_count")
	drawn, err := v.call(http.MethodGet, path+"/dag", nil, "Accept: image/svg+xml")
	if err != nil {
		return nil, err
	}
	p.Graph = template.HTML(drawn.body.String()) //nolint:gosec // the API draws it, and escapes every text in it
	return &screen{visit: v, Title: "flow " + id, Data: p, Live: v.At("flows", id) + "?live=1", file: "flow.html"}, nil
}

// without leaves out the properties of some names.
func without(list []property, names ...string) []property {
	return slices.DeleteFunc(list, func(p property) bool { return slices.Contains(names, p.Name) })
}
