package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
)

// loader makes leases of queue rows: it reads bodies, names, senders, and earlier attempts of what is not
// on its first.
type loader struct {
	s        *Store
	got      time.Time // when it was made, which is right behind the reading of the deciding clock
	rows     []*QueueRow
	resumed  map[int64]bool // their workers are asked about the last call, so its answer is read
	tasks    bodies
	names    map[int64]string
	senders  map[int32]*freeSender
	attempts map[int64][]Attempt
	marked   map[int64]bool
}

func newLoader(s *Store, rows []*QueueRow) *loader {
	return &loader{s: s, got: time.Now(), rows: rows, tasks: bodies{}, names: map[int64]string{}, senders: map[int32]*freeSender{},
		attempts: map[int64][]Attempt{}, marked: map[int64]bool{}, resumed: map[int64]bool{}}
}

// queue adds the reading statements to b.
func (l *loader) queue(b *pgx.Batch) {
	var nameless, retried, marked []int64
	var wanted []stretch
	var to outbox.Day
	var senders []int32
	for _, q := range l.rows {
		if k, known := l.s.names.key(q.ID); known {
			l.names[q.ID] = k.name
		} else if q.Named {
			nameless = append(nameless, q.ID)
		}
		wanted, to = append(wanted, q.stretch(q.Cur)), max(to, q.TailDay)
		if q.Sender != 0 {
			senders = append(senders, q.Sender)
		}
		if q.Attempt > 1 || q.Phase != outbox.PhaseDispatching || q.Retries > 0 || q.Pin != 0 || !q.Blocked.IsZero() ||
			l.resumed[q.ID] {
			retried = append(retried, q.ID)
		}
		if q.Marks > 0 {
			marked = append(marked, q.ID)
		}
	}
	l.s.nextTasks(b, wanted, to, l.tasks.add)
	if len(nameless) > 0 {
		b.Queue(`SELECT context_id, name, queue_id FROM postern.queue_name WHERE queue_id = ANY ($1)`, nameless).Query(func(rows pgx.Rows) error {
			var k nameKey
			var id int64
			_, err := pgx.ForEachRow(rows, []any{&k.context, &k.name, &id}, func() error {
				l.names[id] = k.name
				l.s.names.add(k, id)
				return nil
			})
			return err
		})
	}
	if len(senders) > 0 {
		b.Queue(`SELECT sender_id, account, worker_url, gate_failures > 0, nullif(attributes, '{}'), version
			FROM postern.sender WHERE sender_id = ANY ($1)`, senders).
			Query(func(rows pgx.Rows) error {
				return scanSenders(rows, func(f *freeSender) { l.senders[f.id] = f })
			})
	}
	if len(retried) > 0 {
		b.Queue(earlierSQL, retried).Query(func(rows pgx.Rows) error {
			return ScanAttempts(rows, func(q int64, a Attempt) { l.attempts[q] = append(l.attempts[q], a) })
		})
	}
	if len(marked) > 0 {
		b.Queue(`SELECT q.queue_id FROM postern.queue q JOIN postern.mark m ON (m.queue_id, m.seq, m.kind) = (q.queue_id, q.cur_seq, 'cancelling')
			WHERE q.queue_id = ANY ($1)`, marked).Query(func(rows pgx.Rows) error {
			var id int64
			_, err := pgx.ForEachRow(rows, []any{&id}, func() error { l.marked[id] = true; return nil })
			return err
		})
	}
}

// done returns a lease for each row, in their order. Call it before the commit: a lease that cannot be
// made must not be owned.
func (l *loader) done(now time.Time) ([]*Lease, error) {
	out := make([]*Lease, 0, len(l.rows))
	for _, q := range l.rows {
		lease, err := l.lease(q, now)
		if err != nil {
			return nil, err
		}
		out = append(out, lease)
	}
	return out, nil
}

func (l *loader) lease(q *QueueRow, now time.Time) (*Lease, error) {
	t := l.tasks[position{q.ID, q.Cur}]
	if t == nil {
		return nil, &bodyMissing{s: l.s, queue: q.ID, seq: q.Cur}
	}
	d := l.s.DispatcherOf(q.Context, t.Type)
	if d == nil {
		return nil, &dispatcherMissing{l.s, t.Type}
	}
	row := *q
	lease := &Lease{Task: t, Queue: l.names[q.ID], Dispatcher: d, Fence: q.Fence, Epoch: q.NodeEpoch, Phase: q.Phase, Attempt: q.Attempt, Retries: q.Retries,
		Fee: q.Fee, Since: q.EnteredAt, ReadAt: now, got: l.got, SenderID: q.Sender, Earlier: l.attempts[q.ID], Cancelling: l.marked[q.ID],
		Blocked: q.Blocked,
		tail:    q.Tail, ahead: l.tasks.run(t.ID), row: &row}
	if f := l.senders[q.Sender]; f != nil {
		lease.Account, lease.SenderURL, lease.SenderAttributes = f.account, f.url, f.attributes
		lease.senderVersion = f.version
		lease.Blames = l.s.Conf.view.Load().blames(q.Sender)
	}
	if lease.Fee == "" {
		lease.Fee = d.Fee.Initial
	}
	return lease, nil
}

