package flows

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/db"
)

const (
	// unsettledAtOnce is how many tries, and how many prerequisites, one look reads.
	unsettledAtOnce = 500
	// unsettledFresh is for how long one counts as fresh: the core hears of nearly all sooner.
	unsettledFresh = 5 * time.Second
)

// looked is up to where the looks for what is not settled, and for what is not posted, have come. Some stay for as long
// as their context is in quarantine, or their type is paused; so that these keep no other from being read, a look that
// read as many as it may is followed by one behind it, and the look that reaches the end by one from the beginning.
type looked struct {
	mu    sync.Mutex
	ended time.Time // of the last try
	try   uuid.UUID
	need  int64 // the queue of the last prerequisite

	updated time.Time // of the last job without a transaction
	job     uuid.UUID
}

// Unsettled has the core ask about tries and prerequisites that have ended and that it has not heard of. It returns how
// many such it read, and how many of them have ended within the last seconds. It is the look for what End and Meet
// could not tell: the core takes the hash of a try in a commit that may come after the end of the try.
func (s *Store) Unsettled(ctx context.Context) (open, fresh int, err error) {
	s.looked.mu.Lock()
	defer s.looked.mu.Unlock()
	queues, fresh, err := s.unsettledTries(ctx)
	if err != nil {
		return 0, 0, err
	}
	needs, more, err := s.unsettledNeeds(ctx)
	if err != nil {
		return 0, 0, err
	}
	queues = append(queues, needs...)
	return len(queues), fresh + more, s.Hasten(ctx, queues)
}

// unsettledTries returns the queues of tries that the core has not heard of, and how many are fresh. It notes which
// need not be told any more, since their transactions have gone on.
func (s *Store) unsettledTries(ctx context.Context) (queues []int64, fresh int, err error) {
	at := &s.looked
	rows, err := s.Looks.Query(ctx, `SELECT t.try_id, t.ended_at,
			t.ended_at > coalesce($3::timestamptz, clock_timestamp()) - $4::interval,
			t.queue_id, coalesce(q.phase, ''), coalesce(q.cur_seq, 0) = t.seq AND q.attempt = t.attempt
		FROM (
			SELECT *
			FROM postern.job_try t
			WHERE t.ended_at IS NOT NULL AND NOT t.settled AND (t.ended_at, t.try_id) > ($1, $2)
			ORDER BY t.ended_at, t.try_id
			LIMIT $5) t
		LEFT JOIN LATERAL (
			SELECT *
			FROM postern.queue q
			WHERE q.queue_id = t.queue_id
			ORDER BY q.era DESC
			LIMIT 1) q ON true
		ORDER BY t.ended_at, t.try_id`, at.ended, at.try, s.Clock(), unsettledFresh, unsettledAtOnce)
	if err != nil {
		return nil, 0, db.Known(err)
	}
	var settled []uuid.UUID
	var ended time.Time
	var id uuid.UUID
	var lately bool
	var queue int64
	var phase string
	var same *bool
	n := 0
	if _, err := pgx.ForEachRow(rows, []any{&id, &ended, &lately, &queue, &phase, &same}, func() error {
		n++
		switch {
		case same == nil || !*same, phase == "RETRY", phase == "DELAY":
			settled = append(settled, id)
			return nil
		case lately:
			fresh++
		}
		queues = append(queues, queue)
		return nil
	}); err != nil {
		return nil, 0, db.Known(err)
	}
	if at.ended, at.try = ended, id; n < unsettledAtOnce {
		at.ended, at.try = time.Time{}, uuid.Nil
	}
	if len(settled) > 0 {
		_, err = s.Exec(ctx, `UPDATE postern.job_try SET settled = true WHERE try_id = ANY ($1)
			AND ended_at IS NOT NULL`, settled)
	}
	return queues, fresh, err
}

// unsettledNeeds returns the queues of prerequisites that are met, or not waited for any more, and whose transactions
// have not ended; and how many are fresh.
func (s *Store) unsettledNeeds(ctx context.Context) (queues []int64, fresh int, err error) {
	at := &s.looked
	rows, err := s.Looks.Query(ctx, `SELECT n.queue_id,
			coalesce(n.met_at, n.ended_at) > coalesce($2::timestamptz, clock_timestamp()) - $3::interval
		FROM postern.job_need n
		WHERE (n.met_at IS NOT NULL OR n.ended_at IS NOT NULL) AND NOT n.settled AND n.queue_id > $1
		ORDER BY n.queue_id
		LIMIT $4`, at.need, s.Clock(), unsettledFresh, unsettledAtOnce)
	if err != nil {
		return nil, 0, db.Known(err)
	}
	var queue int64
	var lately bool
	if _, err := pgx.ForEachRow(rows, []any{&queue, &lately}, func() error {
		queues = append(queues, queue)
		if lately {
			fresh++
		}
		return nil
	}); err != nil {
		return nil, 0, db.Known(err)
	}
	if at.need = queue; len(queues) < unsettledAtOnce {
		at.need = 0
	}
	return queues, fresh, nil
}
