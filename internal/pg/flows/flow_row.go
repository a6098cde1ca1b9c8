package flows

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Flow is one with all that is known of it.
type Flow struct {
	ID         uuid.UUID
	Actor      string // who made it, and alone may change it
	Ref        *int64
	Env        map[string]string
	Status     flow.Status
	Jobs       int // that it has
	Finished   int // of them
	Result     json.RawMessage
	Truncated  bool // the results of its jobs are too large to be told together
	Code       string
	Error      string
	Cause      *uuid.UUID // the job whose failure ended it
	RedriveOf  *uuid.UUID
	Version    int64
	CreatedAt  time.Time
	ReleasedAt *time.Time
	StartedAt  *time.Time
	EndedAt    *time.Time
	UpdatedAt  time.Time
	Replay     bool // it was there: the same request made it before

	context int32
	steps   int
	hash    []byte
	key     string // of the request that made it
}

// Tag rises with each change of a flow and each step that it takes: both count up, so that their sum does. That a
// further job has finished is no step.
func (f *Flow) Tag() int64 { return f.Version + int64(f.steps) }

const flowColumns = `f.flow_id, f.context_id, f.actor, f.ref, f.env, f.status, f.steps, f.jobs, f.finished, f.result,
	f.truncated, f.error_code, f.error, f.cause, f.redrive_of, f.version, f.created_at, f.released_at, f.started_at,
	f.ended_at, f.updated_at, f.body_hash, coalesce(f.request_key, '')`

func scanFlow(row pgx.CollectableRow) (*Flow, error) {
	f := &Flow{}
	return f, row.Scan(&f.ID, &f.context, &f.Actor, &f.Ref, &f.Env, &f.Status, &f.steps, &f.Jobs, &f.Finished,
		(*[]byte)(&f.Result), &f.Truncated, &f.Code, &f.Error, &f.Cause, &f.RedriveOf, &f.Version, &f.CreatedAt,
		&f.ReleasedAt, &f.StartedAt, &f.EndedAt, &f.UpdatedAt, &f.hash, &f.key)
}

func collectFlows(into *[]*Flow) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, scanFlow)
		return err
	}
}

// moveFlow lets something happen to a flow whose row is locked, and adds to b what is to be written. That a further job
// has finished is counted, and is no step of its own.
func (s *Store) moveFlow(b *pgx.Batch, f *Flow, on flow.Event, facts flow.Facts, c change) (flow.Step, error) {
	step, err := flow.Next(f.Status, on, facts)
	if err != nil {
		return step, err
	}
	f.Status, f.UpdatedAt = step.To, c.now
	switch {
	case on == flow.FlowReleased:
		f.ReleasedAt = &c.now
	case step.To.Ended():
		f.EndedAt, f.Code, f.Error, f.Cause = &c.now, c.code, c.text, c.cause
	}
	if step.To == flow.FlowStarted && f.StartedAt == nil {
		f.StartedAt = &c.now
	}
	if on != flow.FlowAdvanced || step.To.Ended() {
		f.steps++
		noteStep(b, "flow", f.ID, f.steps, string(step.From), string(on), string(step.To), c)
	}
	b.Queue(`UPDATE postern.flow
		SET was = $2, status = $3, steps = $4, jobs = $5, finished = $6, error_code = $7, error = $8, cause = $9,
			version = $10, released_at = $11, started_at = $12, ended_at = $13, updated_at = $14
		WHERE flow_id = $1`, f.ID, string(step.From), string(f.Status), f.steps, f.Jobs, f.Finished, f.Code, f.Error,
		f.Cause, f.Version, f.ReleasedAt, f.StartedAt, f.EndedAt, f.UpdatedAt)
	if step.Aggregate {
		b.Queue(aggregateSQL, f.ID, maxFlowResult)
	}
	s.tellOfFlow(b, f, c)
	return step, nil
}

// maxFlowResult is how many bytes of results of jobs are told with their flow.
const maxFlowResult = 1 << 20

