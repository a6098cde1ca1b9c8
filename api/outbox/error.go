package outbox

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Error is a refusal, with what the HTTP API would answer.
type Error struct {
	// stable: invalid, too_large, unknown_type, idempotency_conflict, queue_full, queue_draining, not_found, ...
	Code      string   `json:"code"`
	Status    int      `json:"status"`    // of HTTP
	Retryable bool     `json:"retryable"` // the same may succeed later, in another SQL transaction
	Title     string   `json:"title"`
	Detail    string   `json:"detail"` // names the field, the value and what would be right
	Errors    []Field  `json:"errors"`
	Differs   []string `json:"differs"` // idempotency_conflict: the fields that differ
	Existing  struct {
		ID  string `json:"id"` // "" while it is staged
		UID string `json:"uid"`
	} `json:"existing"` // idempotency_conflict: what the uid names
	SQLState string `json:"-"` // ZP404, ZP409, ZP422 or ZP429

	err error
}

// Field is one field that is wrong.
type Field struct {
	Pointer string `json:"pointer"` // /queue, or /items/3/queue
	Code    string `json:"code"`
	Detail  string `json:"detail"`
}

// Error returns the sentence.
func (e *Error) Error() string { return e.Detail }

// Unwrap returns PostgreSQL's own error.
func (e *Error) Unwrap() error { return e.err }

// refused turns PostgreSQL's error into an *Error where it is a refusal.
func refused(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || !strings.HasPrefix(pg.Code, "ZP") {
		return err
	}
	e := &Error{Detail: pg.Message, SQLState: pg.Code, err: err}
	if json.Unmarshal([]byte(pg.Detail), e) != nil {
		return err
	}
	return e
}
