package events

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// eventOf returns the event whose tool a transaction calls, or whose result it tells, false if it does neither. The
// first one has a uid that the event makes up; one that was redriven has not, but its data names the event.
func eventOf(t *pg.Transaction) (id uuid.UUID, ok bool) {
	if t.Type != leader.TypeTool && t.Type != leader.TypeResult {
		return id, false
	}
	if id, ok := leader.EventOfUID(t.UID); ok {
		return id, true
	}
	var says struct {
		Event uuid.UUID `json:"event"`
	}
	ok = t.RedriveOf != "" && json.Unmarshal(t.Data, &says) == nil && says.Event != uuid.Nil
	return says.Event, ok
}

// onEvent runs fn with the row of an event locked, as one SQL transaction: of two that redrive an event, its result, or
// one of each, the second waits here and sees what the first has committed. queue is the one that fn posts to, "" for
// none: it is locked before, since rows of queues come before those of events everywhere (Bulk locks them first, too),
// and channels and new rows after them, so that there is no cycle.
func (s *Store) onEvent(ctx context.Context, contextID int32, id uuid.UUID, queue string, fn func(context.Context) error) error {
	locked := func(ctx context.Context) error {
		err := s.Run(ctx, func(t *db.Txn) error {
			b := &pgx.Batch{}
			b.Queue(`SELECT FROM postern.event WHERE event_id = $1::text::uuid AND context_id = $2 FOR UPDATE`, id.String(), contextID)
			return t.Commit(ctx, b)
		})
		if err != nil {
			return err
		}
		return fn(ctx)
	}
	if db.JointOf(ctx) != nil { // a bulk or a dry run
		return locked(ctx)
	}
	return db.Again(func() error {
		var ids []outbox.ID
		if queue != "" {
			if err := s.EnsureQueues(ctx, []*pg.Submission{{ContextID: contextID, Queue: queue}}); err != nil {
				return err
			}
			ids = append(ids, outbox.ID{Queue: s.QueueID(contextID, queue)})
		}
		return s.Together(ctx, ids, locked)
	})
}

// redrivesNoEvent refuses to redrive what belongs to an event, beside which its tool would be called, or its workflow
// told, once more: the event goes on by itself, and is redriven as a whole. A result that could not be told may go out
// again without its tool (S1.5, ResultFailed), as it is, since a workflow never sees two contents (S1.14): the last one
// of those that were to tell it. It is asked behind the lock of the event (onEvent).
func (s *Store) redrivesNoEvent(ctx context.Context, contextID int32, t *pg.Transaction, change pg.Redrive) error {
	id, ok := eventOf(t)
	if !ok {
		return nil
	}
	path := "/events/" + id.String()
	lever := "POST " + path + "/redrive"
	refuse := func(format string, args ...any) error {
		return fault.New(fault.Conflict, "wrong_state", "transaction "+t.ID.String()+" "+format, args...).With("event", path).With("lever", lever)
	}
	e, err := s.Event(ctx, contextID, id)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return fault.New(fault.Conflict, "wrong_state", "transaction %s belonged to event %s, which is not there", t.ID, id)
	case err != nil:
		return err
	case e.Status == leader.EventQueued || e.Status == leader.EventActive:
		lever = "GET " + path + "/why"
		return refuse("belongs to event %s, which is %s and goes on by itself: %s/why says what it waits for", id, e.Status, path)
	case e.Status == leader.EventSuccessful:
		lever = "GET " + path
		return refuse("belongs to event %s, which is Successful: its workflow has the result", id)
	case e.RedrivenBy != nil:
		lever = "GET /events/" + e.RedrivenBy.String()
		return refuse("belongs to event %s, which was redriven as %s: look at that one", id, e.RedrivenBy)
	case t.Type == leader.TypeTool:
		return refuse("called the tool of event %s, which is Dead: %s calls it anew", id, lever)
	case t.ID.String() != e.Result:
		return refuse("is not the one that tells the result of event %s: that is %s", id, e.Result)
	case len(change.Data) > 0:
		return fault.At("/data", "transaction %s tells the result of event %s: it is redriven as it is, since a workflow is never told two things of one event", t.ID, id)
	}
	return nil
}

