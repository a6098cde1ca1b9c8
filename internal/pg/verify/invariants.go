package verify

import "slices"

// flying is what is in DISPATCHING, REVISION or RETRY, as the view tx says it, without what that view costs: while a
// node works through a queue without marks, it is the first without an outcome from cur_seq on.
const flying = `
			SELECT t.queue_id, t.seq, t.day FROM postern.queue q JOIN postern.task t ON t.queue_id = q.queue_id AND t.seq >= q.cur_seq
			WHERE (t.seq = q.cur_seq OR q.marks = 0 AND EXISTS (SELECT FROM postern.outcome p WHERE (p.queue_id, p.seq) = (t.queue_id, t.seq - 1)))
				AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))`

// Invariants are all that is asked.
var Invariants = slices.Concat(core, batches, domains, events, jobs, messages)

// core are those of seed 2, and those of the reliability page that concern its tables. Our schema differs from that
// page: there is no phase between two transactions of a queue; a timer belongs to a queue alone; and a queue in
// DISPATCHING without an owner either stands in the lane resume or waits to ask.
var core = []Invariant{
	// S2.4
	{
		Name:     "one in flight per queue",
		Sentence: "a queue has at most one transaction in DISPATCHING, REVISION or RETRY",
		SQL: `
		SELECT 'queue ' || queue_id || ' has ' || count(*) FROM (` + flying + `) f GROUP BY queue_id HAVING count(*) > 1`,
	},

	// S2.4
	{
		Name:     "one row per queue",
		Sentence: "a queue is one row",
		SQL: `
		SELECT 'queue ' || queue_id || ' has ' || count(*) || ' rows' FROM postern.queue GROUP BY queue_id HAVING count(*) > 1`,
	},

	// S2.4
	{
		Name:     "one queue per sender",
		Sentence: "a sender serves at most one queue",
		SQL: `
		SELECT 'sender ' || sender_id || ' serves ' || count(*) FROM postern.queue
		WHERE sender_id IS NOT NULL GROUP BY sender_id HAVING count(*) > 1`,
	},

	// S2.9
	{
		Name:     "one sender per token",
		Sentence: "a token is sent by one sender, but for calls that certainly had no effect, and waits for that sender",
		SQL: `
		WITH called AS MATERIALIZED (
			SELECT queue_id, seq, day, attempt, sender_id FROM postern.attempt
			WHERE sender_id IS NOT NULL AND nothing_done IS NOT TRUE)
		SELECT 'attempt ' || attempt || ' of queue ' || queue_id || ' position ' || seq || ' went out by senders '
			|| string_agg(DISTINCT sender_id::text, ', ')
		FROM (
			SELECT * FROM called
			UNION ALL SELECT c.queue_id, c.seq, c.day, c.attempt, o.sender_id
			FROM called c JOIN postern.outcome o USING (queue_id, seq, day, attempt)
			WHERE o.sender_id IS NOT NULL
			UNION ALL SELECT c.queue_id, c.seq, c.day, c.attempt, q.sender_id
			FROM called c JOIN postern.queue q ON (q.queue_id, q.cur_seq, q.attempt) = (c.queue_id, c.seq, c.attempt)
			WHERE q.sender_id IS NOT NULL) s
		GROUP BY queue_id, seq, day, attempt HAVING count(DISTINCT sender_id) > 1
		UNION ALL SELECT DISTINCT 'queue ' || c.queue_id || ' position ' || c.seq || ' was called by sender ' || c.sender_id
			|| ' and waits for ' || coalesce(q.pin_sender_id::text, 'any')
		FROM called c
		JOIN postern.queue q ON (q.queue_id, coalesce(q.next_seq, q.head_seq), q.attempt) = (c.queue_id, c.seq, c.attempt)
		WHERE q.phase IN ('READY', 'HELD') AND q.pin_sender_id IS DISTINCT FROM c.sender_id`,
	},

	// S2.20
	{
		Name:     "exclusive lanes are held",
		Sentence: "an exclusive lane is held by the queue whose transaction of it is in flight, by no other and no longer",
		SQL: `
		SELECT 'lane ' || l.lane_id || ' is held by queue ' || l.holder || ', which has nothing in flight'
		FROM postern.lane l LEFT JOIN postern.queue q ON q.queue_id = l.holder WHERE l.holder IS NOT NULL AND q.cur_seq IS NULL
		UNION ALL SELECT 'queue ' || q.queue_id || ' is in flight without holding lane ' || q.lane
		FROM postern.queue q JOIN postern.lane l ON l.lane_id = q.lane
		JOIN postern.lane h ON h.lane_id = coalesce(l.shared, l.lane_id)
		WHERE l.kind = 'exclusive' AND q.cur_seq IS NOT NULL AND h.holder IS DISTINCT FROM q.queue_id`,
	},

	// S2.15
	{
		Name:     "dependencies are done",
		Sentence: "what goes out has all its dependencies DONE, and what waits for one is held and will be told of its end",
		SQL: `
		WITH d AS MATERIALIZED (
			SELECT d.*, own.state AS state, other.state AS needed, f.seq IS NOT NULL AS flying,
				EXISTS (SELECT FROM postern.mark m WHERE (m.queue_id, m.seq, m.kind) = (d.queue_id, d.seq, 'held')) AS held,
				EXISTS (SELECT FROM postern.mark m WHERE (m.queue_id, m.seq, m.kind) = (d.on_queue, d.on_seq, 'watched')) AS watched
			FROM postern.dependency d JOIN postern.task t USING (queue_id, seq, day) LEFT JOIN (` + flying + `) f USING (queue_id, seq, day)
			LEFT JOIN postern.outcome own ON (own.queue_id, own.seq, own.day) = (d.queue_id, d.seq, d.day)
			LEFT JOIN postern.outcome other ON (other.queue_id, other.seq, other.day) = (d.on_queue, d.on_seq, d.on_day))
		SELECT 'queue ' || queue_id || ' position ' || seq || ' is ' || coalesce(state, 'in flight') || ' before its dependency' FROM d
		WHERE needed IS DISTINCT FROM 'DONE' AND (flying OR state NOT IN ('FAILED', 'CANCELLED'))
		UNION ALL SELECT 'queue ' || queue_id || ' position ' || seq || ' waits for what ended ' || needed FROM d
		WHERE NOT flying AND state IS NULL AND NOT EXISTS (SELECT FROM postern.ripple)
			AND (needed <> 'DONE' OR needed = 'DONE' AND held AND NOT EXISTS (
				SELECT FROM d e WHERE (e.queue_id, e.seq) = (d.queue_id, d.seq) AND e.needed IS DISTINCT FROM 'DONE'))
		UNION ALL SELECT 'queue ' || queue_id || ' position ' || seq || ' is not held, or what it waits for is not watched' FROM d
		WHERE NOT flying AND state IS NULL AND needed IS NULL AND NOT (held AND watched)`,
	},

	{
		Name:     "one transaction per key",
		Sentence: "a key names one transaction, which bears it, and no two bear the same",
		SQL: `
		SELECT 'key ' || i.key || ' of context ' || i.context_id FROM postern.idempotency i LEFT JOIN postern.task t USING (queue_id, seq, day)
		WHERE (t.context_id, t.uid) IS DISTINCT FROM (i.context_id, i.key)
		UNION ALL SELECT 'key ' || t.uid || ' of context ' || t.context_id || ' is borne by ' || count(*) FROM postern.task t
		WHERE t.uid IS NOT NULL AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day, o.error_code) = (t.queue_id, t.seq, t.day, 'moved'))
		GROUP BY t.context_id, t.uid HAVING count(*) > 1`,
	},

	{
		Name:     "positions are dense",
		Sentence: "positions are dense up to tail",
		SQL: `
		SELECT 'queue ' || t.queue_id FROM postern.task t
		JOIN (SELECT queue_id, coalesce(q.tail_seq, n.last_seq) AS tail FROM postern.queue q FULL JOIN postern.queue_name n USING (queue_id)) q USING (queue_id)
		GROUP BY t.queue_id, q.tail HAVING max(t.seq) <> q.tail OR count(*) <> q.tail - min(t.seq) + 1`,
	},

	{
		Name:     "below head all has ended",
		Sentence: "everything below head, and behind it up to past, has exactly one outcome",
		SQL: `
		SELECT 'queue ' || t.queue_id || ' position ' || t.seq FROM postern.task t
		LEFT JOIN postern.queue q USING (queue_id) LEFT JOIN postern.outcome o USING (queue_id, seq)
		WHERE q.queue_id IS NULL OR t.seq < q.head_seq OR t.seq > q.head_seq AND t.seq <= q.past_seq
		GROUP BY t.queue_id, t.seq HAVING count(o.seq) <> 1`,
	},

	{
		Name:     "above head little has ended",
		Sentence: "at or above head only a gapless run of a queue with an owner has outcomes, besides what a mark explains",
		SQL: `
		SELECT 'queue ' || q.queue_id FROM postern.queue q JOIN postern.outcome o USING (queue_id)
		WHERE o.seq >= q.head_seq
			AND NOT EXISTS (SELECT FROM postern.mark m WHERE (m.queue_id, m.seq, m.kind) = (o.queue_id, o.seq, 'cancelled') OR (m.queue_id, m.seq, m.kind) = (o.queue_id, o.seq, 'held')
				OR (m.queue_id, m.kind) = (o.queue_id, 'placed') AND m.seq BETWEEN q.head_seq AND o.seq)
		GROUP BY q.queue_id, q.node_id, q.head_seq HAVING q.node_id IS NULL OR max(o.seq) <> q.head_seq + count(*) - 1
		UNION ALL SELECT 'queue ' || q.queue_id || ' counts ' || q.marks || ' marks and has ' || count(m.seq)
		FROM postern.queue q LEFT JOIN postern.mark m ON m.queue_id = q.queue_id AND m.seq >= q.head_seq
		GROUP BY q.queue_id, q.marks HAVING q.marks <> count(m.seq)`,
	},

	// S2.4
	{
		Name:     "the first goes first",
		Sentence: "what goes out next, or is out, is the first by position, but for what was placed",
		SQL: `
		SELECT 'queue ' || q.queue_id || ' is at ' || coalesce(q.cur_seq, q.next_seq, q.head_seq) || ', and ' || n.seq || ' is first'
		FROM postern.queue q CROSS JOIN LATERAL (SELECT t.seq FROM postern.task t
			LEFT JOIN postern.mark p ON (p.queue_id, p.seq, p.kind) = (t.queue_id, t.seq, 'placed')
			WHERE t.queue_id = q.queue_id AND t.seq >= q.head_seq
				AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))
			ORDER BY coalesce(p.rank, t.seq) LIMIT 1) n
		WHERE n.seq <> coalesce(q.cur_seq, q.next_seq, q.head_seq) AND (q.marks > 0 OR q.node_id IS NULL)`,
	},

	{
		Name:     "fences rise",
		Sentence: "fences never fall along a queue",
		SQL: `
		SELECT 'queue ' || queue_id || ' position ' || seq FROM (
			SELECT queue_id, seq, fence, lag(fence) OVER (PARTITION BY queue_id ORDER BY seq) AS before
			FROM postern.outcome o WHERE fence IS NOT NULL
				AND NOT EXISTS (SELECT FROM postern.mark m WHERE (m.queue_id, m.seq, m.kind) = (o.queue_id, o.seq, 'placed'))) o WHERE fence < before`,
	},

	{
		Name:     "attempts have rows",
		Sentence: "every attempt that did not end its transaction has its row, and none is younger than the outcome",
		SQL: `
		SELECT 'queue ' || o.queue_id || ' position ' || o.seq FROM postern.outcome o LEFT JOIN postern.attempt a USING (queue_id, seq, day)
		GROUP BY o.queue_id, o.seq, o.day, o.attempt, o.fence
		HAVING count(DISTINCT a.attempt) FILTER (WHERE a.attempt < o.attempt) <> o.attempt - 1
			OR max(a.attempt) > o.attempt OR max(a.fence) > o.fence`,
	},

	{
		Name:     "bindings agree",
		Sentence: "sender and queue agree on their binding, in both directions",
		SQL: `
		SELECT 'sender ' || sender_id FROM postern.sender s
		FULL JOIN (SELECT queue_id, sender_id FROM postern.queue WHERE sender_id IS NOT NULL) q USING (sender_id)
		WHERE s.queue_id IS DISTINCT FROM q.queue_id`,
	},

	{
		Name:     "work is in hand",
		Sentence: "a queue with work has an owner, a ready row under its own key, or a timer, or is paused",
		SQL: `
		SELECT 'queue ' || queue_id || ' in ' || phase || ' is forgotten' FROM postern.queue q
		WHERE phase <> 'IDLE' AND NOT EXISTS (SELECT FROM postern.timer t WHERE t.queue_id = q.queue_id)
			AND NOT (phase IN ('DISPATCHING', 'DELAY') AND node_id IS NULL
				AND EXISTS (SELECT FROM postern.mark m WHERE (m.queue_id, m.seq) = (q.queue_id, q.cur_seq) AND m.kind IN ('suspended', 'unknown')))
			AND (phase IN ('WAITING_INCLUSION', 'DELAY') OR node_id IS NULL
				AND NOT EXISTS (SELECT FROM postern.ready r WHERE r.queue_id = q.queue_id)
				AND NOT (paused AND phase IN ('READY', 'HELD'))
				AND NOT (phase = 'HELD' AND EXISTS (SELECT FROM postern.mark m WHERE (m.queue_id, m.seq) = (q.queue_id, coalesce(q.next_seq, q.head_seq)) AND m.kind IN ('held', 'suspended'))))
		UNION ALL SELECT 'queue ' || r.queue_id || ' stands in lane ' || r.lane || ' under a key that is not its own'
		FROM postern.ready r LEFT JOIN postern.queue q USING (queue_id)
		WHERE q.node_id IS NOT NULL OR (r.lane, r.prio, r.since) IS DISTINCT FROM (
			CASE WHEN q.phase = 'READY' AND NOT q.paused THEN q.lane
				WHEN q.phase = 'DISPATCHING' THEN (SELECT lane_id FROM postern.lane WHERE kind = 'resume') END, q.prio, q.entered_at)
		UNION ALL SELECT 'queue ' || r.queue_id || ' stands in lane ' || r.lane || ' under an era that its row has not reached'
		FROM postern.ready r JOIN postern.queue q USING (queue_id) WHERE r.era > q.era
		UNION ALL SELECT 'queue ' || q.queue_id || ' both stands in the lane resume and waits to ask'
		FROM postern.queue q JOIN postern.timer t USING (queue_id) JOIN postern.ready r USING (queue_id) WHERE q.phase = 'DISPATCHING'
		UNION ALL SELECT 'queue ' || queue_id || ' is ' || phase || ' from ' || head_seq || ' to ' || tail_seq
		FROM postern.queue WHERE (phase = 'IDLE') <> (head_seq > tail_seq)`,
	},

	{
		Name:     "held is held",
		Sentence: "what is held for an operator has neither owner, sender, timer nor a place in a lane",
		SQL: `
		SELECT 'queue ' || m.queue_id || ' position ' || m.seq || ' is held and goes on' FROM postern.mark m JOIN postern.queue q USING (queue_id)
		WHERE m.kind = 'unknown' AND m.seq >= q.head_seq AND (q.phase <> 'DISPATCHING' OR q.cur_seq IS DISTINCT FROM m.seq
			OR q.node_id IS NOT NULL OR q.sender_id IS NOT NULL
			OR EXISTS (SELECT FROM postern.timer t WHERE t.queue_id = q.queue_id)
			OR EXISTS (SELECT FROM postern.ready r WHERE r.queue_id = q.queue_id))`,
	},
	{
		Name:     "states pass in time",
		Sentence: "a queue that a process works on, or should, leaves each state in the time that this may take",
		SQL: `
		SELECT 'queue ' || queue_id || ' is ' || phase || ' since ' || since || ', until ' || due || ' at the most: ' || what FROM postern.overdue`,
	},

	{
		Name:     "heads have bodies",
		Sentence: "every head has its body",
		SQL: `
		SELECT 'queue ' || q.queue_id || ' position ' || p.seq FROM postern.queue q CROSS JOIN LATERAL (VALUES (q.head_seq), (q.cur_seq), (q.next_seq)) p (seq)
		WHERE p.seq <= q.tail_seq AND NOT EXISTS (SELECT FROM postern.task t WHERE (t.queue_id, t.seq) = (q.queue_id, p.seq))`,
	},

	{
		Name:     "days rise",
		Sentence: "the day never falls along a queue",
		SQL: `
		SELECT 'queue ' || queue_id FROM (SELECT queue_id, day, lag(day) OVER (PARTITION BY queue_id ORDER BY seq) AS before FROM postern.task) t
		WHERE day < before
		UNION ALL SELECT 'queue ' || t.queue_id FROM postern.task t JOIN postern.queue q USING (queue_id) WHERE t.day > q.tail_day`,
	},
}
