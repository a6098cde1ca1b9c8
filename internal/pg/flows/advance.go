package flows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// dueAtOnce is how many jobs one commit brings to their ends.
const dueAtOnce = 100

// verdict is how the transaction of a job has ended.
type verdict struct {
	queue, seq int64
	job, flow  *uuid.UUID // nil: it carries none
	state      *string    // nil: its outcome was dropped by retention
	code, text string
	hash       string
}

const verdictColumns = `j.job_id, j.flow_id, o.state, coalesce(o.error_code, ''), coalesce(o.error, ''),
	coalesce(o.hash, '')`

func (v *verdict) fields() []any {
	return []any{&v.queue, &v.seq, &v.job, &v.flow, &v.state, &v.code, &v.text, &v.hash}
}

func collectVerdicts(into *[]verdict) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (v verdict, err error) {
			return v, row.Scan(v.fields()...)
		})
		return err
	}
}

func (v *verdict) done() bool { return v.state != nil && *v.state == string(outbox.DONE) }

// Advance brings jobs whose transactions have ended to their ends, and their flows with them; it returns how many it
// looked at. The recorded result is that of the try whose id is the hash of the outcome, so that it and the core's
// verdict cannot differ.
//
// Two processes that do it at one time take different rows of job_due. The rows of flows are locked first, then those
// of jobs in the order of their ids, behind no try: of a flow that goes on only the jobs that have ended, of one that
// fails all. The core ends what depends on a failed transaction in the commit that ends that, so that the reason is
// there to be read with what follows from it.
func (s *Store) Advance(ctx context.Context) (n int, err error) {
	var due []verdict
	var aborted bool
	err = s.Run(ctx, func(t *db.Txn) error {
		due, aborted = nil, false
		b := &pgx.Batch{}
		b.Queue(`SELECT d.queue_id, d.seq, `+verdictColumns+`
			FROM (SELECT d.* FROM postern.job_due d ORDER BY d.at LIMIT $1 FOR UPDATE SKIP LOCKED) d
			LEFT JOIN LATERAL (
				SELECT * FROM postern.outcome o
				WHERE (o.queue_id, o.seq, o.day) = (d.queue_id, d.seq, d.day)
				OFFSET 0) o ON true
			LEFT JOIN postern.job j ON (j.queue_id, j.seq) = (d.queue_id, d.seq)`, dueAtOnce).
			Query(collectVerdicts(&due))
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(due) == 0 {
			return t.Rollback(ctx)
		}
		aborted, err = s.advance(ctx, t, due)
		return err
	})
	s.heard()
	if err == nil && aborted {
		err = s.TakeBack(ctx)
	}
	return len(due), err
}

// advance writes the ends of jobs, and commits. aborted: a flow has ended in error.
func (s *Store) advance(ctx context.Context, t *db.Txn, due []verdict) (aborted bool, err error) {
	var flows, failing, jobs []uuid.UUID
	for _, v := range due {
		if v.job == nil {
			continue
		}
		jobs = append(jobs, *v.job)
		if v.flow == nil {
			continue
		}
		flows = append(flows, *v.flow)
		if !v.done() {
			failing = append(failing, *v.flow)
		}
	}
	list, err := s.withReasons(ctx, t, due, failing)
	if err != nil {
		return false, err
	}
	l, err := s.lock(ctx, t, flows, failing, jobs)
	if err != nil {
		return false, err
	}
	tries, late, err := s.readEnds(ctx, t, list)
	if err != nil {
		return false, err
	}
	b := &pgx.Batch{}
	finished, failed, err := s.concludeAll(b, l, list, tries, late)
	if err != nil {
		return false, err
	}
	for _, id := range flows {
		f := l.flows[id]
		if f == nil || finished[id] == 0 && len(failed[id]) == 0 {
			continue
		}
		if err := s.goOn(b, l, f, finished[id], failed[id]); err != nil {
			return false, err
		}
		aborted = aborted || f.Status == flow.FlowError
		delete(finished, id)
		delete(failed, id)
	}
	seen(b, due)
	return aborted, t.Commit(ctx, b)
}

// concludeAll adds to b the ends of jobs, and returns for each flow how many of its jobs have finished, and which have
// failed.
func (s *Store) concludeAll(b *pgx.Batch, l *locked, list []verdict, tries map[string]*Try,
	late map[uuid.UUID]string) (finished map[uuid.UUID]int, failed map[uuid.UUID][]*Job, err error) {
	finished, failed = map[uuid.UUID]int{}, map[uuid.UUID][]*Job{}
	for _, v := range list {
		j := (*Job)(nil)
		if v.job != nil {
			j = l.jobs[*v.job]
		}
		if j == nil || !j.TxOpen {
			continue
		}
		ended := j.Status.Ended()
		try := tries[v.hash]
		if try != nil && try.Job != j.ID {
			try = nil
		}
		if err := s.conclude(b, l, j, v, try, late[j.ID]); err != nil {
			return nil, nil, err
		}
		switch {
		case ended || j.Flow == nil || j.Removed:
		case j.Status == flow.JobFinished:
			finished[*j.Flow]++
		default:
			failed[*j.Flow] = append(failed[*j.Flow], j)
		}
	}
	return finished, failed, nil
}

// seen adds to b that the ends of transactions are known.
func seen(b *pgx.Batch, due []verdict) {
	var queues, seqs, needs, of []int64
	for _, v := range due {
		queues, seqs = append(queues, v.queue), append(seqs, v.seq)
		if v.job == nil {
			needs, of = append(needs, v.queue), append(of, v.seq)
		}
	}
	b.Queue(`DELETE FROM postern.job_due d
		USING ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[])) n(queue_id, seq)
		WHERE (d.queue_id, d.seq) = (n.queue_id, n.seq)`, queues, seqs)
	if len(needs) > 0 {
		b.Queue(`UPDATE postern.job_need x
			SET settled = true
			FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[])) n(queue_id, seq)
			WHERE (x.queue_id, x.seq) = (n.queue_id, n.seq)`, needs, of)
	}
}

