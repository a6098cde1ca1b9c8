package flows

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Job is one with all that is known of it.
type Job struct {
	flow.Spec
	ID        uuid.UUID
	Actor     string
	UID       string     // of what came as a transaction, that one's
	Flow      *uuid.UUID // nil: it is in none
	Message   *uuid.UUID // that it was made of; nil: of none
	Removed   bool       // from its flow
	Own       map[string]string
	Status    flow.JobStatus
	Unfit     string
	Result    json.RawMessage
	ExitCode  *int
	Code      string
	Error     string
	Cause     *uuid.UUID // the job whose failure this one suffers from
	Tx        string     // the id of its transaction, "" before it has one
	TxOpen    bool
	StopAt    *time.Time
	StopWhy   string
	Needs     []uuid.UUID // the jobs that it waits for
	Named     []Need      // and what else
	Tries     int
	Runner    string          // that holds it, or held it last
	Inputs    json.RawMessage // of one that a peer has brought, as it is made; it is read with a claim
	Carried   *uuid.UUID      // of one with a peer: the message that carries its last try
	CreatedAt time.Time
	StartedAt *time.Time
	EndedAt   *time.Time
	UpdatedAt time.Time
	Replay    bool // it was there: the same request made it before

	context    int32
	steps      int
	queue, seq int64
	day        time.Time
	hash       []byte
	key        string // of the request that made it
}

// Tag rises with each step of a job.
func (j *Job) Tag() int64 { return int64(j.steps) }

const jobColumns = `j.job_id, j.context_id, j.actor, j.ref, coalesce(j.uid, ''), j.flow_id, j.removed, j.script,
	j.script_type, coalesce(j.queue, ''), coalesce(j.topic, ''), j.timeout, j.retries, j.network,
	coalesce(j.frozen, j.env), j.env,
	j.need_time,
	j.status, j.steps, j.unfit, j.result, j.exit_code, j.error_code, j.error, j.cause, coalesce(j.tx_id::text, ''),
		coalesce(j.queue_id, 0), coalesce(j.seq, 0),
	coalesce(j.day, '1970-01-01'), j.tx_open, j.stop_at, j.stop_why, j.created_at, j.started_at, j.ended_at,
		j.updated_at, j.body_hash, coalesce(j.request_key, ''), j.message_id, coalesce(j.peer, '')`

func (j *Job) fields() []any {
	return []any{&j.ID, &j.context, &j.Actor, &j.Ref, &j.UID, &j.Flow, &j.Removed, &j.Script, &j.ScriptType,
		&j.Queue, &j.Topic,
		&j.Timeout, &j.Retries, &j.Network, &j.Env, &j.Own, &j.NeedTimeout,
		&j.Status, &j.steps, &j.Unfit, (*[]byte)(&j.Result), &j.ExitCode, &j.Code, &j.Error, &j.Cause, &j.Tx,
		&j.queue, &j.seq,
		&j.day, &j.TxOpen, &j.StopAt, &j.StopWhy, &j.CreatedAt, &j.StartedAt, &j.EndedAt, &j.UpdatedAt, &j.hash,
		&j.key, &j.Message, &j.Peer}
}

func scanJob(row pgx.CollectableRow) (*Job, error) {
	j := &Job{}
	return j, row.Scan(j.fields()...)
}

func collectJobs(into *[]*Job) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, scanJob)
		return err
	}
}

// environment is what a try of the job is given (S5.5): the variables that were frozen, and over them what no job sets.
func (j *Job) environment(contextName string, v *Try) map[string]string {
	env := flow.Environment(nil, j.Env)
	env["POSTERN_JOB"] = j.ID.String()
	env["POSTERN_CALLER"] = j.Actor
	env["POSTERN_CONTEXT"] = contextName
	env["POSTERN_ATTEMPT"] = strconv.Itoa(v.Attempt)
	env["POSTERN_TOKEN"] = v.Token
	if j.Flow != nil {
		env["POSTERN_FLOW"] = j.Flow.String()
	}
	return env
}

func (s *Store) nameOf(contextID int32) string {
	if c := s.ContextByID(contextID); c != nil {
		return c.Name
	}
	return ""
}

// change is an event of a job with what is recorded of it.
type change struct {
	on     flow.JobEvent
	open   bool // something that it needs has not ended
	by     string
	detail string
	now    time.Time
	result json.RawMessage
	exit   *int
	code   string
	text   string
	cause  *uuid.UUID
	notes  *db.Columns // where steps are put that are written together; nil: each is written by itself
}

