package flows

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// postedAfter is how old a job without a transaction is before another process posts it.
const postedAfter = 2 * time.Second

// PostJob stores a job and posts its transaction. The same ref with the same content again is the same job. Outcomes
// besides: Invalid; Conflict "idempotency_conflict", with what differs.
//
// The row is committed before the transaction is posted: a process that dies in between leaves a job that the next look
// posts under the same uid.
func (s *Store) PostJob(ctx context.Context, by db.By, spec flow.Spec) (*Job, error) {
	if err := s.knowsType(ctx, by.Context, spec.ScriptType); err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	hash, err := hashOf(spec)
	if err != nil {
		return nil, err
	}
	if spec.Env == nil {
		spec.Env = map[string]string{}
	}
	j := &Job{Spec: spec, ID: id, Actor: by.Actor, context: by.Context, TxOpen: true, hash: hash}
	err = s.Run(ctx, func(t *db.Txn) error {
		there, now, err := s.sameRef(ctx, t, by, spec.Ref)
		if err != nil {
			return err
		}
		if there != nil {
			if !bytes.Equal(there.hash, hash) {
				return differs(there, spec)
			}
			there.Replay, j = true, there
			return t.Rollback(ctx)
		}
		b := &pgx.Batch{}
		equip(b, by.Context)
		if err := s.create(b, j, change{on: flow.JobReleased, by: by.Actor, now: now}); err != nil {
			return err
		}
		s.AuditIn(b, by, "post", "/jobs/"+j.ID.String())
		return t.Commit(ctx, b)
	})
	if err != nil {
		return nil, err
	}
	if !j.Replay {
		if err := s.Reconfigured(ctx); err != nil {
			return nil, err
		}
	}
	if j.Tx == "" && !j.Status.Ended() {
		if err := s.post(ctx, j); err != nil {
			return nil, err
		}
	}
	out, err := s.Job(ctx, by.Context, j.ID)
	if err == nil {
		out.Replay = j.Replay
	}
	return out, err
}

// knowsType refuses a script type that no dispatcher has. The built-in ones are made with the first job.
func (s *Store) knowsType(ctx context.Context, contextID int32, scriptType string) error {
	d, err := s.Dispatcher(ctx, contextID, flow.Type(scriptType))
	if fault.KindOf(err) == fault.NotFound {
		for _, name := range flow.BuiltIn {
			if name == scriptType && !s.removed(ctx, contextID, flow.Type(name)) {
				return nil
			}
		}
		return fault.At("/script_type", "script_type %q: no dispatcher %s has it. PUT /dispatchers/%s with "+
			"worker_url %q makes it",
			fault.Clip(scriptType), fault.Clip(flow.Type(scriptType)), flow.Type(scriptType), flow.WorkerURL)
	}
	if err == nil && scriptType == "need" || err == nil && d.WorkerURL != flow.WorkerURL {
		return fault.At("/script_type", "script_type %q is none that runners execute", fault.Clip(scriptType))
	}
	return err
}

// removed says whether somebody removed a dispatcher.
func (s *Store) removed(ctx context.Context, contextID int32, typ string) bool {
	list, err := s.ReadDispatchers(ctx, s.Db(ctx), contextID, typ)
	return err == nil && len(list) > 0 && list[0].Removed
}

