package pg

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Queue is a named queue: its settings and what it is doing.
type Queue struct {
	Name       string
	Configured bool
	Priority   string // High or Med
	MaxDepth   int    // 0 = the context's
	Pool       string
	WhenFull   string
	OnFailure  string
	Paused     bool
	Draining   bool
	State      outbox.QueueState
	Phase      outbox.Phase
	Depth      int64
	Head       *outbox.ID
	HeadType   string
	HeadSince  *time.Time
	Blocked    *time.Time // since when the calls of its head come to nothing
	Oldest     *time.Time // when the head was received
	Sender     string
	Node       string
	Fence      int64
	Attempt    int
	Retries    int
	NextAt     *time.Time
	Version    int64
	CreatedAt  time.Time
}

// A reaped queue has no hot row: it is idle, and its name row tells the rest.
const queueSQL = `SELECT n.name, n.configured, n.prio, coalesce(n.max_depth, 0), coalesce(p.name, ''), n.when_full, n.on_failure,
		coalesce(q.paused, false), coalesce(q.draining, false), coalesce(q.phase, 'IDLE'),
		coalesce(q.tail_seq - q.head_seq + 1 - d.settled, 0), coalesce(t.queue_id, 0), coalesce(t.seq, 0), coalesce(t.day - '1970-01-01', 0), coalesce(postern.salt(t.created_at, t.moved_from), 0),
		CASE WHEN q.phase <> 'IDLE' THEN q.entered_at END, t.created_at, coalesce(s.account, ''), coalesce(w.name, ''), coalesce(q.fence, n.last_fence),
		coalesce(q.attempt, 0), coalesce(q.retries, 0), CASE WHEN q.phase IN ('DELAY', 'HELD') THEN q.not_before
			WHEN q.phase IN ('DISPATCHING', 'INCLUSION', 'WAITING_INCLUSION')
				THEN (SELECT w.due_at FROM postern.timer w WHERE w.queue_id = q.queue_id) END,
		n.version, n.created_at,
		CASE WHEN q.phase <> 'IDLE' THEN q.blocked_since END, coalesce(t.type, '')
	FROM postern.queue_name n
	LEFT JOIN postern.queue q ON q.queue_id = n.queue_id
	LEFT JOIN postern.pool p ON p.pool_id = n.pool_id
	LEFT JOIN postern.sender s ON s.sender_id = q.sender_id
	LEFT JOIN postern.node w ON w.node_id = q.node_id
	LEFT JOIN LATERAL (SELECT count(*) AS settled FROM postern.outcome o WHERE o.queue_id = q.queue_id AND o.seq >= q.head_seq AND o.day >= q.head_day) d ON true
	LEFT JOIN LATERAL (SELECT t.queue_id, t.seq, t.day, t.created_at, t.moved_from, t.type FROM postern.task t
		WHERE q.phase <> 'IDLE' AND t.queue_id = q.queue_id AND t.seq >= CASE WHEN q.marks > 0 THEN coalesce(q.cur_seq, q.next_seq, q.head_seq) ELSE q.head_seq END AND t.day >= q.head_day
			AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))
		ORDER BY t.seq LIMIT 1) t ON true
	WHERE n.context_id = $1`

func scanQueue(row pgx.CollectableRow) (*Queue, error) {
	v := &Queue{}
	var prio int16
	var id outbox.ID
	err := row.Scan(&v.Name, &v.Configured, &prio, &v.MaxDepth, &v.Pool, &v.WhenFull, &v.OnFailure, &v.Paused, &v.Draining, &v.Phase,
		&v.Depth, &id.Queue, &id.Seq, &id.Day, &id.Salt, &v.HeadSince, &v.Oldest, &v.Sender, &v.Node, &v.Fence, &v.Attempt, &v.Retries,
		&v.NextAt, &v.Version, &v.CreatedAt, &v.Blocked, &v.HeadType)
	if v.Priority = "Med"; prio == 0 {
		v.Priority = "High"
	}
	if v.State = v.Phase.Queue(); id.Queue != 0 {
		v.Head = &id
	}
	return v, err
}

