package flows

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// mayChange refuses a change of a flow by others than who made it, or of one that has ended.
func (f *Flow) mayChange(by db.By, open bool) error {
	switch {
	case f.Actor != by.Actor:
		return fault.New(fault.Forbidden, "forbidden", "flow %s was made by %q: only that actor changes or starts it",
			f.ID, fault.Clip(f.Actor))
	case open && f.Status.Ended():
		return fault.New(fault.Conflict, "wrong_state", "flow %s has ended: it is %s. POST /flows makes a new one",
			f.ID, f.Status)
	}
	return nil
}

// Start starts a flow. One that was started stays as it is.
func (s *Store) Start(ctx context.Context, by db.By, id uuid.UUID) (r pg.LeverResult, err error) {
	var jobs []*Job
	err = s.onFlow(ctx, by.Context, id, func(t *db.Txn, l *locked, f *Flow) error {
		r, jobs = pg.LeverResult{State: string(f.Status)}, nil
		if err := f.mayChange(by, false); err != nil {
			return err
		}
		if err := by.Seen(f.Tag()); err != nil {
			return err
		}
		if f.ReleasedAt != nil {
			return t.Rollback(ctx)
		}
		if err := f.mayChange(by, true); err != nil {
			return err
		}
		jobs = l.open(f)
		if err := s.readNeeds(ctx, t, l, jobs); err != nil {
			return err
		}
		all, err := s.finishedBefore(ctx, t, f)
		if err != nil {
			return err
		}
		b, c := &pgx.Batch{}, change{by: by.Actor, detail: by.Reason, now: l.now}
		if err := s.release(b, f, append(all, jobs...), c); err != nil {
			return err
		}
		r.Changed, r.State = true, string(f.Status)
		s.AuditIn(b, by, "start", "/flows/"+id.String())
		return t.Commit(ctx, b)
	})
	if err == nil && r.Changed {
		err = s.posted(ctx, jobs)
	}
	return r, err
}

// finishedBefore stands for the jobs of a flow that finished before it was started: their results were taken over.
func (s *Store) finishedBefore(ctx context.Context, t *db.Txn, f *Flow) (list []*Job, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT `+jobColumns+`
		FROM postern.job j
		WHERE j.flow_id = $1 AND j.status = 'finished' AND NOT j.removed`, f.ID).Query(collectJobs(&list))
	return list, t.Send(ctx, b)
}

// readNeeds reads what jobs of a flow that is locked whole wait for.
func (s *Store) readNeeds(ctx context.Context, t *db.Txn, l *locked, jobs []*Job) error {
	ids := make([]uuid.UUID, len(jobs))
	named := map[uuid.UUID][]string{}
	for i, j := range jobs {
		ids[i], j.Needs = j.ID, nil
		for _, n := range l.needs[j.ID] {
			if x := l.jobs[n]; x != nil { // the others have finished
				j.Needs = append(j.Needs, n)
			}
		}
	}
	var id uuid.UUID
	var name string
	b := &pgx.Batch{}
	b.Queue(`SELECT n.job_id, n.name
		FROM postern.job_need n
		WHERE n.job_id = ANY ($1) AND n.met_at IS NULL
		ORDER BY n.job_id, n.n`, ids).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&id, &name}, func() error {
			named[id] = append(named[id], name)
			return nil
		})
		return err
	})
	if err := t.Send(ctx, b); err != nil {
		return err
	}
	for _, j := range jobs {
		j.Prerequisites = named[j.ID]
	}
	return nil
}

// PatchFlow changes the environment of a flow; version as in db.MatchVersion. Jobs that are posted keep theirs.
func (s *Store) PatchFlow(ctx context.Context, by db.By, id uuid.UUID, env map[string]string, version int64) error {
	return s.onFlow(ctx, by.Context, id, func(t *db.Txn, l *locked, f *Flow) error {
		if err := f.mayChange(by, true); err != nil {
			return err
		}
		if err := db.MatchVersion(version, f.Tag(), false); err != nil {
			return err
		}
		for _, j := range l.jobs {
			if j.TxOpen || j.queue != 0 {
				continue
			}
			if err := flow.CheckTogether("/env_vars", env, j.Own); err != nil {
				return err
			}
		}
		text, err := json.Marshal(flow.Environment(nil, env))
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.flow
			SET env = $2::text::jsonb, version = version + 1
			WHERE flow_id = $1`, id, string(text))
		s.AuditIn(b, by, "patch", "/flows/"+id.String())
		return t.Commit(ctx, b)
	})
}

