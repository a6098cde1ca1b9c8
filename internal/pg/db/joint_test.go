package db_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// A deadlock may not come again. A lock that was waited for as long as a statement may is waited for once.
func TestAgainDoesNotWaitAgain(t *testing.T) {
	for state, want := range map[string]int{"40P01": db.Attempts, "55P03": 1, "57014": 1} {
		runs := 0
		err := db.Again(func() error {
			runs++
			return fault.New(fault.Retry, "broken", "broken off").Because(&pgconn.PgError{Code: state})
		})
		if runs != want || fault.CodeOf(err) != "broken" {
			t.Errorf("%s: %d runs, %v", state, runs, err)
		}
	}
}
