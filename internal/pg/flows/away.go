package flows

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// Away carries tries to other installations. A message carries each, and has its id.
type Away interface {
	// Send adds to b the message that carries a try. Invalid or Conflict: it is refused for good.
	Send(ctx context.Context, t *db.Txn, b *pgx.Batch, v Sending) error
	// Unused refuses jobs that are posted with an envelope that another one of them has, or that a message has used. at
	// is where each stands in the request. Send refuses what is used beside that.
	Unused(ctx context.Context, t *db.Txn, contextID int32, at []string, jobs []flow.Spec) error
	// Sent is told, after the commit, that there is something to carry. It must not wait.
	Sent()
	// Recall ends what carries tries whose jobs have ended, or are to stop, and the tries with it.
	Recall(ctx context.Context, tries []uuid.UUID) error
	// Why explains what a try waits for that is carried.
	Why(ctx context.Context, contextID int32, try uuid.UUID) (*reads.Why, error)
}

// Sending is a try that a message is to carry.
type Sending struct {
	*Job
	Context  int32
	Try      uuid.UUID
	Envelope []byte // what the actor of the job has signed
	Now      time.Time
}

// unused is Away.Unused for those of the jobs that go to other installations, and are not taken over from others.
func (s *Store) unused(ctx context.Context, t *db.Txn, contextID int32, path string, jobs []flow.Spec,
	reused map[int64]*Job) error {
	var at []string
	var far []flow.Spec
	for i, x := range jobs {
		if len(x.Envelope) == 0 || x.Ref != nil && reused[*x.Ref] != nil {
			continue
		}
		far = append(far, x)
		if at = append(at, path); path != "" {
			at[len(at)-1] = fmt.Sprint(path, "/", i)
		}
	}
	if s.Away == nil || len(far) == 0 {
		return nil
	}
	return s.Away.Unused(ctx, t, contextID, at, far)
}

// send adds to b the message that carries the try of a job with a peer. Invalid or Conflict: neither is made.
func (s *Store) send(ctx context.Context, t *db.Txn, b *pgx.Batch, v Sending) error {
	if s.Away == nil {
		return fault.New(fault.Conflict, "no_peers", "this process knows of no peers")
	}
	var job uuid.UUID
	var size int
	var inputs []byte
	read := &pgx.Batch{}
	read.Queue(`SELECT j.envelope FROM postern.job j WHERE j.job_id = $1`, v.ID).
		QueryRow(func(row pgx.Row) error { return row.Scan(&v.Envelope) })
	read.Queue(inputsSQL, []uuid.UUID{v.ID}).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&job, &size, &inputs}, func() error { return nil })
		return err
	})
	if err := t.Send(ctx, read); err != nil {
		return err
	}
	if size > flow.MaxInputs {
		return fault.New(fault.Conflict, flow.CodeInputs, "the results of the jobs that it needs have %d bytes: want "+
			"at most %d, to go with it to another installation", size, flow.MaxInputs)
	}
	return s.Away.Send(ctx, t, b, v)
}

// Told is what another installation says of the job that it was sent with a try.
type Told struct {
	By      string
	Started bool   // a runner there has taken it
	Run     int64  // how often it was made again there, since it was lost: its output is numbered anew
	Lines   []Line // of its output, those that are not known here
	End     *Said  // nil: it has not ended
}

// Hear brings to a try that was sent, and to its job, what the other installation says; it returns the queue that the
// core is to ask about after the commit, 0 for none. The message is locked that carries it; the try is locked behind
// that, then the flow and the job, as in a claim. A word after the end of a try changes nothing.
func (s *Store) Hear(ctx context.Context, t *db.Txn, b *pgx.Batch, try uuid.UUID, w Told) (queue int64, err error) {
	var list []*Try
	var now time.Time
	read := &pgx.Batch{}
	read.Queue(`SELECT `+tryColumns+`
		FROM postern.job_try t
		WHERE t.try_id = $1
		FOR UPDATE OF t`, try).Query(collectTries(&list))
	s.readLeaseNow(read, &now)
	if err := t.Send(ctx, read); err != nil || len(list) == 0 || list[0].State != flow.Sent {
		return 0, err
	}
	v := list[0]
	if (w.Started || w.End != nil && w.End.Code == "") && v.HeldAt == nil {
		if err := s.beginAway(ctx, t, b, v, w.By, now); err != nil {
			return 0, err
		}
	}
	if len(w.Lines) > 0 {
		appendLines(b, try, w.Run, now, w.Lines)
	}
	if w.End == nil {
		return 0, nil
	}
	e := w.End
	on := flow.TryFinished
	if e.Code != "" {
		on = flow.TryFailed
	}
	_, err = s.move(b, v, on, ending{result: e.Result, exitCode: e.ExitCode, code: e.Code, text: e.Error}, now)
	return v.queue, err
}

