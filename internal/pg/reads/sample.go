package reads

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Sample is what GET /metrics shows of the database. Counts are of queues with work, never of transactions.
type Sample struct {
	// transactions behind those in flight; a node that works through a queue writes its row now and then
	Waiting        int64
	OldestHeads    map[string]float64 // seconds, by state of the queue
	Queues         map[string]int64   // by state
	Senders        []SenderCount
	HeldByType     map[string]int64 // transactions held for an operator, by type; types without any are missing
	Held           map[string]int64 // senders that are paused, drained or blocked and serve no queue, by pool
	Deliveries     map[string]int64 // that have not ended, by state
	RiverLag       float64          // seconds
	OldestSnapshot float64          // seconds
	Trouble        Trouble
}

// SenderCount is how many senders of a pool are in a state.
type SenderCount struct {
	Pool, State string
	Count       int64
}

// sampleAtMost is how far rows are counted that may be many.
const sampleAtMost = 100000

// TakeSample reads it in one round trip. The counts over queues cost two scans of queue, from which idle queues go
// after a day, and one of ready; none of it waits for a lock. Only members of pg_monitor see the SQL transactions of
// another database user.
func (s *Store) TakeSample(ctx context.Context) (v Sample, err error) {
	v.Queues, v.Deliveries, v.Held, v.OldestHeads = map[string]int64{}, map[string]int64{},
		map[string]int64{}, map[string]float64{}
	for _, state := range outbox.QueueStates {
		v.Queues[string(state)], v.OldestHeads[string(state)] = 0, 0
	}
	b := &pgx.Batch{}
	b.Queue("BEGIN READ ONLY")
	b.Queue(planByScan)
	s.sampleQueues(b, &v)
	s.sampleSenders(b, &v)
	sampleHeld(b, &v)
	for _, state := range []string{"pending", "queued"} { // a literal, so that the partial index serves it
		b.Queue(`SELECT count(*) FROM (SELECT FROM postern.delivery WHERE state = '`+state+`' LIMIT $1) d`,
			sampleAtMost).QueryRow(func(row pgx.Row) error {
			var n int64
			err := row.Scan(&n)
			v.Deliveries[state] = n
			return err
		})
	}
	b.Queue(`SELECT coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 FROM river.river_job
		WHERE state = 'available' AND queue = 'postern'`).QueryRow(func(row pgx.Row) error { return row.Scan(&v.RiverLag) })
	b.Queue(`SELECT coalesce(extract(epoch FROM clock_timestamp() - min(xact_start)), 0)::float8 FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`).
		QueryRow(func(row pgx.Row) error { return row.Scan(&v.OldestSnapshot) })
	s.sampleTrouble(b, &v.Trouble)
	b.Queue("COMMIT")
	err = s.Pool().SendBatch(ctx, b).Close()
	v.RiverLag, v.OldestSnapshot = max(0, v.RiverLag), max(0, v.OldestSnapshot)
	return v, db.Known(err)
}

// sampleQueues counts queues and waiting transactions by the phase of the queue. A job is with its runner, or waits for
// one, for as long as that takes, and its transaction waits for inclusion: such a head does not stand still. Offers and
// runners have numbers of their own.
func (s *Store) sampleQueues(b *pgx.Batch, v *Sample) {
	b.Queue(`SELECT q.phase, count(*),
			coalesce(sum(q.tail_seq - q.head_seq + 1 - CASE WHEN q.cur_seq IS NULL THEN 0 ELSE 1 END), 0)::bigint,
			coalesce(extract(epoch FROM coalesce($1::timestamptz, clock_timestamp())
				- min(q.entered_at) FILTER (WHERE NOT q.paused AND q.phase <> 'HELD'
					AND (q.phase <> 'WAITING_INCLUSION' OR q.lane IS NULL OR q.lane NOT IN (
						SELECT l.lane_id
						FROM postern.lane l
						JOIN postern.dispatcher d ON d.dispatcher_id = l.dispatcher_id
						WHERE d.type LIKE 'job.%')))), 0)::float8
		FROM postern.queue q
		WHERE q.phase <> 'IDLE'
		GROUP BY q.phase`, s.Clock()).Query(func(rows pgx.Rows) error {
		var phase outbox.Phase
		var n, waiting int64
		var oldest float64
		_, err := pgx.ForEachRow(rows, []any{&phase, &n, &waiting, &oldest}, func() error {
			v.Queues[string(phase.Queue())] += n
			v.Waiting += waiting
			v.OldestHeads[string(phase.Queue())] = max(v.OldestHeads[string(phase.Queue())], oldest)
			return nil
		})
		return err
	})
}

// sampleSenders counts senders by the phase of their queue, and free ones that are held back.
func (s *Store) sampleSenders(b *pgx.Batch, v *Sample) {
	b.Queue(`SELECT p.name, coalesce(q.phase, 'IDLE'), count(*),
			count(*) FILTER (WHERE s.queue_id IS NULL AND (s.paused OR s.draining OR p.paused OR s.blocked_until > coalesce($1::timestamptz, clock_timestamp())))
		FROM postern.sender s JOIN postern.pool p ON p.pool_id = s.pool_id
		LEFT JOIN postern.queue q ON q.queue_id = s.queue_id WHERE s.removed_at IS NULL GROUP BY 1, 2 ORDER BY 1, 2`, s.Clock()).Query(func(rows pgx.Rows) error {
		var n SenderCount
		var phase outbox.Phase
		var held int64
		_, err := pgx.ForEachRow(rows, []any{&n.Pool, &phase, &n.Count, &held}, func() error {
			v.Held[n.Pool] += held
			n.State = string(phase.Queue())
			v.Senders = append(v.Senders, n)
			return nil
		})
		return err
	})
}

// sampleHeld counts transactions in flight whose outcome is unknown.
func sampleHeld(b *pgx.Batch, v *Sample) {
	v.HeldByType = map[string]int64{}
	b.Queue(`SELECT t.type, count(*) FROM postern.mark m
		JOIN postern.queue q ON q.queue_id = m.queue_id AND q.cur_seq = m.seq
		JOIN postern.task t ON (t.queue_id, t.seq) = (m.queue_id, m.seq) AND t.day BETWEEN q.head_day AND q.tail_day
		WHERE m.kind = 'unknown' GROUP BY 1`).Query(func(rows pgx.Rows) error {
		var typ string
		var n int64
		_, err := pgx.ForEachRow(rows, []any{&typ, &n}, func() error { v.HeldByType[typ] = n; return nil })
		return err
	})
}