// aggregateSQL makes the result of a flow of those of its jobs: <ref>.<key>.
const aggregateSQL = `UPDATE postern.flow f
	SET result = CASE WHEN x.size <= $2 THEN x.result ELSE '{}' END, truncated = x.size > $2
	FROM (
		SELECT coalesce(jsonb_object_agg(j.ref || '.' || k.key, k.value)
				FILTER (WHERE k.key IS NOT NULL), '{}') AS result,
			coalesce(sum(octet_length(k.key) + octet_length(k.value::text) + 12), 0) AS size
		FROM postern.job j
		LEFT JOIN LATERAL jsonb_each(j.result) k ON true
		WHERE j.flow_id = $1 AND NOT j.removed) x
	WHERE f.flow_id = $1`

// locked is flows and jobs whose rows are locked: the flows first, then the jobs, both in the order of their ids.
type locked struct {
	flows map[uuid.UUID]*Flow
	jobs  map[uuid.UUID]*Job
	needs map[uuid.UUID][]uuid.UUID // of jobs of flows that are locked whole: which jobs they need
	now   time.Time
}

// lock locks flows, jobs, and of the flows that are to be whole all jobs that have not ended.
func (s *Store) lock(ctx context.Context, t *db.Txn, flows, whole, jobs []uuid.UUID) (*locked, error) {
	l := &locked{map[uuid.UUID]*Flow{}, map[uuid.UUID]*Job{}, map[uuid.UUID][]uuid.UUID{}, time.Time{}}
	var fs []*Flow
	var js []*Job
	b := &pgx.Batch{}
	if len(flows) > 0 {
		b.Queue(`SELECT `+flowColumns+`
			FROM postern.flow f
			WHERE f.flow_id = ANY ($1)
			ORDER BY f.flow_id
			FOR UPDATE`, flows).Query(collectFlows(&fs))
	}
	if len(whole) == 0 {
		b.Queue(`SELECT `+jobColumns+`
			FROM postern.job j
			WHERE j.job_id = ANY ($1)
			ORDER BY j.job_id
			FOR UPDATE`, jobs).Query(collectJobs(&js))
	} else {
		b.Queue(`SELECT `+jobColumns+`
			FROM postern.job j
			WHERE j.job_id IN (
				SELECT unnest($1::uuid[])
				UNION
				SELECT k.job_id FROM postern.job k WHERE k.flow_id = ANY ($2) AND k.ended_at IS NULL)
			ORDER BY j.job_id
			FOR UPDATE`, jobs, whole).Query(collectJobs(&js))
		b.Queue(`SELECT e.job_id, e.needs
			FROM postern.job k
			JOIN postern.job_edge e ON e.job_id = k.job_id
			WHERE k.flow_id = ANY ($1)`, whole).Query(func(rows pgx.Rows) error {
			var job, needs uuid.UUID
			_, err := pgx.ForEachRow(rows, []any{&job, &needs}, func() error {
				l.needs[job] = append(l.needs[job], needs)
				return nil
			})
			return err
		})
	}
	s.ReadNow(b, &l.now)
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	for _, f := range fs {
		l.flows[f.ID] = f
	}
	for _, j := range js {
		l.jobs[j.ID] = j
	}
	return l, nil
}

// open lists the jobs of a flow that have not ended, in the order of their ids.
func (l *locked) open(f *Flow) (list []*Job) {
	for _, id := range slices.SortedFunc(maps.Keys(l.jobs), func(a, b uuid.UUID) int {
		return slices.Compare(a[:], b[:])
	}) {
		if j := l.jobs[id]; j.Flow != nil && *j.Flow == f.ID && !j.Status.Ended() && !j.Removed {
			list = append(list, j)
		}
	}
	return list
}

// below returns the jobs that need one, directly or over others.
func (l *locked) below(root uuid.UUID) map[uuid.UUID]bool {
	by := map[uuid.UUID][]uuid.UUID{}
	for job, needs := range l.needs {
		for _, n := range needs {
			by[n] = append(by[n], job)
		}
	}
	found := map[uuid.UUID]bool{}
	for next := []uuid.UUID{root}; len(next) > 0; next = next[1:] {
		for _, job := range by[next[0]] {
			if !found[job] {
				found[job] = true
				next = append(next, job)
			}
		}
	}
	return found
}

