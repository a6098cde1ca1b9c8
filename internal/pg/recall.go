package pg

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/sequencer"
	"github.com/postern-dev/postern/internal/twin"
)

// guardSQL goes before everything that is written by an end that was decided without reading its row, on the row as its
// lease remembers it: that takes one round trip instead of two while the lock is held. It is done where the row is
// simple, and is safe since guardSQL locks the rows, in the order of their ids, and fails the whole SQL transaction
// unless each row still has the values that the decision went by. The decision about the end of a first attempt without
// marks reads no column that guardSQL does not compare. A lock that has to be waited for is no exception: PostgreSQL
// compares the row again as it is then.
//
// A tail is compared only where the queue becomes empty: elsewhere transactions that were added behind change nothing.
var guardSQL = db.ForRows(func(one bool) string {
	rows := db.Given(one, 1, "queue_id bigint", "fence bigint", "cur_seq bigint", "tail_seq bigint", "lane int", "prio smallint", "sender_id int", "era int")
	if !one {
		rows = "(SELECT * FROM " + rows + " ORDER BY queue_id) n"
	}
	held := `(SELECT q.queue_id FROM ` + newestQueue(one, rows, twin.SQL("no_fence", `
		AND q.fence = n.fence AND q.cur_seq = n.cur_seq AND (n.tail_seq IS NULL OR q.tail_seq = n.tail_seq) AND q.lane = n.lane AND q.prio = n.prio
		AND q.sender_id IS NOT DISTINCT FROM n.sender_id AND q.phase = 'DISPATCHING' AND q.attempt = 1 AND q.retries = 0 AND q.marks = 0
		AND NOT q.paused AND NOT q.pause_on_failure AND q.next_seq IS NULL AND q.pool_id IS NULL AND q.pin_sender_id IS NULL 
		AND q.fee IS NULL
		AND q.blocked_since IS NULL`, "q.fence = n.fence AND ", ""), "") + `)`
	if one {
		return "SELECT 1 / (EXISTS " + held + ")::int"
	}
	return "SELECT 1 / (count(*) = cardinality($1::bigint[]))::int FROM " + held + " q"
})

// guardFailed is the state of a statement that divides by zero.
const guardFailed = "22012"

// recallAgain is after how many settlements the memory is trusted again, once it was wrong: where others post to the
// queues that are just becoming empty, it mostly is.
const recallAgain = 8

// recallable says whether all answers can be settled by what their leases remember.
func (s *Store) recallable(answers []*Answer) bool {
	if s.forgetful.Load() > 0 {
		s.forgetful.Add(-1)
		return false
	}
	seen := make(map[int64]bool, len(answers))
	for _, a := range answers {
		l, q := a.Lease, a.Lease.row
		if a.Step.Then != sequencer.ThenEnd || q == nil || seen[q.ID] || !q.holds(l) || !q.simple() ||
			len(l.ahead) == 0 && q.Tail != l.Task.ID.Seq {
			return false
		}
		seen[q.ID] = true
	}
	return true
}

// simple says whether guardSQL compares all that matters of the row.
func (q *QueueRow) simple() bool {
	return q.Phase == outbox.PhaseDispatching && q.Attempt == 1 && q.Retries == 0 && q.Marks == 0 && !q.Paused && !q.PauseOnFailure &&
		q.Next == 0 && q.Pool == 0 && q.Pin == 0 && q.Fee == "" &&
		q.Blocked.IsZero()
}

// recall is load by memory. The rows that it gives are true only if b, which has the guard, goes before everything
// else.
func (st *settlement) recall(b *pgx.Batch) {
	n := len(st.answers)
	ids, fences, curs, lanes, prios := make([]int64, n), make([]int64, n), make([]int64, n), make([]int32, n), make([]int16, n)
	tails, senders, eras := make([]*int64, n), make([]*int32, n), make([]int32, n)
	for i, a := range st.answers {
		l := a.Lease
		q, before := *l.row, *l.row
		q.before = &before
		st.queues[q.ID] = &q
		ids[i], fences[i], curs[i], lanes[i], prios[i], eras[i] = q.ID, q.Fence, q.Cur, q.Lane, q.Prio, q.Era
		if before.Sender != 0 {
			senders[i] = &before.Sender
		}
		if len(l.ahead) > 0 {
			st.next[positionOf(l.ID())] = l.ahead[0]
		} else {
			tails[i] = &before.Tail
		}
		if now := l.Now(); now.After(st.e.now) {
			st.e.now = now.Truncate(time.Microsecond)
		}
	}
	if now := st.s.Clock(); now != nil {
		st.e.now = *now
	}
	b.Queue(guardSQL.Of(n), db.Argument(ids), db.Argument(fences), db.Argument(curs), db.Argument(tails), db.Argument(lanes), db.Argument(prios), db.Argument(senders), db.Argument(eras))
}
