package coordtest

import (
	"slices"
	"strconv"

	"github.com/postern-dev/postern/internal/coord"
)

// answer is what the domain's service says: the same key, the same answer, but for what the ledger has by then.
func (w *World) answer(_ *Node, c *coord.Call) coord.Answer {
	a := coord.Answer{Key: c.Key, Result: coord.OK}
	switch c.Kind {
	case "assemble":
		w.assemble(c, &a)
	case "sign":
		switch hash("sign", c.Key) % 50 {
		case 0:
			a.Result, a.Reason = coord.Revert, "will not sign"
		case 1:
			a.Result, a.Reason = coord.Park, "cannot sign yet"
		}
	case "endorse":
		if hash("endorse", c.Key)%25 == 0 {
			a.Result, a.Reason = coord.Revert, "no"
		}
	case "prepare":
		if hash("prepare", c.Key)%40 == 0 {
			a.Result, a.Reason = coord.Err, "no"
		}
	case "look":
		a.Result = coord.Unknown
		if w.ledger.has(c.ID, true) {
			a.Result = coord.Fulfilled
		}
	}
	return a
}

func (w *World) assemble(c *coord.Call, a *coord.Answer) {
	o := w.orderOf(c.ID)
	switch {
	case o.bad:
		a.Result, a.Reason = coord.Revert, "not valid"
		return
	case o.park && !o.resumed:
		a.Result, a.Reason = coord.Park, "not ready"
		return
	case w.Plan.Settings.Once == coord.Ledger && w.ledger.has(c.ID, true):
		a.Result, a.Reason = coord.Revert, "spent already"
		return
	case hash("error", c.Key)%30 == 0:
		a.Result, a.Reason = coord.Err, "out of order"
		return
	}
	made := coord.Assembled{Hash: "h" + c.Key, Outputs: []string{"s." + c.Key}}
	free := slices.Clone(c.Pending)
	for _, s := range w.ledger.states() {
		if !slices.Contains(c.Spent, s) && !slices.Contains(free, s) {
			free = append(free, s)
		}
	}
	if h := hash("inputs", c.Key); len(free) > 0 && h%2 == 0 {
		made.Inputs = []string{free[int(h/2)%len(free)]}
	}
	made.Plan = w.attestations(o, c.Key)
	a.Assembled = made
}

// attestations draws what an intent needs: a signature of its own, endorsements of one or two of some nodes.
func (w *World) attestations(o *order, key string) (plan []coord.Attestation) {
	h := hash("plan", key)
	if h%2 == 0 {
		plan = append(plan, coord.Attestation{Name: "owner", Type: "sign", Parties: []string{"me@" + o.node}})
	}
	if h/2%3 > 0 {
		e := coord.Attestation{Name: "notary", Type: "endorse"}
		for i := range 1 + int(h/6%uint64(len(w.nodes))) {
			e.Parties = append(e.Parties, "p"+strconv.Itoa(i)+"@"+w.nodes[i].name)
		}
		e.Threshold = 1 + int(h/64%uint64(len(e.Parties)))
		plan = append(plan, e)
	}
	return plan
}
