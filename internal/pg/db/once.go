package db

import (
	"bytes"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
)

// Once makes a POST repeatable: the same key with the same body is the same request.
type Once struct {
	Key  string // "" for a request that is always new
	Hash []byte
}

// Replayed returns the id under which the key was used before, "" if it was not; another body is a conflict.
func (t *Txn) Replayed(ctx context.Context, once Once, sql string, args ...any) (id string, err error) {
	if once.Key == "" {
		return "", nil
	}
	var hash []byte
	b := &pgx.Batch{}
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&id, &hash}, func() error { return nil })
		return err
	})
	if err := t.Send(ctx, b); err != nil {
		return "", err
	}
	if id != "" && !bytes.Equal(hash, once.Hash) {
		return "", fault.New(fault.Conflict, "idempotency_conflict",
			"the key %q belongs to a request with another body", fault.Clip(once.Key)).
			With("existing", map[string]string{"id": id})
	}
	return id, nil
}
