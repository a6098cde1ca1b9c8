package domains

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Begin takes a step of each domain that is not in quarantine, and holds back what those that are still by then have
// posted. A process calls it before it first claims anything, and again once a quarantine is over. A domain that is
// paused calls and sends nothing, but its step says whether it has to wait for the others.
//
// Why nothing of a life that is lost goes out: the step notes the process in the row of the seat, or leaves the
// quarantine of the store, before this process claims. Where it finds all others dead, it has the domain wait for the
// greetings; another process that begins meanwhile waits for the row of the seat, reads that, and holds back the same.
// So the first claim of each process comes behind a commit that suspends what the core had of the domain. Once the
// others have greeted, PostActivities resumes it; where they know more than this store, the domain recalls it. A domain
// that learns of a loss later is still from then on: PostActivities holds back what has not gone out.
func (s *Store) Begin(ctx context.Context) error {
	rows, err := s.Db(ctx).Query(ctx, `SELECT d.domain_id, d.context_id
		FROM postern.domain d
		WHERE d.removed_at IS NULL
		ORDER BY d.domain_id`)
	if err != nil {
		return db.Known(err)
	}
	var ids []int32
	var id, contextID int32
	_, err = pgx.ForEachRow(rows, []any{&id, &contextID}, func() error {
		if !s.Quarantined(contextID, "") {
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		return db.Known(err)
	}
	halted := []int32{}
	for _, id := range ids {
		_, err := s.step(ctx, id, taking{wait: true})
		if violated(err) { // it is paused: the others, and the claims, do not wait for it
			halted = append(halted, id)
			_, err = s.halt(ctx, id, err)
		}
		if err != nil {
			return err
		}
	}
	return s.holdBack(ctx, halted, true)
}

// untilGreeted is why a transaction is suspended at a start.
const untilGreeted = "its domain waits until the other nodes have greeted it"

// ofStart is the actor that suspends at a start, and resumes.
func ofStart(contextID int32) db.By {
	return db.By{Context: contextID, Via: "domains", Reason: untilGreeted}
}

// holdBack suspends what the core has of domains that are still, or whose step failed. Those that have
// ended or are suspended already it leaves alone, unless again says that this process begins: a person may have resumed
// one. One that fails keeps no other.
func (s *Store) holdBack(ctx context.Context, halted []int32, again bool) error {
	rows, err := s.Db(ctx).Query(ctx, `SELECT a.domain_id, d.context_id, a.n, a.uid
		FROM postern.coord_state s
		JOIN postern.domain d ON d.domain_id = s.domain_id
		JOIN postern.coord_activity a ON a.domain_id = s.domain_id
		WHERE (s.still OR d.domain_id = ANY ($1))
			AND d.removed_at IS NULL
			AND a.ended_at IS NULL
			AND a.posted_at IS NOT NULL
			AND NOT a.recalled
			AND ($2 OR EXISTS (SELECT
				FROM postern.idempotency i
				WHERE (i.context_id, i.key) = (d.context_id, a.uid)
					AND NOT EXISTS (SELECT FROM postern.outcome o
						WHERE (o.queue_id, o.seq, o.day) = (i.queue_id, i.seq, i.day))
					AND NOT EXISTS (SELECT FROM postern.mark m
						WHERE (m.queue_id, m.seq, m.kind) = (i.queue_id, i.seq, 'suspended'))))
		ORDER BY a.n`, halted, again)
	if err != nil {
		return db.Known(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*activity, error) {
		a := &activity{}
		return a, row.Scan(&a.domain, &a.context, &a.n, &a.uid)
	})
	if err != nil {
		return db.Known(err)
	}
	var all []error
	for _, a := range list {
		all = append(all, s.suspendOne(ctx, a))
	}
	return errors.Join(all...)
}

// suspendOne suspends one. It is not held back where it has ended, or an operator has suspended it and resumes it
// himself.
func (s *Store) suspendOne(ctx context.Context, a *activity) error {
	return s.onCore(ctx, a, func(ctx context.Context, id outbox.ID, heldBack bool) (bool, error) {
		r, err := s.Store.Suspend(ctx, ofStart(a.context), id)
		return err == nil && (r.Changed || heldBack), err
	})
}

// letGo resumes what was held back. One that an operator has suspended meanwhile is not held back any more, and stays
// suspended until he resumes it.
func (s *Store) letGo(ctx context.Context, a *activity) error {
	return s.onCore(ctx, a, func(ctx context.Context, id outbox.ID, _ bool) (bool, error) {
		_, err := s.Store.Resume(ctx, ofStart(a.context), id)
		return false, err
	})
}

// onCore changes what the core has of an activity, and notes whether that is held back, in one commit.
//
// Why none stands suspended without its mark, nor goes out with it: both change together. A process that suspends waits
// for another one that lets go, on the row of the activity, and the other way round; the last one leaves both as they
// belong together, and a domain that goes on lets go of all that is marked.
func (s *Store) onCore(
	ctx context.Context, a *activity, change func(context.Context, outbox.ID, bool) (bool, error),
) error {
	heldBack := false
	lock := func(_ *db.Txn, b *pgx.Batch) {
		b.Queue(`SELECT a.held_back FROM postern.coord_activity a WHERE a.domain_id = $1 AND a.n = $2 FOR UPDATE`,
			a.domain, a.n).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&heldBack}, func() error { return nil })
			return err
		})
	}
	all := func(ctx context.Context) error {
		marked := false
		id, err := s.ByUID(ctx, a.context, a.uid)
		if err == nil {
			marked, err = change(ctx, id, heldBack)
		}
		if kind := fault.KindOf(err); err != nil && kind != fault.Conflict && kind != fault.NotFound {
			return err
		}
		_, err = s.Exec(ctx, `UPDATE postern.coord_activity SET held_back = $3 WHERE domain_id = $1 AND n = $2`,
			a.domain, a.n, marked)
		return err
	}
	err := db.Again(func() error { return s.DB.Together(ctx, lock, all) })
	if err == nil {
		s.RingHere()
	}
	return err
}
