package messages

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// away carries tries of jobs to peers: each as a message of type job, which has the id of the try and is what the actor
// of the job has signed. The end of the message is that of the try, in one commit.
type away struct{ s *Store }

// resultWithin is how long a job may be away, beyond the time that its tries may take there, where its envelope says
// nothing.
const resultWithin = 24 * time.Hour

// Send adds to b the message that carries a try. An envelope makes a job once: Conflict "idempotency_conflict" where
// another one has used it.
func (a away) Send(ctx context.Context, t *db.Txn, b *pgx.Batch, v flows.Sending) error {
	signed, key, err := message.Open(v.Envelope)
	if err != nil {
		return err
	}
	used, err := a.usedBy(ctx, t, v.Context, v.Peer, v.Envelope)
	if err != nil {
		return err
	}
	if used != nil {
		return fault.New(fault.Conflict, message.CodeConflict, "message %s has carried what was signed for this job: "+
			"sign it anew", *used)
	}
	spec := signed.Spec(1)
	if spec.Timeouts.Result == 0 {
		spec.Timeouts.Result = min(v.Timeout*time.Duration(v.Retries+1)+resultWithin, message.MaxTimeout)
	}
	m := &Message{ID: v.Try, Context: v.Context, Peer: v.Peer, ToContext: spec.To.Context, ToActor: spec.To.Actor,
		Topic: spec.To.Topic, Actor: v.Actor, CallerKey: key, Type: message.Job, Format: message.DefaultFormat,
		Body: spec.Body, Jobs: signed.Jobs, Timeouts: spec.Timeouts, Envelope: v.Envelope, Carries: true,
		hash: message.Digest(v.Envelope)}
	return a.s.Insert(b, m, Change{On: message.OnCreated, By: v.Actor, Now: v.Now,
		Detail: "it carries job " + v.ID.String()})
}

// Unused is flows.Away.Unused.
func (a away) Unused(ctx context.Context, t *db.Txn, contextID int32, at []string, jobs []flow.Spec) error {
	seen := map[string]string{}
	for i, j := range jobs {
		digest := string(message.Digest(j.Envelope))
		if first, ok := seen[digest]; ok {
			return fault.At(at[i]+"/envelope", "envelope: that of %s signs the same: sign each, with a created_at of "+
				"its own", first)
		}
		seen[digest] = at[i]
		used, err := a.usedBy(ctx, t, contextID, j.Peer, j.Envelope)
		if err != nil {
			return err
		}
		if used != nil {
			return fault.New(fault.Conflict, message.CodeConflict, "envelope: message %s has carried what was signed "+
				"for this job: sign it anew", *used).About(at[i] + "/envelope")
		}
	}
	return nil
}

