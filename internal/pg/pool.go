package pg

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Pool is a set of senders, with the rule for a sender after a failure, and the numbers of free senders and waiting
// queues.
type Pool struct {
	Name         string
	AfterFailure string // keep, or block: S1.13
	BlockFor     time.Duration
	Paused       bool
	Free         int // senders that may be taken, but for a pause of the pool
	Bound        int // that serve a queue
	Blocked      int // blocked, paused or drained, and bound to none
	Waiting      int // queues that wait for one of them, counted to 10,000
	Version      int64
	CreatedAt    time.Time
}

// A lane wants a pool by its own pool_id, by that of its one sender, or, where it is exclusive, by that of
// its dispatcher.
const poolSQL = `SELECT p.name, p.after_failure, p.block_for, p.paused, s.free, s.bound, s.blocked, w.waiting, p.version, p.created_at
	FROM postern.pool p
	CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE s.queue_id IS NULL AND NOT s.held) AS free, count(*) FILTER (WHERE s.queue_id IS NOT NULL) AS bound,
			count(*) FILTER (WHERE s.queue_id IS NULL AND s.held) AS blocked
		FROM (SELECT s.queue_id, s.paused OR s.draining OR coalesce(s.blocked_until > coalesce($2::timestamptz, clock_timestamp()), false) AS held
			FROM postern.sender s WHERE s.pool_id = p.pool_id AND s.removed_at IS NULL) s) s
	CROSS JOIN LATERAL (SELECT count(*) AS waiting FROM (SELECT FROM postern.lane l
		LEFT JOIN postern.sender s ON s.sender_id = l.sender_id LEFT JOIN postern.dispatcher d ON d.dispatcher_id = l.dispatcher_id AND l.kind = 'exclusive'
		CROSS JOIN LATERAL (SELECT FROM postern.ready r WHERE r.lane = l.lane_id LIMIT 10000) r
		WHERE coalesce(l.pool_id, s.pool_id, d.pool_id) = p.pool_id LIMIT 10000) r) w
	WHERE p.context_id = $1`

func scanPool(row pgx.CollectableRow) (*Pool, error) {
	v := &Pool{}
	return v, row.Scan(&v.Name, &v.AfterFailure, &v.BlockFor, &v.Paused, &v.Free, &v.Bound, &v.Blocked, &v.Waiting, &v.Version, &v.CreatedAt)
}

const poolsSQL = poolSQL + ` AND p.name > $3 ORDER BY p.name LIMIT $4`

// SenderPools lists up to limit pools of a context by name, those after a given one.
func (s *Store) SenderPools(ctx context.Context, contextID int32, after string, limit int) ([]*Pool, error) {
	rows, err := s.Db(ctx).Query(ctx, poolsSQL, contextID, s.Clock(), after, limit)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanPool)
	return list, db.Known(err)
}

// SenderPool returns one pool, or NotFound.
func (s *Store) SenderPool(ctx context.Context, contextID int32, name string) (*Pool, error) {
	rows, err := s.Db(ctx).Query(ctx, poolSQL+` AND p.name = $3`, contextID, s.Clock(), name)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanPool)
	if err != nil {
		return nil, db.Known(err)
	}
	if len(list) == 0 {
		return nil, fault.New(fault.NotFound, "not_found", "no pool %q: it comes into being with its first sender", fault.Clip(name))
	}
	return list[0], nil
}

