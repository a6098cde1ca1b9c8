package verify

// messages are the invariants of messages: each has one end, a result ends the message that it answers, and what is
// acknowledged was handed to a receiver or made jobs.
var messages = []Invariant{
	// S5.6
	{
		Name:     "messages have one end",
		Sentence: "the history of a message ends in its status, and has an end only if the message does, and once",
		SQL: `
		SELECT 'message ' || m.message_id || ' is ' || m.status || ', and its last step led to '
			|| coalesce((SELECT s.status FROM postern.message_step s WHERE (s.message_id, s.n) = (m.message_id,
				m.steps)), 'nothing')
		FROM postern.message m
		WHERE NOT EXISTS (SELECT FROM postern.message_step s
			WHERE (s.message_id, s.n, s.status) = (m.message_id, m.steps, m.status))
		UNION ALL SELECT 'message ' || s.message_id || ' has ended ' || count(*) || ' times'
		FROM postern.message_step s
		WHERE s.status IN ('processed', 'error')
		GROUP BY s.message_id
		HAVING count(*) > 1`,
	},

	// S5.6
	{
		Name:     "a result ends what it answers",
		Sentence: "a message that a result answers is processed, and one of jobs is processed with a result",
		SQL: `
		SELECT 'message ' || r.message_id || ' is the result of ' || m.message_id || ', which is ' || m.status
		FROM postern.message r
		JOIN postern.message m ON m.message_id = r.reply_to
		WHERE r.type = 'result' AND m.status <> 'processed'
		UNION ALL SELECT 'message ' || m.message_id || ' of jobs is processed, and has no result'
		FROM postern.message m
		WHERE m.type = 'job' AND m.status = 'processed'
			AND NOT EXISTS (SELECT FROM postern.message r WHERE r.reply_to = m.message_id AND r.type = 'result')`,
	},

	// S5.6
	{
		Name: "messages are held under a fence",
		Sentence: "a message that a receiver has was delivered to it, under a fence, and one that ended is leased to " +
			"none",
		SQL: `
		SELECT 'message ' || m.message_id || ' is leased to ' || coalesce(m.receiver, 'nobody') || ', and '
			|| CASE WHEN m.status <> 'dispatched' THEN 'it is ' || m.status WHEN m.delivered_at IS NULL
				THEN 'was not delivered' ELSE 'has no fence' END
		FROM postern.message m
		WHERE m.lease_until IS NOT NULL
			AND (m.status <> 'dispatched' OR m.delivered_at IS NULL OR m.fence = 0 OR m.receiver IS NULL)`,
	},

	// S5.6
	{
		Name:     "deadlines of messages are kept",
		Sentence: "a minute after its deadline a message has ended",
		SQL: `
		SELECT 'message ' || m.message_id || ' is ' || m.status || ', and its deadline was ' || m.due_at
		FROM postern.message m
		WHERE m.due_at < clock_timestamp() - interval '1 minute'`,
	},

	// S5.6
	{
		Name:     "jobs of messages are counted",
		Sentence: "of a message the jobs that have not ended are as many as it counts",
		SQL: `
		SELECT 'message ' || m.message_id || ' counts ' || m.jobs_open || ' open jobs, and has ' || count(j.job_id)
		FROM postern.message m
		LEFT JOIN postern.job j ON j.message_id = m.message_id AND j.ended_at IS NULL
		WHERE m.jobs_open IS NOT NULL
		GROUP BY m.message_id
		HAVING m.jobs_open <> count(j.job_id)`,
	},

	// S5.10
	{
		Name: "what is sent is on its way",
		Sentence: "a try that was sent is carried by a message that has not ended, and a message that goes to a peer " +
			"by a transaction that has not",
		SQL: `
		SELECT 'try ' || t.try_id || ' was sent, and the message that carries it is ' || coalesce(m.status, 'not there')
		FROM postern.job_try t
		LEFT JOIN postern.message m ON m.message_id = t.try_id AND m.carries_job
		WHERE t.state = 'Sent' AND (m.message_id IS NULL OR m.ended_at IS NOT NULL)
		UNION ALL SELECT 'message ' || m.message_id || ' goes to peer ' || m.peer || ' by transaction ' || m.peer_tx
			|| ', which is ' || coalesce(o.state, 'not there')
		FROM postern.message m
		LEFT JOIN postern.idempotency i ON i.context_id = m.context_id AND i.key = ':message:' || m.message_id
			|| CASE WHEN m.redelivered > 0 THEN ':' || m.redelivered + 1 ELSE '' END
		LEFT JOIN postern.outcome o ON (o.queue_id, o.seq, o.day) = (i.queue_id, i.seq, i.day)
		WHERE m.peer_tx IS NOT NULL AND m.ended_at IS NULL AND (m.delivered_at IS NULL OR m.redelivering)
			AND (i.key IS NULL OR o.state IS NOT NULL)`,
	},
}
