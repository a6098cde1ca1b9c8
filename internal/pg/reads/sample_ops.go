package reads

import "github.com/jackc/pgx/v5"

// Trouble has the figures of a sample for alerts: each should be zero, or large or old only for a reason.
type Trouble struct {
	Forgotten      int64   // queues with work that no process will find (I12): always 0
	Overdue        int64   // queues that are in a state for longer than it may last: always 0
	Stalled        float64 // seconds that a queue has stood ready in an open lane although a sender was free
	Nodes          int64   // that live: registered, and heard of within their TTL
	OldestDelivery float64 // seconds since the event that is not delivered happened, of those counted
	Staged         float64 // seconds that what postern.submit wrote has not been drained, of those counted
	RiverRunning   float64 // seconds that a job of ours has been running, other than dispatch, which may last
	HotUpdates     int64   // of queue rows, since statistics began: those that stayed on their page,
	ColdUpdates    int64   // and those that did not
	DaysAhead      int64   // after today that have partitions, of the table that has the fewest
	SourcesFailed  int64   // that stopped, and wait for somebody
	SourceLag      float64 // seconds that a running source has not been read to its end
	Gates          int64   // that are closed, of types and senders: nothing came of calls to their workers
	Quarantined    int64   // scopes in quarantine: everything, or parts
	SlotBytes      int64   // of WAL that a replication slot keeps from being removed, or that pg_replication_slots shows
}

// sampleTrouble adds what fills v to b. The scans are of queues with work and of at most sampleAtMost rows.
func (s *Store) sampleTrouble(b *pgx.Batch, v *Trouble) {
	one := func(dest any, sql string, args ...any) {
		b.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return row.Scan(dest) })
	}
	one(&v.Forgotten, `SELECT count(*) FROM postern.queue q WHERE phase <> 'IDLE' AND node_id IS NULL
			AND NOT EXISTS (SELECT FROM postern.timer t WHERE t.queue_id = q.queue_id)
			AND NOT EXISTS (SELECT FROM postern.ready r WHERE r.queue_id = q.queue_id)
			AND NOT (paused AND phase IN ('READY', 'HELD'))
			AND NOT (phase = 'DISPATCHING' AND EXISTS (SELECT FROM postern.mark m WHERE (m.queue_id, m.seq) = (q.queue_id, q.cur_seq) AND m.kind IN ('suspended', 'unknown')))
			AND NOT (phase = 'HELD' AND EXISTS (SELECT FROM postern.mark m WHERE (m.queue_id, m.seq) = (q.queue_id, q.head_seq) AND m.kind IN ('held', 'suspended')))`)
	one(&v.Overdue, `SELECT count(*) FROM postern.overdue`)
	// The first of each lane and priority, by its key. Lanes of types with slots are left out: there it is
	// right to stand while all slots are taken.
	one(&v.Stalled, `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - r.since)), 0)::float8
		FROM postern.lane l CROSS JOIN (VALUES (0::smallint), (1::smallint)) p(prio)
		CROSS JOIN LATERAL (SELECT since FROM postern.ready r WHERE r.lane = l.lane_id AND r.prio = p.prio ORDER BY r.since LIMIT 1) r
		LEFT JOIN postern.dispatcher d ON d.dispatcher_id = l.dispatcher_id
		WHERE NOT EXISTS (SELECT FROM postern.quarantine x WHERE (x.context_id IS NULL OR x.context_id = d.context_id) AND (x.type IS NULL OR x.type = d.type))
			AND (l.kind = 'resume' AND NOT EXISTS (SELECT FROM postern.quarantine)
			OR l.kind = 'dispatcher' AND d.removed_at IS NULL AND NOT d.paused AND d.gate_until IS NULL
			AND EXISTS (SELECT FROM postern.sender s JOIN postern.pool o ON o.pool_id = s.pool_id
				WHERE s.pool_id = l.pool_id AND s.queue_id IS NULL AND s.removed_at IS NULL AND NOT s.paused AND NOT s.draining AND NOT o.paused
					AND coalesce(s.blocked_until <= clock_timestamp(), true)))`)
	one(&v.Nodes, `SELECT count(*) FROM postern.node WHERE kind = 'work' AND dead_at IS NULL AND heartbeat_at + ttl > clock_timestamp()`)
	one(&v.OldestDelivery, `SELECT coalesce(extract(epoch FROM clock_timestamp() - min(at)), 0)::float8
		FROM (SELECT at FROM postern.delivery WHERE state = 'pending' LIMIT $1) d`, sampleAtMost)
	one(&v.Staged, `SELECT coalesce(extract(epoch FROM clock_timestamp() - min(staged_at)), 0)::float8
		FROM (SELECT staged_at FROM postern.outbox LIMIT $1) o`, sampleAtMost)
	one(&v.RiverRunning, `SELECT coalesce(extract(epoch FROM clock_timestamp() - min(attempted_at)), 0)::float8 FROM river.river_job
		WHERE state = 'running' AND queue = 'postern' AND kind <> 'dispatch'`)
	b.Queue(`SELECT coalesce(sum(n_tup_hot_upd), 0)::bigint, coalesce(sum(n_tup_upd - n_tup_hot_upd), 0)::bigint FROM pg_stat_user_tables
		WHERE schemaname = 'postern' AND relname = 'queue'`).QueryRow(func(row pgx.Row) error { return row.Scan(&v.HotUpdates, &v.ColdUpdates) })
	one(&v.DaysAhead, `SELECT coalesce(min(n), 0)
		FROM (SELECT max(s.last) - (clock_timestamp() AT TIME ZONE 'UTC')::date AS n
		FROM unnest('{task,outcome,attempt,delivery}'::text[]) t LEFT JOIN postern.spans s ON s.relation = t
		GROUP BY t) d`)
	one(&v.SourcesFailed, `SELECT count(*) FROM postern.source WHERE state = 'failed' AND removed_at IS NULL`)
	one(&v.SourceLag, `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - coalesce(caught_up_at, created_at))), 0)::float8 FROM postern.source s
		WHERE kind <> 'push' AND state = 'running' AND removed_at IS NULL AND NOT EXISTS (SELECT FROM postern.context c WHERE c.context_id = s.context_id AND c.paused) AND (caught_up_at IS NULL OR polled_at > caught_up_at OR failures > 0)`)
	one(&v.Gates, `SELECT (SELECT count(*) FROM postern.dispatcher WHERE gate_failures > 0 AND removed_at IS NULL)
		+ (SELECT count(*) FROM postern.sender WHERE gate_failures > 0 AND removed_at IS NULL)`)
	one(&v.Quarantined, `SELECT count(*) FROM postern.quarantine`)
	one(&v.SlotBytes, `SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)), 0)::bigint FROM pg_replication_slots`)
}
