package domains

import (
	"context"

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
// others have greeted, PostActivities resumes it; where they know more than this store, the domain recalls it.
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
			err = s.halt(ctx, id, err)
		}
		if err != nil {
			return err
		}
	}
	return s.holdBack(ctx, halted)
}

// untilGreeted is why a transaction is suspended at a start.
const untilGreeted = "its domain waits until the other nodes have greeted it"

// ofStart is the actor that suspends at a start, and resumes.
func ofStart(contextID int32) db.By {
	return db.By{Context: contextID, Via: "domains", Reason: untilGreeted}
}

// holdBack suspends what the core has of domains that are still, or whose step failed. The activity is marked first:
// one whose process ends in between is resumed for nothing. One that is marked is suspended all the same, since the
// process that marked it may have ended, or may not have suspended it yet.
func (s *Store) holdBack(ctx context.Context, halted []int32) error {
	rows, err := s.Db(ctx).Query(ctx, `SELECT a.domain_id, d.context_id, a.work_uid, a.uid
		FROM postern.coord_state s
		JOIN postern.domain d ON d.domain_id = s.domain_id
		JOIN postern.coord_activity a ON a.domain_id = s.domain_id
		WHERE (s.still OR (s.image->>'Paused')::boolean OR d.domain_id = ANY ($1))
			AND d.removed_at IS NULL
			AND a.ended_at IS NULL
			AND a.posted_at IS NOT NULL
		ORDER BY a.n`, halted)
	if err != nil {
		return db.Known(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*activity, error) {
		a := &activity{}
		return a, row.Scan(&a.domain, &a.context, &a.workUID, &a.uid)
	})
	if err != nil {
		return db.Known(err)
	}
	for _, a := range list {
		if err := s.mark(ctx, a, true); err != nil {
			return err
		}
		id, err := s.ByUID(ctx, a.context, a.uid)
		if fault.KindOf(err) == fault.NotFound {
			continue
		}
		if err == nil {
			err = s.suspendOne(ctx, a, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// suspendOne suspends one. It takes the mark back where the transaction has ended, or an operator has suspended it and
// resumes it himself. A suspension of another process that begins has our reason, and keeps the mark.
func (s *Store) suspendOne(ctx context.Context, a *activity, id outbox.ID) error {
	by := ofStart(a.context)
	r, err := s.Store.Suspend(ctx, by, id)
	switch {
	case err == nil && r.Changed: // another process may have let it go behind the mark
		return s.mark(ctx, a, true)
	case err != nil && fault.KindOf(err) != fault.Conflict:
		return err
	}
	return s.unmark(ctx, a, id)
}

// unmark takes a mark back unless the transaction is suspended for our reason: a process that begins at this moment may
// have suspended it again.
func (s *Store) unmark(ctx context.Context, a *activity, id outbox.ID) error {
	_, err := s.Exec(ctx, `UPDATE postern.coord_activity
		SET held_back = false
		WHERE domain_id = $1 AND work_uid = $2 AND NOT EXISTS (SELECT
			FROM postern.mark m
			WHERE (m.queue_id, m.seq, m.kind) = ($3, $4, 'suspended') AND m.reason = $5)`,
		a.domain, a.workUID, id.Queue, id.Seq, untilGreeted)
	return err
}

// mark writes whether an activity is held back.
func (s *Store) mark(ctx context.Context, a *activity, heldBack bool) error {
	_, err := s.Exec(ctx, `UPDATE postern.coord_activity SET held_back = $3 WHERE domain_id = $1 AND work_uid = $2`,
		a.domain, a.workUID, heldBack)
	return err
}

// letGo resumes what was held back.
func (s *Store) letGo(ctx context.Context, a *activity) error {
	id, err := s.ByUID(ctx, a.context, a.uid)
	if err == nil {
		_, err = s.Store.Resume(ctx, ofStart(a.context), id)
	}
	switch kind := fault.KindOf(err); {
	case kind == fault.NotFound:
		return s.mark(ctx, a, false)
	case err != nil && kind != fault.Conflict:
		return err
	}
	return s.unmark(ctx, a, id)
}
