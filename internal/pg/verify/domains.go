package verify

// domains are the invariants of domains: what a seat says of its intents and works is what their rows say.
var domains = []Invariant{
	// S3.9, S3.11
	{
		Name:     "what is open in a domain is counted",
		Sentence: "a seat has how many intents and works are not over, by state",
		SQL: `
		SELECT 'domain ' || s.domain_id || ' counts ' || s.intents || ' and ' || s.works || ', and there are '
			|| i.open || ' and ' || w.open
		FROM postern.coord_state s
		CROSS JOIN LATERAL (SELECT coalesce(jsonb_object_agg(x.state, x.n), '{}') AS open
			FROM (SELECT i.state, count(*) AS n
				FROM postern.coord_intent i
				WHERE i.domain_id = s.domain_id AND i.held AND i.ended_at IS NULL
				GROUP BY i.state) x) i
		CROSS JOIN LATERAL (SELECT coalesce(jsonb_object_agg(x.state, x.n), '{}') AS open
			FROM (SELECT w.state, count(*) AS n
				FROM postern.coord_work w
				WHERE w.domain_id = s.domain_id AND w.held AND w.state NOT IN ('Final', 'Evicted')
				GROUP BY w.state) x) w
		WHERE (s.intents, s.works) <> (i.open, w.open)`,
	},
}
