package httpapi

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/addresses"
	"github.com/postern-dev/postern/internal/remote"
)

// allowancesKept is how long a callback is judged by what the nodes said.
const allowancesKept = 5 * time.Second

// verdict says which nodes may not call a place.
type verdict struct {
	all   bool     // none may
	nodes []string // that may not, where others may
}

// Warned is a part of the view of a thing that nodes call.
type Warned struct {
	Warnings []string `json:"warnings,omitempty" doc:"of what will not do, or may not be called; after PUT and PATCH"`
}

// judge compares a place with what the nodes may call, as their rows say. Where no node lives that has said it, the
// settings of this process count. All nodes may call a public place, and it costs no statement.
func (a *API) judge(
	p remote.Place, allowances func() ([]addresses.Allowance, error),
) (v verdict, err error) {
	if p.Public() {
		return v, nil
	}
	nodes, err := allowances()
	if err != nil {
		return v, err
	}
	if len(nodes) == 0 {
		v.all = !a.Tools.Reach().May(p)
		return v, nil
	}
	for _, n := range nodes {
		if !a.Tools.Reach().With(n.Prefixes()).May(p) {
			v.nodes = append(v.nodes, n.Node)
		}
	}
	v.all = len(v.nodes) == len(nodes)
	return v, nil
}

// reachable refuses a URL that names an address which no node may call: 422 address_refused. Another name may mean
// another address tomorrow, so it is warned of in the answer (warnOf).
func (a *API) reachable(ctx context.Context, pointer, raw string) error {
	return a.refuseAddress(pointer, raw, func() ([]addresses.Allowance, error) { return a.Store.Allowances(ctx) })
}

// reachableSoon is reachable for callbacks: it remembers for a moment what the nodes may call.
func (a *API) reachableSoon(ctx context.Context, pointer, raw string) error {
	return a.refuseAddress(pointer, raw, func() ([]addresses.Allowance, error) {
		list, err := a.allowances.get("", func() (*[]addresses.Allowance, error) {
			list, err := a.Store.Allowances(ctx)
			return &list, err
		})
		if err != nil {
			return nil, err
		}
		return *list, nil
	})
}

func (a *API) refuseAddress(pointer, raw string, allowances func() ([]addresses.Allowance, error)) error {
	p := remote.Literal(raw)
	name := pointer[strings.LastIndexByte(pointer, '/')+1:]
	if p.NoHost {
		return fault.At(pointer, "%s %q: its host is neither a name in ASCII nor an address "+
			"such as 192.0.2.1 or [2001:db8::1]", name, fault.Clip(raw))
	}
	v, err := a.judge(p, allowances)
	if err != nil || !v.all {
		return err
	}
	return fault.New(fault.Invalid, "address_refused", "%s %q: no node may call it, since it is not public: %s",
		name, fault.Clip(raw), remedy(p)).About(pointer)
}

// warnOf says what keeps nodes from calling what a URL leads to now; nothing where all may.
func (a *API) warnOf(ctx context.Context, raw string) []string {
	p := a.Tools.Reach().Find(ctx, raw)
	v, err := a.judge(p, func() ([]addresses.Allowance, error) { return a.Store.Allowances(ctx) })
	if err != nil { // the write is done: only its warning is missing
		a.Log.Warn("what the nodes may call is not known", "error", err)
		return nil
	}
	what := p.Host
	if !p.Literal && len(p.Addrs) > 0 {
		what += " leads to " + p.Addrs[0].String() + " now, which is not public"
	} else {
		what += " is not public"
	}
	switch {
	case v.all:
		return []string{fmt.Sprintf("%s, and no node may call it: %s", what, remedy(p))}
	case len(v.nodes) > 0:
		return []string{fmt.Sprintf("%s, and %s may not call it: %s", what, strings.Join(v.nodes, ", "), remedy(p))}
	}
	return nil
}

// remedy is what lets nodes call a place.
func remedy(p remote.Place) string {
	return "start `postern work` with " + p.Setting()
}