// QueueFilter narrows a list of queues. Empty fields do not narrow.
type QueueFilter struct {
	Prefix   string
	States   []outbox.QueueState
	Paused   *bool
	MinDepth int64
	Node     string        // those that a node of this name has a lease of
	Stuck    time.Duration // those whose head has been in its state for so long, or has come to nothing for so long
	After    string        // the cursor: the last name that the page before looked at
	Limit    int
	Examined int // how many queues the page may look at, 0 for 25,000
}

// fromSQL is where a page begins; afterSQL passes over what has another beginning, which the collation of the database
// may place between names with the same.
const (
	fromSQL  = ` AND n.name > $2 AND ($3 = '' OR n.name >= $3)`
	afterSQL = fromSQL + ` AND ($3 = '' OR left(n.name, length($3)) = $3)`
)

// By the names' key up to the last one that the page may look at; outcomes are counted only of queues that
// can be deep enough.
const queuesSQL = queueSQL + afterSQL + ` AND ($4 = '' OR n.name <= $4)
		AND (cardinality($5::text[]) = 0 OR coalesce(q.phase, 'IDLE') = ANY ($5)) AND ($6::bool IS NULL OR coalesce(q.paused, false) = $6)
		AND ($7::bigint = 0 OR q.tail_seq - q.head_seq + 1 >= $7 AND q.tail_seq - q.head_seq + 1 - d.settled >= $7)
		AND ($9::interval = '0' OR q.phase <> 'IDLE'
			AND least(q.entered_at, q.blocked_since) <= coalesce($10::timestamptz, clock_timestamp()) - $9::interval)
	ORDER BY n.context_id, n.name LIMIT $8`

// heldSQL narrows to what nodes of a name have leased. It goes through all queues: each claim would write an index.
const heldSQL = ` AND n.queue_id = ANY (ARRAY(SELECT q.queue_id
		FROM postern.queue q
		JOIN postern.node w ON w.node_id = q.node_id
		WHERE w.name = $11))`

// Queues lists queues of a context by name, and after which name the next page begins, "" at the end. A page
// looks at a bounded number of queues, so that it may be short, even empty, before the end.
func (s *Store) Queues(ctx context.Context, contextID int32, f QueueFilter) (list []*Queue, next string, err error) {
	if f.Examined == 0 {
		f.Examined = 25000
	}
	phases := []string{}
	for _, p := range outbox.Phases {
		if slices.Contains(f.States, p.Queue()) {
			phases = append(phases, string(p))
		}
	}
	sql, held := queuesSQL, f.Node != ""
	if held {
		sql = strings.Replace(queuesSQL, afterSQL, afterSQL+heldSQL, 1)
	}
	narrowed := f.Prefix != "" || len(phases) > 0 || f.Paused != nil || f.MinDepth > 0 || f.Stuck > 0
	if narrowed && !held { // else the page is full before
		err = s.Db(ctx).QueryRow(ctx, `SELECT n.name FROM postern.queue_name n WHERE n.context_id = $1`+fromSQL+`
			ORDER BY n.context_id, n.name LIMIT 1 OFFSET $4`, contextID, f.After, f.Prefix, f.Examined-1).Scan(&next)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, "", db.Known(err)
		}
	}
	args := []any{contextID, f.After, f.Prefix, next, phases, f.Paused, f.MinDepth, f.Limit + 1, f.Stuck, s.Clock()}
	if held {
		args = append(args, f.Node)
	}
	rows, err := s.Db(ctx).Query(ctx, sql, args...)
	if err != nil {
		return nil, "", db.Known(err)
	}
	list, err = pgx.CollectRows(rows, scanQueue)
	if len(list) > f.Limit {
		return list[:f.Limit], list[f.Limit-1].Name, nil
	}
	return list, next, db.Known(err)
}

// Queue returns one queue, or NotFound.
func (s *Store) Queue(ctx context.Context, contextID int32, name string) (*Queue, error) {
	rows, err := s.Db(ctx).Query(ctx, queueSQL+` AND n.name = $2`, contextID, name)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanQueue)
	if err != nil {
		return nil, db.Known(err)
	}
	if len(list) == 0 {
		return nil, fault.New(fault.NotFound, "not_found", "no queue %q: the first post to it makes it, and so does PUT /queues/%[1]s with {}", fault.Clip(name))
	}
	return list[0], nil
}

