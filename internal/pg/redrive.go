package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// Redrive posts a transaction that ended badly once more, as a new one at the tail that names its origin
// (S2.6); change may override what is posted. Faults: not_found, wrong_state (not FAILED, UNRESOLVED or
// CANCELLED), already_redriven (names the new one), and whatever a post may meet.
func (s *Store) Redrive(ctx context.Context, by By, id outbox.ID, change func(*Submission)) (Accepted, error) {
	old, err := s.Transaction(ctx, by.Context, id)
	if err != nil {
		return Accepted{}, err
	}
	switch old.State {
	case outbox.FAILED, outbox.UNRESOLVED, outbox.CANCELLED:
	default:
		return Accepted{}, fault.New(fault.Conflict, "wrong_state", "transaction %s is %s: only FAILED, UNRESOLVED and CANCELLED ones are redriven", id, old.State)
	}
	sub := &Submission{ContextID: by.Context, Queue: old.Queue, Actor: by.Actor, Type: old.Type, Data: old.Data, MaxRetries: old.MaxRetries,
		Tags: old.Tags, RedriveOf: &id}
	if change != nil {
		change(sub)
	}
	out, err := s.Ingest(ctx, []*Submission{sub}, false)
	if err == nil {
		return out[0], out[0].Err
	}
	var e *pgconn.PgError
	if errors.As(err, &e) && e.ConstraintName == "one_redrive_per_transaction" {
		if old, err = s.Transaction(ctx, by.Context, id); err == nil {
			return Accepted{}, fault.New(fault.Conflict, "already_redriven", "transaction %s was redriven as %s already", id, old.RedrivenBy).
				With("redriven_by", old.RedrivenBy)
		}
	}
	return Accepted{}, err
}