// withReasons adds to verdicts those of other jobs of flows that fail, and puts in front those that are no consequence
// of others.
func (s *Store) withReasons(ctx context.Context, t *db.Txn, due []verdict, failing []uuid.UUID) ([]verdict, error) {
	list := slices.Clone(due)
	if len(failing) > 0 {
		var more []verdict
		b := &pgx.Batch{}
		b.Queue(`SELECT j.queue_id, j.seq, `+verdictColumns+`
			FROM postern.job j
			CROSS JOIN LATERAL (
				SELECT * FROM postern.outcome o
				WHERE (o.queue_id, o.seq, o.day) = (j.queue_id, j.seq, j.day)
				OFFSET 0) o
			WHERE j.flow_id = ANY ($1) AND j.ended_at IS NULL AND j.tx_open`, failing).Query(collectVerdicts(&more))
		if err := t.Send(ctx, b); err != nil {
			return nil, err
		}
		for _, v := range more {
			if !slices.ContainsFunc(due, func(x verdict) bool { return x.queue == v.queue && x.seq == v.seq }) {
				list = append(list, v)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b verdict) int { return rank(a) - rank(b) })
	return list, nil
}

func rank(v verdict) int {
	if v.code == flow.CodeDependency {
		return 1
	}
	return 0
}

// readEnds reads the tries that verdicts name, by their ids, and for jobs the names of prerequisites that were not met
// in time.
func (s *Store) readEnds(ctx context.Context, t *db.Txn, list []verdict) (tries map[string]*Try,
	late map[uuid.UUID]string, err error) {
	var hashes, depended []uuid.UUID
	for _, v := range list {
		if id, err := uuid.Parse(v.hash); err == nil {
			hashes = append(hashes, id)
		}
		if v.job != nil && v.code == flow.CodeDependency {
			depended = append(depended, *v.job)
		}
	}
	var found []*Try
	tries, late = map[string]*Try{}, map[uuid.UUID]string{}
	b := &pgx.Batch{}
	if len(hashes) > 0 {
		b.Queue(`SELECT `+tryColumns+`
			FROM postern.job_try t
			WHERE t.try_id = ANY ($1)`, hashes).Query(collectTries(&found))
	}
	if len(depended) > 0 {
		b.Queue(`SELECT n.job_id, n.name
			FROM postern.job_need n
			WHERE n.job_id = ANY ($1) AND n.ended_at IS NOT NULL AND n.met_at IS NULL`, depended).
			Query(func(rows pgx.Rows) error {
				var job uuid.UUID
				var name string
				_, err := pgx.ForEachRow(rows, []any{&job, &name}, func() error { late[job] = name; return nil })
				return err
			})
	}
	if b.Len() > 0 {
		err = t.Send(ctx, b)
	}
	for _, v := range found {
		tries[v.ID.String()] = v
	}
	return tries, late, err
}

// conclude brings a job to the end that its transaction has had. A job that has ended before only learns that its
// transaction has, too, and keeps what its last try returned.
func (s *Store) conclude(b *pgx.Batch, l *locked, j *Job, v verdict, try *Try, late string) error {
	j.TxOpen = false
	end := flow.End{Done: v.done(), Depended: v.code == flow.CodeDependency, Code: v.code}
	end.Tried = try != nil && (try.State == flow.Finished) == end.Done && try.EndedAt != nil
	c := change{now: l.now, code: v.code, text: v.text}
	switch {
	case late != "":
		c.code, c.text = flow.CodeNeedTimeout, fmt.Sprintf("prerequisite %q was not met in time", late)
	case end.Depended:
		if root := l.reason(j.ID); root != nil {
			c.cause, c.text = &root.ID, fmt.Sprintf("job %s, which it needs, failed", root.name())
		}
	case try != nil && try.EndedAt != nil:
		c.result, c.exit, c.code, c.text = try.Result, try.ExitCode, try.Code, try.Error
		if end.Done && (c.result == nil || try.Attempt > 1 && twin.Planted("result_of_retry_dropped")) {
			c.result = json.RawMessage("{}")
		}
	case v.state == nil:
		c.code, c.text = flow.CodeResultLost, "its transaction was dropped by retention before anybody asked how it "+
			"ended"
	case c.code == "":
		c.code = *v.state
	}
	if j.Status.Ended() {
		result := []byte(nil)
		if j.Status == flow.JobError && j.Result == nil && try != nil {
			result = try.Result
		}
		b.Queue(`UPDATE postern.job SET tx_open = false, result = coalesce(result, $2::text::jsonb)
			WHERE job_id = $1`, j.ID, db.Raw(result))
		return nil
	}
	c.on = end.Event(j.Status)
	err := s.moveJob(b, j, c)
	if illegal := (*machine.Illegal)(nil); errors.As(err, &illegal) {
		c.on = flow.JobRefused
		return s.moveJob(b, j, c)
	}
	return err
}

// reason is the job whose failure another one suffers from; nil if it is not known here.
func (l *locked) reason(id uuid.UUID) *Job {
	seen := map[uuid.UUID]bool{}
	for next := l.needs[id]; len(next) > 0; next = next[1:] {
		j := l.jobs[next[0]]
		if seen[next[0]] {
			continue
		}
		seen[next[0]] = true
		if j != nil && j.Status == flow.JobError && j.Code != flow.CodeDependency {
			return j
		}
		next = append(next, l.needs[next[0]]...)
	}
	return nil
}
