package messages_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pg/verify"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
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
	w.sees([]plant{
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
	})
}

// Tries and messages that are marked as sent have to be under way: each planted violation leaves one that nothing
// brings to its peer.
func TestWhatIsSentAndNotOnItsWayIsSeen(t *testing.T) {
	t.Parallel()
	s := newSails(t)
	s.sent()
	s.leave("hello")
	_, err := s.S.Messages.Carry(s.Ctx)
	s.Must(err)
	if found, err := verify.Violations(s.Ctx, s.S.Pool()); err != nil || len(found) > 0 {
		t.Fatalf("%v %v", found, err)
	}
	const of = "what is sent is on its way"
	s.sees([]plant{
		{of, `UPDATE postern.message SET carries_job = false WHERE carries_job`},
		{of, `UPDATE postern.message SET was = status, status = 'error', error_code = 'x',
			ended_at = created_at WHERE carries_job`},
		{of, `DELETE FROM postern.idempotency WHERE key LIKE ':message:%'`},
		{of, `UPDATE postern.message SET redelivering = true, redelivered = 1 WHERE carries_job`},
	})
	for _, l := range s.Claim(s.node, pgworld.Everything()) { // it ends, and no row says that the peer has it
		s.Settle(s.Answer(l, pgworld.Done()))
	}
	found, err := verify.Violations(s.Ctx, s.S.Pool())
	if err != nil || len(found) != 1 || !strings.HasPrefix(found[0], of) || !strings.HasSuffix(found[0], "DONE") {
		t.Errorf("%v %v", found, err)
	}
}

// plant is a violation that no constraint refuses, and the invariant that it is of.
type plant struct{ invariant, sql string }

// sees plants violations, one at a time, and looks whether each is found.
func (w *world) sees(list []plant) {
	w.T.Helper()
	for _, c := range list {
		tx, err := w.S.Pool().Begin(w.Ctx)
		w.Must(err)
		if tag, err := tx.Exec(w.Ctx, c.sql); err != nil || tag.RowsAffected() == 0 {
			w.T.Errorf("%s: %v %v", c.sql, tag, err)
		}
		i := slices.IndexFunc(verify.Invariants, func(v verify.Invariant) bool { return v.Name == c.invariant })
		rows, _ := tx.Query(w.Ctx, verify.Invariants[i].SQL)
		if found, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(found) == 0 {
			w.T.Errorf("%q was not seen by %s: %v", c.sql, c.invariant, err)
		}
		w.Must(tx.Rollback(w.Ctx))
	}
}
