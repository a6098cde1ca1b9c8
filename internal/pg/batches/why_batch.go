package batches

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/processor"
)

// WhyBatch says what a batch waits for: the chain from itself to the root, which may lie in the core (S4.10). It locks
// nothing: its answer was true a moment ago.
func (s *Store) WhyBatch(ctx context.Context, contextID int32, name string, id int64) (*reads.Why, error) {
	v, err := s.Batch(ctx, contextID, name, id)
	if err != nil {
		return nil, err
	}
	p, err := s.Processor(ctx, contextID, name)
	if err != nil {
		return nil, err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	x := &whyBatch{s: s, ctx: ctx, context: contextID, p: p, v: v, facts: processor.Facts{Now: now, Height: p.Height},
		w: &reads.Why{State: string(v.State), Blockers: []reads.Blocker{}}}
	switch v.State {
	case processor.Done:
		x.ended()
	case processor.Executing:
		err = x.executing(v)
	case processor.WaitingCallback:
		err = x.awaiting()
	case processor.TimedOut:
		x.undelivered()
	default:
		err = x.queued()
	}
	if err != nil {
		return nil, err
	}
	if x.w.Summary == "" && len(x.w.Blockers) > 0 {
		x.w.Summary = fmt.Sprintf("batch %d is %s: %s", id, v.State, x.w.Blockers[0].Detail)
	}
	return x.w, nil
}

type whyBatch struct {
	s       *Store
	ctx     context.Context
	context int32
	p       *Processor
	v       *Batch
	facts   processor.Facts
	w       *reads.Why
}

func (x *whyBatch) path() string { return "/processors/" + x.p.Name }

// lever is one of the processor.
func (x *whyBatch) lever(method, role string, parts ...string) reads.Lever {
	return reads.NewLever(method, role, append([]string{"processors", x.p.Name}, parts...)...)
}

// evict is the lever that ends a batch.
func (x *whyBatch) evict(id int64) reads.Lever {
	return x.lever("POST", "admin", "evict").With("id", id)
}

func (x *whyBatch) batch(id int64) string { return fmt.Sprintf("%s/batches/%d", x.path(), id) }

func (x *whyBatch) add(kind, object string, since time.Time, detail string,
	next *reads.NextStep, levers ...reads.Lever) {
	x.w.Blockers = append(x.w.Blockers, reads.Blocker{Kind: kind, Object: object, Since: since,
		Detail: detail, Next: next, Levers: levers})
}

func (x *whyBatch) ended() {
	r := x.v.result()
	detail := string(r.Kind)
	if r.N > 0 {
		detail += " after " + fault.Many(r.N, "action")
	}
	if r.Reason != "" {
		detail += ": " + r.Reason
	}
	x.add("terminal", x.batch(x.v.ID), x.v.UpdatedAt, detail, nil)
}

// executing explains a batch by the transaction that carries its action.
func (x *whyBatch) executing(v *Batch) error {
	if v == x.v {
		x.w.Summary = fmt.Sprintf("batch %d is being executed: action %d, run %d", v.ID, v.Index, v.Runs)
	}
	x.add("batch_executing", x.batch(v.ID), v.UpdatedAt, fmt.Sprintf("batch %d is being executed", v.ID), nil)
	id, err := x.s.ByUID(x.ctx, x.context, v.runUID())
	if fault.KindOf(err) == fault.NotFound { // it is just being posted
		x.w.Moving = true
		return nil
	}
	if err != nil {
		return err
	}
	core, err := x.s.Reads.Why(x.ctx, x.context, id)
	if err != nil {
		return err
	}
	// its end is about to be seen
	x.w.Moving = core.Moving || len(core.Blockers) > 0 && core.Blockers[0].Kind == "terminal"
	x.w.Blockers = append(x.w.Blockers, core.Blockers...)
	return nil
}

// undelivered says who may send it again, and until when.
func (x *whyBatch) undelivered() {
	levers := []reads.Lever{x.evict(x.v.ID)}
	if x.v.Label != "" {
		id := strconv.FormatInt(x.v.ID, 10)
		again := reads.NewLever("POST", "reader", "authorizations", x.v.Label, "executions", id, "retry")
		levers = append([]reads.Lever{again}, levers...)
	}
	x.add("undelivered", x.batch(x.v.ID), x.v.UpdatedAt,
		fmt.Sprintf("no worker could be reached within %s; `postern processor retry` sends it again",
			x.p.DeliverWithin),
		&reads.NextStep{At: *x.v.TTL, What: "its ttl is over: it ends as a timeout"}, levers...)
}

func (x *whyBatch) awaiting() error {
	var address string
	var deadline time.Time
	err := x.s.Db(x.ctx).QueryRow(x.ctx,
		`SELECT address, deadline FROM postern.batch_callback WHERE batch_id = $1 AND deadline IS NOT NULL`,
		x.v.ID).Scan(&address, &deadline)
	if db.IsNoRows(err) { // it has come meanwhile
		x.w.Moving, x.w.Summary = true, fmt.Sprintf("batch %d has just been confirmed", x.v.ID)
		return nil
	}
	if err != nil {
		return db.Known(err)
	}
	next := &reads.NextStep{At: deadline, What: "it counts as failed: callback timed out"}
	if e := x.v.Expiration; e != nil && e.Before(deadline) {
		next = &reads.NextStep{At: *e, What: "it expires"}
	}
	confirm := fmt.Sprintf("%s/callbacks/%d", x.path(), x.v.ID)
	x.add("callback_pending", confirm, x.v.UpdatedAt,
		fmt.Sprintf("action %d was executed and is to be confirmed by %q", x.v.Index, address), next,
		x.lever("POST", "executor", "callbacks", strconv.FormatInt(x.v.ID, 10)).With("payload", "..."), x.evict(x.v.ID))
	return nil
}

// queued looks for what is in the way in the order in which a tick does: paused, another one executing, the other line,
// who stands before it, its own cooldown, and then the next tick.
func (x *whyBatch) queued() error {
	if x.p.Paused {
		x.add("processor_paused", x.path(), x.v.UpdatedAt, "the processor is paused, and refuses ticks", nil,
			x.lever("POST", "admin", "resume"))
	}
	if x.p.Executing != 0 {
		other, err := x.s.Batch(x.ctx, x.context, x.p.Name, x.p.Executing)
		if err != nil {
			return err
		}
		if err := x.executing(other); err != nil {
			return err
		}
	}
	if x.v.Priority == processor.Med && x.p.Length[processor.High] > 0 {
		if err := x.high(); err != nil {
			return err
		}
	}
	if err := x.before(); err != nil {
		return err
	}
	if away, err := x.away(x.v); err != nil {
		return err
	} else if !away && x.v.Cools(x.facts) {
		x.cools(x.v)
	}
	if len(x.w.Blockers) > 0 {
		return nil
	}
	if x.p.TickInterval == 0 {
		x.add("no_tick", x.path(), x.v.UpdatedAt, "it is next, and the processor is ticked by hand", nil,
			x.lever("POST", "reader", "tick"))
		return nil
	}
	x.w.Moving, x.w.Summary = true,
		fmt.Sprintf("batch %d is next: the processor ticks every %s", x.v.ID, x.p.TickInterval)
	return nil
}

// high says which batch of High comes first, or that it cools and Med starves because of it. Of one whose contract is
// away it says nothing, since Med does not wait for it.
func (x *whyBatch) high() error {
	v, err := x.holdsMed()
	if err != nil || v == nil {
		return err
	}
	if v.Cools(x.facts) && !x.p.Fair {
		detail := fmt.Sprintf("batch %d of High cools after a failure, and keeps Med waiting "+
			"as long as the processor is not fair", v.ID)
		x.add("starving", x.batch(v.ID), v.UpdatedAt, detail, x.cooldown(v),
			x.lever("PATCH", "admin").With("fair", true), x.evict(v.ID))
		return nil
	}
	detail := fmt.Sprintf("batch %d of High comes before Med, as all do there that can be executed", v.ID)
	x.add("high_first", x.batch(v.ID), v.UpdatedAt, detail, nil)
	return nil
}

// before counts, to 1,000, who stands before it in its own line.
func (x *whyBatch) before() error {
	var ahead int
	var head int64
	err := x.s.Db(x.ctx).QueryRow(x.ctx, `SELECT count(*), coalesce((array_agg(l.batch_id ORDER BY l.place))[1], 0) FROM postern.batch_place me
		CROSS JOIN LATERAL (SELECT l.place, l.batch_id FROM postern.batch_place l WHERE (l.processor_id, l.priority) = (me.processor_id, me.priority)
			AND l.place < me.place ORDER BY l.place LIMIT 1000) l
		WHERE me.batch_id = $1`, x.v.ID).Scan(&ahead, &head)
	if err != nil || ahead == 0 {
		return db.Known(err)
	}
	x.add("line", x.batch(head), x.v.UpdatedAt,
		fmt.Sprintf("it stands in %s behind %s", x.v.Priority, fault.Many(ahead, "batch")), nil)
	return nil
}

// away says of a batch whose worker was away that it waits for it: until its cooldown is over, and then as long as the
// worker is left alone because others have tried it. It returns false for any other batch.
func (x *whyBatch) away(v *Batch) (bool, error) {
	if !v.LeftAlone {
		return false, nil
	}
	typ := v.Actions.Functions()[v.Index].ContractAddress
	var last string
	var until *time.Time
	err := x.s.Db(x.ctx).QueryRow(x.ctx, `SELECT coalesce(a.error, ''),
			CASE WHEN `+gateClosedSQL+` THEN `+untilSQL+` END
		FROM (SELECT $3::timestamptz) n(now)
		LEFT JOIN postern.dispatcher d ON (d.context_id, d.type) = ($1, $2)
		LEFT JOIN postern.batch_action a ON (a.batch_id, a.run) = ($4, $5)`, x.context, typ, x.facts.Now, v.ID, v.Runs).
		Scan(&last, &until)
	if err != nil {
		return false, db.Known(err)
	}
	next := x.cooldown(v)
	switch {
	case v.Cools(x.facts):
	case until == nil:
		return false, nil
	default:
		next = &reads.NextStep{At: *until, What: fmt.Sprintf("batch %d may be executed again", v.ID)}
	}
	detail := fmt.Sprintf("action %d, of %s: %s; nothing has gone out, and other batches go on", v.Index, typ, last)
	x.add("worker_unreachable", "/dispatchers/"+typ, v.UpdatedAt, detail, next,
		reads.NewLever("POST", "admin", "dispatchers", typ, "check"), x.evict(v.ID))
	return true, nil
}

// cools says that a batch failed, and waits before it is executed again.
func (x *whyBatch) cools(v *Batch) {
	detail := fmt.Sprintf("retry %d of action %d, in its cooldown", v.Retries, v.Index)
	if v.CooldownHeight != nil {
		detail += fmt.Sprintf(" until height %d; it is %d", *v.CooldownHeight, x.p.Height)
	}
	x.add("cooldown", x.batch(v.ID), v.UpdatedAt, detail, x.cooldown(v))
}

// cooldown is when one ends, nil where that is a matter of height.
func (x *whyBatch) cooldown(v *Batch) *reads.NextStep {
	if v.CooldownUntil == nil {
		return nil
	}
	return &reads.NextStep{At: *v.CooldownUntil, What: fmt.Sprintf("batch %d may be executed again", v.ID)}
}