// AddJobs adds jobs to a flow that has not ended. In one that was started they are posted.
func (s *Store) AddJobs(ctx context.Context, by db.By, id uuid.UUID, specs []flow.Spec) error {
	if err := s.knowsTypes(ctx, by.Context, "/jobs", specs); err != nil {
		return err
	}
	var jobs []*Job
	err := s.onFlow(ctx, by.Context, id, func(t *db.Txn, l *locked, f *Flow) error {
		if err := f.mayChange(by, true); err != nil {
			return err
		}
		there, prerequisites, err := s.refsOf(ctx, t, id)
		if err != nil {
			return err
		}
		known := map[int64]bool{}
		for ref := range there {
			known[ref] = true
		}
		if err := flow.CheckGraph("/jobs", specs, known, prerequisites); err != nil {
			return err
		}
		if err := checkTogether(f.Env, specs); err != nil {
			return err
		}
		c := change{by: by.Actor, now: l.now, notes: &db.Columns{}}
		b := &pgx.Batch{}
		if err := s.unused(ctx, t, by.Context, "/jobs", specs, nil); err != nil {
			return err
		}
		if jobs, err = s.insertJobs(b, f, specs, there, nil, c); err != nil {
			return err
		}
		f.Jobs, f.Version = f.Jobs+len(jobs), f.Version+1
		b.Queue(`UPDATE postern.flow
			SET jobs = $2, version = $3, updated_at = $4
			WHERE flow_id = $1`, id, f.Jobs, f.Version, l.now)
		if f.ReleasedAt != nil {
			for _, j := range jobs {
				j.Needs = slices.DeleteFunc(j.Needs, func(n uuid.UUID) bool {
					x := l.jobs[n]
					return x == nil && !slices.ContainsFunc(jobs, func(k *Job) bool { return k.ID == n })
				})
			}
			if err := s.releaseJobs(b, f, jobs, c); err != nil {
				return err
			}
		}
		if len(jobs) > 0 {
			stepInsert.Queue(b, *c.notes)
		}
		s.AuditIn(b, by, "add", "/flows/"+id.String()+"/jobs")
		return t.Commit(ctx, b)
	})
	if err != nil {
		return err
	}
	return s.posted(ctx, jobs)
}

// checkTogether refuses jobs whose variables are too large together with those of their flow.
func checkTogether(env map[string]string, specs []flow.Spec) error {
	for i, x := range specs {
		if err := flow.CheckTogether(fmt.Sprintf("/jobs/%d/env_vars", i), env, x.Env); err != nil {
			return err
		}
	}
	return nil
}

// refsOf reads the jobs of a flow by their refs, and how many prerequisites they have.
func (s *Store) refsOf(ctx context.Context, t *db.Txn, id uuid.UUID) (there map[int64]uuid.UUID, prerequisites int,
	err error) {
	there = map[int64]uuid.UUID{}
	var ref int64
	var job uuid.UUID
	b := &pgx.Batch{}
	b.Queue(`SELECT j.ref, j.job_id FROM postern.job j WHERE j.flow_id = $1 AND NOT j.removed`, id).
		Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&ref, &job}, func() error { there[ref] = job; return nil })
			return err
		})
	b.Queue(`SELECT count(*)
		FROM postern.job_need n
		JOIN postern.job j USING (job_id)
		WHERE j.flow_id = $1 AND NOT j.removed`, id).
		QueryRow(func(row pgx.Row) error { return row.Scan(&prerequisites) })
	return there, prerequisites, t.Send(ctx, b)
}