// Declared says whether somebody configured a queue.
func (s *Store) Declared(ctx context.Context, contextID int32, name string) (yes bool, err error) {
	err = s.Db(ctx).QueryRow(ctx, `SELECT EXISTS (SELECT FROM postern.queue_name WHERE context_id = $1 AND name = $2 AND configured)`, contextID, name).Scan(&yes)
	return yes, db.Known(err)
}

// PutQueue creates or replaces the settings of a queue (S2.19).
func (s *Store) PutQueue(ctx context.Context, by db.By, v Queue, version int64) (created bool, err error) {
	// a version is compared before the queue is made: one that is not there has no version
	if version > 0 || version == db.AnyVersion {
		if _, err := s.Queue(ctx, by.Context, v.Name); fault.KindOf(err) == fault.NotFound {
			return false, db.MatchVersion(version, 0, true)
		} else if err != nil {
			return false, err
		}
	}
	if err := s.makeQueues(ctx, []nameKey{{by.Context, v.Name}}); err != nil {
		return false, err
	}
	var prio int16 = 1
	if v.Priority == "High" {
		prio = 0
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		id := s.QueueID(by.Context, v.Name) // anew in each run: it may have been forgotten, or made anew
		old, configured, pool, err := lockQueueName(ctx, t, by.Context, v)
		if err != nil {
			return err
		}
		created = !configured
		if err := db.MatchVersion(version, old, created && version == -1); err != nil {
			return err
		}
		q, now, err := s.lockOne(ctx, t, id)
		if err != nil {
			return err
		}
		if q == nil {
			s.forgetQueue(id)
			return &queueMissing{s, []*Submission{{ContextID: by.Context, Queue: v.Name}}}
		}
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.queue_name SET configured = true, prio = $3, max_depth = $4, pool_id = $5, when_full = $6, on_failure = $7, version = version + 1
			WHERE context_id = $1 AND name = $2`, by.Context, v.Name, prio, db.Nullable(int32(v.MaxDepth)), db.Nullable(pool), v.WhenFull, v.OnFailure)
		e := newEffects(s)
		e.now = now
		standing := q.Phase == outbox.PhaseReady
		switch {
		case standing:
			e.leave(q)
		case q.Phase == outbox.PhaseDispatching && q.Node == 0 && q.Prio != prio: // if it stands in resume, its key changes
			b.Queue(`UPDATE postern.ready SET prio = $4 WHERE (lane, prio, since, queue_id) = ($1, $2, $3, $5)`,
				s.Conf.Resume, q.Prio, q.EnteredAt, prio, q.ID)
		}
		q.Prio, q.MaxDepth, q.Pool, q.DropOldest, q.PauseOnFailure = prio, int32(v.MaxDepth), pool, v.WhenFull == "drop_oldest", v.OnFailure == "pause"
		if standing {
			if err := s.relane(ctx, t, e, q); err != nil {
				return err
			}
		}
		e.saved = append(e.saved, q)
		s.AuditIn(b, by, "put", "/queues/"+v.Name)
		return e.commit(ctx, t, b)
	})
	return created, err
}

// lockQueueName locks the name of a queue, and its pool against removal, and says what is configured of it.
func lockQueueName(ctx context.Context, t *db.Txn, contextID int32, v Queue) (version int64, configured bool, pool int32, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT n.version, n.configured FROM postern.queue_name n WHERE n.context_id = $1 AND n.name = $2 FOR UPDATE`,
		contextID, v.Name).QueryRow(func(row pgx.Row) error { return row.Scan(&version, &configured) })
	b.Queue(`SELECT pool_id FROM postern.pool WHERE context_id = $1 AND name = $2 FOR KEY SHARE`,
		contextID, v.Pool).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&pool}, func() error { return nil })
		return err
	})
	if err = t.Send(ctx, b); err == nil && v.Pool != "" && pool == 0 {
		err = fault.At("/pool", "pool %q does not exist: it comes into being with its first sender", fault.Clip(v.Pool))
	}
	return version, configured, pool, err
}