// moveJob lets something happen to a job whose row is locked, and adds to b what is to be written, with its step.
func (s *Store) moveJob(b *pgx.Batch, j *Job, c change) error {
	step, err := flow.NextJob(j.Status, c.on, c.open)
	if err != nil {
		return err
	}
	was := j.Status
	j.Status, j.steps, j.UpdatedAt = step.To, j.steps+1, c.now
	if step.To == flow.JobStarted && j.StartedAt == nil {
		j.StartedAt = &c.now
	}
	if step.Stop && j.StopAt == nil {
		j.StopAt, j.StopWhy = &c.now, c.text
	}
	if step.To.Ended() {
		j.EndedAt, j.Code, j.Error, j.Cause = &c.now, c.code, c.text, c.cause
		if step.Result || step.Partial {
			j.Result, j.ExitCode = c.result, c.exit
		}
	}
	b.Queue(`UPDATE postern.job
		SET was = $2, status = $3, steps = $4, started_at = $5, ended_at = $6, updated_at = $7,
			result = $8::text::jsonb, exit_code = $9,
			error_code = $10, error = $11, cause = $12, stop_at = $13, stop_why = $14, tx_open = $15
		WHERE job_id = $1`, j.ID, string(was), string(j.Status), j.steps, j.StartedAt, j.EndedAt, c.now,
		db.Raw(j.Result), j.ExitCode,
		j.Code, j.Error, j.Cause, j.StopAt, j.StopWhy, j.TxOpen)
	s.note(b, j, was, c)
	s.tellOf(b, j, c)
	if j.Message != nil && j.Status.Ended() {
		s.oneEnded(b, *j.Message)
	}
	return nil
}

// note adds to b what happened to a job. A claim that changes nothing is a try more, which has a row of its own.
func (s *Store) note(b *pgx.Batch, j *Job, was flow.JobStatus, c change) {
	noteStep(b, "job", j.ID, j.steps, string(was), string(c.on), string(j.Status), c)
}

// noteStep adds to b what happened to a job or a flow.
func noteStep(b *pgx.Batch, machine string, object uuid.UUID, n int, was, event, status string, c change) {
	detail := c.detail
	if detail == "" {
		detail = c.text
	}
	rows := c.notes
	if rows == nil {
		rows = &db.Columns{}
	}
	rows.Add(object.String(), n, c.now, machine, was, event, status, c.by, detail)
	if c.notes == nil {
		stepInsert.Queue(b, *rows)
	}
}

var stepInsert = db.InsertMany("flow_step", "", "object uuid", "n int", "at timestamptz =", "machine text", "was text",
	"event text", "status text", "by text =", "detail text")

// JobFilter narrows a list of jobs. Empty fields do not narrow.
type JobFilter struct {
	Actor, ScriptType, Runner, Status string
	Ref                               *int64
	Flow                              *uuid.UUID
	Tx                                *uuid.UUID // of the transaction that carries it
	After                             *JobPlace  // list what was made before it
	Limit                             int
	Examined                          int // how many jobs the page may look at; 0: db.Examined
}

// JobPlace is where a job stands in a list.
type JobPlace struct {
	At time.Time `json:"at"`
	ID uuid.UUID `json:"id"`
}

const jobMore = `, ARRAY(SELECT e.needs FROM postern.job_edge e WHERE e.job_id = j.job_id ORDER BY e.needs),
	(SELECT count(*) FROM postern.job_try t WHERE t.job_id = j.job_id),
	ARRAY(SELECT n.ref FROM postern.job_edge e JOIN postern.job n ON n.job_id = e.needs
		WHERE e.job_id = j.job_id AND n.ref IS NOT NULL ORDER BY n.ref),
	(SELECT coalesce(json_agg(json_build_object('n', n.n, 'name', n.name, 'deadline', n.deadline, 'met_at', n.met_at,
		'met_by', n.met_by, 'ended_at', n.ended_at) ORDER BY n.n), '[]')
		FROM postern.job_need n WHERE n.job_id = j.job_id),
	coalesce((SELECT r.name FROM postern.job_try t JOIN postern.runner r ON r.runner_id = t.runner_id
		WHERE t.job_id = j.job_id ORDER BY t.attempt DESC LIMIT 1), ''),
	CASE WHEN j.peer IS NOT NULL THEN (SELECT t.try_id FROM postern.job_try t WHERE t.job_id = j.job_id
		ORDER BY t.attempt DESC LIMIT 1) END`

func scanJobMore(row pgx.CollectableRow) (*Job, error) {
	j := &Job{}
	return j, row.Scan(append(j.fields(), &j.Needs, &j.Tries, &j.Dependends, &j.Named, &j.Runner,
		&j.Carried)...)
}

