package messages_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pg/verify"
)

// Each planted violation is one that no constraint refuses; it is found by the invariant that it is of.
func TestWhatIsWrongWithMessagesIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	answered := w.sent()
	m := w.one()
	_, err := w.S.Messages.Answered(w.Ctx, w.shop, answered, m.Fence, messages.Reply{Format: "text", Body: "x"})
	w.Must(err)
	ofJobs := w.post(w.jobs(1))[0]
	leased := w.sent(func(p *messages.Posted) { p.Timeouts.Ack = time.Hour })
	w.one()
	if found, err := verify.Violations(w.Ctx, w.S.Pool()); err != nil || len(found) > 0 {
		t.Fatalf("%v %v", found, err)
	}
	id := func(of uuid.UUID) string { return "'" + of.String() + "'" }
	for _, c := range []struct{ invariant, plant string }{
		{"messages have one end", `DELETE FROM postern.message_step s
			USING postern.message m WHERE (s.message_id, s.n) = (m.message_id, m.steps)`},
		{"messages have one end", `INSERT INTO postern.message_step SELECT message_id, 77, at, was, event, status
			FROM postern.message_step WHERE status = 'processed' AND message_id = ` + id(answered)},
		{"a result ends what it answers", `UPDATE postern.message SET reply_to = ` + id(leased) +
			` WHERE type = 'result'`},
		{"a result ends what it answers", `UPDATE postern.message SET type = 'job' WHERE type = 'result'`},
		{"messages are held under a fence", `UPDATE postern.message SET fence = 0 WHERE lease_until IS NOT NULL`},
		{"deadlines of messages are kept", `UPDATE postern.message SET due_at = due_at - interval '2 hours'
			WHERE due_at IS NOT NULL`},
		{"jobs of messages are counted", `UPDATE postern.message SET jobs_open = 2 WHERE message_id = ` + id(ofJobs)},
	} {
		tx, err := w.S.Pool().Begin(w.Ctx)
		w.Must(err)
		if tag, err := tx.Exec(w.Ctx, c.plant); err != nil || tag.RowsAffected() == 0 {
			t.Errorf("%s: %v %v", c.plant, tag, err)
		}
		i := slices.IndexFunc(verify.Invariants, func(v verify.Invariant) bool { return v.Name == c.invariant })
		rows, _ := tx.Query(w.Ctx, verify.Invariants[i].SQL)
		if found, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(found) == 0 {
			t.Errorf("%q was not seen by %s: %v", c.plant, c.invariant, err)
		}
		w.Must(tx.Rollback(w.Ctx))
	}
}
