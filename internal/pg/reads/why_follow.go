package reads

import (
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// followMost is how many transactions one answer explains at most.
const followMost = 20

// holder is a transaction that has what another one waits for.
type holder struct {
	context int32
	task    *pg.Task
	explain *explain
}

// holder returns the transaction that is in flight for longest among the queues that fit a condition; nil if none is.
func (x *explain) holder(condition string, args ...any) (*holder, error) {
	h := &holder{}
	var queue int64
	err := x.s.Pool().QueryRow(x.ctx, `
		SELECT q.queue_id, q.context_id
		FROM postern.queue q
		WHERE q.cur_seq IS NOT NULL AND `+condition+`
		ORDER BY q.entered_at
		LIMIT 1`, args...).Scan(&queue, &h.context)
	if db.IsNoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, db.Known(err)
	}
	h.explain = x.another(h.context)
	if err := h.explain.load(queue); err != nil || h.explain.head == nil { // it ended meanwhile
		return nil, gone(err)
	}
	h.task = h.explain.head
	return h, nil
}

// named is a holder in a sentence. One of another context has no name here.
func (x *explain) named(h *holder) string {
	if h.context != x.context {
		return "a transaction of another context, since " + clockTime(h.explain.since)
	}
	text := "transaction " + h.task.ID.String()
	if h.explain.name != "" {
		text += " of queue " + h.explain.name
	}
	return text + ", since " + clockTime(h.explain.since)
}

// another makes an explanation that goes on where this one points to.
func (x *explain) another(context int32) *explain {
	return &explain{s: x.s, ctx: x.ctx, context: context, seen: x.seen}
}

// followHolder adds what the holder waits for, unless it is of another context, or was explained already.
func (x *explain) followHolder(h *holder) error {
	if h == nil || h.context != x.context || !x.mayFollow(h.task.ID) {
		return nil
	}
	if err := h.explain.explainHead(); err != nil {
		return err
	}
	x.take(h.explain)
	return nil
}

// follow adds what another transaction of the context waits for.
func (x *explain) follow(id outbox.ID) error {
	if !x.mayFollow(id) {
		return nil
	}
	y := x.another(x.context)
	if err := y.load(id.Queue); err != nil || y.head == nil {
		return gone(err)
	}
	if y.head.ID != id {
		t, err := x.s.Transaction(x.ctx, x.context, id)
		if err != nil || t.State.Terminal() {
			return gone(err)
		}
		if err := y.behind(t); err != nil {
			return err
		}
	}
	if err := y.explainHead(); err != nil {
		return err
	}
	x.take(y)
	return nil
}

// mayFollow notes a transaction, and says whether it is to be explained: each is once.
func (x *explain) mayFollow(id outbox.ID) bool {
	if x.seen[id] || len(x.seen) >= followMost {
		return false
	}
	x.seen[id] = true
	return true
}

// take adds what another explanation found, and that the last thing in the way moves by itself.
func (x *explain) take(y *explain) {
	for _, b := range y.blockers {
		known := false
		for _, mine := range x.blockers {
			known = known || mine.Kind == b.Kind && mine.Object == b.Object
		}
		if !known {
			b.followed = true
			x.blockers = append(x.blockers, b)
		}
	}
	x.followed = y.moving
}

// gone makes nothing of an error that says that something has ended meanwhile.
func gone(err error) error {
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	return err
}

// lateBy is after how long nothing that stands is said to go out in a moment.
const lateBy = 2 * time.Second
