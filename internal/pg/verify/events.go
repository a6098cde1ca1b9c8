package verify

// events are the invariants of seed 1: no event is lost between its source, the engine and its workflow, none ends
// twice, and none is Successful unless its workflow was told.
var events = []Invariant{
	// S1.2
	{
		Name:     "events are on their way",
		Sentence: "an event that has not ended is on its way: to the engine, in a call, or to its workflow",
		SQL: `
		WITH e AS (SELECT e.*, s.channel_id AS line, c.channel_id AS results, EXISTS (SELECT FROM postern.event_drop d WHERE d.event_id = e.event_id) AS dropped
			FROM postern.event e JOIN postern.source s USING (source_id)
			LEFT JOIN postern.channel c ON (c.context_id, c.name) = (e.context_id, 'leader:results')
			WHERE e.status IN ('Queued', 'Active'))
		SELECT 'event ' || event_id || ' is Queued, and no message, time or drop tells of it' FROM e
		WHERE status = 'Queued' AND not_before IS NULL AND NOT dropped
			AND NOT EXISTS (SELECT FROM postern.channel_message m WHERE (m.channel_id, m.message_id) = (e.line, e.event_id::text))
		UNION ALL SELECT 'event ' || event_id || ' is Active, and no transaction calls its tool, and no message or drop tells of it' FROM e
		WHERE status = 'Active' AND outcome = '' AND tool_id = '' AND NOT dropped
			AND NOT EXISTS (SELECT FROM postern.channel_message m WHERE (m.channel_id, m.message_id) = (e.line, e.event_id::text))
		UNION ALL SELECT 'event ' || event_id || ' is ' || outcome || ', and no message, transaction or drop tells its workflow' FROM e
		WHERE status = 'Active' AND outcome <> '' AND result_id = '' AND NOT dropped
			AND NOT EXISTS (SELECT FROM postern.channel_message m WHERE (m.channel_id, m.message_id) = (e.results, e.event_id::text))`,
	},

	// S1.5
	{
		Name:     "events have a history",
		Sentence: "the history of an event is whole, leads to its state, and ends once",
		SQL: `
		SELECT 'event ' || e.event_id || ' is ' || e.status || ' after ' || e.moves || ' moves, and has ' || m.n || ' up to ' || coalesce(m.top, 0) || ', ' || m.ends || ' of them ends'
		FROM postern.event e CROSS JOIN LATERAL (SELECT count(*) AS n, max(x.n) AS top, count(*) FILTER (WHERE x.status IN ('Successful', 'Dead')) AS ends,
			count(*) FILTER (WHERE x.n = e.moves AND x.status = e.status) AS last FROM postern.event_move x WHERE x.event_id = e.event_id) m
		WHERE (m.n, m.top, m.last, m.ends) IS DISTINCT FROM (e.moves::bigint, e.moves, 1::bigint, (e.status IN ('Successful', 'Dead'))::int::bigint)`,
	},

	// S1.14
	{
		Name:     "events have one result",
		Sentence: "of a Successful event the workflow was told by one result, which was taken, and no result is of two events",
		SQL: `
		SELECT 'event ' || event_id || ' is Successful without a result' FROM postern.event WHERE status = 'Successful' AND (outcome <> 'successful' OR result_id = '')
		UNION ALL SELECT 'event ' || e.event_id || ' is Successful, and its result is ' || coalesce(o.state, 'on its way')
		FROM postern.event e JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (e.result_queue, e.result_seq, e.result_day)
		LEFT JOIN postern.outcome o ON (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day)
		WHERE e.status = 'Successful' AND o.state IS DISTINCT FROM 'DONE'
		UNION ALL SELECT 'result ' || min(result_id) || ' is of ' || count(*) || ' events' FROM postern.event WHERE result_id <> ''
		GROUP BY result_queue, result_seq, result_day HAVING count(*) > 1`,
	},

	// S1.14
	{
		Name:     "systems post alone",
		Sentence: "what has a name of a system was posted by that system, and an event knows only its own transactions",
		SQL: `
		WITH named AS (
			SELECT t.queue_id, t.seq, t.type, t.uid, t.actor, n.name AS queue, t.redrive_of IS NULL AS first
			FROM postern.task t
			LEFT JOIN postern.queue_name n USING (queue_id)
			WHERE (t.type LIKE 'leader.%' OR t.uid LIKE 'event:%'
					OR n.name LIKE 'processor:%' OR t.uid LIKE ':processor:%')
				AND NOT EXISTS (SELECT FROM postern.outcome o
					WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day) AND o.error_code = 'forbidden'
						AND coalesce(o.attempt, 0) = 0))
		SELECT 'queue ' || queue_id || ' position ' || seq || ' is of type ' || type || ' and has uid '
			|| coalesce(uid, 'null') || ', and actor ' || actor || ' posted it'
		FROM named
		WHERE type LIKE 'leader.%' AND actor <> '' AND first
			OR uid LIKE 'event:%' AND (actor <> '' OR type NOT LIKE 'leader.%')
		UNION ALL SELECT 'queue ' || queue || ' position ' || seq || ' is no execution of a batch'
		FROM named
		WHERE queue LIKE 'processor:%' AND (uid ~ '^:processor:[0-9]+:[0-9]+$') IS NOT TRUE
		UNION ALL SELECT 'transaction ' || t.uid || ' executes no run of its batch'
		FROM named t
		JOIN postern.batch b ON b.batch_id::text = split_part(t.uid, ':', 3)
		WHERE t.uid LIKE ':processor:%' AND split_part(t.uid, ':', 4)::bigint > b.run
		UNION ALL SELECT 'event ' || e.event_id || ' has as its ' || x.what || ' a transaction of type ' || t.type
		FROM postern.event e
		CROSS JOIN LATERAL (VALUES ('tool', e.tool_queue, e.tool_seq, e.tool_day),
			('result', e.result_queue, e.result_seq, e.result_day)) x (what, queue_id, seq, day)
		JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (x.queue_id, x.seq, x.day)
		WHERE t.type <> 'leader.' || x.what`,
	},

	// S1.12
	{
		Name:     "channels carry one result",
		Sentence: "through a channel goes one result at a time",
		SQL: `
		SELECT 'channel ' || s.account || ' has ' || count(*) FROM (` + flying + `) f JOIN postern.task t USING (queue_id, seq, day)
		JOIN postern.queue q USING (queue_id) JOIN postern.sender s ON s.sender_id = q.sender_id
		WHERE t.type = 'leader.result' GROUP BY s.sender_id, s.account HAVING count(*) > 1`,
	},
}
