package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Transaction is what is to go out. Type is required; the zero value of everything else means "not given".
type Transaction struct {
	Queue      string            // the ordering key; "" = unordered
	Type       string            // names the dispatcher
	Data       any               // handed to the worker as JSON, at most 256 KiB; json.RawMessage is taken as it is, nil is {}
	UID        string            // the caller's own name, unique in its context; "" = one is made
	Context    string            // the tenant; "" = default
	NotBefore  time.Time         // does not go out before; kept to the microsecond
	DependsOn  []string          // ids or uids: goes out only after all of them are DONE
	MaxRetries *int              // else the dispatcher's
	Tags       map[string]string // at most 16
	Callback   *Callback         // whom to tell of its end, beside all subscriptions
}

// Callback is the endpoint that is told how one transaction ended, as a webhook is told.
type Callback struct {
	URL string   `json:"url"`
	On  []string `json:"on,omitempty"` // DONE, FAILED, UNRESOLVED, CANCELLED; empty: any of them
}

// Submit stages one transaction in tx and returns its uid. With a uid that is known, with the same body,
// nothing is added; one that another open SQL transaction has submitted is waited for. The error is an
// *Error when Postern refuses it; PostgreSQL has then aborted tx, unless tx is a savepoint (tx.Begin) that
// the caller rolls back.
func Submit(ctx context.Context, tx pgx.Tx, t Transaction) (uid string, err error) {
	data, err := encode(t.Data)
	if err != nil {
		return "", err
	}
	var tags, notBefore, queue, name, tenant, callback any
	if t.Callback != nil {
		b, err := json.Marshal(t.Callback)
		if err != nil {
			return "", err
		}
		callback = string(b)
	}
	if len(t.Tags) > 0 {
		b, err := json.Marshal(t.Tags)
		if err != nil {
			return "", err
		}
		tags = string(b)
	}
	if !t.NotBefore.IsZero() {
		notBefore = t.NotBefore
	}
	for value, into := range map[*string]*any{&t.Queue: &queue, &t.UID: &name, &t.Context: &tenant} {
		if *value != "" {
			*into = *value
		}
	}
	err = tx.QueryRow(ctx, `SELECT postern.submit($1::text, $2::text, $3::text::jsonb, uid => $4::text, context => $5::text,
		not_before => $6::timestamptz, depends_on => $7::text[], max_retries => $8::int, tags => $9::text::jsonb, callback => $10::text::jsonb)`,
		queue, t.Type, data, name, tenant, notBefore, t.DependsOn, t.MaxRetries, tags, callback).Scan(&uid)
	return uid, refused(err)
}

// item is a Transaction as postern.submit_many reads it.
type item struct {
	Queue      string            `json:"queue,omitempty"`
	Type       string            `json:"type"`
	Data       json.RawMessage   `json:"data,omitempty"`
	UID        string            `json:"uid,omitempty"`
	Context    string            `json:"context,omitempty"`
	NotBefore  *time.Time        `json:"not_before,omitempty"`
	DependsOn  []string          `json:"depends_on,omitempty"`
	MaxRetries *int              `json:"max_retries,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	Callback   *Callback         `json:"callback,omitempty"`
}

// SubmitMany stages transactions in tx, in their order, in one round trip, and returns their uids: all of
// them or none. Errors are those of Submit; an *Error names the first one that is refused.
func SubmitMany(ctx context.Context, tx pgx.Tx, ts []Transaction) (uids []string, err error) {
	items := make([]item, len(ts))
	for i, t := range ts {
		data, err := encode(t.Data)
		if err != nil {
			return nil, fmt.Errorf("transaction %d: %w", i, err)
		}
		items[i] = item{Queue: t.Queue, Type: t.Type, Data: json.RawMessage(data), UID: t.UID, Context: t.Context, DependsOn: t.DependsOn,
			MaxRetries: t.MaxRetries, Tags: t.Tags, Callback: t.Callback}
		if !t.NotBefore.IsZero() {
			items[i].NotBefore = &ts[i].NotBefore
		}
	}
	b, err := json.Marshal(items)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `SELECT postern.submit_many($1::text::jsonb)`, string(b))
	if err != nil {
		return nil, refused(err)
	}
	uids, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return uids, refused(err)
}

// encode writes data as JSON text.
func encode(data any) (string, error) {
	if data == nil {
		return "{}", nil
	}
	b, err := json.Marshal(data)
	if err != nil {
		return "", fmt.Errorf("data: %w", err)
	}
	return string(b), nil
}
