package outbox

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Event is what has happened to one transaction, at its place in a subscription.
type Event struct {
	Cursor      string    // for Ack
	At          time.Time // when it happened
	Type        string    // transaction.accepted, transaction.done, transaction.failed, ...
	UID         string
	Transaction string          // its id
	Body        json.RawMessage // what a webhook would be sent
}

// Feed fetches up to most events of a pull subscription ("" = of the context default) after what was
// acknowledged, in order, as a part of tx. Nothing comes while another transaction that fetched is open. Do what they
// mean in tx, call Ack with the last cursor, commit: effect and acknowledgement hold together, or neither
// does and the events come again. The error is an *Error when Postern refuses it: not_found, wrong_state (no
// subscription of kind pull), cursor_expired (retention dropped what was not fetched in time).
func Feed(ctx context.Context, tx pgx.Tx, subscription, tenant string, most int) ([]Event, error) {
	rows, err := tx.Query(ctx, `SELECT f.cursor, f.at, f.event, f.uid, f.transaction_id::text, f.body
		FROM postern.feed($1::text, $2::int, nullif($3::text, '')) f`, subscription, most, tenant)
	if err != nil {
		return nil, refused(err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
		err = row.Scan(&e.Cursor, &e.At, &e.Type, &e.UID, &e.Transaction, &e.Body)
		return e, err
	})
	return events, refused(err)
}

// Ack acknowledges everything up to and with cursor as a part of tx; false if it was so already. The error
// is an *Error when Postern refuses it: not_found, wrong_state, bad_cursor, cursor_expired.
func Ack(ctx context.Context, tx pgx.Tx, subscription, tenant, cursor string) (changed bool, err error) {
	err = tx.QueryRow(ctx, `SELECT postern.ack($1::text, $2::text, nullif($3::text, ''))`, subscription,
		cursor, tenant).Scan(&changed)
	return changed, refused(err)
}