// usedBy finds the message of a context to a peer that has what an envelope signs; nil for none.
func (a away) usedBy(ctx context.Context, t *db.Txn, contextID int32, peer string, envelope []byte) (used *uuid.UUID,
	err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT m.message_id
		FROM postern.message m
		WHERE m.context_id = $1
			AND m.peer = $2
			AND postern.signed_digest(m.envelope) = postern.signed_digest($3)
			AND m.envelope IS NOT NULL`, contextID, peer, envelope).
		Query(func(rows pgx.Rows) error {
			var id uuid.UUID
			_, err := pgx.ForEachRow(rows, []any{&id}, func() error { used = &id; return nil })
			return err
		})
	return used, t.Send(ctx, b)
}

// Sent rings for the loop that routes messages, here and, where this is the first one, in other processes.
func (a away) Sent() {
	if !a.s.Has(Messages) {
		if err := a.s.Reconfigured(context.Background()); err != nil {
			a.s.Log.Warn("tell that there are messages: the next look does", "error", err)
		}
	}
	a.s.ring()
}

// Recall ends the messages that carry tries, and the tries with them. The peer is told to stop what it has made of them
// when it is asked next.
func (a away) Recall(ctx context.Context, tries []uuid.UUID) error {
	for _, id := range tries {
		err := a.s.Run(ctx, func(t *db.Txn) error {
			m, now, err := a.s.lock(ctx, t, id)
			if err != nil {
				return err
			}
			if m == nil || m.Status.Ended() {
				return t.Rollback(ctx)
			}
			b := &pgx.Batch{}
			err = a.s.overdue(b, m, now)
			if err == nil && !m.Status.Ended() {
				err = a.s.Move(b, m, Change{On: message.OnRefused, By: "jobs", Now: now, Code: flow.CodeStopped,
					Text: "its job has ended, or is to stop"})
			}
			if err != nil {
				return err
			}
			return a.s.commit(ctx, t, b, m)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Why explains the message that carries a try.
func (a away) Why(ctx context.Context, contextID int32, try uuid.UUID) (*reads.Why, error) {
	return a.s.WhyMessage(ctx, contextID, try)
}

// CheckJob refuses a job for a peer that its actor has not signed as it is written, for there. at is where it stands in
// the request. Faults: Invalid; "signature_required" where it is not signed.
func (s *Store) CheckJob(ctx context.Context, by db.By, at string, j flow.Spec) error {
	peer, err := s.installations.Peer(ctx, by.Context, j.Peer)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return fault.At(at+"/target/peer", "target.peer %q: this context has no peer of that name", fault.Clip(j.Peer))
	case err != nil:
		return err
	case peer.URL == "":
		return fault.At(at+"/target/peer", "target.peer %q: it has no url, so that nothing is sent to it",
			fault.Clip(j.Peer))
	case len(j.Envelope) == 0:
		return fault.New(fault.Invalid, "signature_required", "envelope is missing: the actor of a job for another "+
			"installation signs it, in the envelope of a message with this job alone").About(at + "/envelope")
	}
	signed, _, err := message.Open(j.Envelope)
	if err != nil {
		return under(at, err)
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	signed, _, actor, err := s.Verify(ctx, j.Envelope, atPeer(peer, signed), now, now.Add(-message.MaxAge))
	switch {
	case err != nil:
		return under(at, err)
	case actor != by.Actor:
		return under(at, message.Unsigned("its key is of %q, and the request comes from %q", fault.Clip(actor),
			fault.Clip(by.Actor)))
	}
	return under(at, sameJob(signed, j))
}

// under is a fault of an envelope, where that stands in a job.
func under(at string, err error) error {
	if err == nil {
		return nil
	}
	f := fault.As(err)
	moved := *f
	moved.Fields = append(moved.Fields[:0:0], f.Fields...)
	for i := range moved.Fields {
		moved.Fields[i].Pointer = at + moved.Fields[i].Pointer
	}
	return &moved
}

// sameJob refuses an envelope that does not say the same as the request.
func sameJob(signed *message.Signed, j flow.Spec) error {
	const payload = "/envelope/payload"
	specs, err := flow.SpecsIn("/envelope/payload/job", signed.Jobs)
	switch {
	case err != nil:
		return err
	case signed.Type != message.Job || len(specs) != 1:
		return fault.At(payload, "envelope: want a message of type job with one job, and it is a %s with %d",
			fault.Clip(signed.Type), len(specs))
	}
	spec := signed.Spec(1)
	if err := spec.Validate(); err != nil {
		return err
	}
	x := specs[0]
	for _, f := range []struct {
		name string
		same bool
	}{
		{"script", x.Script == j.Script},
		{"script_type", x.ScriptType == j.ScriptType},
		{"topic", x.Topic == j.Topic},
		{"timeout", x.Timeout == j.Timeout},
		{"retries", x.Retries == j.Retries},
		{"network", x.Network == j.Network},
		{"env_vars", maps.Equal(flow.Environment(nil, x.Env), flow.Environment(nil, j.Env))},
	} {
		if !f.same {
			return fault.At("/"+f.name, "%s is not what the envelope says: say the same, or sign it anew", f.name)
		}
	}
	return nil
}

// Piece is a part of the output of a job at a peer.
type Piece struct {
	Job    int    `json:"job"` // which of the jobs of the message
	N      int    `json:"n"`   // from 1 on, over all tries of that job
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

// pieces reads what the jobs of a message have written beyond what is known of each, up to so many bytes of an answer,
// and whether there is more. Of each job it reads a part behind what is known, try by try: to sort all that they have
// written for each answer would take longer than the peer waits.
func (s *Store) pieces(ctx context.Context, message uuid.UUID, known []int, most int) (list []Piece, more bool,
	err error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT (k.job - 1)::int, x.n, x.stream, x.text
		FROM (
			SELECT j.job_id, row_number() OVER (ORDER BY j.job_id) AS job
			FROM postern.job j
			WHERE j.message_id = $1
			ORDER BY j.job_id) k
		CROSS JOIN LATERAL (
			SELECT (coalesce(($2::int[])[k.job], 0) + row_number() OVER (ORDER BY y.attempt, y.fence, y.n))::int AS n,
				y.stream, y.text
			FROM (
				SELECT t.attempt, l.fence, l.n, l.stream, l.text
				FROM postern.job_try t
				JOIN postern.try_log l ON l.try_id = t.try_id
				WHERE t.job_id = k.job_id
				ORDER BY t.attempt, l.fence, l.n
				OFFSET coalesce(($2::int[])[k.job], 0)
				LIMIT 1000) y) x
		ORDER BY k.job_id, x.n
		LIMIT 1000`, message, known)
	if err != nil {
		return nil, false, db.Known(err)
	}
	defer rows.Close()
	for size := 0; rows.Next(); {
		var p Piece
		if err := rows.Scan(&p.Job, &p.N, &p.Stream, &p.Text); err != nil {
			return nil, false, db.Known(err)
		}
		raw, err := json.Marshal(p)
		if err != nil {
			return nil, false, err
		}
		if size += len(raw); size > most && len(list) > 0 {
			return list, true, nil
		}
		list = append(list, p)
	}
	return list, len(list) == 1000, db.Known(rows.Err())
}