// RemoveJob removes a job from a flow that has not ended, if it has not started and no other job of the flow needs it.
func (s *Store) RemoveJob(ctx context.Context, by db.By, id uuid.UUID, ref int64) error {
	err := s.onFlow(ctx, by.Context, id, func(t *db.Txn, l *locked, f *Flow) error {
		if err := f.mayChange(by, true); err != nil {
			return err
		}
		there, _, err := s.refsOf(ctx, t, id)
		if err != nil {
			return err
		}
		job, ok := there[ref]
		if !ok {
			return fault.New(fault.NotFound, "not_found", "flow %s has no job %d", id, ref)
		}
		j := l.jobs[job]
		if j == nil || j.Status == flow.JobStarted {
			return fault.New(fault.Conflict, "wrong_state", "job %d has started or ended: only what has not is removed",
				ref).With("lever", "POST /jobs/"+job.String()+"/cancel")
		}
		for other, x := range there {
			if slices.Contains(l.needs[x], job) {
				return fault.New(fault.Conflict, "wrong_state",
					"job %d needs job %d: remove that one first", other, ref).
					With("needed_by", fmt.Sprint(other))
			}
		}
		c := change{on: flow.JobAborted, by: by.Actor, detail: by.Reason, now: l.now, code: flow.CodeCancelled,
			text: "removed from its flow"}
		j.Removed = true
		b := &pgx.Batch{}
		if err := s.moveJob(b, j, c); err != nil {
			return err
		}
		b.Queue(`UPDATE postern.job SET removed = true WHERE job_id = $1`, job)
		endNeeds(b, []uuid.UUID{job}, c)
		f.Jobs, f.Version = f.Jobs-1, f.Version+1
		b.Queue(`UPDATE postern.flow
			SET jobs = $2, version = $3, updated_at = $4
			WHERE flow_id = $1`, id, f.Jobs, f.Version, l.now)
		if err := s.lessJobs(b, f, c); err != nil {
			return err
		}
		s.AuditIn(b, by, "delete", fmt.Sprintf("/flows/%s/jobs/%d", id, ref))
		return t.Commit(ctx, b)
	})
	if err != nil {
		return err
	}
	return s.TakeBack(ctx)
}

// lessJobs adds to b what it means to a flow that was started that it has one job less: it may be the last that it
// waited for.
func (s *Store) lessJobs(b *pgx.Batch, f *Flow, c change) error {
	if f.ReleasedAt == nil || f.Finished < f.Jobs {
		return nil
	}
	facts := flow.Facts{Jobs: f.Jobs, Finished: f.Finished}
	if f.Status != flow.FlowStarted {
		if _, err := s.moveFlow(b, f, flow.FlowBegun, facts, c); err != nil {
			return err
		}
	}
	_, err := s.moveFlow(b, f, flow.FlowAdvanced, facts, c)
	return err
}

// CancelFlow ends a flow in error. Its jobs that have not started do not start; those that run are stopped, and what
// they return is kept on them. One that has ended stays as it is.
func (s *Store) CancelFlow(ctx context.Context, by db.By, id uuid.UUID) (r pg.LeverResult, err error) {
	err = s.onFlow(ctx, by.Context, id, func(t *db.Txn, l *locked, f *Flow) error {
		r = pg.LeverResult{State: string(f.Status)}
		if err := by.Seen(f.Tag()); err != nil {
			return err
		}
		open := l.open(f)
		if f.Status.Ended() {
			return t.Rollback(ctx)
		}
		b := &pgx.Batch{}
		if err := s.endFlow(b, l, f, flow.FlowCancelled, nil, change{by: by.Actor, detail: by.Reason, now: l.now,
			code: flow.CodeCancelled, text: pg.Because("cancelled", by.Reason)}); err != nil {
			return err
		}
		r.Changed, r.State = true, string(f.Status)
		if slices.ContainsFunc(open, func(j *Job) bool { return !j.Status.Ended() }) {
			r.Pending, r.At = true, "when the runners have stopped what runs"
		}
		s.AuditIn(b, by, "cancel", "/flows/"+id.String())
		return t.Commit(ctx, b)
	})
	if err == nil && r.Changed {
		if err := s.TakeBack(ctx); err != nil {
			s.Log.Warn("take back the transactions of jobs that have ended: the next look does", "error", err)
		}
		s.ring()
	}
	return r, err
}

// reuse adds to b that a job of a flow has finished with the result of one of another flow, from which it does not
// differ. Its prerequisites are met as those of the other one are.
func (s *Store) reuse(b *pgx.Batch, j, old *Job, c change) error {
	if len(j.Prerequisites) > 0 {
		b.Queue(`UPDATE postern.job_need n
			SET met_at = coalesce(o.met_at, $3), met_by = o.met_by
			FROM postern.job_need o
			WHERE n.job_id = $1 AND (o.job_id, o.name) = ($2, n.name)`, j.ID, old.ID, c.now)
	}
	c.detail = "the result is that of job " + old.ID.String()
	for _, on := range []flow.JobEvent{flow.JobReleased, flow.JobClaimed, flow.JobSucceeded} {
		c.on = on
		if on == flow.JobSucceeded {
			c.result = old.Result
		}
		if err := s.moveJob(b, j, c); err != nil {
			return err
		}
	}
	return nil
}

