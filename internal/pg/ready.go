package pg

import (
	"context"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/migrate"
)

// Readiness is one thing that the database must be for this process to work: why it is not, "" where it is.
type Readiness struct{ Name, Detail string }

// readyWithin is how quickly a database answers that can be worked with; readyFor how long that holds.
const readyWithin, readyFor = time.Second, 5 * time.Second

// answered is what the database was when it answered last.
type answered struct {
	sync.Mutex
	at   time.Time
	list []Readiness
}

// Ready looks at what the database must be: it has answered within a second, in the last five, and takes writes, has the
// migrations of this program, and lets nobody believe in what a crash can take back. Further migrations do no harm: while
// a newer program is rolled out, those that run go on. (Whoever has all connections at work waits for one of his own: that
// is no reason to be asked for less.)
func (s *Store) Ready(ctx context.Context) []Readiness {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	list, err := s.readiness(ctx)
	last := &s.answered
	last.Lock()
	defer last.Unlock()
	if err == nil {
		last.at, last.list = time.Now(), list
	} else if ctx.Err() != context.DeadlineExceeded || time.Since(last.at) > readyFor {
		return []Readiness{{"database", "the database does not answer"}}
	}
	return last.list
}

func (s *Store) readiness(ctx context.Context) ([]Readiness, error) {
	database, durable, migrations := Readiness{Name: "database"}, Readiness{Name: "synchronous_commit"}, Readiness{Name: "migrations"}
	var readOnly bool
	var synchronous string
	err := s.pool.QueryRow(ctx, `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean, current_setting('synchronous_commit')`).
		Scan(&readOnly, &synchronous)
	if err == nil {
		err = migrate.Lacks(ctx, s.pool)
	}
	switch {
	case fault.CodeOf(err) == "migrations_differ":
		migrations.Detail = fault.As(err).Detail
	case err != nil:
		return nil, err
	}
	if readOnly {
		database.Detail = "the database takes no writes: it is a standby, or set to read only"
	}
	if synchronous == "off" || synchronous == "local" {
		durable.Detail = "synchronous_commit is " + synchronous + ": what is answered could be lost"
	}
	return []Readiness{database, migrations, durable}, nil
}
