package verify

// jobs are the invariants of seed 5: no job starts before what it needs, each has one result, a flow ends whole, and no
// job stays with a runner that is gone.
var jobs = []Invariant{
	// S5.4
	{
		Name:     "jobs start in order",
		Sentence: "a job starts after all jobs that it needs have finished, and all its prerequisites are met",
		SQL: `
		SELECT 'job ' || j.job_id || ' started, and job ' || n.job_id || ', which it needs, is ' || n.status
			|| ' since ' || n.updated_at
		FROM postern.job_edge e
		JOIN postern.job j ON j.job_id = e.job_id
		JOIN postern.job n ON n.job_id = e.needs
		WHERE j.started_at IS NOT NULL AND (n.status <> 'finished' OR n.ended_at > j.started_at)
		UNION ALL SELECT 'job ' || j.job_id || ' started, and prerequisite ' || n.name || ' is not met'
		FROM postern.job_need n
		JOIN postern.job j ON j.job_id = n.job_id
		WHERE j.started_at IS NOT NULL AND n.met_at IS NULL`,
	},

	// S5.4
	{
		Name:     "jobs have one result",
		Sentence: "a job that has finished has one try that did, and the result of that, and its transaction is DONE",
		SQL: `
		SELECT 'job ' || j.job_id || ' has finished, and ' || count(t.try_id) || ' of its tries'
		FROM postern.job j
		LEFT JOIN postern.job_try t ON t.job_id = j.job_id AND t.state = 'Finished'
		WHERE j.status = 'finished' AND j.queue_id IS NOT NULL
		GROUP BY j.job_id
		HAVING count(t.try_id) <> 1
		UNION ALL SELECT 'job ' || j.job_id || ' has another result than its try ' || t.try_id
		FROM postern.job j
		JOIN postern.job_try t ON t.job_id = j.job_id AND t.state = 'Finished'
		WHERE j.status = 'finished' AND coalesce(j.result, '{}') <> coalesce(t.result, '{}')
		UNION ALL SELECT 'job ' || j.job_id || ' has finished, and its transaction is ' || coalesce(o.state, 'open')
		FROM postern.job j
		JOIN postern.task k ON (k.queue_id, k.seq, k.day) = (j.queue_id, j.seq, j.day)
		LEFT JOIN postern.outcome o ON (o.queue_id, o.seq, o.day) = (j.queue_id, j.seq, j.day)
		WHERE j.status = 'finished' AND o.state IS DISTINCT FROM 'DONE'`,
	},

	// S5.3
	{
		Name:     "flows end whole",
		Sentence: "all jobs of a flow that has finished have, and a minute after a flow ended in error none is offered",
		SQL: `
		SELECT 'flow ' || f.flow_id || ' has finished, and job ' || j.job_id || ' is ' || j.status
		FROM postern.flow f
		JOIN postern.job j ON j.flow_id = f.flow_id AND NOT j.removed
		WHERE f.status = 'finished' AND j.status <> 'finished'
		UNION ALL SELECT 'flow ' || f.flow_id || ' is in error, and job ' || j.job_id || ' is offered'
		FROM postern.flow f
		JOIN postern.job j ON j.flow_id = f.flow_id
		JOIN postern.job_try t ON t.job_id = j.job_id AND t.state = 'Offered'
		WHERE f.status = 'error' AND f.ended_at < clock_timestamp() - interval '1 minute'`,
	},

	// S5.8
	{
		Name:     "runners that are gone hold nothing",
		Sentence: "a minute after the ttl of a runner is over others are offered what it held",
		SQL: `
		SELECT 'try ' || t.try_id || ' is held by runner ' || r.name || ', which was seen at ' || r.seen_at
		FROM postern.job_try t
		JOIN postern.runner r ON r.runner_id = t.runner_id
		WHERE t.state = 'Held'
			AND r.seen_at + greatest(r.ttl, r.told_ttl, r.told_before) < clock_timestamp() - interval '1 minute'`,
	},
}