// onFlow runs fn with a flow locked and all its jobs that have not ended; fn ends the transaction.
func (s *Store) onFlow(ctx context.Context, contextID int32, id uuid.UUID,
	fn func(*db.Txn, *locked, *Flow) error) error {
	return s.Run(ctx, func(t *db.Txn) error {
		l, err := s.lock(ctx, t, []uuid.UUID{id}, []uuid.UUID{id}, nil)
		if err != nil {
			return err
		}
		f := l.flows[id]
		if f == nil || f.context != contextID {
			return noFlow(id.String())
		}
		return fn(t, l, f)
	})
}

// onJob runs fn with a job locked, and with it its flow, if it is in one, and the other open jobs of the flow; fn
// ends the transaction.
func (s *Store) onJob(ctx context.Context, contextID int32, id uuid.UUID,
	fn func(*db.Txn, *locked, *Job) error) error {
	return s.Run(ctx, func(t *db.Txn) error {
		var of []uuid.UUID
		var in *uuid.UUID // a job stays in its flow
		b := &pgx.Batch{}
		b.Queue(`SELECT j.flow_id FROM postern.job j WHERE j.job_id = $1 AND j.context_id = $2`, id, contextID).
			Query(func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&in}, func() error { return nil })
				return err
			})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if in != nil {
			of = []uuid.UUID{*in}
		}
		l, err := s.lock(ctx, t, of, of, []uuid.UUID{id})
		if err != nil {
			return err
		}
		j := l.jobs[id]
		if j == nil || j.context != contextID {
			return noJob(id.String())
		}
		return fn(t, l, j)
	})
}

func noFlow(id string) error {
	return fault.New(fault.NotFound, "not_found", "no flow %q", fault.Clip(id))
}

// Flow returns one flow, or NotFound.
func (s *Store) Flow(ctx context.Context, contextID int32, id uuid.UUID) (*Flow, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT `+flowColumns+`
		FROM postern.flow f
		WHERE f.flow_id = $1 AND f.context_id = $2`, id, contextID)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanFlow)
	if err != nil {
		return nil, db.Known(err)
	}
	if len(list) == 0 {
		return nil, noFlow(id.String())
	}
	return list[0], nil
}

// FlowFilter narrows a list of flows. Empty fields do not narrow.
type FlowFilter struct {
	Actor, Status string
	Ref           *int64
	After         *JobPlace // list what was made before it
	Limit         int
}

// ListFlows lists flows of a context, the newest first.
func (s *Store) ListFlows(ctx context.Context, contextID int32, f FlowFilter) ([]*Flow, error) {
	after := f.After
	if after == nil {
		after = &JobPlace{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT `+flowColumns+`
		FROM postern.flow f
		WHERE f.context_id = $1`+db.InState("f.status", f.Status, flow.Flow.States())+`
			AND ($2 = '' OR f.actor = $2)
			AND ($3 = '' OR f.status = $3)
			AND ($4::bigint IS NULL OR f.ref = $4)
			AND (f.created_at, f.flow_id) < ($5, $6)
		ORDER BY f.created_at DESC, f.flow_id DESC
		LIMIT $7`, contextID, f.Actor, f.Status, f.Ref, after.At, after.ID, f.Limit)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanFlow)
	return list, db.Known(err)
}

// JobsOf lists the jobs of a flow by their refs, without those that were removed.
func (s *Store) JobsOf(ctx context.Context, contextID int32, id uuid.UUID) ([]*Job, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT `+jobColumns+jobMore+`
		FROM postern.job j
		WHERE j.flow_id = $1 AND j.context_id = $2 AND NOT j.removed
		ORDER BY j.ref`, id, contextID)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanJobMore)
	return list, db.Known(err)
}

// FlowHistory lists what happened to a flow, the first first.
func (s *Store) FlowHistory(ctx context.Context, contextID int32, id uuid.UUID) ([]Step, error) {
	if _, err := s.Flow(ctx, contextID, id); err != nil {
		return nil, err
	}
	return s.steps(ctx, id)
}