// beginAway adds to b that a runner of another installation has taken the job of a try.
func (s *Store) beginAway(ctx context.Context, t *db.Txn, b *pgx.Batch, v *Try, by string, lease time.Time) error {
	jobs, unstarted, now, err := s.lockFor(ctx, t, []*Try{v})
	if err != nil {
		return err
	}
	b.Queue(`UPDATE postern.job_try SET held_at = $2 WHERE try_id = $1`, v.ID, lease)
	j := jobs[v.Job]
	if j == nil || j.Status.Ended() || j.Status == flow.JobStarted {
		return nil
	}
	if err := s.moveJob(b, j, change{on: flow.JobClaimed, by: by, now: now}); err != nil {
		return err
	}
	if j.Flow == nil || unstarted[*j.Flow] == nil {
		return nil
	}
	_, err = s.moveFlow(b, unstarted[*j.Flow], flow.FlowBegun, flow.Facts{}, change{by: by, now: now})
	return err
}

// FailAway adds to b that a try has failed whose message has ended in error. One that has ended stays as it is.
func (s *Store) FailAway(b *pgx.Batch, try uuid.UUID, code, text string) {
	b.Queue(`UPDATE postern.job_try
		SET was = state, state = $2, final = true, error_code = $3, error = $4,
			ended_at = coalesce($5::timestamptz, clock_timestamp())
		WHERE try_id = $1 AND state = $6`, try, string(flow.Failed), code, text, s.LeaseNow(), string(flow.Sent))
}

// ToldAway has the core ask about a try that another installation has ended, after the commit of Hear.
func (s *Store) ToldAway(ctx context.Context, queue int64) {
	if queue != 0 {
		s.hasten(ctx, queue)
		s.ring()
	}
}

// recall ends what carries jobs that have ended, or are to stop, to other installations.
func (s *Store) recall(ctx context.Context, jobs []*Job) error {
	var ids []uuid.UUID
	for _, j := range jobs {
		if j.Peer != "" {
			ids = append(ids, j.ID)
		}
	}
	if len(ids) == 0 || s.Away == nil {
		return nil
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT t.try_id FROM postern.job_try t
		WHERE t.job_id = ANY ($1) AND t.state = 'Sent'`, ids)
	if err != nil {
		return db.Known(err)
	}
	tries, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil || len(tries) == 0 {
		return db.Known(err)
	}
	if err := s.Away.Recall(ctx, tries); err != nil {
		return err
	}
	s.ring()
	return nil
}

// InputsAway are the results of the jobs that the job of a try needs, by their refs; nil: it needs none.
func (s *Store) InputsAway(ctx context.Context, try uuid.UUID) (inputs []byte, err error) {
	var job uuid.UUID
	var size int
	err = s.Db(ctx).QueryRow(ctx, `SELECT t.job_id FROM postern.job_try t WHERE t.try_id = $1`, try).Scan(&job)
	if err == nil {
		err = s.Db(ctx).QueryRow(ctx, inputsSQL, []uuid.UUID{job}).Scan(&job, &size, &inputs)
	}
	if db.IsNoRows(err) {
		return nil, nil
	}
	return inputs, db.Known(err)
}

// sent adds what a try waits for that a message carries.
func (x *explain) sent(v *Try) error {
	w, err := x.s.Away.Why(x.ctx, x.context, v.ID)
	if err != nil {
		return err
	}
	x.w.Moving = x.w.Moving || w.Moving
	x.w.Blockers = append(x.w.Blockers, w.Blockers...)
	return nil
}
