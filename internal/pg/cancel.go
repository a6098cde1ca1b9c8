package pg

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// LeverResult is what a lever did.
type LeverResult struct {
	Changed bool // false if it was so already
	Pending bool // it takes effect later: At says when
	At      string
	Moved   *outbox.ID // its id in the queue that it was moved to
	State   string     // that it is in then, "" where the lever does not say
}

// inHand is what a lever on one transaction looks at, under the lock of its queue.
type inHand struct {
	q     *QueueRow
	e     *effects
	task  *Task
	state outbox.State

	marked    bool // asked to be cancelled before
	suspended bool
	ours      bool // suspended by Postern itself
	held      bool // by something that it depends on
	unknown   bool // it is held: an operator has to say how its call ended

	rows map[int64]*QueueRow // with those of the dependents
}

// hold locks the queue of a transaction for a lever, and finds its state.
func (s *Store) hold(ctx context.Context, t *db.Txn, by db.By, lever string, id outbox.ID) (*inHand, error) {
	return s.holdAll(ctx, t, by, lever, id, nil)
}

// onTransaction pulls a lever on a transaction under the lock of its queue. Where Postern itself pulls it, without an
// actor, and changes nothing, no audit row says that it did.
func (s *Store) onTransaction(ctx context.Context, by db.By, lever string, id outbox.ID,
	pull func(*db.Txn, *inHand, *pgx.Batch) (LeverResult, error)) (r LeverResult, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		h, err := s.hold(ctx, t, by, lever, id)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		if r, err = pull(t, h, b); err != nil {
			return err
		}
		if r.Changed || by.Actor != "" {
			s.AuditIn(b, by, lever, TxPath(id))
		}
		return h.e.commit(ctx, t, b)
	})
	return r, err
}

// holdAll is hold for an end: it locks the queues of the dependents as well, and those that are named.
func (s *Store) holdAll(ctx context.Context, t *db.Txn, by db.By, lever string, id outbox.ID, r *reach, more ...int64) (*inHand, error) {
	h := &inHand{e: newEffects(s), rows: map[int64]*QueueRow{}}
	ids := append([]int64{id.Queue}, more...)
	if r != nil {
		ids = r.queues(ids...)
	}
	b := &pgx.Batch{}
	lockAll(b, ids, h.rows)
	s.ReadNow(b, &h.e.now)
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	if r != nil {
		if err := r.behind(ctx, s, t, h.rows); err != nil {
			return nil, err
		}
	}
	h.q = h.rows[id.Queue]
	if q := h.q; q != nil {
		if err := exact(ctx, t, []*QueueRow{q}); err != nil {
			return nil, err
		}
	}
	q := h.q
	moved, err := h.read(ctx, t, by.Context, id)
	if err != nil {
		return nil, err
	}
	if moved != "" {
		return nil, fault.New(fault.Conflict, "wrong_state", "transaction %s was moved to another queue, and is %s there", id, moved).With("moved_to", moved)
	}
	if err := s.seenTransaction(ctx, t, by, id); err != nil {
		return nil, err
	}
	if err := s.may(by, lever, h.task); err != nil {
		return nil, err
	}
	switch {
	case h.state != "":
	case q != nil && q.Cur == id.Seq:
		h.state = q.Phase.Transaction()
	default:
		h.state = outbox.WAITING
	}
	return h, nil
}

