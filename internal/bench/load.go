package bench

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// span are the queues of one run by their ids: no other run makes queues meanwhile.
type span struct{ first, last int64 }

// load says which queues to fill before a run.
type load struct {
	keys, depth int
	zipf        bool // the same number of transactions, but the k-th key gets about 1/k^1.1 of them
	finished    bool // they have ended, and their queues are idle long since
	ago         int  // so many days
}

func (l load) total() int { return l.keys * l.depth }

// depths hands the transactions out to the keys.
func (l load) depths() []int32 {
	list := make([]int32, l.keys)
	if !l.zipf {
		for k := range list {
			list[k] = int32(l.depth)
		}
		return list
	}
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(l.keys-1))
	for range l.total() {
		list[z.Uint64()]++
	}
	return list
}

// fill writes the rows of a load as ingest would have left them: bodies in the order of their arrival over
// all queues, each queue READY in its lane. It goes by SQL, since a million posts would take the time of
// the benchmark itself.
func (b *Bench) fill(ctx context.Context, l load) (s span, err error) {
	depths := l.depths()
	if l.total() >= 100000 {
		b.Progress("writing the rows of " + count(l.total()) + " transactions")
	}
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		// what a session has left of its cached ids may lie before those of another run, which would then be within our
		// span (The rule that a queue has one row is looked up for each: planned while the table was empty, that would
		// read it whole.)
		for _, sql := range []string{`SET LOCAL work_mem = '256MB'`, `SET LOCAL enable_seqscan = off`, `SET LOCAL jit = off`, `DISCARD SEQUENCES`,
			`CREATE TEMPORARY TABLE filling (k int NOT NULL, depth int NOT NULL, queue_id bigint NOT NULL) ON COMMIT DROP`} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, `INSERT INTO filling SELECT k, depth, nextval('postern.queue_id')
			FROM unnest($1::int[]) WITH ORDINALITY d(depth, k) WHERE depth > 0`, depths); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `SELECT min(queue_id), max(queue_id) FROM filling`).Scan(&s.first, &s.last); err != nil {
			return err
		}
		prefix, day, deepest := b.name(), time.Now().UTC().AddDate(0, 0, -l.ago), slices.Max(depths)
		if _, err := tx.Exec(ctx, `INSERT INTO postern.task (queue_id, seq, day, context_id, type, data)
			SELECT queue_id, n, $1::date, $2, $3, jsonb_build_object('n', n, 'to', 'B62qre3erTHfzQckNuibViWQGyyKwZseztqrjPZBv6SQF384Rg6ESAy', 'amount', '1000000')
			FROM (SELECT queue_id, n FROM generate_series(1, $4::int) n JOIN filling ON n <= depth ORDER BY n, k) t`,
			day, b.ctxID, benchType, deepest); err != nil {
			return err
		}
		if l.finished {
			if _, err := tx.Exec(ctx, `INSERT INTO postern.queue_name (context_id, name, queue_id, last_seq, last_fence, last_day)
				SELECT $1, $2 || '-' || k, queue_id, depth, 1, $3::date FROM filling`, b.ctxID, prefix, day); err != nil {
				return err
			}
			// They ended one after the other since that day began, and were counted by the hour when they did.
			if _, err := tx.Exec(ctx, `INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, result, attempt, fence, started_at, submitted_at, done_at)
				SELECT queue_id, n, $1::date, $2, 'DISPATCHING', 'DONE', '{"done": {"noop": true}}', 1, 1, at, at, at
				FROM (SELECT queue_id, n, k, $4::timestamptz - ($4::timestamptz - date_trunc('day', $4::timestamptz, 'UTC')) * (1 - (n - 1 + k / $5::float8) / $3) AS at
					FROM generate_series(1, $3::int) n JOIN filling ON n <= depth ORDER BY n, k) t`, day, b.ctxID, deepest, day, l.keys); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `INSERT INTO postern.rolled (hour, as_of, took) SELECT h, greatest(clock_timestamp(), h + interval '71 minutes'), '0'
				FROM generate_series(date_trunc('day', $1::timestamptz, 'UTC'), $1, interval '1 hour') h ON CONFLICT DO NOTHING`, day)
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO postern.queue_name (context_id, name, queue_id) SELECT $1, $2 || '-' || k, queue_id FROM filling`, b.ctxID, prefix); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO postern.queue (queue_id, context_id, head_seq, tail_seq, head_day, tail_day, fence, was, phase, lane, entered_at)
			SELECT queue_id, $1, 1, depth, $2::date, $2::date, (extract(epoch FROM now()) * 1000)::bigint, 'IDLE', 'READY', $3, now() + k * interval '1 us'
			FROM filling ORDER BY k`, b.ctxID, day, b.lane); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO postern.ready (lane, prio, since, queue_id)
			SELECT $1, 1, now() + k * interval '1 us', queue_id FROM filling ORDER BY k`, b.lane)
		return err
	})
	return s, err
}