func hashOf(spec flow.Spec) ([]byte, error) {
	if len(spec.Env) == 0 {
		spec.Env = nil
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	return sum[:], nil
}

// sameRef finds the job that an actor has given a ref; nil for none.
func (s *Store) sameRef(ctx context.Context, t *db.Txn, by db.By, ref *int64) (there *Job, now time.Time, err error) {
	b := &pgx.Batch{}
	s.ReadNow(b, &now)
	if ref != nil {
		b.Queue(`SELECT `+jobColumns+` FROM postern.job j WHERE (j.context_id, j.actor, j.ref) = ($1, $2, $3)`,
			by.Context, by.Actor, *ref).
			Query(func(rows pgx.Rows) error {
				list, err := pgx.CollectRows(rows, scanJob)
				if err == nil && len(list) > 0 {
					there = list[0]
				}
				return err
			})
	}
	return there, now, t.Send(ctx, b)
}

// differs refuses a ref that names another job, and says in what that differs.
func differs(there *Job, spec flow.Spec) error {
	names := []string{}
	for _, x := range []struct {
		name string
		same bool
	}{
		{"script", there.Script == spec.Script},
		{"script_type", there.ScriptType == spec.ScriptType},
		{"queue", there.Queue == spec.Queue},
		{"timeout", there.Timeout == spec.Timeout},
		{"retries", there.Retries == spec.Retries},
		{"network", there.Network == spec.Network},
		{"env_vars", fmt.Sprint(there.Env) == fmt.Sprint(flow.Environment(nil, spec.Env))},
	} {
		if !x.same {
			names = append(names, x.name)
		}
	}
	return fault.New(fault.Conflict, "idempotency_conflict",
		"ref %d names job %s, which differs: choose another ref, or send the same content", *spec.Ref, there.ID).
		With("existing", map[string]string{"id": there.ID.String()}).With("differs", names)
}

// create adds to b the row of a job that is released at once.
func (s *Store) create(b *pgx.Batch, j *Job, c change) error {
	created, err := flow.NextJob("", flow.JobCreated, false)
	if err != nil {
		return err
	}
	env, err := json.Marshal(j.Env)
	if err != nil {
		return err
	}
	j.Status, j.CreatedAt, j.steps = created.To, c.now, 1
	b.Queue(`INSERT INTO postern.job (job_id, context_id, actor, ref, script, script_type, queue, timeout, retries,
		network, env, status, steps, unfit,
			created_at, updated_at, body_hash)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text::jsonb, $12, $13, $14, $15, $15, $16)`,
		j.ID, j.context, j.Actor, j.Ref, j.Script, j.ScriptType, db.Nullable(j.Queue), j.Timeout, j.Retries,
		j.Network, string(env), string(j.Status), j.steps,
		j.Unfit, c.now, j.hash)
	s.note(b, j, "", change{on: flow.JobCreated, by: c.by, now: c.now})
	return s.moveJob(b, j, c)
}

// submission is the transaction of a job. It names the job and nothing else: the script is read from the job's row.
func (j *Job) submission() *pg.Submission {
	retries := j.Retries
	data, _ := json.Marshal(map[string]string{"job": j.ID.String()}) // of strings
	sum := sha256.Sum256(append([]byte("job\x00"), data...))
	return &pg.Submission{
		Held:       true,
		ContextID:  j.context,
		Queue:      j.Queue,
		UID:        flow.UID(j.ID),
		Hash:       sum[:],
		Actor:      j.Actor,
		Poster:     outbox.ByAdmin, // as its job was
		Type:       flow.Type(j.ScriptType),
		Data:       data,
		MaxRetries: &retries,
	}
}

// post posts the transaction of a job. What the core refuses for good ends the job; what it cannot take now is posted
// by a later look.
func (s *Store) post(ctx context.Context, j *Job) error {
	out, err := s.Ingest(ctx, []*pg.Submission{j.submission()}, true)
	if err == nil {
		err = out[0].Err
	}
	switch fault.KindOf(err) {
	case "":
		s.RingHere()
		return nil
	case fault.Retry, fault.Internal:
		s.Log.Warn("post the transaction of a job: the next look does", "job", j.ID, "error", err)
		return nil
	}
	f := fault.As(err)
	return s.onJob(ctx, j.context, j.ID, func(t *db.Txn, j *Job, now time.Time) error {
		if j.Status.Ended() || j.queue != 0 {
			return t.Rollback(ctx)
		}
		b := &pgx.Batch{}
		j.TxOpen = false
		if err := s.moveJob(b, j, change{on: flow.JobRefused, now: now, code: f.Code, text: f.Detail}); err != nil {
			return err
		}
		return t.Commit(ctx, b)
	})
}

// Repost posts jobs whose process died before it had posted them, and returns how many.
func (s *Store) Repost(ctx context.Context) (int, error) {
	rows, err := s.Looks.Query(ctx, `SELECT `+jobColumns+`
		FROM postern.job j
		WHERE j.queue_id IS NULL
			AND j.tx_open
			AND j.created_at < coalesce($1::timestamptz, clock_timestamp()) - $2::interval
			AND j.ended_at IS NULL
		ORDER BY j.created_at
		LIMIT 100`, s.Clock(), postedAfter)
	if err != nil {
		return 0, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanJob)
	if err != nil {
		return 0, db.Known(err)
	}
	for i, j := range list {
		if s.Quarantined(j.context, flow.Type(j.ScriptType)) {
			continue
		}
		if err := s.post(ctx, j); err != nil {
			return i, err
		}
	}
	return len(list), nil
}

// onJob runs fn with a job locked; fn ends the transaction.
func (s *Store) onJob(ctx context.Context, contextID int32, id uuid.UUID, fn func(*db.Txn, *Job,
	time.Time) error) error {
	return s.Run(ctx, func(t *db.Txn) error {
		var list []*Job
		var now time.Time
		b := &pgx.Batch{}
		b.Queue(`SELECT `+jobColumns+` FROM postern.job j WHERE j.job_id = $1 AND j.context_id = $2 FOR UPDATE`, id,
			contextID).Query(collectJobs(&list))
		s.ReadNow(b, &now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(list) == 0 {
			return noJob(id.String())
		}
		return fn(t, list[0], now)
	})
}
