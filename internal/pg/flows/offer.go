package flows

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// Offer is the dispatch of a job: it offers a try under the token of the call, and answers its id as the hash. The same
// token again is the same try. A job that has ended, or is to stop, is refused for good. That of a job with a peer is
// given to a message in the same commit.
//
// The job is locked behind no try, and only to be read: an end of it comes before this, and is seen, or after it,
// and finds the try. The core lets a transaction go when those that it depends on are DONE, which their jobs may not
// know yet: they are brought to their ends first, so that no job starts before those that it needs have finished.
func (s *Store) Offer(ctx context.Context, l *pg.Lease, token string) (a outbox.Answer) {
	began := time.Now()
	defer func() { a.StartedAt, a.Elapsed = began, time.Since(began) }()
	if l.Task.Type == flow.TypeNeed { // it waits for no runner
		a.Result.Hash = flow.NeedHash(l.Task.UID)
		return a
	}
	if err := s.needsEnded(ctx, l.ID().Queue, l.ID().Seq); err != nil {
		return unclear(err)
	}
	return s.offer(ctx, l, token)
}

// offer is Offer of a job whose needs have ended.
func (s *Store) offer(ctx context.Context, l *pg.Lease, token string) (a outbox.Answer) {
	id, err := uuid.NewV7()
	if err != nil {
		return unclear(err)
	}
	var o offer
	var away bool // a message carries it
	err = s.Run(ctx, func(t *db.Txn) error {
		a, o, away = outbox.Answer{}, offer{}, false
		var now time.Time
		var list []*Job
		var hash string
		b := &pgx.Batch{}
		s.readOffer(b, l.ID(), token, &list, &hash)
		s.ReadNow(b, &now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if refused := judgeOffer(hash, list); refused != nil {
			a = *refused
			return t.Rollback(ctx)
		}
		j := list[0]
		o, away = offer{j.context, j.Lane()}, j.Peer != ""
		b = &pgx.Batch{}
		was, state := flow.TryState(""), flow.Offered
		if away {
			if err := s.send(ctx, t, b, Sending{Job: j, Context: j.context, Try: id, Now: now}); err != nil {
				return err
			}
			was, state = flow.Offered, flow.Sent
		}
		b.Queue(`INSERT INTO postern.job_try (try_id, context_id, job_id, queue_id, seq, attempt, token, lane, was,
			state, offered_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, id, j.context, j.ID, l.ID().Queue, l.ID().Seq,
			l.Attempt, token, o.lane, string(was), string(state), now)
		if l.Attempt == 1 && j.Status == flow.JobWaiting {
			if err := s.moveJob(b, j, change{on: flow.JobPrerequisitesMet, now: now}); err != nil {
				return err
			}
		}
		a.Result.Hash = id.String()
		return t.Commit(ctx, b)
	})
	switch kind := fault.KindOf(err); {
	case kind == fault.Invalid, kind == fault.Conflict:
		return rejected(fault.CodeOf(err), fault.As(err).Detail)
	case err != nil:
		return unclear(err)
	case away:
		s.Away.Sent()
	case o.lane != "":
		s.bells.ring(o)
	}
	return a
}

// readOffer adds to b a reading of the job that a transaction carries, whose row it locks, and of the try that was
// made under a token.
func (s *Store) readOffer(b *pgx.Batch, id outbox.ID, token string, list *[]*Job, hash *string) {
	b.Queue(`SELECT `+jobColumns+` FROM postern.job j WHERE (j.queue_id, j.seq) = ($1, $2) FOR UPDATE`, id.Queue,
		id.Seq).Query(collectJobs(list))
	b.Queue(`SELECT t.try_id::text FROM postern.job_try t WHERE t.token = $1`, token).
		Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{hash}, func() error { return nil })
			return err
		})
}

// needsEnded waits until the jobs have ended that the job of a transaction needs.
func (s *Store) needsEnded(ctx context.Context, queue, seq int64) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		var open bool
		err := s.Db(ctx).QueryRow(ctx, `SELECT EXISTS (
			SELECT
			FROM postern.job j
			JOIN postern.job_edge e ON e.job_id = j.job_id
			JOIN postern.job n ON n.job_id = e.needs
			WHERE (j.queue_id, j.seq) = ($1, $2) AND n.ended_at IS NULL)`, queue, seq).Scan(&open)
		if err != nil || !open {
			return db.Known(err)
		}
		n, err := s.Advance(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		select { // another process has them in hand
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// judgeOffer is the answer to a dispatch that makes no try: the try is there already, or its job cannot be tried. nil
// where it is to be made.
func judgeOffer(hash string, jobs []*Job) *outbox.Answer {
	a := outbox.Answer{}
	switch {
	case hash != "":
		a.Result.Hash = hash
	case len(jobs) == 0:
		const none = "this transaction carries no job: it was accepted before its type had the worker "
		a = rejected("no_job", none+flow.WorkerURL)
	case jobs[0].Unfit != "":
		a = rejected("unfit", jobs[0].Unfit)
	case jobs[0].Status.Ended(), jobs[0].StopAt != nil:
		a = rejected(flow.CodeCancelled, "its job has ended, or is to stop")
	default:
		return nil
	}
	return &a
}

// unclear is the answer where it is not known whether a try is offered: the core asks, and where there is none sends
// the same token again.
func unclear(err error) outbox.Answer {
	return outbox.Answer{Class: outbox.ClassAmbiguous, Code: fault.CodeOf(err), Message: fault.As(err).Detail}
}

func rejected(code, message string) outbox.Answer {
	return outbox.Answer{Class: outbox.ClassRejected, Code: code, Message: message, Told: true}
}

// Status says what became of one try, by its token or its id (remote.Jobs).
func (s *Store) Status(ctx context.Context, byToken, byHash string) outbox.Status {
	if byToken == "" {
		return s.StatusBatch(ctx, []string{byHash})[0]
	}
	found, err := s.statuses(ctx, `t.token = $1`, byToken)
	switch {
	case err != nil:
		return outbox.Status{State: outbox.StatusUnreachable, Message: fault.As(err).Detail}
	case len(found) == 0:
		return outbox.Status{State: outbox.StatusUnknown}
	}
	for _, st := range found {
		return st
	}
	return outbox.Status{}
}

// StatusBatch says what became of tries, in the order of their ids (remote.Jobs). One that is not here any more was
// dropped by retention, or by a restore: it is unknown.
func (s *Store) StatusBatch(ctx context.Context, hashes []string) []outbox.Status {
	ids := make([]uuid.UUID, 0, len(hashes))
	for _, h := range hashes {
		if id, err := uuid.Parse(h); err == nil {
			ids = append(ids, id)
		}
	}
	found, err := s.statuses(ctx, `t.try_id = ANY ($1)`, ids)
	if err == nil {
		err = s.needStatuses(ctx, hashes, found)
	}
	out := make([]outbox.Status, len(hashes))
	for i, h := range hashes {
		st, ok := found[h]
		switch {
		case err != nil:
			st = outbox.Status{State: outbox.StatusUnreachable, Message: fault.As(err).Detail}
		case !ok:
			st = outbox.Status{State: outbox.StatusUnknown, Hash: h}
		}
		out[i] = st
	}
	return out
}

// statuses reads what the core is told of tries, by their ids.
func (s *Store) statuses(ctx context.Context, where string, arg any) (map[string]outbox.Status, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT t.try_id::text, t.state, t.final, t.error_code, t.error,
		coalesce(t.result, '{}') FROM postern.job_try t WHERE `+where, arg)
	if err != nil {
		return nil, db.Known(err)
	}
	found := map[string]outbox.Status{}
	var id, state, code, text string
	var final bool
	var result []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &state, &final, &code, &text, &result}, func() error {
		found[id] = statusOf(id, flow.TryState(state), final, code, text, result)
		return nil
	})
	return found, db.Known(err)
}

// statusOf is what the core is told of a try.
func statusOf(id string, state flow.TryState, final bool, code, text string, result []byte) outbox.Status {
	st := outbox.Status{State: outbox.StatusPending, Hash: id}
	if state == flow.Finished && id[len(id)-1] == '0' && twin.Planted("success_tried_again") {
		state = flow.Failed
	}
	switch state {
	case flow.Finished:
		st.State, st.Done, st.Confirmations = outbox.StatusIncluded, json.RawMessage(string(result)), 1
	case flow.Failed, flow.Withdrawn:
		st.State, st.Final = outbox.StatusFailed, final
		if st.FailureReason = text; text == "" {
			st.FailureReason = fmt.Sprintf("it failed (%s)", strings.TrimSpace(code))
		}
	}
	return st
}
