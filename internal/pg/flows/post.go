package flows

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
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

// PostJob stores a job and posts its transaction. The same key of the request, or the same ref, with the same content
// again is the same job. Outcomes besides: Invalid; Conflict "idempotency_conflict", with what differs.
//
// The row is committed before the transaction is posted: a process that dies in between leaves a job that the next look
// posts under the same uid.
func (s *Store) PostJob(ctx context.Context, by db.By, spec flow.Spec, key string) (*Job, error) {
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
	j := &Job{Spec: spec, ID: id, Actor: by.Actor, context: by.Context, TxOpen: true, hash: hash, key: key}
	err = s.Run(ctx, func(t *db.Txn) error {
		there, now, err := s.sameJob(ctx, t, by, spec.Ref, key)
		if err != nil {
			return err
		}
		if there != nil {
			if !bytes.Equal(there.hash, hash) {
				return differs(there, spec, key)
			}
			there.Replay, j = true, there
			return t.Rollback(ctx)
		}
		return s.putJob(ctx, t, by, j, now)
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
		if err := s.post(ctx, []*Job{j}); err != nil {
			return nil, err
		}
	}
	out, err := s.Job(ctx, by.Context, j.ID)
	if err == nil {
		out.Replay = j.Replay
	}
	return out, err
}

// putJob writes a job that no other has the name of, and commits.
func (s *Store) putJob(ctx context.Context, t *db.Txn, by db.By, j *Job, now time.Time) error {
	if err := s.unused(ctx, t, by.Context, "", []flow.Spec{j.Spec}, nil); err != nil {
		return err
	}
	if err := s.accepts(by.Context, []flow.Spec{j.Spec}); err != nil {
		return err
	}
	b := &pgx.Batch{}
	equip(b, by.Context)
	open := len(j.Prerequisites) > 0
	if err := s.create(b, j, change{on: flow.JobReleased, open: open, by: by.Actor, now: now}); err != nil {
		return err
	}
	if open {
		setDeadlines(b, []uuid.UUID{j.ID}, now)
	}
	s.AuditIn(b, by, "post", "/jobs/"+j.ID.String())
	return t.Commit(ctx, b)
}

// accepts refuses jobs where their context, or the type of one of them, is drained.
func (s *Store) accepts(contextID int32, jobs []flow.Spec) error {
	var types []string
	for _, j := range jobs {
		types = append(types, flow.Type(j.ScriptType))
	}
	return s.Accepts(contextID, types...)
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

var madeJobs = db.Made[Job]{
	Columns: jobColumns,
	From:    "postern.job j",
	As:      "j",
	Refs:    " AND j.flow_id IS NULL",
	Scan:    scanJob,
}

// sameJob finds the job that a request of an actor with a key has made, or to which it has given a ref; nil for none.
func (s *Store) sameJob(ctx context.Context, t *db.Txn, by db.By, ref *int64, key string) (there *Job, now time.Time,
	err error) {
	b := &pgx.Batch{}
	s.ReadNow(b, &now)
	madeJobs.Find(b, by, ref, key, &there)
	return there, now, t.Send(ctx, b)
}

// named says by what a request names something that is there.
func named(ref *int64, key string) string {
	if key != "" {
		return fmt.Sprintf("Idempotency-Key %q", fault.Clip(key))
	}
	return fmt.Sprintf("ref %d", *ref)
}

// differs refuses a key or a ref that names another job, and says in what that differs.
func differs(there *Job, spec flow.Spec, key string) error {
	names := []string{}
	for _, x := range []struct {
		name string
		same bool
	}{
		{"script", there.Script == spec.Script},
		{"script_type", there.ScriptType == spec.ScriptType},
		{"queue", there.Queue == spec.Queue},
		{"topic", there.Topic == spec.Topic},
		{"target", there.Peer == spec.Peer},
		{"timeout", there.Timeout == spec.Timeout},
		{"retries", there.Retries == spec.Retries},
		{"network", there.Network == spec.Network},
		{"prerequisites", there.NeedTimeout == spec.NeedTimeout},
		{"ref", reflect.DeepEqual(there.Ref, spec.Ref)},
		{"env_vars", fmt.Sprint(there.Own) == fmt.Sprint(flow.Environment(nil, spec.Env))},
	} {
		if !x.same {
			names = append(names, x.name)
		}
	}
	if len(names) == 0 {
		names = append(names, "prerequisites")
	}
	return fault.New(fault.Conflict, "idempotency_conflict",
		"%s names job %s, which differs: choose another one, or send the same content",
		named(spec.Ref, there.usedKey(key)), there.ID).
		With("existing", map[string]string{"id": there.ID.String()}).With("differs", names)
}

// usedKey is key, if a request with it has made the job.
func (j *Job) usedKey(key string) string {
	if j.key == key {
		return key
	}
	return ""
}

// create adds to b the row of a job that is released at once.
func (s *Store) create(b *pgx.Batch, j *Job, c change) error {
	if err := s.insertJob(b, j, c); err != nil {
		return err
	}
	return s.moveJob(b, j, c)
}

// insertJob adds to b the row of a job with what it needs.
func (s *Store) insertJob(b *pgx.Batch, j *Job, c change) error {
	created, err := flow.NextJob("", flow.JobCreated, false)
	if err != nil {
		return err
	}
	env, err := json.Marshal(flow.Environment(nil, j.Env))
	if err != nil {
		return err
	}
	j.Status, j.CreatedAt, j.steps = created.To, c.now, 1
	b.Queue(`INSERT INTO postern.job (job_id, context_id, actor, ref, uid, flow_id, script, script_type, queue, timeout,
			retries, network, env, need_time, status, steps, unfit, tx_open, created_at, updated_at, body_hash,
			request_key, topic, message_id, peer, envelope, inputs)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13::text::jsonb, $14, $15, $16, $17, $18, $19, $19,
			$20, $21, $22, $23, $24, $25, $26::text::jsonb)`,
		j.ID, j.context, j.Actor, j.Ref, db.Nullable(j.UID), j.Flow, j.Script, j.ScriptType, db.Nullable(j.Queue),
		j.Timeout, j.Retries, j.Network, string(env), j.NeedTimeout, string(j.Status), j.steps, j.Unfit, j.TxOpen,
		c.now, j.hash, db.Nullable(j.key), db.Nullable(j.Topic), j.Message, db.Nullable(j.Peer), j.Envelope,
		db.Raw(j.Inputs))
	for n, name := range j.Prerequisites {
		b.Queue(`INSERT INTO postern.job_need (job_id, n, name) VALUES ($1, $2, $3)`, j.ID, n+1, name)
	}
	s.note(b, j, "", change{on: flow.JobCreated, by: c.by, now: c.now, notes: c.notes})
	return nil
}

// submission is the transaction of a job. It names the job and nothing else: the script is read from the job's row.
func (j *Job) submission() *pg.Submission {
	retries := j.Retries
	if j.Peer != "" { // the other installation repeats it
		retries = 0
	}
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
