package ui

import "html/template"

// nowPage says whether anything is stuck, and what moves it.
type nowPage struct {
	Present doc
	Heads   []doc
	Counts  []count
	Hours   template.HTML // what came and ended in each of the last ones
	Pools   []doc
	Nodes   []doc
	Admin   bool // may see nodes
	// MorePools and MoreNodes: there are more than are shown.
	MorePools, MoreNodes bool
}

// count is how many queues or transactions are in a state, with the list of those.
type count struct{ State, Count, URL string }

// lines are the states of queues, in the order of their life.
var lines = []string{"FREE", "WAITING_INCLUSION", "INCLUSION", "DELAY", "RETRY", "BLOCKED"}

// now loads the first page.
func now(v *visit) (*screen, error) {
	a, err := v.get("/now")
	if err != nil {
		return nil, err
	}
	p := nowPage{Present: a.doc}
	p.Heads, p.Hours = docs(a.doc["heads"]), hours(docs(a.doc["hours"]))
	queues := dig(a.doc, "queues")
	for _, state := range lines {
		if n := str(queues, state); n != "" {
			p.Counts = append(p.Counts, count{state, n, v.At("queues") + "?state=" + state})
		}
	}
	pools, err := v.get("/pools?limit=20")
	if err != nil {
		return nil, err
	}
	p.Pools, p.MorePools = pools.items(), str(pools.doc, "next") != ""
	if p.Admin = v.allowed("GET", "/nodes"); p.Admin {
		nodes, err := v.get("/nodes?state=live&state=silent&limit=50")
		if err != nil {
			return nil, err
		}
		p.Nodes, p.MoreNodes = nodes.items(), str(nodes.doc, "next") != ""
	}
	return &screen{visit: v, Title: "now", Data: p, Live: v.At("now") + "?live=1", file: "now.html"}, nil
}
