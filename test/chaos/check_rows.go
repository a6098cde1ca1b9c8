package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

func readRows(ctx context.Context, c *pgx.Conn) (list []row, err error) {
	rows, err := c.Query(ctx, `SELECT t.id::text, coalesce(t.uid, ''), coalesce(t.queue, ''), t.state, t.position, p.queue_id,
			coalesce(CASE WHEN b.data ->> 'N' ~ '^-?[0-9]{1,9}$' THEN b.data ->> 'N' END, '-1')::int,
			coalesce(t.done_at, 'epoch')
		FROM postern.transactions t JOIN postern.bodies b USING (id) CROSS JOIN LATERAL postern.id_place(t.id::text) p
		ORDER BY t.queue, t.position`)
	if err != nil {
		return nil, err
	}
	var r row
	into := []any{&r.id, &r.uid, &r.queue, &r.state, &r.position, &r.queueID, &r.n, &r.ended}
	_, err = pgx.ForEachRow(rows, into, func() error {
		list = append(list, r)
		return nil
	})
	return list, err
}

// dueSQL is the condition that a delivery will be tried again: it was tried, as its rows of tries show and not the count
// of those who took it, and its next time is at most the longest wait away, and not long over.
const dueSQL = `state = 'pending' AND jsonb_array_length(tries) > 0
	AND next_at BETWEEN clock_timestamp() - interval '10 s' AND clock_timestamp() + interval '1 h'`

// readLater reads whose callbacks were tried and failed, as where nothing listened, and are due later: in five
// minutes, in an hour. What is queued behind such a one of its queue is, too.
func readLater(ctx context.Context, c *pgx.Conn) (later map[string]bool, err error) {
	rows, err := c.Query(ctx, `WITH due AS (SELECT queue_id, url, seq FROM postern.delivery
			WHERE subscription_id = -1 AND `+dueSQL+`)
		SELECT t.uid FROM postern.delivery d JOIN postern.task t USING (queue_id, seq, day)
		WHERE d.subscription_id = -1 AND t.uid IS NOT NULL AND EXISTS (SELECT FROM due
			WHERE (due.queue_id, due.url) = (d.queue_id, d.url) AND (d.state = 'queued' OR due.seq = d.seq))`)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	later = map[string]bool{}
	for _, uid := range list {
		later[uid] = true
	}
	return later, err
}

// readNonces reads the nonces of all attempts and outcomes, with no account where they name no sender. A late answer is
// none of them.
func readNonces(ctx context.Context, c *pgx.Conn) (nonces map[use]bool, err error) {
	rows, err := c.Query(ctx, `SELECT t.uid, coalesce(s.account, ''), n.attempt, n.nonce, bool_or(n.ended)
		FROM (SELECT queue_id, seq, day, sender_id, attempt, nonce, false AS ended FROM postern.attempt WHERE step <> 'late'
			UNION ALL SELECT queue_id, seq, day, sender_id, attempt, nonce, true FROM postern.outcome) n
		JOIN postern.task t USING (queue_id, seq, day)
		LEFT JOIN postern.sender s ON s.sender_id = n.sender_id
		WHERE n.nonce IS NOT NULL AND n.attempt IS NOT NULL AND t.uid IS NOT NULL
		GROUP BY 1, 2, 3, 4`)
	if err != nil {
		return nil, err
	}
	nonces = map[use]bool{}
	var u use
	var ended bool
	_, err = pgx.ForEachRow(rows, []any{&u.uid, &u.sender, &u.attempt, &u.nonce, &ended}, func() error {
		nonces[u] = ended
		return nil
	})
	return nonces, err
}

// readCallers reads which processes had transactions under which fences.
func readCallers(ctx context.Context, c *pgx.Conn) (callers map[lease][]string, err error) {
	rows, err := c.Query(ctx, `SELECT t.uid, x.fence, n.name
		FROM (SELECT queue_id, seq, day, fence, node_id FROM postern.attempt
			UNION SELECT queue_id, seq, day, fence, node_id FROM postern.outcome WHERE fence IS NOT NULL) x
		JOIN postern.task t USING (queue_id, seq, day)
		JOIN postern.node n ON n.node_id = x.node_id
		WHERE t.uid IS NOT NULL`)
	if err != nil {
		return nil, err
	}
	callers = map[lease][]string{}
	var l lease
	var name string
	_, err = pgx.ForEachRow(rows, []any{&l.uid, &l.fence, &name}, func() error {
		callers[l] = append(callers[l], name)
		return nil
	})
	return callers, err
}

