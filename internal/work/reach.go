package work

import (
	"context"
	"strings"

	"github.com/postern-dev/postern/internal/pg/addresses"
	"github.com/postern-dev/postern/internal/remote"
)

// warnedAtMost is how many addresses the log names one by one.
const warnedAtMost = 20

// tellReach writes into the row of the node what it may call, and warns of each address in the database that it may not
// call, before the first transaction waits for that.
func (e *Engine) tellReach(ctx context.Context) {
	if e.Reach == nil {
		return
	}
	if err := e.Store.Allow(ctx, *e.node.Load(), e.Reach.Allowed()); err != nil && ctx.Err() == nil {
		e.Log.Warn("could not write down what this node may call", "error", err)
	}
	all, err := e.Store.Addresses(ctx)
	if err != nil {
		if ctx.Err() == nil {
			e.Log.Warn("could not look at the addresses that are to be called", "error", err)
		}
		return
	}
	for i, r := range Refused(ctx, e.Reach, all, e.takes) {
		if i == warnedAtMost {
			e.Log.Warn("there are more addresses that this node may not call: postern doctor lists them")
			return
		}
		e.Log.Warn("this node may not call an address, and what goes there waits: start it with "+r.Setting(),
			"context", r.Context, "object", strings.Join(r.Objects, ","),
			"host", r.Host, "address", r.Addrs[0].String())
	}
}

// Refusal is a place that may not be called, with what is there.
type Refusal struct {
	remote.Place
	Context string
	Objects []string // the first of them
}

// Refused lists the places of addresses that a reach does not let through, each once for a context. takes says which
// types count; nil: all.
func Refused(
	ctx context.Context, reach *remote.Reach, all []addresses.Address, takes func(typ string) bool,
) (list []*Refusal) {
	type key struct{ context, host string }
	seen := map[key]*Refusal{}
	known := map[string]remote.Place{} // by host: each name is looked up once
	for _, a := range all {
		if a.Type != "" && takes != nil && !takes(a.Type) {
			continue
		}
		p := remote.Literal(a.URL)
		if host := p.Host; !p.Literal {
			var there bool
			if p, there = known[host]; !there {
				p = reach.Find(ctx, a.URL)
				known[host] = p
			}
		}
		if reach.May(p) {
			continue
		}
		k := key{a.Context, p.Host}
		if seen[k] == nil {
			seen[k] = &Refusal{Place: p, Context: a.Context}
			list = append(list, seen[k])
		}
		if r := seen[k]; len(r.Objects) < 5 {
			r.Objects = append(r.Objects, a.Object)
		}
	}
	return list
}