// Job returns one job, or NotFound.
func (s *Store) Job(ctx context.Context, contextID int32, id uuid.UUID) (*Job, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT `+jobColumns+jobMore+`
	FROM postern.job j WHERE j.job_id = $1 AND j.context_id = $2`, id, contextID)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanJobMore)
	if err != nil {
		return nil, db.Known(err)
	}
	if len(list) == 0 {
		return nil, noJob(id.String())
	}
	return list[0], nil
}

func noJob(id string) error {
	return fault.New(fault.NotFound, "not_found", "no job %q", fault.Clip(id))
}

// ListJobs lists jobs of a context, the newest first, and says where the list goes on if it has looked at as many as it
// may before it has found as many as it should: no index serves each filter.
func (s *Store) ListJobs(ctx context.Context, contextID int32, f JobFilter) (list []*Job, next *JobPlace, err error) {
	after := f.After
	if after == nil {
		after = &JobPlace{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	}
	seen := `FROM postern.job j
		WHERE j.context_id = $1 AND (j.created_at, j.job_id) < ($2, $3)` +
		db.InState("j.status", f.Status, flow.Job.States())
	order := ` ORDER BY j.created_at DESC, j.job_id DESC `
	from := seen
	sought := f.Flow == nil && f.Tx == nil && (f.Actor != "" || f.ScriptType != "" || f.Runner != "" || f.Ref != nil)
	if f.Examined == 0 {
		f.Examined = db.Examined
	}
	if sought {
		from = fmt.Sprintf(`FROM (SELECT j.* %s%sLIMIT %d) j WHERE true`, seen, order, f.Examined)
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT `+jobColumns+jobMore+`
		`+from+`
			AND ($4 = '' OR j.actor = $4)
			AND ($5 = '' OR j.script_type = $5)
			AND ($6 = '' OR j.status = $6)
			AND ($7::bigint IS NULL OR j.ref = $7)
			AND ($8 = '' OR EXISTS (SELECT FROM postern.job_try t JOIN postern.runner r ON r.runner_id = t.runner_id
				WHERE t.job_id = j.job_id AND r.name = $8))
			AND ($9::uuid IS NULL OR j.tx_id = $9)
			AND ($10::uuid IS NULL OR j.flow_id = $10 AND NOT j.removed)`+order+`
		LIMIT $11`, contextID, after.At, after.ID, f.Actor, f.ScriptType, f.Status, f.Ref, f.Runner, f.Tx, f.Flow,
		f.Limit)
	if err != nil {
		return nil, nil, db.Known(err)
	}
	if list, err = pgx.CollectRows(rows, scanJobMore); err != nil || !sought || len(list) == f.Limit {
		return list, nil, db.Known(err)
	}
	at := JobPlace{}
	next, err = db.Further(s.Db(ctx).QueryRow(ctx, fmt.Sprintf(`SELECT j.created_at, j.job_id %s%sOFFSET %d LIMIT 1`,
		seen, order, f.Examined-1), contextID, after.At, after.ID), &at, &at.At, &at.ID)
	return list, next, err
}

// Tries lists the tries of a job with the names of their runners, the first one first.
func (s *Store) Tries(ctx context.Context, contextID int32, job uuid.UUID) (list []*Try, runners map[int32]string,
	err error) {
	if _, err := s.Job(ctx, contextID, job); err != nil {
		return nil, nil, err
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT `+tryColumns+`
	FROM postern.job_try t WHERE t.job_id = $1 ORDER BY t.attempt, t.offered_at LIMIT 1000`, job)
	if err != nil {
		return nil, nil, db.Known(err)
	}
	if list, err = pgx.CollectRows(rows, scanTry); err != nil {
		return nil, nil, db.Known(err)
	}
	ids := []int32{}
	for _, v := range list {
		ids = append(ids, v.Runner)
	}
	runners = map[int32]string{}
	rows, err = s.Db(ctx).Query(ctx, `SELECT r.runner_id, r.name FROM postern.runner r
		WHERE r.runner_id = ANY ($1)`, ids)
	if err != nil {
		return nil, nil, db.Known(err)
	}
	var id int32
	var name string
	_, err = pgx.ForEachRow(rows, []any{&id, &name}, func() error { runners[id] = name; return nil })
	return list, runners, db.Known(err)
}

// Step is what happened to a job.
type Step struct {
	At                           time.Time
	Was, Event, Status, By, Text string
}

// History lists what happened to a job, the first first.
func (s *Store) History(ctx context.Context, contextID int32, job uuid.UUID) ([]Step, error) {
	if _, err := s.Job(ctx, contextID, job); err != nil {
		return nil, err
	}
	return s.steps(ctx, job)
}

func (s *Store) steps(ctx context.Context, object uuid.UUID) ([]Step, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT at, was, event, status, by, detail FROM postern.flow_step
		WHERE object = $1 ORDER BY n`, object)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Step])
	return list, db.Known(err)
}
