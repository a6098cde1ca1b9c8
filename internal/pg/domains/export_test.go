package domains

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/pg/db"
)

// ImageNow loads the image of a domain as the next step of this process would, or as a process that has taken none.
func (s *Store) ImageNow(ctx context.Context, id int32, kept bool) (d *coord.Domain, permits []int, err error) {
	if !kept {
		s.seats.Delete(id)
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		h, err := s.lock(ctx, t, id, true, nil)
		if err != nil {
			return err
		}
		k := h.kept()
		d, permits = k.d, k.permits
		return t.Rollback(ctx)
	})
	return d, permits, err
}

// StepBy takes a step that changes an image by hand, and keeps it.
func (s *Store) StepBy(ctx context.Context, id int32, change func(*coord.Domain)) error {
	return s.Run(ctx, func(t *db.Txn) error {
		h, err := s.lock(ctx, t, id, true, nil)
		if err != nil {
			return err
		}
		st := &coord.Step{Domain: h.d.Clone()}
		change(st.Domain)
		b := &pgx.Batch{}
		if err := h.write(b, st); err != nil {
			return err
		}
		if err := t.Commit(ctx, b); err != nil {
			return err
		}
		s.keep(h)
		return nil
	})
}

// KeepsImage says whether this process would read nothing but what has changed.
func (s *Store) KeepsImage(ctx context.Context, id int32) (known bool, changed []string, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		h, err := s.lock(ctx, t, id, true, nil)
		if err != nil {
			return err
		}
		changed, known = h.since(s.keeps(id))
		return t.Rollback(ctx)
	})
	return known, changed, err
}

// HoldsBackLate suspends the one activity as a process does that has read its list before another one let it go.
func (s *Store) HoldsBackLate(ctx context.Context, contextID int32, letGo func()) error {
	a := &activity{context: contextID}
	if err := s.Pool().QueryRow(ctx, `SELECT domain_id, n, uid FROM postern.coord_activity`).
		Scan(&a.domain, &a.n, &a.uid); err != nil {
		return err
	}
	letGo()
	return s.suspendOne(ctx, a)
}