// read reads a transaction behind the lock of its queue, with its marks; NotFound if there is none. moved is the id
// under which it stands in another queue.
func (h *inHand) read(ctx context.Context, t *db.Txn, contextID int32, id outbox.ID) (moved string, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT `+TaskSelect+`, coalesce(o.state, ''), CASE WHEN o.error_code = 'moved' THEN o.result->>'moved_to' ELSE '' END, coalesce(m.marked, false), coalesce(m.suspended, false),
			coalesce(m.ours, false), coalesce(m.held, false), coalesce(m.unknown, false)
		FROM postern.task t
		CROSS JOIN LATERAL (SELECT bool_or(kind = 'cancelling') AS marked, bool_or(kind = 'suspended') AS suspended,
				bool_or(kind = 'suspended' AND actor = '') AS ours,
				bool_or(kind = 'held') AS held, bool_or(kind = 'unknown') AS unknown
			FROM postern.mark WHERE (queue_id, seq) = (t.queue_id, t.seq)) m
		LEFT JOIN postern.outcome o ON (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day)
		WHERE (t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from), t.context_id) = ($1, $2, $3, $4, $5)`, id.Queue, id.Seq, id.Day.Time(), id.Salt, contextID).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			h.task = &Task{}
			if err := rows.Scan(append(h.task.Dests(), &h.state, &moved, &h.marked, &h.suspended, &h.ours, &h.held, &h.unknown)...); err != nil {
				return err
			}
			h.task.Tidy()
		}
		return rows.Err()
	})
	if err = t.Send(ctx, b); err == nil && h.task == nil {
		err = fault.New(fault.NotFound, "not_found", "no transaction %s", id)
	}
	return moved, err
}

// Cancel takes a transaction back that has not gone out (S2.5 rows 18 and 19). WAITING: at once. RETRY: pending,
// until its worker has been asked about the earlier call. A transaction that is out, or has ended, is refused.
func (s *Store) Cancel(ctx context.Context, by db.By, id outbox.ID) (r LeverResult, err error) {
	deps, err := s.reachOf(ctx, id, false, position{})
	if err != nil {
		return r, err
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		r = LeverResult{}
		h, err := s.holdAll(ctx, t, by, "cancel", id, deps)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		switch h.state {
		case outbox.WAITING:
			if err := deps.apply(h.e, h.rows, outbox.CANCELLED); err != nil {
				return err
			}
			if err := h.e.cancelWaiting(ctx, t, h.q, h.task, by, "cancelled", deps); err != nil {
				return err
			}
			r.Changed = true
		case outbox.RETRY:
			r.Pending, r.At = true, "after the worker has been asked whether an earlier attempt got through"
			if h.marked {
				return t.Rollback(ctx)
			}
			h.e.marks = append(h.e.marks, markRow{id.Queue, id.Seq, "cancelling", by.Reason, by.Actor})
			h.q.Marks++
			if h.q.Node == 0 {
				h.e.timerSet[id.Queue] = h.e.now
			}
			h.e.saved = append(h.e.saved, h.q)
			r.Changed = true
		case outbox.DISPATCHING, outbox.REVISION:
			if h.unknown {
				return fault.New(fault.Conflict, "cancel_refused", "transaction %s is held, since its outcome is unknown: "+
					"say by was-done or was-not-done what did, then cancel it", id).With("lever", "was-not-done")
			}
			return fault.New(fault.Conflict, "cancel_refused", "transaction %s is %s: what is out cannot be called back; "+
				"in an outage without end POST /transactions/%s/abandon", id, h.state, id).With("lever", "abandon")
		case outbox.CANCELLED: // as it was asked for, by an earlier answer that was lost or by somebody else
			return t.Rollback(ctx)
		default:
			return fault.New(fault.Conflict, "wrong_state", "transaction %s is %s already: redrive makes a new one", id, h.state).With("lever", "redrive")
		}
		s.AuditIn(b, by, "cancel", "/transactions/"+id.String())
		return h.e.commit(ctx, t, b)
	})
	return r, err
}

// cancelWaiting ends a WAITING transaction. At the head the queue goes on with the next one; behind it a mark makes
// every settle look for it. deps are its dependents, which must have been reached before; nil leaves them to a ripple.
func (e *effects) cancelWaiting(ctx context.Context, t *db.Txn, q *QueueRow, task *Task, by db.By, code string, deps *reach) error {
	if deps == nil && q.Marks > 0 {
		var watched bool
		b := &pgx.Batch{}
		b.Queue(`SELECT EXISTS (SELECT FROM postern.mark WHERE (queue_id, seq, kind) = ($1, $2, 'watched'))`, q.ID, task.ID.Seq).
			QueryRow(func(row pgx.Row) error { return row.Scan(&watched) })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if watched {
			e.ripples = append(e.ripples, task.ID)
		}
	}
	e.outcomes = append(e.outcomes, &outcomeRow{ID: task.ID, Type: task.Type, Callback: task.Callback, Context: q.Context, Was: outbox.WAITING, State: outbox.CANCELLED, Code: code, Error: by.Reason})
	return e.passOver(ctx, t, q, task, by, deps.except(q.ID))
}

// passOver lets a queue go on without a transaction that waits in it, and without those of except. The head moves up,
// also where it is the head that waits, behind what was placed ahead of it.
func (e *effects) passOver(ctx context.Context, t *db.Txn, q *QueueRow, task *Task, by db.By, except []int64) error {
	var next *Task
	first := q.Cur == 0 && q.First() == task.ID.Seq
	if first || q.Head == task.ID.Seq {
		b := &pgx.Batch{}
		nextUnsettled(b, q, append(except, task.ID.Seq), func(t *Task) { next = t })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
	}
	switch {
	case first:
		return e.passFirst(q, next)
	case next != nil:
		if q.advance(next); q.Next == q.Head {
			q.Next = 0
		}
	default:
		e.marks = append(e.marks, markRow{q.ID, task.ID.Seq, "cancelled", by.Reason, by.Actor})
		if q.Marks++; task.ID.Seq == max(q.Head, q.Past)+1 {
			q.Past = task.ID.Seq
		}
	}
	e.save(q)
	return nil
}

// passFirst lets a queue go on with the next, nil for none.
func (e *effects) passFirst(q *QueueRow, next *Task) error {
	e.leave(q)
	if err := e.rest(q, next, true); err != nil {
		return err
	}
	e.keep(q)
	return nil
}

// Abandon ends, by an operator's word, what an outage makes immovable (S2.21): DISPATCHING, REVISION, or
// RETRY whose cancel stays pending. The fence rises, so that a late answer is only recorded; the sender
// is released and blocked until somebody unblocks it.
func (s *Store) Abandon(ctx context.Context, by db.By, id outbox.ID) (r LeverResult, err error) {
	if by.Reason == "" {
		return r, fault.At("/reason", "abandon wants a reason: it is kept for those who ask why")
	}
	deps, err := s.reachOf(ctx, id, false, position{})
	if err != nil {
		return r, err
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		h, err := s.holdAll(ctx, t, by, "abandon", id, deps)
		if err != nil {
			return err
		}
		if err := h.abandonable(id); err != nil {
			return err
		}
		e, q := h.e, h.q
		o := h.abandoned(by, id)
		e.outcomes = append(e.outcomes, o)
		var next *Task
		b := &pgx.Batch{}
		// the hash and nonce under which it may still land
		b.Queue(`SELECT a.hash, coalesce(a.nonce, ''), a.answered_at FROM postern.attempt a
			WHERE (a.queue_id, a.seq, a.day, a.step) = ($1, $2, $3, 'dispatch') AND a.hash IS NOT NULL ORDER BY a.attempt DESC LIMIT 1`,
			id.Queue, id.Seq, id.Day.Time()).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&o.Hash, &o.Nonce, &o.SubmittedAt}, func() error { return nil })
			return err
		})
		nextUnsettled(b, q, append(deps.except(q.ID), id.Seq), func(t *Task) { next = t })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if err := deps.apply(e, h.rows, outbox.UNRESOLVED); err != nil {
			return err
		}
		e.leave(q)
		q.Fence = s.Fence(q.Fence, e.now)
		if q.PauseOnFailure {
			q.Paused = true
		}
		e.free(q, "", true)
		if err := e.rest(q, next, true); err != nil {
			return err
		}
		e.keep(q)
		r = LeverResult{Changed: true}
		b = &pgx.Batch{}
		s.AuditIn(b, by, "abandon", "/transactions/"+id.String())
		return e.commit(ctx, t, b)
	})
	return r, err
}

// abandonable refuses what was not sent, or has ended.
func (h *inHand) abandonable(id outbox.ID) error {
	switch {
	case h.state == outbox.DISPATCHING, h.state == outbox.REVISION, h.state == outbox.RETRY && h.marked:
		return nil
	case h.state == outbox.RETRY, h.state == outbox.WAITING:
		return fault.New(fault.Conflict, "wrong_state", "transaction %s is %s: cancel it instead", id, h.state).
			With("lever", "cancel")
	}
	return fault.New(fault.Conflict, "wrong_state", "transaction %s is %s already", id, h.state)
}

// abandoned is the outcome of what is abandoned.
func (h *inHand) abandoned(by db.By, id outbox.ID) *outcomeRow {
	q := h.q
	o := &outcomeRow{ID: id, Callback: h.task.Callback, Type: h.task.Type, Context: q.Context, Was: h.state,
		State: outbox.UNRESOLVED, Code: "abandoned", Error: by.Reason, Attempt: q.Attempt, Retries: q.Retries,
		Fence: q.Fence, Sender: q.Sender, Node: q.Node, Fee: q.Fee}
	if h.state == outbox.DISPATCHING {
		o.StartedAt = q.EnteredAt
	}
	if h.unknown { // its sender was given back
		o.Sender = q.Pin
	}
	return o
}

// gateHolds refuses to retry what stands in its lane, where the closed gate of its type keeps that shut, or those of
// all senders that it may go out by: one transaction does not open them.
func (s *Store) gateHolds(ctx context.Context, t *db.Txn, h *inHand, id outbox.ID) error {
	var until time.Time
	b := &pgx.Batch{}
	shut := s.shutSenders(b, h)
	b.Queue(`
		SELECT gate_until
		FROM postern.dispatcher WHERE context_id = $1 AND type = $2 AND gate_failures > 0
			AND gate_until > coalesce($3::timestamptz, clock_timestamp())`, h.q.Context, h.task.Type, s.Clock()).
		Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&until}, func() error { return nil })
			return err
		})
	if err := t.Send(ctx, b); err != nil || until.IsZero() && shut.account == "" {
		return err
	}
	if until.IsZero() {
		return fault.New(fault.Conflict, "wrong_state",
			"transaction %s is ready, and the gate of its sender %s is closed until %s: "+
				"unblock opens it (POST /senders/%s/unblock)",
			id, shut.account, shut.until.UTC().Format(time.RFC3339), shut.account)
	}
	return fault.New(fault.Conflict, "wrong_state",
		"transaction %s is ready, and the gate of its type %s is closed until %s: "+
			"a PATCH of /dispatchers/%s with its worker_url opens that for all of them",
		id, h.task.Type, until.UTC().Format(time.RFC3339), h.task.Type)
}

// shutSender is the first sender that may be used again, where the gates of all are closed; "" where one is not.
type shutSender struct {
	account string
	until   time.Time
}

// shutSenders adds to b a look at the gates of the senders that a transaction may go out by.
func (s *Store) shutSenders(b *pgx.Batch, h *inHand) *shutSender {
	shut := &shutSender{}
	b.Queue(`
		SELECT s.account, s.blocked_until,
			s.block_reason = 'worker_unreachable' AND s.blocked_until > coalesce($5::timestamptz, clock_timestamp())
		FROM postern.sender s
		JOIN postern.dispatcher d ON d.context_id = s.context_id AND d.context_id = $1 AND d.type = $2
		WHERE s.removed_at IS NULL AND NOT s.paused
			AND CASE WHEN $3 <> 0 THEN s.sender_id = $3 ELSE s.pool_id = coalesce(nullif($4, 0), d.pool_id) END
		ORDER BY s.blocked_until, s.sender_id`, h.q.Context, h.task.Type, h.q.Pin, h.q.Pool, s.Clock()).
		Query(func(rows pgx.Rows) error {
			var first shutSender
			for all := true; rows.Next(); {
				var one shutSender
				var until *time.Time
				var closed *bool
				if err := rows.Scan(&one.account, &until, &closed); err != nil {
					return err
				}
				if all = all && closed != nil && *closed; !all {
					first = shutSender{}
					continue
				}
				if one.until = *until; first.account == "" {
					first = one
				}
			}
			*shut = first
			return rows.Err()
		})
	return shut
}

// RetryNow lets a transaction go out before its time (the lever retry): one in RETRY, and one that waits by itself
// since nothing came of its call. It changes nothing of one that may go out already, or with a pending cancel.
//
// Why it is not sent twice: a queue that waits by itself has no owner, and only a claim gives it one. It gets its place
// in the lane under the lock of its row, and its timer goes in the same commit. A round of timers that comes second
// finds it READY, and leaves it.
func (s *Store) RetryNow(ctx context.Context, by db.By, id outbox.ID) (LeverResult, error) {
	pull := func(t *db.Txn, h *inHand, _ *pgx.Batch) (r LeverResult, err error) {
		blocked := h.state == outbox.WAITING && h.q.First() == id.Seq && !h.q.Blocked.IsZero()
		switch {
		case h.state != outbox.RETRY && !blocked:
			return r, fault.New(fault.Conflict, "wrong_state", "transaction %s is %s: only one in RETRY, "+
				"or one that waits since nothing came of its call, can be retried now", id, h.state)
		case h.suspended:
			return r, fault.New(fault.Conflict, "wrong_state", "transaction %s is suspended: resume it", id).
				With("lever", "resume")
		case blocked && h.q.Phase == outbox.PhaseHeld && !h.held:
			h.e.leave(h.q)
			if err := h.e.rest(h.q, h.task, false); err != nil {
				return r, err
			}
			h.e.save(h.q)
			r.Changed = true
		case blocked && h.q.Phase == outbox.PhaseReady:
			if err := s.gateHolds(ctx, t, h, id); err != nil {
				return r, err
			}
		// One that is to be cancelled is not retried: its worker is asked first, by the timer that the cancel set.
		case !blocked && h.q.Node == 0 && !h.marked && h.q.NotBefore.After(h.e.now):
			h.q.NotBefore = h.e.now
			h.e.saved = append(h.e.saved, h.q)
			h.e.timerSet[id.Queue] = h.e.now
			r.Changed = true
		}
		return r, nil
	}
	return s.onTransaction(ctx, by, "retry", id, pull)
}

// dropOldest makes room by cancelling the oldest transaction that waits (when_full: drop_oldest, S2.19), which may be
// one that this commit stores. A commit can take the head of a queue once, and nothing on which others of this commit
// may depend, since their marks are not there yet for its end to be told by: the rest waits for the next one, or is
// refused. What depends on the oldest itself is refused, and stays staged if it was: the oldest goes out meanwhile.
//
// Drops go upwards: where one was dropped, all below it but the one in flight had ended, and what ended stays so. That
// is why each begins to look behind the one before, in this commit or by Past.
func (in *ingest) dropOldest(ctx context.Context, t *db.Txn, q *QueueRow, sub *Submission) error {
	if err := exact(ctx, t, []*QueueRow{q}); err != nil {
		return err
	}
	oldest, own, err := in.oldest(ctx, t, q)
	if err != nil {
		return err
	}
	late := oldest != nil && (own && in.deps != nil || in.touched[q.ID] && q.Cur == 0 && q.First() == oldest.ID.Seq)
	if late && !in.atomic {
		return errAgain
	}
	if oldest == nil || late || own && in.atomic {
		return fault.New(fault.Retry, "queue_full", "queue is full, and nothing in it can be dropped now").After(time.Second)
	}
	switch some, this := in.deps.on(oldest.ID, slices.Index(in.subs, sub)); {
	case own || !some:
	case this && in.staged:
		in.stays = true
		return errAgain
	case !this && !in.atomic && in.fresh > 0:
		return errAgain
	default:
		return fault.New(fault.Retry, "queue_full", "queue is full, and what is posted here depends on its oldest").
			After(time.Second)
	}
	if err := in.s.may(db.By{Context: q.Context}, "drop", oldest); err != nil {
		return fault.New(fault.Retry, "queue_full", "queue is full, and its oldest cannot be dropped: %s",
			fault.As(err).Detail).After(time.Second)
	}
	if seq := oldest.ID.Seq; q.Cur <= q.Head || q.Cur > seq {
		q.Past = max(q.Past, seq-1)
	}
	in.touched[q.ID], in.dropped[q.ID] = true, oldest.ID.Seq
	in.open[q.ID]--
	var deps *reach
	if own { // nothing depends on it
		deps = &reach{}
	}
	by := db.By{Context: q.Context, Reason: "dropped to make room in a full queue"}
	return in.e.cancelWaiting(ctx, t, q, oldest, by, "dropped_oldest", deps)
}

// oldest is the oldest transaction of a queue that waits, nil for none; own: this commit stores it.
func (in *ingest) oldest(ctx context.Context, t *db.Txn, q *QueueRow) (oldest *Task, own bool, err error) {
	if last := in.dropped[q.ID]; last <= q.before.Tail {
		cur := []int64{q.Cur}
		b := &pgx.Batch{}
		oldestUnsettled(b, q, max(q.from(cur), last+1), cur, func(t *Task) { oldest = t })
		if err := t.Send(ctx, b); err != nil || oldest != nil {
			return oldest, false, err
		}
	}
	for _, t := range in.tasks {
		if t.ID.Queue == q.ID && t.ID.Seq > in.dropped[q.ID] && t.ID.Seq != q.Cur &&
			!slices.ContainsFunc(in.e.outcomes, func(o *outcomeRow) bool { return o.ID == t.ID }) {
			return t, true, nil
		}
	}
	return nil, false, nil
}