// PutPool creates a pool or replaces its settings; version as in MatchVersion.
func (s *Store) PutPool(ctx context.Context, by db.By, v Pool, version int64) (created bool, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		created, err = t.LockVersion(ctx, version, `SELECT version, false FROM postern.pool WHERE context_id = $1 AND name = $2 FOR UPDATE`, by.Context, v.Name)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO postern.pool (context_id, name, after_failure, block_for) VALUES ($1, $2, $3, $4)
			ON CONFLICT (context_id, name) DO UPDATE SET after_failure = excluded.after_failure, block_for = excluded.block_for, version = pool.version + 1`,
			by.Context, v.Name, v.AfterFailure, v.BlockFor)
		s.AuditIn(b, by, "put", "/pools/"+v.Name)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return false, err
	}
	return created, s.Reconfigured(ctx)
}

// PausePool keeps all senders of a pool from taking another queue, or lets them again: its lanes are closed. They go on
// with the transactions that they serve.
func (s *Store) PausePool(ctx context.Context, by db.By, name string, paused bool) (LeverResult, error) {
	return s.SetFlag(ctx, by, Verb(paused), "/pools/"+name, `UPDATE postern.pool SET paused = $3, version = version + 1
		WHERE context_id = $1 AND name = $2 AND paused <> $3`, `SELECT version, false FROM postern.pool WHERE context_id = $1 AND name = $2 FOR UPDATE`, name, paused)
}

// RemovePool removes a pool that nothing needs any more; Conflict "in_use" while it has senders, or a dispatcher or
// queue names it. A statement that makes one of these locks the pool's row first: it waits for the commit of a
// removal and then makes the pool anew, or the removal waits for it and then sees it.
func (s *Store) RemovePool(ctx context.Context, by db.By, name string) error {
	err := s.Run(ctx, func(t *db.Txn) error {
		missing, err := t.LockVersion(ctx, 0, `SELECT version, false FROM postern.pool WHERE context_id = $1 AND name = $2 FOR UPDATE`, by.Context, name)
		if err != nil {
			return err
		}
		if missing {
			return fault.New(fault.NotFound, "not_found", "no pool %q", fault.Clip(name))
		}
		if err := by.Seen(t.Version); err != nil {
			return err
		}
		var senders, dispatchers, queues int
		b := &pgx.Batch{}
		b.Queue(`SELECT (SELECT count(*) FROM postern.sender s WHERE s.pool_id = p.pool_id AND (s.removed_at IS NULL OR s.queue_id IS NOT NULL)),
				(SELECT count(*) FROM postern.dispatcher d WHERE d.pool_id = p.pool_id AND d.removed_at IS NULL),
				(SELECT count(*) FROM postern.queue_name n WHERE n.context_id = p.context_id AND n.pool_id = p.pool_id)
			FROM postern.pool p WHERE p.context_id = $1 AND p.name = $2`, by.Context, name).
			QueryRow(func(row pgx.Row) error { return row.Scan(&senders, &dispatchers, &queues) })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if senders+dispatchers+queues > 0 {
			return fault.New(fault.Conflict, "in_use", "pool %q has %s, %s and %s: change these first",
				fault.Clip(name),
				fault.Many(senders, "sender"), fault.Many(dispatchers, "dispatcher"), fault.Many(queues, "queue"))
		}
		b = &pgx.Batch{}
		b.Queue(`DELETE FROM postern.pool WHERE context_id = $1 AND name = $2`, by.Context, name)
		s.AuditIn(b, by, "delete", "/pools/"+name)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return err
	}
	return s.Reconfigured(ctx)
}

// PoolBlocks registers, before anything runs, the name of a pool that blocks a sender after a failure from the moment
// at which it is made (S1.13).
func (s *Store) PoolBlocks(name string) { s.blocking = append(s.blocking, name) }

// MakePool makes a pool where there is none, and locks its row, so that it is not removed before the commit.
func (s *Store) MakePool(b *pgx.Batch, contextID int32, name string) {
	after := "keep"
	if slices.Contains(s.blocking, name) {
		after = "block"
	}
	b.Queue(`INSERT INTO postern.pool (context_id, name, after_failure)
		VALUES ($1, $2, $3)
		ON CONFLICT (context_id, name) DO UPDATE SET name = excluded.name`, contextID, name, after)
}

// poolRules is what decisions know of a pool.
type poolRules struct {
	blockFor time.Duration // 0: the sender is kept
	paused   bool
}

// readPools adds to a reading of the configuration the rules of all pools, and of each sender its pool, its version and
// whether it is stopped.
func (v *confView) readPools(b *pgx.Batch, now *time.Time) {
	var pool, sender int32
	var stopped, draining bool
	var version int64
	var r poolRules
	each(b, `SELECT pool_id, CASE after_failure WHEN 'block' THEN block_for ELSE interval '0' END, paused FROM postern.pool`,
		[]any{&pool, &r.blockFor, &r.paused}, func() { v.rules[pool] = &poolRules{r.blockFor, r.paused} })
	into := []any{&sender, &pool, &draining, &version, &stopped}
	each(b, `SELECT sender_id, pool_id, draining, version, paused OR removed_at IS NOT NULL
			OR coalesce(blocked_until > coalesce($1::timestamptz, clock_timestamp()), false)
		FROM postern.sender`, into, func() {
		v.versions[sender] = version
		if v.poolOf[sender] = pool; stopped || draining {
			v.stopped[sender] = draining
		}
	}, now)
}

// each queues a statement and calls fn for each of its rows.
func each(b *pgx.Batch, sql string, into []any, fn func(), args ...any) {
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, into, func() error { fn(); return nil })
		return err
	})
}

// rulesOf returns the rules of a sender's pool; of one that is not known yet, the defaults.
func (v *confView) rulesOf(sender int32) poolRules {
	if r := v.rules[v.poolOf[sender]]; r != nil {
		return *r
	}
	return poolRules{}
}

// blames says whether a failure blocks this sender (S1.13).
func (v *confView) blames(sender int32) bool { return v.rulesOf(sender).blockFor > 0 }

// drains says whether a sender accepts nothing that names it.
func (v *confView) drains(sender int32) bool { return v.stopped[sender] }

// maySend says whether the queue can go on with what it holds: no sender for a type without, else the one that the next
// transaction names, or one of the pool that its lane would be of (see need), if neither that pool is paused nor the
// sender stopped. One that was taken back is looked for anew, and so is one that was taken out of use:
// the next claim finds another, or gives what is drained to those that name it.
func (v *confView) maySend(q *QueueRow, d *Dispatcher, next *Task) bool {
	pool := d.PoolID
	if pool != 0 && q.Pool != 0 {
		pool = q.Pool
	}
	if q.Sender == 0 {
		return pool == 0
	}
	_, stopped := v.stopped[q.Sender]
	return !stopped && !v.rulesOf(q.Sender).paused && (next.SenderID == q.Sender || v.poolOf[q.Sender] == pool)
}

// blame gives back the sender of a failure and keeps everybody from it for a while, where its pool says
// so (S1.13). A longer block that somebody else has set stays.
func (st *settlement) blame(q *QueueRow, a *Answer) {
	if !a.Step.BlameSender || q.Sender == 0 {
		return
	}
	why := Because("failed", fault.Clip(a.Step.Code+" "+a.Step.Message))
	st.e.senderFree = append(st.e.senderFree, senderFree{Sender: q.Sender, Nonce: a.Result.Nonce, Until: st.e.now.Add(st.e.view.rulesOf(q.Sender).blockFor), Why: why})
	q.Sender = 0
}