// invariants are asked of the rows alone. postern verify asks more; these stand here once more, in words of their own.
var invariants = map[string]string{
	"one transaction per key": `SELECT uid FROM postern.task t WHERE uid IS NOT NULL
		AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.error_code) = (t.queue_id, t.seq, 'moved'))
		GROUP BY context_id, uid HAVING count(*) > 1`,
	"positions are dense": `SELECT 'queue ' || queue_id FROM postern.task GROUP BY queue_id HAVING max(seq) - min(seq) + 1 <> count(*)`,
	"one outcome":         `SELECT 'queue ' || queue_id || ' position ' || seq FROM postern.outcome GROUP BY queue_id, seq HAVING count(*) > 1`,
	"below the head all has ended": `SELECT 'queue ' || t.queue_id || ' position ' || t.seq FROM postern.task t JOIN postern.queue q USING (queue_id)
		WHERE t.seq < q.head_seq AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq) = (t.queue_id, t.seq))`,
	"fences never fall": `SELECT 'queue ' || queue_id || ' position ' || seq FROM (SELECT queue_id, seq, fence,
		lag(fence) OVER (PARTITION BY queue_id ORDER BY seq) AS before FROM postern.outcome WHERE fence IS NOT NULL) o WHERE fence < before`,
	"a late process changes nothing": `SELECT 'queue ' || o.queue_id || ' position ' || o.seq || ' ended under the fence ' || o.fence
		FROM postern.outcome o JOIN postern.attempt a USING (queue_id, seq, day)
		WHERE a.code IN ('node_lost', 'handed_back') AND o.fence <= a.fence`,
	"a nonce is one transaction's": `SELECT s.account || ' nonce ' || n.nonce FROM (SELECT sender_id, nonce, queue_id, seq FROM postern.attempt
			UNION ALL SELECT sender_id, nonce, queue_id, seq FROM postern.outcome) n JOIN postern.sender s USING (sender_id)
		WHERE n.nonce IS NOT NULL GROUP BY 1 HAVING count(DISTINCT (n.queue_id, n.seq)) > 1`,
	"sender and queue agree": `SELECT s.account FROM postern.sender s FULL JOIN (SELECT * FROM postern.queue WHERE sender_id IS NOT NULL) q
		ON q.sender_id = s.sender_id WHERE s.queue_id IS DISTINCT FROM q.queue_id`,
	"no owner is dead": `SELECT 'queue ' || q.queue_id FROM postern.queue q WHERE q.node_id IS NOT NULL AND NOT EXISTS (SELECT FROM postern.node n
		WHERE (n.node_id, n.epoch) = (q.node_id, q.node_epoch) AND n.dead_at IS NULL AND n.heartbeat_at + n.ttl + interval '1 s' > clock_timestamp())`,
	"what waits will be woken": `SELECT 'queue ' || q.queue_id || ' in ' || q.phase FROM postern.queue q WHERE q.phase <> 'IDLE' AND q.node_id IS NULL
		AND NOT q.paused AND q.phase <> 'HELD' AND NOT EXISTS (SELECT FROM postern.ready r WHERE r.queue_id = q.queue_id)
		AND NOT EXISTS (SELECT FROM postern.timer t WHERE t.queue_id = q.queue_id)
		AND NOT EXISTS (SELECT FROM postern.mark m WHERE m.queue_id = q.queue_id AND m.seq >= q.head_seq AND m.kind IN ('suspended', 'unknown'))`,
	"idle is empty": `SELECT 'queue ' || queue_id FROM postern.queue WHERE (phase = 'IDLE') <> (head_seq > tail_seq)`,
	"heads have bodies": `SELECT 'queue ' || queue_id FROM postern.queue q WHERE head_seq <= tail_seq
		AND NOT EXISTS (SELECT FROM postern.task t WHERE (t.queue_id, t.seq) = (q.queue_id, q.head_seq))`,
	"days rise": `SELECT 'queue ' || queue_id FROM (SELECT queue_id, day, lag(day) OVER (PARTITION BY queue_id ORDER BY seq) AS before
		FROM postern.task) t WHERE day < before`,
	"callbacks have rows": `SELECT t.uid FROM postern.task t JOIN postern.outcome o USING (queue_id, seq, day) WHERE t.callback ->> 'url' LIKE 'http:%'
		AND NOT EXISTS (SELECT FROM postern.delivery d WHERE (d.queue_id, d.seq, d.subscription_id) = (t.queue_id, t.seq, -1))`,
}

// checkSQL asks the invariants, each for at most ten violations.
func checkSQL(ctx context.Context, c *pgx.Conn, say found) error {
	for name, sql := range invariants {
		rows, err := c.Query(ctx, sql+` LIMIT 10`)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, what := range list {
			say(name, "%s", what)
		}
	}
	return nil
}
