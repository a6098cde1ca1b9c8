package pg

import (
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// writeHistory inserts what is never changed afterwards: outcomes, attempts, marks. A second
// outcome of a transaction is refused by its key and fails the whole SQL transaction.
func (e *effects) writeHistory(b *pgx.Batch) {
	e.writeOutcomes(b)
	e.writeAttempts(b)
	e.writeMarks(b)
	e.writeTies(b)
}

func (e *effects) writeOutcomes(b *pgx.Batch) {
	if n := len(e.outcomes); n > 0 {
		c := db.Columns{N: n}
		for _, o := range e.outcomes {
			c.Add(o.ID.Queue, o.ID.Seq, o.ID.Day.Time(), o.Context, string(o.Was), string(o.State), db.Raw(o.Result), db.Nullable(o.Class),
				db.Nullable(o.Code), db.Nullable(o.Error), db.Nullable(o.Attempt), o.Retries, db.Nullable(o.Fence), db.Nullable(o.Sender), db.Nullable(o.Node),
				db.Nullable(o.Fee), db.Nullable(o.Nonce), db.Nullable(o.Hash), db.Nullable(o.Height), db.Nullable(o.StartedAt), db.Nullable(o.SubmittedAt),
				db.Nullable(o.RetriedAt), e.now, db.Raw(o.Members))
		}
		outcomeInsert.Queue(b, c)
	}
}

// nothingDone is the column nothing_done: true where that is certain, false where the worker itself said that the call
// may have had an effect, nil where neither is known.
func (a *attemptRow) nothingDone() any {
	if a.NothingDone || a.Doubted {
		return a.NothingDone
	}
	return nil
}

// writeAttempts inserts what came of calls, and of calls whose end was not seen.
func (e *effects) writeAttempts(b *pgx.Batch) {
	if n := len(e.attempts); n > 0 && !twin.Planted("attempt_without_row") {
		c := db.Columns{N: n}
		for _, a := range e.attempts {
			at := a.At
			if at.IsZero() {
				at = e.now
			}
			c.Add(a.ID.Queue, a.ID.Seq, a.ID.Day.Time(), a.Attempt, a.Fence, a.Step, db.Nullable(a.Sender), db.Nullable(a.Node), db.Nullable(a.Fee),
				db.Nullable(a.Nonce), db.Nullable(a.Hash), db.Raw(a.Data), db.Nullable(a.Class), db.Nullable(a.Code), db.Nullable(a.Error),
				a.nothingDone(), db.Nullable(a.StartedAt), at, db.Raw(a.Members))
		}
		attemptInsert.Queue(b, c)
	}
	if n := len(e.lost); n > 0 {
		c := db.Columns{N: n}
		for _, l := range e.lost {
			c.Add(l.Queue, l.Seq, l.From.Time(), l.To.Time(), l.Attempt, l.Fence, db.Nullable(l.Sender), db.Nullable(l.Node), db.Nullable(l.Fee),
				l.Code, l.Text, db.Nullable(l.StartedAt))
		}
		b.Queue(lostInsert, c.Args(e.now)...)
	}
}

// writeMarks inserts marks, and takes others away.
func (e *effects) writeMarks(b *pgx.Batch) {
	if n := len(e.marks); n > 0 {
		c := db.Columns{N: n}
		for _, m := range e.marks {
			c.Add(m.Queue, m.Seq, m.Kind, m.Reason, m.Actor, e.now)
		}
		markInsert.Queue(b, c)
	}
	if n := len(e.unmarks); n > 0 {
		c := db.Columns{N: n}
		for _, m := range e.unmarks {
			c.Add(m.Queue, m.Seq, m.Kind)
		}
		b.Queue(`DELETE FROM postern.mark m USING ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::text[])) n(queue_id, seq, kind)
			WHERE (m.queue_id, m.seq, m.kind) = (n.queue_id, n.seq, n.kind)`, c.Args()...)
	}
}

// writeTies inserts what ties transactions: dependencies, ends that have not reached their dependents, redrives.
func (e *effects) writeTies(b *pgx.Batch) {
	if n := len(e.depends); n > 0 {
		c := db.Columns{N: n}
		for _, d := range e.depends {
			c.Add(d.Who.Queue, d.Who.Seq, d.Who.Day.Time(), d.On.Queue, d.On.Seq, d.On.Day.Time(), d.On.Salt)
		}
		dependencyInsert.Queue(b, c)
	}
	if n := len(e.ripples); n > 0 {
		c := db.Columns{N: n}
		for _, id := range e.ripples {
			c.Add(id.Queue, id.Seq, id.Day.Time(), e.now)
		}
		rippleInsert.Queue(b, c)
	}
	for _, r := range e.redrives {
		b.Queue(`INSERT INTO postern.redrive (queue_id, seq, new_id, at) VALUES ($1, $2, $3::text::uuid, $4)`, r.Of.Queue, r.Of.Seq, r.New.String(), e.now)
	}
}

var (
	outcomeInsert = db.InsertMany("outcome", "", "queue_id bigint", "seq bigint", "day date =", "context_id int =", "was text =", "state text =",
		"result jsonb", "error_class text", "error_code text", "error text", "attempt int =", "retries int =", "fence bigint",
		"sender_id int", "node_id bigint =", "fee text", "nonce text", "hash text", "block_height text", "started_at timestamptz",
		"submitted_at timestamptz", "retried_at timestamptz", "done_at timestamptz =", "members jsonb")
	// the same answer recorded twice (a resend after a lost commit) is one attempt
	attemptInsert = db.InsertMany("attempt", "ON CONFLICT DO NOTHING", "queue_id bigint", "seq bigint", "day date", "attempt int", "fence bigint",
		"step text", "sender_id int", "node_id bigint", "fee text", "nonce text", "hash text", "data jsonb", "class text",
		"code text", "error text", "nothing_done boolean", "started_at timestamptz", "answered_at timestamptz",
		"members jsonb")
	lostInsert = `INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, sender_id, node_id, fee, class, code, error, started_at, answered_at)
		SELECT n.queue_id, n.seq, t.day, n.attempt, n.fence, 'unknown', n.sender_id, n.node_id, n.fee, 'ambiguous', n.code, n.error, n.started_at, $13
		FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::date[]), unnest($4::date[]), unnest($5::int[]), unnest($6::bigint[]),
			unnest($7::int[]), unnest($8::bigint[]), unnest($9::text[]), unnest($10::text[]), unnest($11::text[]), unnest($12::timestamptz[]))
			n(queue_id, seq, first_day, last_day, attempt, fence, sender_id, node_id, fee, code, error, started_at)
		JOIN postern.task t ON t.queue_id = n.queue_id AND t.seq = n.seq AND t.day BETWEEN n.first_day AND n.last_day
		ON CONFLICT DO NOTHING`
	markInsert       = db.InsertMany("mark", "ON CONFLICT DO NOTHING", "queue_id bigint", "seq bigint", "kind text", "reason text", "actor text", "at timestamptz")
	dependencyInsert = db.InsertMany("dependency", "ON CONFLICT DO NOTHING", "queue_id bigint", "seq bigint", "day date", "on_queue bigint", "on_seq bigint", "on_day date", "on_salt int")
	rippleInsert     = db.InsertMany("ripple", "ON CONFLICT DO NOTHING", "queue_id bigint", "seq bigint", "day date", "at timestamptz")
	taskInsert       = db.InsertMany("task", "", "queue_id bigint", "seq bigint", "day date =", "context_id int =", "uid text", "actor text",
		"type text", "data jsonb", "max_retries int", "not_before timestamptz", "sender_id int", "tags jsonb", "traceparent text",
		"redrive_of uuid", "moved_from uuid", "callback jsonb", "created_at timestamptz =")
	keyInsert = db.InsertMany("idempotency", keyTaken(), "context_id int", "key text", "queue_id bigint", "seq bigint",
		"day date", "body_hash bytea", "salt int")
)

// keyTaken is what an insert of a key does that is there: it fails, and the decision is made again.
func keyTaken() string {
	if twin.Planted("key_lookup_then_insert") {
		return "ON CONFLICT DO NOTHING"
	}
	return ""
}