// relane puts a READY queue, which the caller has taken out of its lane, into the one that its head
// needs now.
func (s *Store) relane(ctx context.Context, t *db.Txn, e *effects, q *QueueRow) error {
	var head *Task
	b := &pgx.Batch{}
	s.nextTasks(b, []stretch{{q.ID, q.First(), q.First(), q.HeadDay}}, q.TailDay, func(t *Task) { head = t })
	if err := t.Send(ctx, b); err != nil {
		return err
	}
	lane, err := e.laneOf(q, head)
	if lacks := (*laneMissing)(nil); errors.As(err, &lacks) && t.Joint != nil {
		// The lane may want a pool that this transaction has just made, which no other connection sees.
		lane, err = makeLane(ctx, t.Conn, lacks.keys[0])
	}
	if err != nil {
		return err
	}
	q.Lane = lane
	q.EnteredAt = later(q.EnteredAt, q.EnteredAt) // its turn is kept, its key is a new one
	if !q.Paused {
		e.readyAdd = append(e.readyAdd, e.key(q))
	}
	return nil
}

// PauseQueue stops a queue after what is in flight, or lets it go on. Posts are accepted all the while.
func (s *Store) PauseQueue(ctx context.Context, by db.By, name string, paused bool) (LeverResult, error) {
	return s.onQueue(ctx, by, Verb(paused), name, func(e *effects, q *QueueRow) bool {
		changed := q.Paused != paused || q.Draining && !paused
		if q.Paused != paused && q.Phase == outbox.PhaseReady {
			q.Paused = false
			if paused {
				e.leave(q)
			} else {
				e.readyAdd = append(e.readyAdd, e.key(q))
			}
		}
		if q.Paused = paused; !paused {
			q.Draining = false
		}
		return changed
	})
}

// DrainQueue makes a queue accept nothing more and work off the rest; resume ends it.
func (s *Store) DrainQueue(ctx context.Context, by db.By, name string) (LeverResult, error) {
	return s.onQueue(ctx, by, "drain", name, func(e *effects, q *QueueRow) bool {
		changed := !q.Draining
		q.Draining = true
		return changed
	})
}

// onQueue pulls a lever on one queue under its lock.
func (s *Store) onQueue(ctx context.Context, by db.By, action, name string, change func(*effects, *QueueRow) bool) (r LeverResult, err error) {
	if _, err := s.Queue(ctx, by.Context, name); err != nil {
		return r, err
	}
	if err := s.makeQueues(ctx, []nameKey{{by.Context, name}}); err != nil {
		return r, err
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		id := s.QueueID(by.Context, name) // anew in each run: it may have been forgotten, or made anew
		if _, err := t.LockVersion(ctx, 0, `SELECT version, false FROM postern.queue_name WHERE context_id = $1 AND name = $2 FOR UPDATE`, by.Context, name); err != nil {
			return err
		}
		if err := by.Seen(t.Version); err != nil {
			return err
		}
		q, now, err := s.lockOne(ctx, t, id)
		if err != nil {
			return err
		}
		if q == nil {
			s.forgetQueue(id)
			return &queueMissing{s, []*Submission{{ContextID: by.Context, Queue: name}}}
		}
		e := newEffects(s)
		e.now = now
		b := &pgx.Batch{}
		if r.Changed = change(e, q); r.Changed {
			e.saved = append(e.saved, q)
			b.Queue(`UPDATE postern.queue_name SET version = version + 1 WHERE context_id = $1 AND name = $2`, by.Context, name)
		}
		s.AuditIn(b, by, action, "/queues/"+name)
		return e.commit(ctx, t, b)
	})
	return r, err
}

// LineOf returns the Line of a queue. It is made of the queue's id, which is one over all contexts and comes back with
// a queue that was reaped, and of a number of this installation. A queue without a name holds one transaction and has
// none.
func (s *Store) LineOf(queue string, id int64) outbox.Line {
	if queue == "" {
		return outbox.Line{}
	}
	return outbox.Line{Installation: s.QuarantineView().lines, Queue: id}
}

// Installation returns the id by which other installations know this database, for good: it stays through a restore,
// since what others have signed for it names it.
func (s *Store) Installation() string { return s.QuarantineView().installation }
