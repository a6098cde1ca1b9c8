package ui

// heartbeats are the other nodes of a domain, as they were heard.
var heartbeats = cols("node", "name", "heard", "heard_at", "coordinator", "state", "height", "height",
	"agrees", "agrees")

// domain loads the page of one, with its other nodes.
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
	if others := docs(a.doc["others"]); len(others) > 0 {
		t.Facts = without(t.Facts, "others")
		a.doc["items"] = a.doc["others"]
		nodes := v.rows(path, a, heartbeats, "")
		t.Parts = append([]partPage{{"nodes", v.At("peers"), nodes}}, t.Parts...)
	}
	return &screen{visit: v, Title: name, Data: t, file: "thing.html"}, nil
}
