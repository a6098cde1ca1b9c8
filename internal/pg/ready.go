package pg

import (
	"context"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/migrate"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/twin"
)

// Readiness is one thing that the database must be for this process to work: why it is not, "" where it is.
type Readiness struct{ Name, Detail string }

// readyWithin is how quickly a database answers that can be worked with; readyFor how long that holds.
const readyWithin, readyFor = time.Second, 5 * time.Second

// answered is what the database was when it answered last, and the question that it has not answered yet.
type answered struct {
	sync.Mutex
	at     time.Time
	list   []Readiness
	asking *question
}

// question is one that the database is asked for all who want to know meanwhile.
type question struct {
	done chan struct{}
	err  error // set when it is done
}

// Ready lists what this program needs of its database, with a detail where it is not so: the database answers within a
// second, or has answered in the last five; it takes writes; it has the migrations of this program, and the grants and
// days that it needs; and it acknowledges no commit that a crash can take back. Further migrations do no harm: while a
// newer program is rolled out, the processes that run go on. A process whose connections are all at work waits for one
// of its own, and stays ready for these five seconds. One question is asked at a time. It goes on when its callers stop
// waiting, since ending it would cost a connection, just when the database is slow.
func (s *Store) Ready(ctx context.Context) []Readiness {
	last := &s.answered
	last.Lock()
	q := last.asking
	if q == nil {
		q = &question{done: make(chan struct{})}
		last.asking = q
		go safe.Run("readiness", func() { s.ask(context.WithoutCancel(ctx), q) })
	}
	last.Unlock()
	late := false
	timer := time.NewTimer(readyWithin)
	defer timer.Stop()
	select {
	case <-q.done:
	case <-timer.C:
		late = true
	case <-ctx.Done():
		late = true
	}
	last.Lock()
	defer last.Unlock()
	if !late && q.err != nil || late && time.Since(last.at) > readyFor {
		return []Readiness{{"database", "the database does not answer"}}
	}
	return last.list
}

// ask asks one question.
func (s *Store) ask(ctx context.Context, q *question) {
	ctx, cancel := context.WithTimeout(ctx, db.AnswerWithin)
	defer cancel()
	var list []Readiness
	err := safe.Try("readiness", func() (err error) {
		list, err = s.readiness(ctx)
		return err
	})
	last := &s.answered
	last.Lock()
	defer last.Unlock()
	if q.err = err; err == nil {
		last.at, last.list = time.Now(), list
	}
	last.asking = nil
	close(q.done)
}

func (s *Store) readiness(ctx context.Context) ([]Readiness, error) {
	grants := Readiness{Name: "grants"}
	database, durable, migrations := Readiness{Name: "database"}, Readiness{Name: "synchronous_commit"}, Readiness{Name: "migrations"}
	var readOnly bool
	var synchronous string
	err := s.Pool().QueryRow(ctx, `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean, current_setting('synchronous_commit')`).
		Scan(&readOnly, &synchronous)
	if err == nil {
		err = migrate.Lacks(ctx, s.Pool())
	}
	if lack := db.Lacking(s.Role(), err); lack != nil {
		grants.Detail = fault.As(lack).Detail
		return []Readiness{grants}, nil
	}
	switch {
	case fault.CodeOf(err) == "migrations_differ":
		migrations.Detail = fault.As(err).Detail
	case err != nil:
		return nil, err
	}
	if grants.Detail, err = s.Lacks(ctx); err != nil && migrations.Detail == "" && !readOnly {
		return nil, err
	}
	if readOnly {
		database.Detail = "the database takes no writes: it is a standby, or set to read only"
	}
	if (synchronous == "off" || synchronous == "local") && !twin.Planted("ack_before_commit") {
		durable.Detail = "synchronous_commit is " + synchronous + ": what is answered could be lost"
	}
	return []Readiness{database, migrations, durable, grants}, nil
}