// Redrive is what somebody writes of a flow that is done again.
type Redrive struct {
	Key  string      // of the request
	Ref  *int64      // of the new flow
	Jobs []flow.Spec // instead of those with the same refs
	Env  map[string]string
}

// Redrive makes a new flow of one that ended in error, and starts it. Jobs that finished are not executed again where
// neither they nor anything that they need has changed: their results are taken over. The environment is that of the
// old one, unless r has one. The same key or ref again is the same flow, as for PostFlow.
func (s *Store) Redrive(ctx context.Context, by db.By, id uuid.UUID, r Redrive) (*Flow, error) {
	f, err := s.Flow(ctx, by.Context, id)
	if err != nil {
		return nil, err
	}
	if err := by.Seen(f.Tag()); err != nil { // without a lock: one that has ended does not change
		return nil, err
	}
	if f.Status != flow.FlowError {
		return nil, fault.New(fault.Conflict, "wrong_state", "flow %s is %s: only one in error is redriven", id,
			f.Status)
	}
	old, err := s.JobsOf(ctx, by.Context, id)
	if err != nil {
		return nil, err
	}
	spec := FlowSpec{Key: r.Key, Ref: r.Ref, Env: f.Env, Start: true, RedriveOf: &id, Reused: map[int64]*Job{}}
	if r.Env != nil {
		spec.Env = r.Env
	}
	for _, j := range old {
		x := j.Spec
		x.Env, x.Prerequisites = j.Own, nil
		for _, n := range j.Named {
			x.Prerequisites = append(x.Prerequisites, n.Name)
		}
		spec.Jobs = append(spec.Jobs, x)
	}
	for i, x := range r.Jobs {
		k := slices.IndexFunc(spec.Jobs, func(y flow.Spec) bool { return x.Ref != nil && *y.Ref == *x.Ref })
		if k < 0 {
			return nil, fault.At(fmt.Sprintf("/jobs/%d/ref", i), "flow %s has no job of that ref", id)
		}
		spec.Jobs[k] = x
	}
	if err := flow.CheckGraph("/jobs", spec.Jobs, nil, 0); err != nil {
		return nil, err
	}
	s.reusable(&spec, old)
	for i, x := range spec.Jobs {
		if x.Peer != "" && x.Envelope == nil && spec.Reused[*x.Ref] == nil {
			return nil, fault.New(fault.Invalid, "signature_required", "job %d is executed by peer %s, and what was "+
				"signed for that is used up: jobs wants it with a new envelope", *x.Ref, fault.Clip(x.Peer)).
				About(fmt.Sprintf("/jobs/%d/envelope", i))
		}
	}
	return s.PostFlow(ctx, by, spec)
}

// reusable finds the jobs of a redrive whose results are taken over: those that had finished with the same script and
// environment, and need only such.
func (s *Store) reusable(spec *FlowSpec, old []*Job) {
	state := map[int64]int{} // 1: it may be, 2: it may not
	var may func(ref int64) bool
	may = func(ref int64) bool {
		if state[ref] != 0 {
			return state[ref] == 1
		}
		state[ref] = 2
		k := slices.IndexFunc(old, func(j *Job) bool { return *j.Ref == ref })
		i := slices.IndexFunc(spec.Jobs, func(x flow.Spec) bool { return *x.Ref == ref })
		if k < 0 || i < 0 || !old[k].sameAs(spec.Jobs[i], spec.Env) {
			return false
		}
		for _, need := range spec.Jobs[i].Dependends {
			if !may(need) {
				return false
			}
		}
		state[ref], spec.Reused[ref] = 1, old[k]
		return true
	}
	for _, x := range spec.Jobs {
		may(*x.Ref)
	}
}

// sameAs says whether the job has finished, and would be given the same again.
func (j *Job) sameAs(x flow.Spec, env map[string]string) bool {
	return j.Status == flow.JobFinished && j.Script == x.Script && j.ScriptType == x.ScriptType &&
		j.Network == x.Network && j.Peer == x.Peer && slices.Equal(slices.Sorted(slices.Values(j.Dependends)),
		slices.Sorted(slices.Values(x.Dependends))) &&
		fmt.Sprint(j.Env) == fmt.Sprint(flow.Environment(env, x.Env))
}
