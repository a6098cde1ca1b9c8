package bench

import (
	"context"
	"fmt"
)

// want is what a run must have left in the tables of its queues.
type want struct {
	stored int  // transactions that were acknowledged or written
	ended  int  // outcomes; -1 for any number that leaves no gap
	queues int  // 0 for any number
	timed  bool // the worker's process and the server share a clock: no call before the outcome of the one before
}

// check compares what is stored with what was wanted: complete, each once, DONE, in order. It returns what
// is wrong, and how many transactions that concerns.
//
// The order of a queue shows in four ways, which must agree: outcomes have no gap, their times and fences
// do not fall, the numbers that the client gave in its own order rise, and no call began before the outcome
// before it was decided.
func (b *Bench) check(ctx context.Context, s span, w want) (wrong []string, n int, err error) {
	var stored, queues, sparse, ended, done, doubled, gaps, back, early int
	err = b.pool.QueryRow(ctx, `SELECT coalesce(sum(n), 0)::bigint, count(*), coalesce(sum(n) FILTER (WHERE first <> 1 OR last <> n), 0)::bigint
		FROM (SELECT queue_id, count(*) AS n, min(seq) AS first, max(seq) AS last FROM postern.task
			WHERE queue_id BETWEEN $1 AND $2 GROUP BY queue_id) q`, s.first, s.last).Scan(&stored, &queues, &sparse)
	if err != nil {
		return nil, 0, err
	}
	err = b.pool.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE state = 'DONE'), count(*) FILTER (WHERE seq = seq_before),
			count(*) FILTER (WHERE seq > coalesce(seq_before, 0) + 1),
			count(*) FILTER (WHERE done_at < done_before OR fence < fence_before OR n <= n_before),
			count(*) FILTER (WHERE started_at < done_before)
		FROM (SELECT o.seq, o.state, o.done_at, o.started_at, o.fence, (t.data->>'n')::bigint AS n, lag(o.seq) OVER w AS seq_before,
				lag(o.done_at) OVER w AS done_before, lag(o.fence) OVER w AS fence_before, lag((t.data->>'n')::bigint) OVER w AS n_before
			FROM postern.outcome o LEFT JOIN postern.task t USING (queue_id, seq, day) WHERE o.queue_id BETWEEN $1 AND $2
			WINDOW w AS (PARTITION BY o.queue_id ORDER BY o.seq, o.day)) o`, s.first, s.last).
		Scan(&ended, &done, &doubled, &gaps, &back, &early)
	if err != nil {
		return nil, 0, err
	}
	bad := func(many int, format string, args ...any) {
		if many != 0 {
			wrong = append(wrong, fmt.Sprintf(format, args...))
			n += max(many, -many)
		}
	}
	bad(w.stored-stored, "%d acknowledged, %d stored", w.stored, stored)
	if w.queues > 0 {
		bad(w.queues-queues, "%d queues, %d stored", w.queues, queues)
	}
	bad(sparse, "%d stored in queues whose positions have gaps", sparse)
	if w.ended >= 0 {
		bad(w.ended-ended, "%d should have ended, %d have an outcome", w.ended, ended)
	}
	bad(ended-done, "%d ended otherwise than DONE", ended-done)
	bad(doubled, "%d have a second outcome", doubled)
	bad(gaps, "%d ended before one that is before them", gaps)
	bad(back, "%d are out of order", back)
	if w.timed {
		bad(early, "%d were called before the one before them had ended", early)
	}
	return wrong, n, nil
}
