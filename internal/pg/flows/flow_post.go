package flows

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// FlowSpec is what somebody writes of a flow.
type FlowSpec struct {
	Ref   *int64
	Env   map[string]string
	Jobs  []flow.Spec
	Start bool
	Key   string `json:"-"` // of the request

	RedriveOf *uuid.UUID     `json:",omitempty"`
	Reused    map[int64]*Job `json:"-"` // of a redrive: by its ref, the job whose result is taken over
}

// PostFlow stores a flow, whose graph was checked, and starts it if that is asked for. The same key of the request, or
// the same ref, with the same content again is the same flow. Outcomes besides: Invalid; Conflict
// "idempotency_conflict", with what differs.
//
// The rows are committed before transactions are posted: a process that dies in between leaves jobs that the next look
// posts under the same uids.
func (s *Store) PostFlow(ctx context.Context, by db.By, spec FlowSpec) (*Flow, error) {
	if err := s.knowsTypes(ctx, by.Context, "/jobs", spec.Jobs); err != nil {
		return nil, err
	}
	if err := checkTogether(spec.Env, spec.Jobs); err != nil {
		return nil, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	var f *Flow
	var jobs []*Job
	err = s.Run(ctx, func(t *db.Txn) error {
		f = &Flow{ID: id, Actor: by.Actor, Ref: spec.Ref, Env: flow.Environment(nil, spec.Env), Jobs: len(spec.Jobs),
			RedriveOf: spec.RedriveOf, Version: 1, context: by.Context, hash: sum[:],
			key: spec.Key}
		jobs, err = s.putFlow(ctx, t, by, spec, &f)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !f.Replay {
		if err := s.Reconfigured(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.posted(ctx, jobs); err != nil {
		return nil, err
	}
	out, err := s.Flow(ctx, by.Context, f.ID)
	if err == nil {
		out.Replay = f.Replay
	}
	return out, err
}

// putFlow writes a flow with its jobs, and commits; or finds the one that has its ref.
func (s *Store) putFlow(ctx context.Context, t *db.Txn, by db.By, spec FlowSpec, made **Flow) (jobs []*Job, err error) {
	f := *made
	there, now, err := s.sameFlow(ctx, t, by, spec.Ref, spec.Key)
	if err != nil {
		return nil, err
	}
	if there != nil {
		if !bytes.Equal(there.hash, f.hash) {
			return nil, s.flowDiffers(ctx, there, spec)
		}
		there.Replay, *made = true, there
		return nil, t.Rollback(ctx)
	}
	if err := s.unused(ctx, t, by.Context, "/jobs", spec.Jobs, spec.Reused); err != nil {
		return nil, err
	}
	if err := s.accepts(by.Context, spec.Jobs); err != nil {
		return nil, err
	}
	b, c := &pgx.Batch{}, change{by: by.Actor, now: now, notes: &db.Columns{}}
	equip(b, by.Context)
	if err := s.insertFlow(b, f, c); err != nil {
		return nil, err
	}
	if jobs, err = s.insertJobs(b, f, spec.Jobs, nil, spec.Reused, c); err != nil {
		return nil, err
	}
	if spec.Start {
		if err := s.release(b, f, jobs, c); err != nil {
			return nil, err
		}
	}
	stepInsert.Queue(b, *c.notes)
	s.AuditIn(b, by, "post", "/flows/"+f.ID.String())
	return jobs, t.Commit(ctx, b)
}

// CheckTypes refuses jobs of script types that no dispatcher has.
func (s *Store) CheckTypes(ctx context.Context, contextID int32, jobs []flow.Spec) error {
	return s.knowsTypes(ctx, contextID, "/jobs", jobs)
}

// knowsTypes refuses script types that no dispatcher has.
func (s *Store) knowsTypes(ctx context.Context, contextID int32, at string, jobs []flow.Spec) error {
	known := map[string]bool{}
	for i, j := range jobs {
		if known[j.ScriptType] {
			continue
		}
		if err := s.knowsType(ctx, contextID, j.ScriptType); err != nil {
			if f := fault.As(err); f.Kind == fault.Invalid {
				return fault.At(fmt.Sprintf("%s/%d/script_type", at, i), "%s", f.Detail)
			}
			return err
		}
		known[j.ScriptType] = true
	}
	return nil
}

var madeFlows = db.Made[Flow]{Columns: flowColumns, From: "postern.flow f", As: "f", Scan: scanFlow}

// sameFlow finds the flow that a request of an actor with a key has made, or to which it has given a ref; nil for none.
func (s *Store) sameFlow(ctx context.Context, t *db.Txn, by db.By, ref *int64, key string) (there *Flow,
	now time.Time, err error) {
	b := &pgx.Batch{}
	s.ReadNow(b, &now)
	madeFlows.Find(b, by, ref, key, &there)
	return there, now, t.Send(ctx, b)
}

// flowDiffers refuses a key or a ref that names another flow, and says in what that differs.
func (s *Store) flowDiffers(ctx context.Context, there *Flow, spec FlowSpec) error {
	names, key := []string{}, ""
	if there.key == spec.Key {
		key = spec.Key
	}
	if !reflect.DeepEqual(there.Ref, spec.Ref) {
		names = append(names, "ref")
	}
	if !maps.Equal(there.Env, flow.Environment(nil, spec.Env)) {
		names = append(names, "env_vars")
	}
	jobs, err := s.JobsOf(ctx, there.context, there.ID)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(jobs, slices.SortedFunc(slices.Values(spec.Jobs), func(a, b flow.Spec) int {
		return int(*a.Ref - *b.Ref)
	}), func(j *Job, x flow.Spec) bool {
		return *j.Ref == *x.Ref && j.Script == x.Script && j.ScriptType == x.ScriptType && j.Topic == x.Topic &&
			j.Peer == x.Peer &&
			j.Timeout == x.Timeout &&
			j.Retries == x.Retries && maps.Equal(j.Own, flow.Environment(nil, x.Env))
	}) {
		names = append(names, "jobs")
	}
	if len(names) == 0 {
		names = append(names, "jobs or start")
	}
	return fault.New(fault.Conflict, "idempotency_conflict",
		"%s names flow %s, which differs: choose another one, or send the same content", named(spec.Ref, key),
		there.ID).
		With("existing", map[string]string{"id": there.ID.String()}).With("differs", names)
}

// insertFlow adds to b the row of a flow.
func (s *Store) insertFlow(b *pgx.Batch, f *Flow, c change) error {
	step, err := flow.Next("", flow.FlowCreated, flow.Facts{})
	if err != nil {
		return err
	}
	env, err := json.Marshal(f.Env)
	if err != nil {
		return err
	}
	f.Status, f.steps, f.CreatedAt = step.To, 1, c.now
	b.Queue(`INSERT INTO postern.flow (flow_id, context_id, actor, ref, env, status, steps, jobs, redrive_of,
			created_at, updated_at, body_hash, request_key)
		VALUES ($1, $2, $3, $4, $5::text::jsonb, $6, $7, $8, $9, $10, $10, $11, $12)`, f.ID, f.context, f.Actor, f.Ref,
		string(env), string(f.Status), f.steps, f.Jobs, f.RedriveOf, c.now, f.hash,
		db.Nullable(f.key))
	noteStep(b, "flow", f.ID, f.steps, "", string(flow.FlowCreated), string(f.Status), c)
	return nil
}

// insertJobs adds to b jobs of a flow with what they need. there are those that it has already, by their refs. One
// whose result is taken over from another flow has finished with it.
func (s *Store) insertJobs(b *pgx.Batch, f *Flow, specs []flow.Spec, there map[int64]uuid.UUID,
	reused map[int64]*Job, c change) (jobs []*Job, err error) {
	of := map[int64]uuid.UUID{}
	maps.Copy(of, there)
	for _, spec := range specs {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		of[*spec.Ref] = id
		jobs = append(jobs, &Job{Spec: spec, ID: id, Actor: f.Actor, Flow: &f.ID, context: f.context})
	}
	var from, to []uuid.UUID
	for _, j := range jobs {
		if err := s.insertJob(b, j, c); err != nil {
			return nil, err
		}
		for _, ref := range j.Dependends {
			if reused[ref] == nil { // else it has finished
				j.Needs = append(j.Needs, of[ref])
			}
			from, to = append(from, j.ID), append(to, of[ref])
		}
		if old := reused[*j.Ref]; old != nil {
			if err := s.reuse(b, j, old, c); err != nil {
				return nil, err
			}
		}
	}
	if len(from) > 0 {
		b.Queue(`INSERT INTO postern.job_edge (job_id, needs)
			SELECT n.job_id, n.needs
			FROM ROWS FROM (unnest($1::uuid[]), unnest($2::uuid[])) n(job_id, needs)`, from, to)
	}
	return jobs, nil
}

// release adds to b that a flow starts: its jobs are to be posted, with an environment that does not change any more.
func (s *Store) release(b *pgx.Batch, f *Flow, jobs []*Job, c change) error {
	facts := flow.Facts{Jobs: f.Jobs}
	for _, j := range jobs {
		switch {
		case j.Status.Ended():
			f.Finished++
		case len(j.Needs) == 0 && len(j.Prerequisites) == 0:
			facts.Open++
		}
	}
	if _, err := s.moveFlow(b, f, flow.FlowReleased, facts, c); err != nil {
		return err
	}
	if err := s.releaseJobs(b, f, jobs, c); err != nil {
		return err
	}
	facts.Finished = f.Finished
	if f.Jobs > 0 && f.Finished == f.Jobs { // all of them were reused
		if _, err := s.moveFlow(b, f, flow.FlowBegun, facts, c); err != nil {
			return err
		}
	}
	if f.Status != flow.FlowStarted {
		return nil
	}
	_, err := s.moveFlow(b, f, flow.FlowAdvanced, facts, c)
	return err
}

// releaseJobs adds to b that jobs of a flow are to be posted, all of them in one statement.
func (s *Store) releaseJobs(b *pgx.Batch, f *Flow, jobs []*Job, c change) error {
	var ids []uuid.UUID
	var was, status []string
	var steps []int32
	for _, j := range jobs {
		if j.Status.Ended() {
			continue
		}
		of := c
		of.on, of.open = flow.JobReleased, len(j.Needs)+len(j.Prerequisites) > 0
		step, err := flow.NextJob(j.Status, of.on, of.open)
		if err != nil {
			return err
		}
		before := j.Status
		j.TxOpen, j.Status, j.steps, j.UpdatedAt = true, step.To, j.steps+1, c.now
		s.note(b, j, before, of)
		ids, was, status = append(ids, j.ID), append(was, string(before)), append(status, string(j.Status))
		steps = append(steps, int32(j.steps)) // few: of a life
	}
	if len(ids) == 0 {
		return nil
	}
	b.Queue(releasedSQL, ids, was, status, steps, c.now, f.ID)
	setDeadlines(b, ids, c.now)
	return nil
}

const releasedSQL = `UPDATE postern.job j
	SET was = n.was, status = n.status, steps = n.steps, updated_at = $5, tx_open = true, frozen = f.env || j.env
	FROM ROWS FROM (unnest($1::uuid[]), unnest($2::text[]), unnest($3::text[]), unnest($4::int[]))
		n(job_id, was, status, steps), postern.flow f
	WHERE j.job_id = n.job_id AND f.flow_id = $6`

// posted posts the transactions of jobs that are to be posted, if any.
func (s *Store) posted(ctx context.Context, jobs []*Job) error {
	s.heard()
	jobs = slices.DeleteFunc(slices.Clone(jobs), func(j *Job) bool { return !j.TxOpen || j.Status.Ended() })
	if len(jobs) == 0 || db.JointOf(ctx) != nil { // a trial posts nothing
		return nil
	}
	return s.post(ctx, jobs)
}

// post posts the transactions of a job, or of jobs of one flow, with those of their prerequisites, in one commit. What
// the core refuses for good ends the job, or the flow; what it cannot take now is posted by a later look.
func (s *Store) post(ctx context.Context, jobs []*Job) error {
	subs, err := s.submissions(ctx, jobs)
	if err != nil || len(subs) == 0 {
		return err
	}
	out, err := s.Ingest(ctx, subs, true)
	for i := 0; err == nil && i < len(out); i++ {
		err = out[i].Err
	}
	switch fault.KindOf(err) {
	case "":
		s.RingHere()
		return nil
	case fault.Retry, fault.Internal:
		s.Log.Warn("post the transactions of jobs: the next look does", "job", jobs[0].ID, "jobs", len(jobs),
			"error", err)
		return nil
	}
	refused := fault.As(err)
	return s.onJob(ctx, jobs[0].context, jobs[0].ID, func(t *db.Txn, l *locked, j *Job) error {
		c := change{on: flow.JobRefused, now: l.now, code: refused.Code, text: refused.Detail}
		b := &pgx.Batch{}
		for _, x := range jobs {
			x = l.jobs[x.ID]
			if x == nil || x.Status.Ended() || x.queue != 0 {
				continue
			}
			x.TxOpen = false
			if err := s.moveJob(b, x, c); err != nil {
				return err
			}
		}
		if b.Len() == 0 {
			return t.Rollback(ctx)
		}
		if j.Flow != nil && !l.flows[*j.Flow].Status.Ended() {
			if err := s.endFlow(b, l, l.flows[*j.Flow], flow.FlowFailed, nil, c); err != nil {
				return err
			}
		}
		return t.Commit(ctx, b)
	})
}

// submissions are the transactions of jobs and of their prerequisites: each behind what it needs, so that jobs of one
// queue do not stand in front of what they wait for. A job is left to a later look while another one that it needs, and
// that is not posted with it, has no transaction yet: the core would not know what it depends on.
func (s *Store) submissions(ctx context.Context, jobs []*Job) (subs []*pg.Submission, err error) {
	of := map[uuid.UUID]*Job{}
	ids := make([]uuid.UUID, 0, len(jobs))
	for _, j := range jobs {
		of[j.ID] = j
		ids = append(ids, j.ID)
	}
	w, err := s.wantsOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	placed := map[uuid.UUID]bool{}
	var add func(j *Job) bool
	add = func(j *Job) bool {
		if is, done := placed[j.ID]; done {
			return is
		}
		sub := j.submission()
		placed[j.ID] = true
		for _, id := range w.needs[j.ID] {
			if x := of[id]; x != nil && !add(x) || x == nil && w.unplaced[id] {
				placed[j.ID] = false
			}
			sub.DependsOn = append(sub.DependsOn, flow.UID(id))
		}
		if !placed[j.ID] {
			return false
		}
		for _, n := range w.named[j.ID] {
			need := j.needSubmission(n.N, n.Name)
			subs, sub.DependsOn = append(subs, need), append(sub.DependsOn, need.UID)
		}
		subs = append(subs, sub)
		return true
	}
	for _, j := range jobs {
		add(j)
	}
	return subs, nil
}

// wants is what jobs wait for.
type wants struct {
	needs    map[uuid.UUID][]uuid.UUID // jobs that have not finished, by the one that needs them
	unplaced map[uuid.UUID]bool        // those of them that have no transaction yet
	named    map[uuid.UUID][]Need      // prerequisites that are not met
}

func (s *Store) wantsOf(ctx context.Context, ids []uuid.UUID) (*wants, error) {
	w := &wants{map[uuid.UUID][]uuid.UUID{}, map[uuid.UUID]bool{}, map[uuid.UUID][]Need{}}
	var id, on uuid.UUID
	var nowhere bool
	n := Need{}
	b := &pgx.Batch{}
	b.Queue(`SELECT e.job_id, e.needs, n.queue_id IS NULL
		FROM postern.job_edge e
		JOIN postern.job n ON n.job_id = e.needs
		WHERE e.job_id = ANY ($1) AND n.status <> 'finished'`, ids).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&id, &on, &nowhere}, func() error {
			w.needs[id], w.unplaced[on] = append(w.needs[id], on), nowhere
			return nil
		})
		return err
	})
	b.Queue(`SELECT n.job_id, n.n, n.name
		FROM postern.job_need n
		WHERE n.job_id = ANY ($1) AND n.met_at IS NULL
		ORDER BY n.job_id, n.n`, ids).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&id, &n.N, &n.Name}, func() error {
			w.named[id] = append(w.named[id], n)
			return nil
		})
		return err
	})
	if err := s.Db(ctx).SendBatch(ctx, b).Close(); err != nil {
		return nil, db.Known(err)
	}
	return w, nil
}