// tellAgain has the event whose row is locked know which transaction tells its result once more: it knows it longer
// than retention keeps what links that to the first one.
func (s *Store) tellAgain(ctx context.Context, event uuid.UUID, tx outbox.ID) error {
	return s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.event SET result_queue = $2, result_seq = $3, result_day = $4, result_id = $5, result_redriven = true
			WHERE event_id = $1::text::uuid`, event.String(), tx.Queue, tx.Seq, tx.Day.Time(), tx.String())
		return t.Commit(ctx, b)
	})
}

// resultRedriven refuses to redrive an event whose result is told by another transaction meanwhile, or was, or may have
// been by one that retention has dropped.
func (s *Store) resultRedriven(ctx context.Context, contextID int32, e *Event) error {
	if !e.ResultRedriven {
		return nil
	}
	id, err := outbox.ParseID(e.Result)
	if err != nil {
		return err
	}
	is := "dropped by retention"
	switch t, err := s.Transaction(ctx, contextID, id); {
	case err == nil && t.State.Terminal() && t.State != outbox.DONE:
		return nil
	case err == nil:
		is = string(t.State)
	case fault.KindOf(err) != fault.NotFound:
		return err
	}
	return fault.New(fault.Conflict, "already_redriven", "event %s is Dead, but its result was redriven as %s, which is %s: its tool is not called again", e.ID, id, is).
		With("redriven_by", e.Result)
}

// RedriveEvent brings a Dead event once more, as a new Queued one that names it; its JSON is read as its source says
// now. Conflict "wrong_state" of one that is not Dead, "already_redriven" (names it, or the transaction that tells its
// result once more, unless that has failed too); Invalid if it can still not be read. The old one's row is locked, so
// that there is one new one, and none beside its result (onEvent).
func (s *Store) RedriveEvent(ctx context.Context, by db.By, id uuid.UUID) (fresh uuid.UUID, err error) {
	err = s.onEvent(ctx, by.Context, id, "", func(ctx context.Context) error {
		old, err := s.Event(ctx, by.Context, id)
		if err == nil {
			err = by.Seen(old.Tag())
		}
		if err == nil {
			fresh, err = s.redriveEvent(ctx, by, old)
		}
		return err
	})
	return fresh, err
}

// redriveEvent is RedriveEvent of an event that was read behind its lock.
func (s *Store) redriveEvent(ctx context.Context, by db.By, old *Event) (fresh uuid.UUID, err error) {
	id := old.ID
	switch {
	case old.Status != leader.EventDead:
		return fresh, fault.New(fault.Conflict, "wrong_state", "event %s is %s: only Dead ones can be redriven", id, old.Status)
	case old.RedrivenBy != nil:
		return fresh, fault.New(fault.Conflict, "already_redriven", "event %s was redriven as %s: look at that one", id, old.RedrivenBy).With("redriven_by", old.RedrivenBy.String())
	}
	if err := s.resultRedriven(ctx, by.Context, old); err != nil {
		return fresh, err
	}
	if err := s.Accepts(by.Context, leader.TypeTool); err != nil {
		return fresh, err
	}
	var src leader.Source
	var source, channel int32
	err = s.Db(ctx).QueryRow(ctx, `SELECT s.source_id, s.channel_id, s.kind, s.map FROM postern.event e JOIN postern.source s ON s.source_id = e.source_id WHERE e.event_id = $1::text::uuid`, id.String()).
		Scan(&source, &channel, &src.Kind, &src.Map)
	if err != nil {
		return fresh, db.Known(err)
	}
	it := src.Item(leader.Item{Identity: "redrive:" + id.String(), Checkpoint: old.Checkpoint, Digest: old.Digest}, old.JSON)
	if it.Undecoded != "" {
		return fresh, fault.New(fault.Invalid, "invalid", "event %s still cannot be read: %s", id, it.Undecoded)
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		var now time.Time
		b := &pgx.Batch{}
		s.ReadNow(b, &now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		b = &pgx.Batch{}
		e := &newEvent{Item: it, Context: by.Context, Source: source, by: by.Actor, of: &id, note: by.Reason}
		if err := s.storeEvents(ctx, t, b, channel, []*newEvent{e}, now); err != nil {
			return err
		}
		fresh = e.ID
		b.Queue(`UPDATE postern.event SET redriven_by = $2::text::uuid WHERE event_id = $1::text::uuid`, id.String(), fresh.String())
		s.AuditIn(b, by, "redrive", "/events/"+id.String())
		return t.Commit(ctx, b)
	})
	return fresh, err
}
