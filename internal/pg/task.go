package pg

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
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
	MovedFrom   string // its id in another queue, in which it was posted
	Callback    *outbox.Callback
	CreatedAt   time.Time

	Head    int64 // the lowest position without an outcome; 0 = not known, as nextUnsettled did not read it
	HeadDay outbox.Day
	Passed  int32 // marks between the head of before and Head

	Held bool // something holds it (S2.15); known only of what nextUnsettled read, and of what is new
}

// Token is what its worker recognises an attempt by.
func (t *Task) Token(attempt int) string { return t.ID.Token(t.CreatedAt, attempt) }

// TaskSelect is the select list of a task of alias t, read by ScanTask.
const TaskSelect = `t.queue_id, t.seq, t.day - '1970-01-01', t.context_id, coalesce(t.uid, ''), t.actor, t.type, t.data,
	t.max_retries, coalesce(t.not_before, '0001-01-01 00:00:00+00'), coalesce(t.sender_id, 0), t.tags, coalesce(t.traceparent, ''),
	coalesce(t.redrive_of::text, ''), coalesce(t.moved_from::text, ''), t.callback, t.created_at`

// Dests returns where the columns of TaskSelect are scanned to.
func (t *Task) Dests() []any {
	return []any{&t.ID.Queue, &t.ID.Seq, &t.ID.Day, &t.ContextID, &t.UID, &t.Actor, &t.Type, (*[]byte)(&t.Data),
		&t.MaxRetries, &t.NotBefore, &t.SenderID, (*[]byte)(&t.Tags), &t.Traceparent, &t.RedriveOf, &t.MovedFrom, &t.Callback, &t.CreatedAt}
}

// Tidy makes what stands for NULL zero again, and salts the id.
func (t *Task) Tidy() {
	t.ID.Salt = outbox.SaltOf(t.CreatedAt, t.MovedFrom)
	if t.NotBefore.Year() <= 1 {
		t.NotBefore = time.Time{}
	}
}

// ScanTask reads a row of TaskSelect.
func ScanTask(row pgx.Row) (*Task, error) {
	t := &Task{}
	err := row.Scan(t.Dests()...)
	t.Tidy()
	return t, err
}

// readAhead is how many bodies behind a position are read with it, if they are small: bodies never change, so
// what comes next is known then without another look.
const readAhead = 16

// stretch asks for the tasks of a queue from a position on, up to a last one. Their days lie between from and
// what is asked of all.
type stretch struct {
	queue, seq, last int64
	from             outbox.Day
}

// nextTasksSQL reads the tasks of each stretch, so the next transaction where the queue has no marks. It runs as a
// statement of its own behind the lock: the locking statement's snapshot is older than its lock and may miss the newest
// row. The first of a stretch comes whatever its size, those behind it only if they are small. The bounds of the day
// are the same for all, so that partitions are left out before the statement begins.
var nextTasksSQL = db.ForRows(func(one bool) string {
	return `SELECT ` + TaskSelect + ` FROM ` + db.Given(one, 1, "queue_id bigint", "seq bigint", "last bigint") + `
	CROSS JOIN LATERAL (SELECT * FROM postern.task t WHERE t.queue_id = n.queue_id AND t.seq BETWEEN n.seq AND n.last
		AND t.day BETWEEN $4::date AND $5::date OFFSET 0) t -- the offset keeps it a look for each: of an empty table all days were read
	WHERE t.seq = n.seq OR pg_column_size(t.data) <= 2048`
})

func (s *Store) nextTasks(b *pgx.Batch, list []stretch, to outbox.Day, add func(*Task)) {
	if len(list) == 0 {
		return
	}
	queues, seqs, lasts, from := make([]int64, len(list)), make([]int64, len(list)), make([]int64, len(list)), list[0].from
	for i, n := range list {
		queues[i], seqs[i], lasts[i], from = n.queue, n.seq, n.last, min(from, n.from)
	}
	sql := nextTasksSQL.Of(len(list))
	if span, all := s.today(from, to); all {
		sql = OfSpan(sql, span)
	}
	b.Queue(sql, db.Argument(queues), db.Argument(seqs), db.Argument(lasts), from.Time(), to.Time()).Query(adding(ScanTask, add))
}

