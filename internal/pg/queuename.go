package pg

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/db"
)

// queueMissing asks run to make the queue rows and to begin again.
type queueMissing struct {
	s    *Store
	subs []*Submission
}

func (e *queueMissing) Error() string { return "a queue row is missing" }

// Mend makes the rows of the queues.
func (e *queueMissing) Mend(ctx context.Context) error { return e.s.EnsureQueues(ctx, e.subs) }

// Elsewhere is false: in a commit that several calls share, rows of queues are made inside it.
func (e *queueMissing) Elsewhere() bool { return false }

// names remembers the names of as many queues as a process is likely to work with at a time. A name never changes its
// id, but its queue may be reaped. A name that is asked for is kept until half of namesKept others have come: to
// search for one to give up each time that one comes took a claim of many queues longer than to read their names.
type names struct {
	mu         sync.Mutex
	young, old nameTable
}

type nameTable struct {
	byName map[nameKey]*namedQueue
	byID   map[int64]*namedQueue
}

// namedQueue is a queue whose name is known.
type namedQueue struct {
	nameKey
	id  int64
	era int32 // the last one in which its row was seen; begins anew if the queue was reaped
}

// namesKept bounds what names take to some 20 MiB, and thrice that between two collections.
const namesKept = 1 << 17

func (n *names) add(k nameKey, id int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keep(&namedQueue{nameKey: k, id: id})
}

// keep is add for a caller that holds n.mu.
func (n *names) keep(q *namedQueue) {
	if n.young.byID == nil || len(n.young.byID) >= namesKept/2 {
		n.young, n.old = nameTable{map[nameKey]*namedQueue{}, map[int64]*namedQueue{}}, n.young
	}
	n.young.byName[q.nameKey], n.young.byID[q.id] = q, q
}

func (n *names) id(k nameKey) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.young.byName[k]
	if q == nil {
		if q = n.old.byName[k]; q == nil {
			return 0
		}
		n.keep(q)
	}
	return q.id
}

func (n *names) key(id int64) (nameKey, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.young.byID[id]
	if q == nil {
		if q = n.old.byID[id]; q == nil {
			return nameKey{}, false
		}
		n.keep(q)
	}
	return q.nameKey, true
}

// eras returns the lowest era to search for each queue. A caller that finds no row there forgets the queue, and
// searches again: it may have been reaped, and stand in era 0.
func (n *names) eras(ids []int64) map[int64]int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	eras := make(map[int64]int32, len(ids))
	for _, id := range ids {
		if q := n.young.byID[id]; q != nil {
			eras[id] = q.era
		}
	}
	return eras
}

// saw keeps the eras of rows.
func (n *names) saw(rows map[int64]*QueueRow) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, row := range rows {
		if q := n.young.byID[id]; q != nil {
			q.era = row.Era
		}
	}
}

func (n *names) forget(id int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range []nameTable{n.young, n.old} {
		if q := t.byID[id]; q != nil {
			delete(t.byName, q.nameKey)
			delete(t.byID, id)
		}
	}
}

// QueueID returns the id of a queue's name, or 0 if this process has not met it yet.
func (s *Store) QueueID(context int32, name string) int64 { return s.names.id(nameKey{context, name}) }

// forgetQueue drops an id from the cache, so that EnsureQueues looks at its rows again.
func (s *Store) forgetQueue(id int64) { s.names.forget(id) }

// EnsureQueues makes the name and the row of every queue that this process has not met yet, in a
// transaction of its own, so that the transaction that hands out positions locks nothing but queue rows.
// A queue that was reaped goes on where it ended: its name is locked first, as reap locks it, and read
// again after the lock (else positions and fences would begin anew).
func (s *Store) EnsureQueues(ctx context.Context, subs []*Submission) error {
	missing := map[nameKey]bool{}
	for _, sub := range subs {
		if k := (nameKey{sub.ContextID, sub.Queue}); sub.Queue != "" && s.QueueID(k.context, k.name) == 0 {
			missing[k] = true
		}
	}
	if len(missing) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(missing), func(a, b nameKey) int {
		return cmp.Or(cmp.Compare(a.context, b.context), cmp.Compare(a.name, b.name))
	})
	return s.makeQueues(ctx, keys)
}

func (s *Store) makeQueues(ctx context.Context, keys []nameKey) error {
	contexts, names := make([]int32, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		contexts[i], names[i] = k.context, k.name
	}
	found := map[nameKey]int64{}
	err := s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO postern.queue_name (context_id, name, queue_id)
			SELECT n.context_id, n.name, nextval('postern.queue_id') FROM ROWS FROM (unnest($1::int[]), unnest($2::text[])) n(context_id, name)
			WHERE NOT EXISTS (SELECT FROM postern.queue_name q WHERE (q.context_id, q.name) = (n.context_id, n.name))
			ON CONFLICT DO NOTHING`, contexts, names)
		b.Queue(`SELECT q.context_id, q.name, q.queue_id FROM (
				SELECT * FROM ROWS FROM (unnest($1::int[]), unnest($2::text[])) n(context_id, name) ORDER BY context_id, name) n CROSS JOIN LATERAL (
				SELECT * FROM postern.queue_name q WHERE (q.context_id, q.name) = (n.context_id, n.name) LIMIT 1 FOR UPDATE) q`, contexts, names).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var k nameKey
				var id int64
				if err := rows.Scan(&k.context, &k.name, &id); err != nil {
					return err
				}
				found[k] = id
			}
			return rows.Err()
		})
		// The names are locked, so only this session inserts these rows now. The offset makes it one search for each:
		// see nextTasksSQL.
		b.Queue(`INSERT INTO postern.queue (queue_id, context_id, head_seq, tail_seq, head_day, tail_day, fence, prio, pool_id, max_depth,
				drop_oldest, pause_on_failure, entered_at)
			SELECT n.queue_id, n.context_id, n.last_seq + 1, n.last_seq, n.last_day, n.last_day,
				postern.next_fence(n.last_fence), n.prio, n.pool_id, n.max_depth,
				n.when_full = 'drop_oldest', n.on_failure = 'pause', coalesce($3::timestamptz, clock_timestamp())
			FROM ROWS FROM (unnest($1::int[]), unnest($2::text[])) k(context_id, name)
			CROSS JOIN LATERAL (SELECT * FROM postern.queue_name n WHERE (n.context_id, n.name) = (k.context_id, k.name) LIMIT 1) n
			WHERE NOT EXISTS (SELECT FROM postern.queue r WHERE r.queue_id = n.queue_id OFFSET 0)`, contexts, names, s.Clock())
		return t.Commit(ctx, b)
	})
	if err != nil {
		return err
	}
	for k, id := range found {
		if j := db.JointOf(ctx); j != nil && s.QueueID(k.context, k.name) == 0 {
			j.AtEnd(func() { s.forgetQueue(id) })
		}
		s.names.add(k, id)
	}
	return nil
}

func sortedKeys[V any](m map[taskKey]V) []taskKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b taskKey) int {
		return cmp.Or(cmp.Compare(a.context, b.context), cmp.Compare(a.uid, b.uid))
	})
}
