package ui

import "net/url"

// runner loads the page of one, with the jobs that it had last.
func runner(v *visit) (*screen, error) {
	name := v.r.PathValue("name")
	t, err := v.thing(pathTo("runners", name), nil)
	if err != nil {
		return nil, err
	}
	query := url.Values{"runner": {name}, "limit": {"20"}}
	a, err := v.get(with("/jobs", query))
	if err != nil {
		return nil, err
	}
	query.Del("limit")
	jobs := v.rows("/jobs", a, nounOf("jobs").columns, "id")
	t.Parts = append(t.Parts, partPage{"jobs", with(v.At("jobs"), query), jobs, nil})
	return &screen{visit: v, Title: name, Data: t, file: "thing.html"}, nil
}
