package db

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// AuditIn adds the audit row of an action to b: by whom, with which reason, on which object (its path in the API).
func (db *DB) AuditIn(b *pgx.Batch, by By, action, object string) {
	db.AuditChange(b, by, action, object, nil, nil)
}

// AuditChange is AuditIn with what was configured before and is now; nil where there was or is nothing.
func (db *DB) AuditChange(b *pgx.Batch, by By, action, object string, before, after any) {
	b.Queue(`INSERT INTO postern.audit (context_id, actor, via, action, object, reason, request_id, at, before, after)
		VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8::timestamptz, clock_timestamp()), $9::text::jsonb, $10::text::jsonb)`,
		by.Context, by.Actor, by.Via, action, object, by.Reason, by.RequestID, db.Clock(), document(before), document(after))
}

// document is v as JSON, nil for nothing.
func document(v any) *string {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil || string(b) == "null" {
		return nil
	}
	text := string(b)
	return &text
}

// AuditRow is one lever that was pulled, or one change of configuration.
type AuditRow struct {
	ID        int64
	At        time.Time
	Actor     string
	Via       string
	Action    string
	Object    string
	Reason    string
	RequestID string
	Before    json.RawMessage
	After     json.RawMessage
}

// AuditFilter narrows a list of audit rows. Empty fields do not narrow.
type AuditFilter struct {
	Actor, Action, Object string
	After, Before         time.Time // half-open
	FromAt                time.Time // the cursor: time and id of the last one
	FromID                int64
	Ascending             bool // the oldest first
	Limit                 int
}

// Audit lists what was done in a context, newest first unless said.
func (db *DB) Audit(ctx context.Context, contextID int32, f AuditFilter) ([]*AuditRow, error) {
	from := `(at, audit_id) < (coalesce($7::timestamptz, 'infinity'), $8)
		ORDER BY at DESC, audit_id DESC`
	if f.Ascending {
		from = `(at, audit_id) > (coalesce($7::timestamptz, '-infinity'), $8)
		ORDER BY at, audit_id`
	}
	rows, err := db.Db(ctx).Query(ctx, `SELECT audit_id, at, actor, via, action, object, reason, request_id,
			before, after
		FROM postern.audit
		WHERE context_id = $1
			AND ($2 = '' OR actor = $2)
			AND ($3 = '' OR action = $3)
			AND ($4 = '' OR object = $4)
			AND ($5::timestamptz IS NULL OR at >= $5)
			AND ($6::timestamptz IS NULL OR at < $6)
			AND `+from+`
		LIMIT $9`,
		contextID, f.Actor, f.Action, f.Object, Nullable(f.After), Nullable(f.Before), Nullable(f.FromAt), f.FromID, f.Limit)
	if err != nil {
		return nil, Known(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*AuditRow, error) {
		a := &AuditRow{}
		return a, row.Scan(&a.ID, &a.At, &a.Actor, &a.Via, &a.Action, &a.Object, &a.Reason, &a.RequestID, &a.Before, &a.After)
	})
	return list, Known(err)
}