// bodyMissing asks run to begin again without a queue whose head has no body. That happens only where rows are
// deleted by hand; if it does, it must not stop the others.
type bodyMissing struct {
	s          *Store
	queue, seq int64
}

func (e *bodyMissing) Error() string {
	return fmt.Sprintf("queue %d: the body of position %d is missing", e.queue, e.seq)
}

// Mend leaves the queue out, so that others go on without it.
func (e *bodyMissing) Mend(context.Context) error {
	e.s.leaveOut(e)
	return nil
}

// Elsewhere is false: it writes nothing.
func (e *bodyMissing) Elsewhere() bool { return false }

// leaveOut remembers a queue that cannot be worked on.
func (s *Store) leaveOut(e *bodyMissing) {
	if _, known := s.broken.LoadOrStore(e.queue, true); !known {
		s.Log.Error("a queue is left out until restart: the body of its head is missing", "queue_id", e.queue, "position", e.seq)
	}
}

// whole says whether a queue can be worked on.
func (s *Store) whole(q *QueueRow) bool { _, broken := s.broken.Load(q.ID); return !broken }

// attemptColumns are what ScanAttempts reads of alias a, its sender s and its node w.
const attemptColumns = `a.queue_id, a.attempt, a.step, a.fence, coalesce(s.account, ''), coalesce(w.name, ''),
		coalesce(a.fee, ''), coalesce(a.nonce, ''), coalesce(a.hash, ''), a.data, coalesce(a.class, ''),
		coalesce(a.code, ''), coalesce(a.error, ''), coalesce(a.nothing_done, false),
		coalesce(NOT a.nothing_done, false), a.started_at, a.answered_at, a.members`

// AttemptsSQL reads attempts of alias a.
const AttemptsSQL = `SELECT ` + attemptColumns + `, 1::bigint
	FROM postern.attempt a
	LEFT JOIN postern.sender s ON s.sender_id = a.sender_id
	LEFT JOIN postern.node w ON w.node_id = a.node_id`

// earlierSQL reads, newest first, what a lease knows of the calls of its transaction. A head that is blocked is called
// every 30 s, for a month perhaps. So of the calls of one attempt that say the same of all that is asked of a lease the
// newest is read, which has the highest fence, and how many there were.
const earlierSQL = `SELECT ` + attemptColumns + `, x.calls
	FROM (
		SELECT a.queue_id, a.seq, a.day, a.attempt, a.step, max(a.fence) AS fence, count(*) AS calls
		FROM postern.queue q
		JOIN postern.attempt a ON a.queue_id = q.queue_id AND a.seq = q.cur_seq AND a.day BETWEEN q.head_day AND q.tail_day
		WHERE q.queue_id = ANY ($1) AND a.step <> 'late'
		GROUP BY a.queue_id, a.seq, a.day, a.attempt, a.step, a.class, a.nothing_done, a.hash, a.fee IS NULL,
			a.nonce IS NULL, a.data IS NULL, a.members IS NULL) x
	JOIN postern.attempt a USING (queue_id, seq, day, attempt, fence, step)
	LEFT JOIN postern.sender s ON s.sender_id = a.sender_id
	LEFT JOIN postern.node w ON w.node_id = a.node_id
	ORDER BY a.queue_id, a.attempt DESC, a.answered_at DESC`

// ScanAttempts calls add for each row of attempts, with the position before its columns.
func ScanAttempts(rows pgx.Rows, add func(int64, Attempt)) error {
	for rows.Next() {
		var q int64
		var a Attempt
		if err := rows.Scan(&q, &a.Attempt, &a.Step, &a.Fence, &a.Sender, &a.Node, &a.Fee, &a.Nonce, &a.Hash, &a.Data, &a.Class, &a.Code,
			&a.Error, &a.NothingDone, &a.Doubted, &a.StartedAt, &a.AnsweredAt, &a.Members, &a.Calls); err != nil {
			return err
		}
		add(q, a)
	}
	return rows.Err()
}
