package domains

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// holdsTypes refuses types that are removed meanwhile, and a finality that a type of the domain does not wait for: an
// intent would be done, and its public transaction could be taken out of the ledger again.
//
// Why a dispatcher that is removed, or put to wait for less, at the same time does neither: this locks its row, and
// final reads the domains behind the lock of that row, where READ COMMITTED shows it this one.
func (s *Store) holdsTypes(ctx context.Context, t *db.Txn, contextID int32, set Settings) error {
	b := &pgx.Batch{}
	b.Queue(`SELECT d.type, d.removed_at IS NOT NULL,
			coalesce((d.settings->'inclusion'->>'confirmations')::integer, 1)
		FROM postern.dispatcher d
		WHERE d.context_id = $1 AND d.type = ANY ($2)
		ORDER BY d.type
		FOR SHARE`, contextID, set.Types).Query(func(rows pgx.Rows) error {
		var typ string
		var removed bool
		var confirmations int
		_, err := pgx.ForEachRow(rows, []any{&typ, &removed, &confirmations}, func() error {
			switch {
			case removed:
				return noType(slices.Index(set.Types, typ), typ)
			case confirmations < set.Finality:
				return fault.At("/finality", "finality %d: type %q waits for fewer confirmations (%d): want a "+
					"dispatcher with at least as many (PATCH /dispatchers/%[2]s, inclusion.confirmations), or a lower "+
					"finality", set.Finality, typ, confirmations)
			}
			return nil
		})
		return err
	})
	return t.Send(ctx, b)
}

func noType(at int, typ string) error {
	return fault.At("/types/"+itoa(at), "type %q has no dispatcher: PUT /dispatchers/%[1]s first", fault.Clip(typ))
}

// final refuses a dispatcher that waits for fewer confirmations than the finality of a domain whose type it is.
func final(ctx context.Context, t *db.Txn, contextID int32, d outbox.Dispatcher) error {
	b := &pgx.Batch{}
	b.Queue(`SELECT d.name, (d.settings->>'finality')::integer
		FROM postern.domain d
		WHERE d.context_id = $1 AND d.removed_at IS NULL AND d.settings->'types' ? $2
			AND (d.settings->>'finality')::integer > $3
		ORDER BY d.name
		LIMIT 1`, contextID, d.Type, d.Inclusion.Confirmations).Query(func(rows pgx.Rows) error {
		var name string
		var finality int
		_, err := pgx.ForEachRow(rows, []any{&name, &finality}, func() error {
			return fault.At("/inclusion/confirmations", "confirmations %d: domain %q posts type %q, and has a "+
				"finality of %d: want at least as many, or lower that first", d.Inclusion.Confirmations, name, d.Type,
				finality)
		})
		return err
	})
	return t.Send(ctx, b)
}
