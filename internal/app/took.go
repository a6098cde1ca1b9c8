package app

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/doctor"
)

// step does one part of a start on a database. Where its time is over, the error says which part that was, and what
// took it. A connection that was lost meanwhile, also at a commit, is a database that is not there: a start may be
// tried again, whatever it has done.
func step(ctx context.Context, database, what string, do func() error) error {
	began := time.Now()
	err := do()
	if err == nil || !late(err) || ctx.Err() != nil {
		if err = db.Known(err); fault.CodeOf(err) == "commit_unknown" {
			return fault.New(fault.Retry, "database_unavailable", "%s: %v", what, err).Because(err)
		}
		return err
	}
	return fault.New(fault.Retry, "database_unavailable",
		"to %s in the database %s took longer than the start has for it, and was given up after %s: %s",
		what, Masked(database), time.Since(began).Round(time.Second/10), doctor.Took(ctx, database)).Because(err)
}

// late says whether an error is that a time was over: ours, that of a statement, or that of a lock.
func late(err error) bool {
	switch db.SQLState(err) {
	case "57014", "55P03":
		return true
	}
	return pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded)
}
