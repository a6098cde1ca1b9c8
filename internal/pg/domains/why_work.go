package domains

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// whyWork says what the work for an intent of another node waits for; otherwise where there is none.
func (s *Store) whyWork(ctx context.Context, contextID int32, domain, id string, otherwise error) (*reads.Why, error) {
	x, err := s.explain(ctx, contextID, domain)
	if fault.KindOf(err) == fault.NotFound {
		return nil, otherwise
	}
	if err != nil {
		return nil, err
	}
	w, _, err := s.workOf(ctx, x.d.ID, id)
	switch {
	case err != nil:
		return nil, err
	case w == nil:
		return nil, otherwise
	case w.State == coord.Final || w.State == coord.Evicted || w.Outcome != "":
		x.add("terminal", x.at(id), w.Since, nil, nil, "it has ended here: %s", cmp.Or(w.Outcome, string(w.State)))
	default:
		if err := x.work(id, nil); err != nil {
			return nil, err
		}
		if x.trouble != "" {
			x.w.Moving = false
			x.add("try_failed", x.at(id), w.Since, nil, nil, "its last try came to nothing, and it is tried again: %s",
				x.trouble)
		}
		x.stopped()
	}
	x.w.State = string(w.State)
	if n := len(x.w.Blockers); n > 0 {
		x.w.Summary = fmt.Sprintf("intent %s of node %s is %s here: %s", id, w.Origin, w.State,
			x.w.Blockers[n-1].Detail)
	}
	return x.w, nil
}

// work explains what this node coordinates, with the levers that an intent of its own has.
func (x *whyDomain) work(id string, levers []reads.Lever) error {
	w, before, err := x.s.workOf(x.ctx, x.d.ID, id)
	if err != nil {
		return err
	}
	object := x.at(id)
	x.w.Moving = true
	switch {
	case w == nil:
		x.add("no_coordinator", object, x.now, nil, levers, "it was handed to this node, which has not taken it yet")
		return nil
	case w.State == coord.Pooled && w.NotBefore.After(x.now):
		x.add("work_waits", object, w.Since, &reads.NextStep{At: w.NotBefore, What: "it is assembled anew"}, levers,
			"it waits before it is assembled again: %s", cmp.Or(w.Reason, w.Trouble))
	case w.State == coord.Pooled || w.State == coord.PreAssemblyBlocked:
		ledger, err := x.ledgerFirst()
		if err != nil {
			return err
		}
		x.add("work_turn", object, w.Since, nil, levers, "%d of this domain are assembled before it, one at a time%s; "+
			"this node is %s", before, ledger, x.d.Coordinator)
	case w.State == coord.Blocked:
		x.add("intent_depends", object, w.Since, nil, levers, "what makes its inputs is not that far: %v", w.Needs)
	case w.State == coord.Dispatched || w.State == coord.Submitted:
		return x.public(w)
	case w.State == coord.ReadyForDispatch:
		x.add("work_turn", object, w.Since, nil, levers, "it has its permit, and goes out as soon as fewer than %d "+
			"public transactions are on their way (max_dispatch_ahead), and those that make its inputs are",
			x.d.Settings.MaxAhead)
	default:
		x.add("work_asks", object, w.Since, nil, levers, "this node coordinates it, and it is %s", w.State)
	}
	x.trouble = w.Trouble
	x.answers(w)
	return nil
}

// ledgerFirst says whether nothing is assembled, since as many states as may be wait for the ledger.
func (x *whyDomain) ledgerFirst() (string, error) {
	rows, err := x.s.Db(x.ctx).Query(x.ctx, `SELECT w.image FROM postern.coord_work w
		WHERE w.domain_id = $1 AND w.held AND w.state NOT IN ('Pooled', 'PreAssembly_Blocked')`, x.d.ID)
	if err != nil {
		return "", db.Known(err)
	}
	d := &coord.Domain{}
	if err := images(&d.Works)(rows); err != nil || !d.Full() {
		return "", db.Known(err)
	}
	return fmt.Sprintf(", and none while %d KiB of states wait for the ledger", coord.MostPending>>10), nil
}