// heardOutput adds to b what the jobs of a message have written at a peer: of one that carries a try it is the output
// of that. A piece that does not follow what is known is left out: it is of a question that was asked before the peer
// lost the message. Each delivery has lines of its own, those of the first one in front.
func (s *Store) heardOutput(b *pgx.Batch, m *Message, list []Piece, now time.Time) (lines []flows.Line) {
	known := append([]int(nil), m.PeerLines...)
	for _, p := range list {
		if p.Job < 0 || p.Job >= message.MaxJobs {
			continue
		}
		for len(known) <= p.Job {
			known = append(known, 0)
		}
		if p.N != known[p.Job]+1 {
			continue
		}
		known[p.Job] = p.N
		text := p.Text[:min(len(p.Text), flow.MaxLine)]
		text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
		stream := p.Stream
		if stream != "stdout" && stream != "stderr" {
			stream = "runner"
		}
		if m.Carries {
			lines = append(lines, flows.Line{N: p.N, Stream: stream, Text: text})
			continue
		}
		b.Queue(`INSERT INTO postern.message_log (message_id, n, at, stream, text) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT DO NOTHING`, m.ID, int64(m.Again)<<48|int64(p.Job)<<32|int64(p.N), now, stream, text)
	}
	m.PeerLines = known
	return lines
}

// heardTry brings to the try that a message carries what a peer says of its job.
func (s *Store) heardTry(ctx context.Context, t *db.Txn, b *pgx.Batch, m *Message, w Word, lines []flows.Line) (
	queue int64, err error) {
	told := flows.Told{By: "peer:" + m.Peer, Started: w.Started, Run: int64(m.Again), Lines: lines}
	switch {
	case message.Status(w.Status) != message.Processed:
	case w.Result == nil:
		told.End = &flows.Said{Code: flow.CodeResultLost, Error: "the peer does not know any more how it ended"}
	default:
		told.End = endAt(w.Result.Result)
	}
	return s.flows.Hear(ctx, t, b, m.ID, told)
}

// endAt reads how the one job of a message ended at a peer.
func endAt(raw json.RawMessage) *flows.Said {
	var ends Ends
	if err := json.Unmarshal(raw, &ends); err != nil || len(ends.Jobs) != 1 {
		return &flows.Said{Code: "answer_invalid", Error: fmt.Sprintf("the peer says of %d jobs how they ended, and "+
			"was sent one", len(ends.Jobs))}
	}
	end := ends.Jobs[0]
	said := &flows.Said{Result: end.Result, ExitCode: end.ExitCode}
	if said.Result = plain(said.Result); bytes.Equal(said.Result, []byte("null")) {
		said.Result = nil
	}
	switch {
	case end.Error != nil:
		said.Code, said.Error = end.Error.Code, end.Error.Message
	case flow.JobStatus(end.Status) == flow.JobFinished:
		result, err := flow.CheckResult("result", said.Result)
		if err != nil {
			return &flows.Said{Code: "answer_invalid", Error: "the peer answers a result that is none: " +
				fault.As(err).Detail}
		}
		said.Result = result
		return said
	}
	if said.Code == "" {
		said.Code = "failed_at_peer"
	}
	return said
}

