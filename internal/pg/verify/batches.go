package verify

// batches are the invariants of seed 4: promise 9, and what holds a processor's lines and counts together. Of atomic
// batches nothing is executed before all is; of the others the actions that were executed are the first ones. One that
// goes to another installation is a single action here, and its result is that one's to answer for.
var batches = []Invariant{
	{
		Name:     "batches execute in full",
		Sentence: "a batch has executed what its state and result say: all of an atomic one at once, else the first so many, each once",
		SQL: `
		SELECT 'batch ' || b.batch_id || ' is ' || b.state || ' at ' || b.position || coalesce(', ' || b.result || '(' || b.result_n || ')', '') || ': '
			|| a.good || ' executed up to ' || a.upto || ', ' || a.open || ' open, ' || a.runs || ' runs'
		FROM postern.batch b CROSS JOIN LATERAL (SELECT count(*) AS runs, count(*) FILTER (WHERE x.ok) AS good, coalesce(max(x.position) FILTER (WHERE x.ok) + 1, 0) AS upto,
			count(*) FILTER (WHERE x.ok IS NULL) AS open FROM postern.batch_action x WHERE x.batch_id = b.batch_id) a
		WHERE a.runs <> b.run OR a.good <> a.upto
			OR a.open <> (b.state IN ('Executing', 'Waiting_Callback'))::int AND coalesce(b.result, '') NOT IN ('removed_by_owner', 'expired')
			OR a.good <> CASE WHEN b.actions ? 'atomic' OR b.deliver_as <> '' THEN coalesce(b.result = 'executed', false)::int
				WHEN b.result = 'executed' THEN json_array_length(b.messages) ELSE b.position END
			OR b.deliver_as = '' AND (b.result = 'rejected' AND a.good > 0 OR b.result IN ('partially_executed', 'expired') AND b.result_n <> a.good)
			OR b.result = 'partially_executed' AND b.actions ? 'atomic'
		UNION ALL SELECT 'batch ' || a.batch_id || ' run ' || a.run || ' was executed, and its transaction was not'
		FROM postern.batch_action a JOIN postern.batch b USING (batch_id)
		JOIN postern.idempotency i ON i.context_id = b.context_id AND i.key = ':processor:' || a.batch_id || ':' || a.run
		LEFT JOIN postern.outcome o ON (o.queue_id, o.seq, o.day) = (i.queue_id, i.seq, i.day)
		WHERE a.ok AND o.state IS DISTINCT FROM 'DONE'`,
	},

	// S4.3
	{
		Name:     "batches stand in line",
		Sentence: "who is Queued stands in the line of its processor and priority, no other batch stands in one, and each line knows how long it is",
		SQL: `
		SELECT 'batch ' || b.batch_id || ' is Queued and stands nowhere' FROM postern.batch b
		WHERE b.state = 'Queued' AND NOT EXISTS (SELECT FROM postern.batch_place l WHERE (l.batch_id, l.processor_id, l.priority) = (b.batch_id, b.processor_id, b.priority))
		UNION ALL SELECT 'batch ' || l.batch_id || ' stands in a line' FROM postern.batch_place l
		WHERE NOT EXISTS (SELECT FROM postern.batch b WHERE b.batch_id = l.batch_id AND b.state = 'Queued')
		UNION ALL SELECT 'line ' || l.priority || ' of processor ' || l.processor_id || ' says ' || l.length || ' and has ' || p.n
		FROM postern.batch_line l CROSS JOIN LATERAL (SELECT count(*) AS n, min(x.place) AS first, max(x.place) AS last FROM postern.batch_place x
			WHERE (x.processor_id, x.priority) = (l.processor_id, l.priority)) p
		WHERE l.length <> p.n OR p.first < l.lowest OR p.last > l.highest`,
	},

	// S4.8
	{
		Name:     "batches await callbacks",
		Sentence: "a batch that waits for a callback has one to come, by a time, and no other has one that was executed",
		SQL: `
		SELECT 'batch ' || b.batch_id || ' waits for no callback' FROM postern.batch b
		WHERE b.state = 'Waiting_Callback' AND NOT EXISTS (SELECT FROM postern.batch_callback c WHERE c.batch_id = b.batch_id AND c.deadline IS NOT NULL)
		UNION ALL SELECT 'a callback of batch ' || c.batch_id || ' is left' FROM postern.batch_callback c
		WHERE NOT EXISTS (SELECT FROM postern.batch b WHERE b.batch_id = c.batch_id AND b.state = CASE WHEN c.deadline IS NULL THEN 'Executing' ELSE 'Waiting_Callback' END)`,
	},

	// S4.13
	{
		Name:     "authorizations count",
		Sentence: "an authorization counts the batches that have not ended, and each call that is held or burned",
		SQL: `
		SELECT 'authorization ' || a.label || ' counts ' || a.running || ' of ' || coalesce(b.n, 0) FROM postern.batch_authorization a
		LEFT JOIN (SELECT authorization_id, count(*) AS n FROM postern.batch WHERE state <> 'Done' AND authorization_id IS NOT NULL GROUP BY 1) b USING (authorization_id)
		WHERE a.running <> coalesce(b.n, 0)
		UNION ALL SELECT 'of ' || c.actor || ' ' || b.n || ' calls are spent, and ' || c.spent || ' are counted' FROM postern.batch_call c
		JOIN (SELECT authorization_id, initiator, count(*) AS n FROM postern.batch
			WHERE call_held AND (state <> 'Done' OR result IN ('executed', 'partially_executed', 'removed_by_owner')) GROUP BY 1, 2) b
			ON (b.authorization_id, b.initiator) = (c.authorization_id, c.actor)
		WHERE c.spent < b.n`,
	},
}
