package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/pg/addresses"
	"github.com/postern-dev/postern/internal/pg/doctor"
	"github.com/postern-dev/postern/internal/pg/session"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/work"
)

// unreachable compares the addresses in a database with what its nodes may call.
func unreachable(ctx context.Context, database string) ([]doctor.Finding, error) {
	c, err := session.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	nodes, err := addresses.Allowances(ctx, c, nil)
	if err != nil {
		return nil, err
	}
	all, err := addresses.All(ctx, c)
	if err != nil {
		return nil, err
	}
	return Unreachable(ctx, all, nodes), nil
}

// Unreachable says which addresses some nodes may not call, and which none may. Where no node lives nothing is known.
func Unreachable(ctx context.Context, all []addresses.Address, nodes []addresses.Allowance) []doctor.Finding {
	type place struct{ context, host string }
	refusals := map[place]*work.Refusal{}
	refusing := map[place][]string{} // nodes
	var order []place
	reach := remote.NewReach(nil)
	public := work.Refused(ctx, reach, all, nil) // those that are not
	for _, r := range public {
		at := place{r.Context, r.Host}
		order, refusals[at] = append(order, at), r
		for _, n := range nodes {
			if !reach.With(n.Prefixes()).May(r.Place) {
				refusing[at] = append(refusing[at], n.Node)
			}
		}
	}
	var found []doctor.Finding
	for _, at := range order {
		if names := refusing[at]; len(names) > 0 {
			found = append(found, finding(refusals[at], names, len(names) == len(nodes)))
		}
	}
	if len(found) == 0 && len(nodes) > 0 {
		found = []doctor.Finding{{Check: "addresses", State: doctor.OK, Found: "each may be called by every node"}}
	}
	return found
}

func finding(r *work.Refusal, nodes []string, all bool) doctor.Finding {
	f := doctor.Finding{Check: "addresses", State: doctor.Warn}
	who := strings.Join(slices.Compact(nodes), ", ") + " may not call it, and what it takes for there waits"
	if all {
		f.State, who = doctor.Bad, "no node may call it, and what goes there waits"
	}
	at := r.Host
	if !r.Literal {
		at += " leads to " + r.Addrs[0].String() + ", which"
	}
	f.Found = fmt.Sprintf("%s (context %s): %s is not public: %s", strings.Join(r.Objects, ", "), r.Context, at, who)
	f.Remedy = "start `postern work` with " + r.Setting()
	return f
}
