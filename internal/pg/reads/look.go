package reads

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// nowMost is how many heads Look explains.
const nowMost = 10

// Present is what a context holds at a moment: how many, by state, and its oldest heads.
type Present struct {
	AsOf     time.Time
	Waiting  int64            // transactions behind those in flight
	InFlight map[string]int64 // transactions, by state
	Queues   map[string]int64 // those that hold something, by state
	Heads    []Head           // the oldest first
	Hours    []Hour           // the last ones, up to the present one, as they are rolled up
}

// Hour is what came and what ended in one hour.
type Hour struct {
	At                                time.Time // its beginning
	Accepted, Done, Failed, Cancelled int64     // unresolved ones have failed, too
}

// hoursShown is how many hours Look tells of.
const hoursShown = 24

// Head is the first transaction of a queue that has not ended, with the blocker at the root: the last one with a lever
// that changes something, or the last one.
type Head struct {
	Queue, UID, Type, State string

	ID      outbox.ID
	Since   time.Time // it is head
	Moving  bool
	Summary string
	Root    Blocker
}

// Look looks at the queues of a context. It costs a scan of queue, from which idle queues go after a day, and a few
// reads for each head, and locks nothing. The oldest heads are those that SampleStuck found, which has asked for the
// age of each, and those that have been in their phase for longest.
func (s *Store) Look(ctx context.Context, contextID int32) (*Present, error) {
	n := &Present{InFlight: map[string]int64{}, Queues: map[string]int64{}}
	var err error
	if n.AsOf, err = s.Now(ctx); err != nil {
		return nil, err
	}
	candidates, err := s.glance(ctx, contextID, n)
	if err != nil {
		return nil, err
	}
	for _, queue := range candidates {
		h, err := s.headOf(ctx, contextID, queue)
		if err != nil {
			return nil, err
		}
		if h != nil {
			n.Heads = append(n.Heads, *h)
		}
	}
	slices.SortFunc(n.Heads, func(a, b Head) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID.Queue, b.ID.Queue))
	})
	n.Heads = n.Heads[:min(len(n.Heads), nowMost)]
	return n, nil
}

// cancelledMost is how many that were cancelled behind a head are taken off what waits, until the head has passed them.
const cancelledMost = 100_000

// withoutCancelled adds to b that those are taken off what waits.
func withoutCancelled(b *pgx.Batch, contextID int32, n *Present) {
	b.Queue(`SELECT count(*) FROM (SELECT
			FROM postern.queue q
			JOIN postern.mark m ON m.queue_id = q.queue_id AND m.kind = 'cancelled'
			WHERE q.context_id = $1 AND q.phase <> 'IDLE' AND q.marks > 0
			LIMIT $2) x`, contextID, cancelledMost).QueryRow(func(row pgx.Row) error {
		var ended int64
		err := row.Scan(&ended)
		n.Waiting = max(0, n.Waiting-ended)
		return err
	})
}

// glance counts what a context holds, reads its last hours, which are found by the key of rollup, and finds queues
// whose heads may be the oldest.
func (s *Store) glance(ctx context.Context, contextID int32, n *Present) (candidates []int64, err error) {
	b := &pgx.Batch{}
	b.Queue("BEGIN READ ONLY")
	b.Queue(planByScan)
	b.Queue(`SELECT phase, count(*), count(cur_seq), coalesce(sum(tail_seq - head_seq + 1), 0)::bigint
		FROM postern.queue
		WHERE context_id = $1 AND phase <> 'IDLE'
		GROUP BY phase`, contextID).Query(func(rows pgx.Rows) error {
		var phase outbox.Phase
		var queues, flying, all int64
		_, err := pgx.ForEachRow(rows, []any{&phase, &queues, &flying, &all}, func() error {
			n.Queues[string(phase.Queue())] += queues
			n.Waiting += max(0, all-flying)
			if flying > 0 {
				n.InFlight[string(phase.Transaction())] += flying
			}
			return nil
		})
		return err
	})
	withoutCancelled(b, contextID, n)
	b.Queue(`WITH stuck AS (
			SELECT queue_id
			FROM postern.stuck
			WHERE context_id = $1
			ORDER BY since
			LIMIT $2),
		standing AS (
			SELECT queue_id
			FROM postern.queue
			WHERE context_id = $1 AND phase <> 'IDLE'
			ORDER BY least(entered_at, blocked_since)
			LIMIT $2)
		SELECT queue_id FROM stuck
		UNION
		SELECT queue_id FROM standing`, contextID, nowMost).Query(func(rows pgx.Rows) (err error) {
		candidates, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	b.Queue(`SELECT h, coalesce(sum(r.accepted), 0)::bigint, coalesce(sum(r.done), 0)::bigint,
			coalesce(sum(r.failed + r.unresolved), 0)::bigint, coalesce(sum(r.cancelled), 0)::bigint
		FROM generate_series(date_trunc('hour', $2::timestamptz, 'UTC') - interval '1 hour' * ($3 - 1), $2,
			interval '1 hour') h
		LEFT JOIN LATERAL (SELECT *
			FROM postern.rollup r
			WHERE r.hour = h AND r.context_id = $1
			OFFSET 0) r ON true
		GROUP BY h
		ORDER BY h`, contextID, n.AsOf, hoursShown).Query(func(rows pgx.Rows) (err error) {
		n.Hours, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Hour])
		return err
	})
	b.Queue("COMMIT")
	return candidates, db.Known(s.Pool().SendBatch(ctx, b).Close())
}

// headOf explains the head of a queue; nil: it is empty by now.
func (s *Store) headOf(ctx context.Context, contextID int32, queue int64) (*Head, error) {
	x := &explain{s: s, ctx: ctx, context: contextID}
	if err := x.load(queue); err != nil && fault.KindOf(err) != fault.NotFound {
		return nil, err
	}
	if x.head == nil {
		return nil, nil
	}
	since, err := x.headSince()
	if err != nil {
		return nil, err
	}
	w, err := s.Why(ctx, contextID, x.head.ID)
	if fault.KindOf(err) == fault.NotFound || err == nil && len(w.Blockers) == 0 {
		return nil, nil // it ended meanwhile
	}
	if err != nil {
		return nil, err
	}
	root, _ := (&stuckRow{x: x, why: w, since: since}).root()
	return &Head{
		Queue:   x.name,
		UID:     cmp.Or(x.head.UID, x.head.ID.String()),
		Type:    x.head.Type,
		State:   w.State,
		ID:      x.head.ID,
		Since:   since,
		Moving:  w.Moving,
		Summary: w.Summary,
		Root:    root,
	}, nil
}