func insertTasks(b *pgx.Batch, tasks []*Task) {
	c := db.Columns{N: len(tasks)}
	for _, t := range tasks {
		c.Add(t.ID.Queue, t.ID.Seq, t.ID.Day.Time(), t.ContextID, db.Nullable(t.UID), t.Actor, t.Type, string(t.Data),
			db.Optional(t.MaxRetries), db.Nullable(t.NotBefore), db.Nullable(t.SenderID), db.Raw(t.Tags),
			db.Nullable(t.Traceparent), db.Nullable(t.RedriveOf), db.Nullable(t.MovedFrom), db.RawJSON(t.Callback),
			t.CreatedAt)
	}
	taskInsert.Queue(b, c)
}

// adding hands on what a statement reads, task by task.
func adding(scan func(pgx.Row) (*Task, error), add func(*Task)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			t, err := scan(rows)
			if err != nil {
				return err
			}
			add(t)
		}
		return rows.Err()
	}
}

// bodies are tasks by their places.
type bodies map[position]*Task

func (m bodies) add(t *Task) { m[positionOf(t.ID)] = t }

// run returns the tasks right behind id without a gap, in their order.
func (m bodies) run(id outbox.ID) (list []*Task) {
	for seq := id.Seq + 1; ; seq++ {
		t := m[position{id.Queue, seq}]
		if t == nil {
			if len(list) > 1 && twin.Planted("second_before_first") {
				list[0], list[1] = list[1], list[0]
			}
			return list
		}
		list = append(list, t)
	}
}

// nextUnsettled reads, for one queue with marks, what goes out next: the first without an outcome, by position, but
// what was placed by its rank. It leaves out what the same SQL transaction is about to end.
const (
	nextUnsettledSQL = `SELECT ` + TaskSelect + `, EXISTS (SELECT FROM postern.mark h WHERE (h.queue_id, h.seq) = (t.queue_id, t.seq) AND h.kind IN ('held', 'suspended') OFFSET 0), f.seq, f.day - '1970-01-01',
			(SELECT count(*) FROM postern.mark m WHERE m.queue_id = $1 AND m.seq >= $5 AND m.seq < f.seq)
		FROM (SELECT t.seq, t.day` + unsettledSQL + ` ORDER BY t.seq LIMIT 1) f
		CROSS JOIN LATERAL (SELECT c.seq, c.day FROM (
				(SELECT t.seq, t.day, t.seq::numeric AS rank` + unsettledSQL + ` AND t.seq >= f.seq
					AND NOT EXISTS (SELECT FROM postern.mark p WHERE (p.queue_id, p.seq, p.kind) = (t.queue_id, t.seq, 'placed')) ORDER BY t.seq LIMIT 1)
				UNION ALL
				(SELECT t.seq, t.day, p.rank FROM postern.mark p JOIN LATERAL (SELECT t.seq, t.day` + unsettledSQL + ` AND t.seq = p.seq) t ON true
					WHERE p.queue_id = $1 AND p.kind = 'placed' AND p.seq >= f.seq ORDER BY p.rank LIMIT 1)
			) c ORDER BY c.rank LIMIT 1) n
		JOIN postern.task t ON (t.queue_id, t.seq, t.day) = ($1, n.seq, n.day)`
	OldestUnsettledSQL = `SELECT ` + TaskSelect + unsettledSQL + ` ORDER BY t.seq LIMIT 1`
	unsettledSQL       = ` FROM postern.task t
		WHERE t.queue_id = $1 AND t.seq >= $2 AND t.day >= $3 AND t.seq <> ALL (coalesce($4::bigint[], '{}'))
			AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))`
)

// from is where the look for what has not ended begins, but for except: behind Past, unless that passes over the head.
func (q *QueueRow) from(except []int64) int64 {
	if slices.Contains(except, q.Head) {
		return max(q.Head, q.Past) + 1
	}
	return q.Head
}

func nextUnsettled(b *pgx.Batch, q *QueueRow, except []int64, add func(*Task)) {
	b.Queue(nextUnsettledSQL, q.ID, q.from(except), q.HeadDay.Time(), except, q.Head).Query(adding(scanHead, add))
}

// oldestUnsettled reads the lowest position without an outcome, from one on.
func oldestUnsettled(b *pgx.Batch, q *QueueRow, from int64, except []int64, add func(*Task)) {
	b.Queue(OldestUnsettledSQL, q.ID, from, q.HeadDay.Time(), except).Query(adding(ScanTask, add))
}

// scanHead reads a row of nextUnsettledSQL.
func scanHead(row pgx.Row) (*Task, error) {
	t := &Task{}
	err := row.Scan(append(t.Dests(), &t.Held, &t.Head, &t.HeadDay, &t.Passed)...)
	t.Tidy()
	return t, err
}
