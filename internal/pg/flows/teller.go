package flows

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// teller is the Teller of jobs: in the commit that accepts the transaction of a job, the job learns where that stands;
// in the commit that ends it, the job is due. Commits without a job cost a comparison of the types.
type teller struct{ s *Store }

// Tell adds to b what jobs are to know of news.
func (t teller) Tell(_ context.Context, _ func(context.Context, *pgx.Batch) error, b *pgx.Batch,
	news pg.News) (bool, error) {
	var posted []*pg.Task
	for _, task := range news.Accepted {
		if strings.HasPrefix(task.Type, flow.TypePrefix) {
			posted = append(posted, task)
		}
	}
	if len(posted) > 0 {
		if err := t.s.accepted(b, posted, news.Now); err != nil {
			return false, err
		}
	}
	due := db.Columns{}
	for _, o := range news.Outcomes {
		if strings.HasPrefix(o.Type, flow.TypePrefix) && o.Code != "moved" {
			due.N++
			due.Add(o.ID.Queue, o.ID.Seq, o.ID.Day.Time(), news.Now)
		}
	}
	if due.N > 0 {
		dueInsert.Queue(b, due)
	}
	return false, nil
}

var dueInsert = db.InsertMany("job_due", "ON CONFLICT DO NOTHING", "queue_id bigint", "seq bigint", "day date",
	"at timestamptz")

// accepted adds to b that transactions of jobs have their places. What no call to /jobs has made is made a job now.
// Rows of jobs are locked in the order of their ids.
func (s *Store) accepted(b *pgx.Batch, list []*pg.Task, now time.Time) error {
	type place struct {
		job  uuid.UUID
		task *pg.Task
	}
	var known []place
	var adopted, at []int64
	for _, task := range list {
		if id, ok := flow.JobOfUID(task.UID); ok {
			known = append(known, place{id, task})
		} else if job, n, ok := flow.NeedOf(task.UID); ok && task.Type == flow.TypeNeed {
			b.Queue(`UPDATE postern.job_need SET queue_id = $3, seq = $4 WHERE (job_id, n) = ($1, $2)`, job, n,
				task.ID.Queue, task.ID.Seq)
		} else if err := s.adopt(b, task, now); err != nil {
			return err
		} else {
			adopted, at = append(adopted, task.ID.Queue), append(at, task.ID.Seq)
		}
	}
	if len(adopted) > 0 {
		b.Queue(adoptedEdgesSQL, adopted, at)
	}
	slices.SortFunc(known, func(a, b place) int { return slices.Compare(a.job[:], b.job[:]) })
	var ids []uuid.UUID
	var queues, seqs []int64
	var days []time.Time
	var txs []string
	for _, p := range known {
		ids, txs = append(ids, p.job), append(txs, txID(p.task))
		queues, seqs, days = append(queues, p.task.ID.Queue), append(seqs, p.task.ID.Seq), append(days,
			p.task.ID.Day.Time())
	}
	if len(ids) > 0 {
		b.Queue(placedSQL, ids, queues, seqs, days, txs)
	}
	return nil
}

// adoptedEdgesSQL makes jobs need those whose transactions theirs depend on. These rows are written in front of it.
const adoptedEdgesSQL = `INSERT INTO postern.job_edge (job_id, needs)
	SELECT j.job_id, k.job_id
	FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[])) n(queue_id, seq)
	JOIN postern.job j ON (j.queue_id, j.seq) = (n.queue_id, n.seq)
	JOIN postern.dependency d ON (d.queue_id, d.seq) = (n.queue_id, n.seq)
	JOIN postern.job k ON (k.queue_id, k.seq) = (d.on_queue, d.on_seq)
	ON CONFLICT DO NOTHING`

const placedSQL = `UPDATE postern.job j
	SET queue_id = n.queue_id, seq = n.seq, day = n.day, tx_id = n.tx_id::uuid
	FROM ROWS FROM (unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::date[]),
		unnest($5::text[])) n(job_id, queue_id, seq, day, tx_id),
		LATERAL (SELECT k.job_id FROM postern.job k WHERE k.job_id = n.job_id ORDER BY k.job_id FOR UPDATE) l
	WHERE j.job_id = l.job_id`

func txID(task *pg.Task) string {
	id := task.ID
	id.Salt = outbox.SaltOf(task.CreatedAt, task.MovedFrom)
	return id.String()
}

// adopt adds to b the job that a transaction carries which was posted as such: over HTTP or in SQL.
func (s *Store) adopt(b *pgx.Batch, task *pg.Task, now time.Time) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	spec, why := flow.CarriedIn(task.Data)
	spec.ScriptType, _ = flow.ScriptType(task.Type)
	if spec.Env == nil {
		spec.Env = map[string]string{}
	}
	if task.MaxRetries != nil {
		spec.Retries = min(*task.MaxRetries, flow.MaxRetries)
	}
	j := &Job{Spec: spec, ID: id, Actor: task.Actor, UID: task.UID, context: task.ContextID, TxOpen: true, Unfit: why}
	if err := s.create(b, j, change{on: flow.JobReleased, open: task.Held, by: task.Actor, now: now}); err != nil {
		return err
	}
	b.Queue(`UPDATE postern.job SET queue_id = $2, seq = $3, day = $4, tx_id = $5::text::uuid WHERE job_id = $1`,
		j.ID, task.ID.Queue, task.ID.Seq, task.ID.Day.Time(), txID(task))
	return nil
}

// Read reads nothing: the types of jobs are known by their names.
func (t teller) Read(*pgx.Batch) func(time.Time) { return func(time.Time) {} }

// Kept keeps nothing: a job knows its end before its transaction may be forgotten, see jobsMade.
func (t teller) Kept() (keeps, forgets string) { return "false", "" }
