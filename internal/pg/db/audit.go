package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	Examined              int // how many rows the page may look at; 0: Examined
}

// Examined is how many rows a page of a list looks at, at most, to find those that no index finds for it.
const Examined = 50_000

// Audit lists what was done in a context, newest first unless said, and says where the list goes on if it has looked at
// as many rows as it may before it has found as many as it should.
func (db *DB) Audit(ctx context.Context, contextID int32, f AuditFilter) (list []*AuditRow, next *AuditRow, err error) {
	from, order := `(at, audit_id) < (coalesce($5::timestamptz, 'infinity'), $6)`, ` ORDER BY at DESC, audit_id DESC `
	if f.Ascending {
		from, order = `(at, audit_id) > (coalesce($5::timestamptz, '-infinity'), $6)`, ` ORDER BY at, audit_id `
	}
	seen := `FROM postern.audit
		WHERE context_id = $1
			AND ($2 = '' OR object = $2)
			AND ($3::timestamptz IS NULL OR at >= $3)
			AND ($4::timestamptz IS NULL OR at < $4)
			AND ` + from
	args := []any{contextID, f.Object, Nullable(f.After), Nullable(f.Before), Nullable(f.FromAt), f.FromID}
	if f.Examined == 0 {
		f.Examined = Examined
	}
	rows, err := db.Db(ctx).Query(ctx, fmt.Sprintf(`SELECT audit_id, at, actor, via, action, object, reason, request_id,
			before, after
		FROM (SELECT * %s%sLIMIT %d) a
		WHERE ($7 = '' OR actor = $7) AND ($8 = '' OR action = $8)%s
		LIMIT $9`, seen, order, f.Examined, order), append(args, f.Actor, f.Action, f.Limit)...)
	if err != nil {
		return nil, nil, Known(err)
	}
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*AuditRow, error) {
		a := &AuditRow{}
		return a, row.Scan(&a.ID, &a.At, &a.Actor, &a.Via, &a.Action, &a.Object, &a.Reason, &a.RequestID, &a.Before,
			&a.After)
	})
	if err != nil || len(list) == f.Limit {
		return list, nil, Known(err)
	}
	at := AuditRow{}
	next, err = Further(db.Db(ctx).QueryRow(ctx, fmt.Sprintf(`SELECT at, audit_id %s%sOFFSET %d LIMIT 1`, seen, order,
		f.Examined-1), args...), &at, &at.At, &at.ID)
	return list, next, err
}

// Further scans the last row that a bounded page has looked at into the fields of a place, and returns that; nil where
// the page came to the end.
func Further[T any](row pgx.Row, at *T, fields ...any) (*T, error) {
	err := row.Scan(fields...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return at, Known(err)
}
