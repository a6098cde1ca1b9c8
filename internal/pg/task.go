package pg

import (
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
)

// Task is the stored body of one transaction.
type Task struct {
	ID          outbox.ID
	ContextID   int32
	UID         string // the client's, "" if it gave none
	Actor       string
	Type        string
	Data        json.RawMessage
	MaxRetries  *int
	NotBefore   time.Time
	SenderID    int32 // only this sender may sign it, 0 for any
	Tags        json.RawMessage
	Traceparent string
	RedriveOf   string
	Callback    *outbox.Callback
	CreatedAt   time.Time

	Held bool // something holds it (S2.15); known only of what nextUnsettled read, and of what is new
}

// taskSelect is the select list of a task of alias t, read by scanTask.
const taskSelect = `t.queue_id, t.seq, t.day - '1970-01-01', t.epoch, t.context_id, coalesce(t.uid, ''), t.actor, t.type, t.data,
	t.max_retries, coalesce(t.not_before, '0001-01-01 00:00:00+00'), coalesce(t.sender_id, 0), t.tags, coalesce(t.traceparent, ''),
	coalesce(t.redrive_of::text, ''), t.callback, t.created_at`

// dests returns where the columns of taskSelect are scanned to.
func (t *Task) dests() []any {
	return []any{&t.ID.Queue, &t.ID.Seq, &t.ID.Day, &t.ID.Epoch, &t.ContextID, &t.UID, &t.Actor, &t.Type, &t.Data,
		&t.MaxRetries, &t.NotBefore, &t.SenderID, &t.Tags, &t.Traceparent, &t.RedriveOf, &t.Callback, &t.CreatedAt}
}

// tidy makes what stands for NULL zero again.
func (t *Task) tidy() {
	if t.NotBefore.Year() <= 1 {
		t.NotBefore = time.Time{}
	}
}

func scanTask(row pgx.Row) (*Task, error) {
	t := &Task{}
	err := row.Scan(t.dests()...)
	t.tidy()
	return t, err
}

// nextTasks reads, for each queue, the task right after a position: what is next where nothing is
// marked. It runs as a statement of its own behind the lock: the locking statement's snapshot is older
// than its lock and may miss the newest row.
const nextTasksSQL = `SELECT ` + taskSelect + `
	FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::date[])) n(queue_id, seq, day)
	JOIN postern.queue q ON q.queue_id = n.queue_id
	JOIN postern.task t ON t.queue_id = n.queue_id AND t.seq = n.seq AND t.day BETWEEN n.day AND q.tail_day`

func nextTasks(b *pgx.Batch, queues, seqs []int64, from []time.Time, add func(*Task)) {
	b.Queue(nextTasksSQL, queues, seqs, from).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			t, err := scanTask(rows)
			if err != nil {
				return err
			}
			add(t)
		}
		return rows.Err()
	})
}

// nextUnsettled reads, for one queue, the first task above a position that has no outcome: what is
// next where marks say that the one right after may be cancelled.
// next where marks say that the one right after may be cancelled or held. It leaves out what the same SQL
// transaction is about to end. passed counts the marks from the position itself up to there.
const (
	nextUnsettledSQL = `SELECT ` + taskSelect + `, EXISTS (SELECT FROM postern.mark h WHERE (h.queue_id, h.seq) = (t.queue_id, t.seq) AND h.kind IN ('held', 'suspended'))` + unsettledSQL
	passedSQL        = `SELECT count(*) FROM postern.mark m WHERE m.queue_id = $1 AND m.seq >= $2
		AND m.seq < coalesce((SELECT t.seq` + unsettledSQL + `), 9223372036854775807)`
	unsettledSQL = ` FROM postern.task t
		WHERE t.queue_id = $1 AND t.seq > $2 AND t.day >= $3 AND t.seq <> ALL (coalesce($4::bigint[], '{}'))
			AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))
		ORDER BY t.seq LIMIT 1`
)

func nextUnsettled(b *pgx.Batch, queue, above int64, from outbox.Day, except []int64, add func(*Task), passed func(int32)) {
	b.Queue(nextUnsettledSQL, queue, above, from.Time(), except).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			t, err := scanHead(rows)
			if err != nil {
				return err
			}
			add(t)
		}
		return rows.Err()
	})
	b.Queue(passedSQL, queue, above, from.Time(), except).QueryRow(func(row pgx.Row) error {
		var n int32
		err := row.Scan(&n)
		passed(n)
		return err
	})
}

// scanHead reads a row of nextUnsettledSQL.
func scanHead(row pgx.Row) (*Task, error) {
	t := &Task{}
	err := row.Scan(append(t.dests(), &t.Held)...)
	t.tidy()
	return t, err
}