// plain is JSON without the escapes that some encoders write for < > and &, since its size is measured.
func plain(raw json.RawMessage) json.RawMessage {
	var values map[string]*string
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if json.Unmarshal(raw, &values) != nil || e.Encode(values) != nil {
		return raw
	}
	return bytes.TrimSpace(b.Bytes())
}

// abort ends the jobs that messages of a peer have made, since they have ended where these come from, or are to stop.
// Those that have ended stay as they are.
//
// The messages are stopped, each in a commit before: one whose arrival came first has its jobs, as both have one
// commit, and one that had not arrived never does, so that it makes none behind this reading.
func (s *Store) abort(ctx context.Context, contextID int32, peer string, ids []uuid.UUID) error {
	if len(ids) == 0 {
		return nil
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT j.job_id
		FROM postern.message m
		JOIN postern.job j ON j.message_id = m.message_id
		WHERE m.context_id IS NULL
			AND m.target_id = $1
			AND m.peer = $2
			AND m.peer_message = ANY ($3)
			AND j.ended_at IS NULL
			AND j.stop_at IS NULL
		ORDER BY j.job_id`, contextID, peer, ids)
	if err != nil {
		return db.Known(err)
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return db.Known(err)
	}
	return s.flows.CancelAll(ctx, db.By{Context: contextID, Actor: "peer:" + peer, Via: "peers",
		Reason: "it has ended where it comes from, or is to stop"}, jobs)
}

// CodePeerRemoved is that of a message whose peer was removed before it had ended there.
const CodePeerRemoved = "peer_removed"

// EndRemoved ends messages to removed peers that have not ended, and returns how many: such a peer is asked no more.
//
// The removal is committed before, so that it is not taken back behind this. A message that was posted beside it, by
// who had read the peer before, is found by the next look. One to a peer of that name that is made anew is posted
// behind the commit that makes it, which a statement that sees the message sees, too.
func (s *Store) EndRemoved(ctx context.Context) (n int, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		var list []*Message
		b := &pgx.Batch{}
		b.Queue(`SELECT `+briefColumns+`
			FROM postern.peer p
			CROSS JOIN LATERAL (
				SELECT m.*
				FROM postern.message m
				WHERE m.context_id = p.context_id AND m.peer = p.name AND m.ended_at IS NULL
				ORDER BY m.message_id
				LIMIT $1
				FOR UPDATE) m
			WHERE p.removed_at IS NOT NULL`, routedAtOnce).Query(collect(&list))
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if n = len(list); n == 0 {
			return t.Rollback(ctx)
		}
		now, err := s.now(ctx, t)
		if err != nil {
			return err
		}
		b = &pgx.Batch{}
		for _, m := range list {
			if err := s.Move(b, m, Change{On: message.OnRefused, By: "peers", Now: now, Code: CodePeerRemoved,
				Text: removedText(m.Peer)}); err != nil {
				return err
			}
		}
		return t.Commit(ctx, b)
	})
	return n, err
}

// endRemoved is EndRemoved until nothing is left.
func (s *Store) endRemoved(ctx context.Context) error {
	for {
		if n, err := s.EndRemoved(ctx); err != nil || n == 0 {
			return err
		}
	}
}

func removedText(peer string) string { return "peer " + peer + " was removed" }

// openAt counts what a peer has, or is to be brought, and that has not ended. A post that has read the peer before its
// URL is taken from it is not counted: its message waits, and its why names the URL that is missing.
func (s *Store) openAt(ctx context.Context, t *db.Txn, contextID int32, peer string) (messages, jobs int, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT (SELECT count(*) FROM postern.message m
				WHERE m.context_id = $1 AND m.peer = $2 AND m.ended_at IS NULL AND NOT m.carries_job),
			(SELECT count(*) FROM postern.job j WHERE j.context_id = $1 AND j.peer = $2 AND j.ended_at IS NULL)`,
		contextID, peer).QueryRow(func(row pgx.Row) error { return row.Scan(&messages, &jobs) })
	return messages, jobs, t.Send(ctx, b)
}
