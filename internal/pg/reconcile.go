package pg

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/sequencer"
)

// Reconciling asks workers, while nothing goes out, about each transaction that has not ended in our rows, which may be
// those of yesterday. This file reads what there is to ask about, and brings into the rows what a worker knows.

// codeLostTime is the code of an attempt whose end was not seen: it was made in the lost time.
const codeLostTime = "lost_time"

// Unended is a transaction that has not ended in our rows, and where its worker may be asked.
type Unended struct {
	*Task
	Dispatcher *Dispatcher
	URLs       []string // of the workers that may have it
	Attempt    int      // the first that it may have been called for and that our rows do not know the end of
	Goes       bool     // it goes out next, or is out, so that its worker's answer can be recorded
	Busy       bool     // a live node has it in hand
	row        *QueueRow
}

// ReconcileRound begins a round of questions about a scope, or goes on with one that has not reached its end. NotFound:
// nothing of that name is in quarantine. Conflict: the database may be a copy, whose workers are those of the original.
// Queues of dead nodes are released first, so that their rows say how far they are.
func (s *Store) ReconcileRound(ctx context.Context, by db.By, q Quarantine, anew bool) (*QuarantinedScope, error) {
	if _, err := s.Bury(ctx); err != nil {
		return nil, err
	}
	if _, err := s.Release(ctx); err != nil {
		return nil, err
	}
	v, err := s.QuarantinedScope(ctx, q)
	if err == nil && v.Copy() {
		return nil, fault.New(fault.Conflict, "wrong_state", "this database may be a copy of that of deployment %q, whose workers would be asked: %s", v.original, v.NextStep())
	}
	if err != nil || v.ReconcileAt != nil && v.ReconciledAt == nil && !anew {
		return v, err
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.quarantine
			SET reconcile_at = coalesce($2::timestamptz, clock_timestamp()), reconciled_at = NULL, after_queue = 0, after_seq = 0, asked = 0, moved = 0, unknown = 0
			WHERE quarantine_id = $1`, v.id, s.Clock())
		b.Queue(`DELETE FROM postern.unreconciled u USING postern.quarantine x WHERE x.quarantine_id = $1
			AND (x.context_id IS NULL OR x.context_id = u.context_id) AND (x.type IS NULL OR x.type = u.type)`, v.id)
		var err error
		if by.Context, err = auditContext(ctx, t, by, nil); err != nil {
			return err
		}
		s.AuditIn(b, by, "reconcile", q.Object())
		return t.Commit(ctx, b)
	})
	if err != nil {
		return nil, err
	}
	return s.QuarantinedScope(ctx, q)
}

// QuarantinedScope reads one scope in quarantine, or NotFound.
func (s *Store) QuarantinedScope(ctx context.Context, q Quarantine) (*QuarantinedScope, error) {
	rows, err := s.Pool().Query(ctx, scopesSQL+` WHERE coalesce(c.name, '') = $1 AND coalesce(x.type, '') = $2`, q.Context, q.Type)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanScope)
	if err == nil && len(list) == 0 {
		err = q.notThere(fault.NotFound, "not_found")
	}
	if err != nil {
		return nil, db.Known(err)
	}
	return list[0], nil
}

// NextUnended reads up to limit transactions of a scope that have not ended, in the order of their queues, behind where
// its round has come; none: it has reached the end.
func (s *Store) NextUnended(ctx context.Context, v *QuarantinedScope, limit int) (list []*Unended, err error) {
	after := v.after
	for len(list) < limit {
		q, err := s.queueWithWork(ctx, v, after)
		if err != nil || q == nil {
			return list, err
		}
		part, err := s.unendedOf(ctx, v, q, after, limit-len(list))
		if err != nil {
			return list, err
		}
		list = append(list, part...)
		if after = (position{q.ID, q.Tail}); len(part) > 0 && len(list) == limit {
			after = positionOf(part[len(part)-1].ID)
		}
	}
	return list, nil
}

// queueWithWork reads the first queue in which something may lie behind a place.
func (s *Store) queueWithWork(ctx context.Context, v *QuarantinedScope, after position) (*QueueRow, error) {
	rows, err := s.Pool().Query(ctx, `SELECT `+QueueSelect+` FROM postern.queue q
		WHERE q.queue_id >= $1 AND (q.queue_id > $1 OR q.tail_seq > $2) AND q.phase <> 'IDLE'
			AND ($3 = '' OR q.context_id = (SELECT c.context_id FROM postern.context c WHERE c.name = $3))
		ORDER BY q.queue_id LIMIT 1`, after.queue, after.seq, v.Context)
	if err != nil {
		return nil, db.Known(err)
	}
	var list []*QueueRow
	err = collectQueues(rows, &list)
	if err != nil || len(list) == 0 {
		return nil, db.Known(err)
	}
	return list[0], nil
}

// unendedOf reads what has not ended in one queue, behind a place. A transaction that is held
// is left to an operator.
func (s *Store) unendedOf(ctx context.Context, v *QuarantinedScope, q *QueueRow, after position, limit int) (list []*Unended, err error) {
	from := q.Head
	if after.queue == q.ID {
		from = max(from, after.seq+1)
	}
	rows, err := s.Pool().Query(ctx, `SELECT `+TaskSelect+unsettledSQL+` AND ($5 = '' OR t.type = $5)
			AND NOT EXISTS (SELECT FROM postern.mark m WHERE (m.queue_id, m.seq, m.kind) = (t.queue_id, t.seq, 'unknown'))
		ORDER BY t.seq LIMIT $6`, q.ID, from, q.HeadDay.Time(), []int64{}, v.Type, limit)
	if err != nil {
		return nil, db.Known(err)
	}
	tasks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Task, error) { return ScanTask(row) })
	if err != nil {
		return nil, db.Known(err)
	}
	for _, t := range tasks {
		d := s.DispatcherOf(t.ContextID, t.Type)
		if d == nil {
			return nil, &dispatcherMissing{s, t.Type}
		}
		u := &Unended{Task: t, Dispatcher: d}
		u.at(q)
		if u.URLs, err = s.workersOf(ctx, u); err != nil {
			return nil, err
		}
		list = append(list, u)
	}
	return list, nil
}

// workersOf lists where a transaction may have been executed: at the worker of its sender, where it has one, else at
// that of its dispatcher and at those of the senders that could have had it.
func (s *Store) workersOf(ctx context.Context, u *Unended) ([]string, error) {
	urls := []string{u.Dispatcher.WorkerURL}
	if u.Dispatcher.PoolID == 0 {
		return urls, nil
	}
	sender := u.SenderID
	if u.Goes && u.row.Sender != 0 {
		sender = u.row.Sender
	}
	pool := u.Dispatcher.PoolID
	if u.row.Pool != 0 {
		pool = u.row.Pool
	}
	rows, err := s.Pool().Query(ctx, `SELECT DISTINCT coalesce(nullif(worker_url, ''), $3) FROM postern.sender
		WHERE CASE WHEN $1::int <> 0 THEN sender_id = $1 ELSE pool_id = $2 END ORDER BY 1`, sender, pool, u.Dispatcher.WorkerURL)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if len(list) == 0 {
		return urls, db.Known(err)
	}
	return list, db.Known(err)
}

// found makes of an unended transaction what a node that resumes it in a phase of an attempt would have in hand.
// Attempts of the lost time have used up retries, as each attempt behind the first does.
func (s *Store) found(ctx context.Context, u *Unended, phase outbox.Phase, attempt int) (*Lease, error) {
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	row := *u.row
	row.Cur, row.Phase, row.Attempt, row.Fence = u.ID.Seq, phase, attempt, s.Fence(u.row.Fence, now)
	row.Retries += max(attempt-u.counted(), 0)
	load := newLoader(s, []*QueueRow{&row})
	b := &pgx.Batch{}
	load.queue(b)
	if err := s.Pool().SendBatch(ctx, b).Close(); err != nil {
		return nil, db.Known(err)
	}
	l, err := load.lease(&row, now)
	if err == nil {
		l.row, l.tail = nil, 0 // nothing of it decides: the rows do, behind the lock
	}
	return l, err
}

// counted is the attempt that the retries of the row lead to: the next one where its failure was counted, else its own.
func (u *Unended) counted() int {
	switch u.row.Phase {
	case outbox.PhaseRetry, outbox.PhaseDelay:
		return u.row.Attempt + 1
	}
	return max(u.row.Attempt, 1)
}

// Reconciled records the answer of a worker about an attempt that our rows do not have, by the decision of a node
// that asked after it resumed the queue: included, done, failed, pending. False: the row changed meanwhile, and stays
// as it was.
//
// Why nothing is overwritten: the row is locked, and owner, fence, phase, position and attempt are compared with
// those of the question (adopt). Its fence rises in the same commit, so that no earlier owner writes afterwards.
func (s *Store) Reconciled(ctx context.Context, u *Unended, attempt, maxRetries int, st outbox.Status) (bool, error) {
	l, err := s.found(ctx, u, outbox.PhaseDispatching, attempt)
	if err != nil {
		return false, err
	}
	step := sequencer.Asked(l.Flight(maxRetries), st, l.Dispatcher.Dispatcher, rand.Float64())
	return s.learn(ctx, u, l, st, st.Hash, step)
}

// Submitted is the lease under which the answer about a hash can be recorded; nil where the transaction is not the one
// of its queue that waits for its inclusion.
func (s *Store) Submitted(ctx context.Context, u *Unended) (*Lease, error) {
	if !u.Goes || u.Busy || u.row.Phase != outbox.PhaseInclusion && u.row.Phase != outbox.PhaseWaitingInclusion {
		return nil, nil
	}
	l, err := s.found(ctx, u, u.row.Phase, u.row.Attempt)
	if err != nil || len(l.Hashes()) == 0 {
		return nil, err
	}
	return l, nil
}

// ReconciledHash records that a hash is included, or has failed, as a poll does. A hash that is neither stays as it is:
// the polls behind the release decide about it, by their times. False: nothing was recorded. Why nothing is
// overwritten: see Reconciled; a poll that was out when the quarantine was entered has the fence of before.
func (s *Store) ReconciledHash(
	ctx context.Context, u *Unended, l *Lease, maxRetries int, st outbox.Status,
) (bool, error) {
	if st.State != outbox.StatusIncluded && st.State != outbox.StatusFailed {
		return false, nil
	}
	step := sequencer.Polled(l.Flight(maxRetries), st, l.Dispatcher.Dispatcher, rand.Float64())
	if step.Err == nil && step.Phase == outbox.PhaseWaitingInclusion {
		return false, nil // not deep enough
	}
	return s.learn(ctx, u, l, st, l.Hashes()[0], step)
}

// learn settles what was learned under a lease that no node has.
func (s *Store) learn(
	ctx context.Context, u *Unended, l *Lease, st outbox.Status, hash string, step sequencer.Step,
) (bool, error) {
	a := &Answer{Lease: l, StartedAt: l.Now(), BlockHeight: st.BlockHeight, found: u.row, Step: step}
	a.Result.Hash, a.Result.Nonce, a.Result.Done = hash, st.Nonce, st.Done
	if a.Step.Err != nil {
		return false, a.Step.Err
	}
	out, err := s.Settle(ctx, []*Answer{a})
	if err == nil {
		err = out[0].Err
	}
	return err == nil && !out[0].Fenced, err
}

// adopt gives a queue without an owner the answer of its worker about an attempt, or about the hash that it waits for.
// If the queue has changed since, it stays, and the answer counts as a late one.
func (st *settlement) adopt(a *Answer) {
	id, was := a.Lease.ID(), a.found
	q := st.queues[id.Queue]
	if q == nil || q.Node != 0 || was.Node != 0 || q.Fence != was.Fence || q.Phase != was.Phase || q.Cur != was.Cur || q.Attempt != was.Attempt ||
		q.Head != was.Head || q.Next != was.Next || st.ended[positionOf(id)] {
		return
	}
	if q.Phase == a.Lease.Phase && q.Phase != outbox.PhaseDispatching { // a hash: its transaction goes on from there
		q.Fence = a.Lease.Fence
		return
	}
	for n := q.Attempt; n < a.Lease.Attempt; n++ { // each attempt that did not end it has a row
		st.e.attempts = append(st.e.attempts, &attemptRow{ID: id, Attempt: n, Fence: a.Lease.Fence, Step: "unknown", Sender: q.Sender,
			Class: string(outbox.ClassAmbiguous), Code: codeLostTime, Error: "made in the time that the database has lost", At: st.e.now.Add(-time.Microsecond)})
	}
	st.e.leave(q)
	if q.Phase == outbox.PhaseReady || q.Phase == outbox.PhaseHeld {
		q.Cur, q.Next = id.Seq, 0
	}
	switch q.Phase { // by the edges of the machine
	case outbox.PhaseInclusion, outbox.PhaseWaitingInclusion:
		st.e.enter(q, outbox.PhaseRetry)
		st.e.enter(q, outbox.PhaseDelay)
	case outbox.PhaseRetry:
		st.e.enter(q, outbox.PhaseDelay)
	}
	st.e.enter(q, outbox.PhaseDispatching)
	if _, shared := st.s.Conf.shared.Load(q.Lane); !shared && q.Lane != 0 {
		st.e.holders = map[int32]int64{q.Lane: q.ID}
	}
	q.Fence, q.Attempt, q.Retries, q.NotBefore = a.Lease.Fence, a.Lease.Attempt, a.Lease.Retries, zeroTime
}

// Reread reads again where a transaction stands, behind the end of one before it in its queue.
func (s *Store) Reread(ctx context.Context, u *Unended) error {
	rows, err := s.Pool().Query(ctx, `SELECT `+QueueSelect+` FROM postern.queue q WHERE q.queue_id = $1`, u.ID.Queue)
	if err != nil {
		return db.Known(err)
	}
	var list []*QueueRow
	if err := collectQueues(rows, &list); err != nil {
		return db.Known(err)
	}
	if u.Goes = false; len(list) > 0 {
		u.at(list[0])
	}
	return nil
}

// at says where the transaction stands by the row of its queue.
func (u *Unended) at(q *QueueRow) {
	u.row, u.Busy = q, q.Node != 0
	goes := q.Cur
	if goes == 0 {
		goes = q.First()
	}
	if u.Goes, u.Attempt = u.ID.Seq == goes, 1; !u.Goes {
		return
	}
	switch u.Attempt = q.Attempt; q.Phase {
	case outbox.PhaseInclusion, outbox.PhaseWaitingInclusion, outbox.PhaseRetry, outbox.PhaseDelay:
		u.Attempt++ // the outcome of this attempt is known, or asked about before another is made
	}
}

// Reconciliation is what a part of a round found.
type Reconciliation struct {
	Part           []*Unended // in the order in which they were read
	Moved, Unknown int64
	Open           []Unreconciled
	Last           bool // the part reached the end
}

// ReconcileStep records a part of a round: how far it has come, what was counted and what is open. Where another has
// recorded the same part meanwhile, it changes nothing.
func (s *Store) ReconcileStep(ctx context.Context, v *QuarantinedScope, r Reconciliation) error {
	upto := v.after
	if len(r.Part) > 0 {
		upto = positionOf(r.Part[len(r.Part)-1].ID)
	}
	c := db.Columns{N: len(r.Open)}
	for _, u := range r.Open {
		c.Add(u.ID.Queue, u.ID.Seq, u.ID.Day.Time(), u.Type, u.Why, u.Detail)
	}
	const step = `UPDATE postern.quarantine
			SET after_queue = $4, after_seq = $5, asked = asked + $6, moved = moved + $7, unknown = unknown + $8,
				reconciled_at = CASE WHEN $9 THEN coalesce($10::timestamptz, clock_timestamp()) END
			WHERE quarantine_id = $1 AND (after_queue, after_seq) = ($2, $3) AND reconciled_at IS NULL`
	args := []any{v.id, v.after.queue, v.after.seq, upto.queue, upto.seq, len(r.Part), r.Moved, r.Unknown, r.Last, s.Clock()}
	return s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		if len(r.Open) == 0 {
			b.Queue(step, args...)
			return t.Commit(ctx, b)
		}
		// One statement, so that a part whose step was recorded has its open ones recorded, too.
		b.Queue(`WITH step AS (`+step+` RETURNING quarantine_id)
			INSERT INTO postern.unreconciled (queue_id, seq, day, context_id, type, why, detail)
			SELECT n.queue_id, n.seq, n.day, t.context_id, n.type, n.why, n.detail
			FROM step
			CROSS JOIN ROWS FROM (unnest($11::bigint[]), unnest($12::bigint[]), unnest($13::date[]), unnest($14::text[]),
				unnest($15::text[]), unnest($16::text[])) n(queue_id, seq, day, type, why, detail)
			JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (n.queue_id, n.seq, n.day)
			ON CONFLICT (queue_id, seq, day) DO UPDATE
			SET why = excluded.why, detail = excluded.detail, at = clock_timestamp()`, append(args, c.Args()...)...)
		return t.Commit(ctx, b)
	})
}
