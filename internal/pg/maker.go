package pg

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Maker is a system that posts transactions of its own and goes by how they end. The core asks it before a lever on one
// of them, lets it lead a redrive, and tells it when one is moved or forgotten. The core knows no more of a system than
// this. A transaction that no maker owns costs no call.
//
// Methods that are called inside a commit (May, Moved) add statements to its batch and do nothing else: they lock
// nothing out of the order of this package, take no connection, and wait for nothing. Commits that several calls share
// and dry runs call them like any other.
type Maker interface {
	// May refuses a lever on t, whose queue is locked; "drop" makes room in a full queue. It decides by its arguments.
	May(by db.By, lever string, t *Task) error
	// Redrive leads a redrive of old. It calls post, perhaps behind locks of its own rows, which lie after those of
	// queues; post reads old again, asks may behind that, and posts the new transaction.
	Redrive(ctx context.Context, by db.By, old *Transaction, change Redrive, post Repost) (Accepted, error)
	// Moved is told, in the commit that moves t to another queue, of its new place; MovedFrom names the old one.
	Moved(b *pgx.Batch, t *Task)
	// Forget removes, in the course of retention, what the system keeps of what ended before a time.
	Forget(ctx context.Context, before time.Time) error
	// Ended says in a clause what the end of t meant to the system, "" for nothing.
	Ended(t *Transaction) string
}

// Repost posts a transaction once more, unless may refuses that.
type Repost func(ctx context.Context, may func(context.Context, *Transaction) error) (Accepted, error)

// Made says which transactions a Maker owns, and for which it waits.
type Made struct {
	Maker
	// As is who posts them.
	As outbox.Poster
	// Owns says whether the system has posted a transaction of this type and uid.
	Owns func(typ, uid string) bool
	// Awaits is a query of the places (queue_id, seq, day) of transactions whose ends the system has not heard of, so
	// that retention keeps them; "" for none.
	Awaits string
}

// Make registers a maker, before anything runs.
func (s *Store) Make(m Made) { s.makers = append(s.makers, m) }

// MakerOf returns the maker that owns a transaction, nil for none.
func (s *Store) MakerOf(typ, uid string) Maker {
	if m := s.madeBy(typ, uid); m != nil {
		return m.Maker
	}
	return nil
}

func (s *Store) madeBy(typ, uid string) *Made {
	for i, m := range s.makers {
		if m.Owns(typ, uid) {
			return &s.makers[i]
		}
	}
	return nil
}

// HasMaker says whether a system has posted a transaction: that has an end of its own for an unknown outcome.
func (s *Store) HasMaker(t *Task) bool { return s.MakerOf(t.Type, t.UID) != nil }

// may asks the maker of a transaction, if it has one, whether a lever may be pulled.
func (s *Store) may(by db.By, lever string, t *Task) error {
	if m := s.MakerOf(t.Type, t.UID); m != nil {
		return m.May(by, lever, t)
	}
	return nil
}

// Awaited is a query of the places of transactions for which makers wait.
func (s *Store) Awaited() string {
	queries := []string{`SELECT NULL::bigint AS queue_id, NULL::bigint AS seq, NULL::date AS day WHERE false`}
	for _, m := range s.makers {
		if m.Awaits != "" {
			queries = append(queries, m.Awaits)
		}
	}
	return strings.Join(queries, "\n\tUNION ")
}

// forget has all makers forget.
func (s *Store) forget(ctx context.Context, before time.Time) error {
	var all []error
	for _, m := range s.makers {
		all = append(all, m.Forget(ctx, before))
	}
	return errors.Join(all...)
}

// Teller is told of what a commit accepts and ends, and adds to it what others are to hear of that.
type Teller interface {
	// Tell adds to b, in the commit of what it is told. send asks the database something first, inside the same SQL
	// transaction. It returns whether others are to hear of anything.
	Tell(ctx context.Context, send func(context.Context, *pgx.Batch) error, b *pgx.Batch, news News) (told bool, err error)
	// Read adds to a reading of the configuration what the teller needs of it; done is called once it was read, with
	// the database's time of the reading.
	Read(b *pgx.Batch) (done func(at time.Time))
	// Kept returns SQL about transactions that survived their day: a condition on o, the outcome of one, that keeps it
	// from retention; and common table expressions, each with a comma behind it, that remove what the teller has of
	// those that are gone, by (queue_id, seq) of the table gone.
	Kept() (keeps, forgets string)
}

// kept joins what the tellers keep, see Teller.Kept.
func (s *Store) kept() (keeps, forgets string) {
	keeps = "false"
	for _, t := range s.tellers {
		k, f := t.Kept()
		keeps += " OR " + k
		forgets += f
	}
	return keeps, forgets
}

// News is what a commit accepts and ends.
type News struct {
	Now      time.Time
	Accepted []*Task
	Outcomes []*outcomeRow
}

// Tell registers a teller, before anything runs.
func (s *Store) Tell(t Teller) { s.tellers = append(s.tellers, t) }

// tell has all tellers add to b what is to be heard of what e is about to write.
func (e *effects) tell(ctx context.Context, t *db.Txn, b *pgx.Batch) error {
	if len(e.accepted)+len(e.outcomes) == 0 {
		return nil
	}
	for _, teller := range e.s.tellers {
		told, err := teller.Tell(ctx, t.Send, b, News{e.now, e.accepted, e.outcomes})
		if err != nil {
			return err
		}
		e.told = e.told || told
	}
	return nil
}
