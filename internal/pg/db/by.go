package db

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
)

// By says who pulls a lever, through which door and why; it is kept in the audit row.
type By struct {
	Context   int32
	Actor     string
	Via       string
	Reason    string
	RequestID string
	// Match says whether an entity tag is one that the client last saw; nil if it does not care. It is asked under the
	// lock of the object that is about to change: Conflict "precondition_failed" with the present version.
	Match func(tag string) bool
	// Still is what Admin asks; nil where nothing that may end has let Actor in.
	Still func(ctx context.Context, t *Txn, contextID int32) error
}

// Admin refuses a caller who is no admin of a context any more, or whose credential does not hold any more; 0 asks of
// the credential alone. Levers that give access ask so in their commit, behind what they have waited for.
func (by By) Admin(ctx context.Context, t *Txn, contextID int32) error {
	if by.Still == nil {
		return nil
	}
	return by.Still(ctx, t, contextID)
}

// Seen compares the version of what is about to change, under its lock, with what the client last saw.
func (by By) Seen(version int64) error {
	if by.Match == nil || by.Match(strconv.FormatInt(version, 10)) {
		return nil
	}
	return MatchVersion(-2, version, false)
}

// LockVersion locks the row that is to be replaced, if there is one, and compares its version with what
// the client last saw.
func (t *Txn) LockVersion(ctx context.Context, want int64, sql string, args ...any) (created bool, err error) {
	var have int64
	var removed bool
	b := &pgx.Batch{}
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&have, &removed}, func() error { return nil })
		return err
	})
	if err := t.Send(ctx, b); err != nil {
		return false, err
	}
	created, t.Version = have == 0 || removed, have
	return created, MatchVersion(want, have, created)
}

// AnyVersion stands for If-Match: *.
const AnyVersion = -3

// MatchVersion compares what a client last saw (0 = it does not care, -1 = it must not exist, -2 = some
// other version, AnyVersion = it must exist) with what there is.
func MatchVersion(want, have int64, created bool) error {
	switch {
	case want == 0, want == have && !created, want == -1 && created, want == AnyVersion && !created:
		return nil
	case want == -1:
		return fault.New(fault.Conflict, "precondition_failed",
			"it exists already, at version %d: leave out If-None-Match to replace it", have).With("version", have)
	case created:
		return fault.New(fault.Conflict, "precondition_failed",
			"it does not exist (any more): leave If-Match out to create it").With("version", 0)
	}
	return fault.New(fault.Conflict, "precondition_failed",
		"it is at version %d by now: read it again", have).With("version", have)
}