// repostedAtOnce is how many jobs one look for those without a transaction reads.
const repostedAtOnce = 2000

// unposted reads jobs that stand without a transaction, each look those behind the look before.
func (s *Store) unposted(ctx context.Context) ([]*Job, error) {
	at := &s.looked
	at.mu.Lock()
	defer at.mu.Unlock()
	rows, err := s.Looks.Query(ctx, `SELECT `+jobColumns+`
		FROM postern.job j
		WHERE j.queue_id IS NULL
			AND j.tx_open
			AND j.updated_at < coalesce($1::timestamptz, clock_timestamp()) - $2::interval
			AND (j.updated_at, j.job_id) > ($3, $4)
		ORDER BY j.updated_at, j.job_id
		LIMIT $5`, s.Clock(), postedAfter, at.updated, at.job, repostedAtOnce)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanJob)
	if err != nil {
		return nil, db.Known(err)
	}
	if at.updated, at.job = (time.Time{}), uuid.Nil; len(list) == repostedAtOnce {
		last := list[len(list)-1]
		at.updated, at.job = last.UpdatedAt, last.ID
	}
	return list, nil
}

// Repost posts jobs whose process died before it had posted them, and returns how many. What ended before it was posted
// is posted no more.
func (s *Store) Repost(ctx context.Context) (n int, err error) {
	list, err := s.unposted(ctx)
	if err != nil {
		return 0, err
	}
	var ended []uuid.UUID
	of := map[uuid.UUID][]*Job{}
	for _, j := range list {
		switch {
		case j.Status.Ended():
			ended = append(ended, j.ID)
		case s.Quarantined(j.context, flow.Type(j.ScriptType)):
		case j.Flow != nil:
			of[*j.Flow] = append(of[*j.Flow], j)
		default:
			of[j.ID] = []*Job{j}
		}
	}
	if len(ended) > 0 {
		if _, err := s.Exec(ctx, `UPDATE postern.job
			SET tx_open = false
			WHERE job_id = ANY ($1)
				AND queue_id IS NULL
				AND ended_at < coalesce($2::timestamptz, clock_timestamp()) - interval '1 minute'`, ended,
			s.Clock()); err != nil {
			return 0, err
		}
	}
	for _, jobs := range of {
		if err := s.post(ctx, jobs); err != nil {
			return n, err
		}
		n += len(jobs)
	}
	return n, nil
}