// answers names the answers that a work lacks.
func (x *whyDomain) answers(w *coord.Work) {
	object := x.at(w.ID)
	for _, a := range w.Waits() {
		x.add("answer_missing", object, a.First, &reads.NextStep{
			At: a.Last.Add(time.Duration(x.d.Settings.RequestTimeout)), What: "it is asked again"}, nil, "%s %s",
			a.Who(), a.Said())
		if a.Error != "" || a.Node != x.d.Settings.Self && x.node(a.Node) {
			x.w.Moving = false
		}
	}
	for _, c := range x.calls {
		if c.intent == w.ID && c.failure != "" {
			x.w.Moving = false
			x.call(c)
		}
	}
}

// unknownMost is how many works are named for a domain.
const unknownMost = 10

// unknown names works whose public transactions may land or not, as far as this node knows, also those of other nodes.
func (x *whyDomain) unknown() error {
	rows, err := x.s.Db(x.ctx).Query(x.ctx, `SELECT w.image FROM postern.coord_work w
		WHERE w.domain_id = $1 AND w.held AND w.state IN ('Dispatched', 'Submitted')
			AND (w.image->>'Unknown')::boolean
		ORDER BY w.since LIMIT $2`, x.d.ID, unknownMost)
	if err != nil {
		return db.Known(err)
	}
	var list []*coord.Work
	if err := images(&list)(rows); err != nil {
		return db.Known(err)
	}
	for _, w := range list {
		x.notKnown(w)
	}
	return nil
}

// notKnown explains a public transaction that may land, where the core knows nothing more about it.
func (x *whyDomain) notKnown(w *coord.Work) {
	x.w.Moving = false
	x.add("public_unknown", x.at(w.ID), w.Since, nil,
		[]reads.Lever{x.lever(w.ID, "release").With("outcome", "...").With("reason", "...")},
		"it is not known what became of its public transaction, which may land: %s", w.Reason)
}

// public explains a public transaction by the core's own words.
func (x *whyDomain) public(w *coord.Work) error {
	var uid, failure string
	err := x.s.Db(x.ctx).QueryRow(x.ctx, `SELECT a.uid, a.error FROM postern.coord_activity a
		WHERE a.domain_id = $1 AND a.work_uid = $2`, x.d.ID, w.UID).Scan(&uid, &failure)
	if err != nil && !db.IsNoRows(err) {
		return db.Known(err)
	}
	x.add("public_transaction", x.at(w.ID), w.Since, nil, nil, "its public transaction is %s", w.State)
	if failure != "" {
		x.w.Moving = false
		x.add("public_refused", x.at(w.ID), w.Since,
			&reads.NextStep{At: x.now.Add(time.Second), What: "it is posted again"}, nil,
			"the core does not take its public transaction: %s", failure)
		return nil
	}
	if w.Unknown {
		x.notKnown(w)
		return nil
	}
	id, err := x.s.ByUID(x.ctx, x.context, uid)
	if fault.KindOf(err) == fault.NotFound { // it is just being posted
		return nil
	}
	if err != nil {
		return err
	}
	core, err := x.s.reads.Why(x.ctx, x.context, id)
	if err != nil {
		return err
	}
	x.w.Moving = core.Moving || len(core.Blockers) > 0 && core.Blockers[0].Kind == "terminal" // a step takes its end
	x.w.Blockers = append(x.w.Blockers, core.Blockers...)
	return nil
}

// workOf reads the work of an id, or nil, and how many are assembled before it.
func (s *Store) workOf(ctx context.Context, domain int32, id string) (*coord.Work, int, error) {
	var image []byte
	var before int
	err := s.Db(ctx).QueryRow(ctx, `SELECT w.image, (SELECT count(*) FROM postern.coord_work o
			WHERE o.domain_id = w.domain_id AND o.held AND o.place < w.place AND o.state IN ('Pooled', 'Assembling'))
		FROM postern.coord_work w WHERE w.domain_id = $1 AND w.intent_id = $2::text::uuid`, domain, id).
		Scan(&image, &before)
	if db.IsNoRows(err) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, db.Known(err)
	}
	w := &coord.Work{}
	return w, before, json.Unmarshal(image, w)
}
