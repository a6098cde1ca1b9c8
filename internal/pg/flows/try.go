package flows

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Try is one attempt at a job.
type Try struct {
	ID        uuid.UUID
	Job       uuid.UUID
	Attempt   int
	Token     string
	Lane      string
	State     flow.TryState
	Fence     int64
	Lapses    int
	Runner    int32 // that holds it, or held it last; 0 for none
	Epoch     int64
	MissedAt  *time.Time
	OfferedAt time.Time
	HeldAt    *time.Time
	Deadline  *time.Time
	EndedAt   *time.Time
	Final     bool
	Result    json.RawMessage
	ExitCode  *int
	Code      string
	Error     string
	Usage     json.RawMessage
	Isolation string
	BodyHash  []byte

	context  int32
	queue    int64
	stopping bool // its job is to stop
}

// Hold names a try under the fence with which it was claimed.
type Hold struct {
	Try   uuid.UUID
	Fence int64
}

const tryColumns = `t.try_id, t.job_id, t.attempt, t.token, t.lane, t.state, t.fence, t.lapses, coalesce(t.runner_id,
	0), coalesce(t.runner_epoch, 0),
	t.missed_at, t.offered_at, t.held_at, t.deadline_at, t.ended_at, t.final, t.result, t.exit_code, t.error_code,
		t.error, t.usage, t.isolation, t.body_hash,
	t.context_id, t.queue_id, EXISTS (SELECT FROM postern.job j WHERE j.job_id = t.job_id AND j.stop_at IS NOT NULL)`

func scanTry(row pgx.CollectableRow) (*Try, error) {
	t := &Try{}
	err := row.Scan(&t.ID, &t.Job, &t.Attempt, &t.Token, &t.Lane, &t.State, &t.Fence, &t.Lapses, &t.Runner, &t.Epoch,
		&t.MissedAt, &t.OfferedAt, &t.HeldAt, &t.Deadline, &t.EndedAt, &t.Final, (*[]byte)(&t.Result), &t.ExitCode,
		&t.Code, &t.Error,
		(*[]byte)(&t.Usage), &t.Isolation, &t.BodyHash, &t.context, &t.queue, &t.stopping)
	return t, err
}

func collectTries(into *[]*Try) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, scanTry)
		return err
	}
}

// offer is a try that runners may take.
type offer struct {
	context int32
	lane    string
}

// ending is what is recorded of a try that has ended.
type ending struct {
	result    json.RawMessage
	exitCode  *int
	code      string
	text      string
	usage     json.RawMessage
	isolation string
	hash      []byte
}

// move lets something happen to a try whose row is locked, and adds to b what is to be written. now is by the clock of
// leases.
func (s *Store) move(b *pgx.Batch, v *Try, on flow.TryEvent, e ending, now time.Time) (flow.TryStep, error) {
	step, err := flow.NextTry(v.State, on, flow.TryFacts{Stopping: v.stopping, Lapses: v.Lapses})
	if err != nil {
		return step, err
	}
	was := v.State
	v.State = step.To
	if step.RaiseFence {
		v.Fence = s.Fence(v.Fence, now)
	}
	if step.CountLapse {
		v.Lapses++
	}
	if !step.Record {
		if v.State == flow.Offered {
			v.Runner, v.Epoch = 0, 0
		}
		b.Queue(`UPDATE postern.job_try
			SET was = $2, state = $3, fence = $4, lapses = $5, runner_id = $6, runner_epoch = $7, missed_at = NULL,
				held_at = $8, deadline_at = $9
			WHERE try_id = $1`, v.ID, string(was), string(v.State), v.Fence, v.Lapses, db.Nullable(v.Runner),
			db.Nullable(v.Epoch),
			heldAt(v, now), deadline(v))
		return step, nil
	}
	v.Final, v.EndedAt = step.Final, &now
	b.Queue(`UPDATE postern.job_try
		SET was = $2, state = $3, lapses = $4, final = $5, ended_at = $6, result = $7::text::jsonb, exit_code = $8,
			error_code = $9, error = $10,
			usage = $11::text::jsonb, isolation = $12, body_hash = $13
		WHERE try_id = $1`, v.ID, string(was), string(v.State), v.Lapses, v.Final, now, db.Raw(e.result), e.exitCode,
		e.code, e.text,
		db.Raw(e.usage), e.isolation, e.hash)
	return step, nil
}

func heldAt(v *Try, now time.Time) any {
	if v.State == flow.Held {
		return now
	}
	return nil
}

func deadline(v *Try) any {
	if v.State == flow.Held {
		return v.Deadline
	}
	return nil
}

// heldRunner is a runner whose row is locked, with the tries that it holds.
type heldRunner struct {
	Runner
	context int32
	tries   []*Try
	now     time.Time // by the clock of leases
}

// heldOf reads a runner whose row is locked, and locks the tries that it holds. That waits for an end that is being
// recorded, which takes no lock behind that of its try.
func (s *Store) heldOf(ctx context.Context, t *db.Txn, contextID int32, name string) (*heldRunner, error) {
	r := &heldRunner{context: contextID}
	b := &pgx.Batch{}
	b.Queue(`SELECT `+runnerColumns+`, coalesce($3::timestamptz, clock_timestamp())
		FROM postern.runner r
		WHERE r.context_id = $1 AND r.name = $2`, contextID, name, s.LeaseNow()).
		QueryRow(func(row pgx.Row) error { return row.Scan(append(r.fields(), &r.now)...) })
	b.Queue(`SELECT `+tryColumns+`
		FROM postern.job_try t
		WHERE t.runner_id = (SELECT r.runner_id FROM postern.runner r WHERE r.context_id = $1 AND r.name = $2)
			AND t.state = 'Held'
		ORDER BY t.try_id
		FOR UPDATE OF t`, contextID, name).Query(collectTries(&r.tries))
	return r, t.Send(ctx, b)
}

// takeBack takes tries from their runner, whose row is locked as theirs are: they are offered to others, or have ended
// if they lapsed too often, or are to stop.
func (s *Store) takeBack(ctx context.Context, t *db.Txn, b *pgx.Batch, tries []*Try, on flow.TryEvent,
	now time.Time) (out []offer, err error) {
	for _, v := range tries {
		e := ending{code: flow.CodeRunnerLost,
			text: "runner lost: it was handed to runners " + times(flow.MaxLapses) + ", and none said how it ended"}
		if v.stopping {
			e = ending{code: flow.CodeStopped, text: "it was told to stop, and its runner was lost"}
		}
		step, err := s.move(b, v, on, e, now)
		if err != nil {
			return nil, err
		}
		if !step.Record {
			out = append(out, offer{v.context, v.Lane})
		}
	}
	return out, nil
}

func times(n int) string {
	if n == 3 {
		return "three times"
	}
	return "too often"
}

// offered tells who waits for jobs that there are some, and the rest of this process that tries may have ended.
func (s *Store) offered(list []offer) {
	for _, o := range list {
		s.fronts.lower(o)
		s.bells.ring(o)
	}
	s.ring()
}
