package pg

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
)

// eventOf is the event of which a transaction calls the tool or tells the result, false if it does neither.
func eventOf(t *Transaction) (id uuid.UUID, ok bool) {
	rest, ok := strings.CutPrefix(t.UID, "event:")
	if !ok || t.Type != leader.TypeTool && t.Type != leader.TypeResult {
		return id, false
	}
	text, _, _ := strings.Cut(rest, ":")
	id, err := uuid.Parse(text)
	return id, err == nil
}

// redrivesNoEvent refuses to redrive what belongs to an event, beside which its tool would be called, or its workflow
// told, once more: the event goes on by itself, and is redriven as a whole. A result that could not be told may go out
// again without its tool (S1.5, ResultFailed), as it is, since a workflow never sees two contents (S1.14).
func (s *Store) redrivesNoEvent(ctx context.Context, contextID int32, t *Transaction, change Redrive) error {
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

// resultRedriven refuses to redrive an event whose result is told by another transaction meanwhile, or was.
func (s *Store) resultRedriven(ctx context.Context, contextID int32, e *Event) error {
	if e.Result == "" {
		return nil
	}
	last, err := s.newest(ctx, &Transaction{DependsOn: []string{e.Result}})
	if err != nil || last[0] == e.Result {
		return err
	}
	id, err := outbox.ParseID(last[0])
	if err != nil {
		return err
	}
	t, err := s.Transaction(ctx, contextID, id)
	if err != nil || t.State.Terminal() && t.State != outbox.DONE {
		return err
	}
	return fault.New(fault.Conflict, "already_redriven", "event %s is Dead, but its result was redriven as %s, which is %s: its tool is not called again", e.ID, id, t.State).
		With("redriven_by", last[0])
}

// RedriveEvent brings a Dead event once more, as a new Queued one that names it; its JSON is read as its source says
// now. Conflict "wrong_state" of one that is not Dead, "already_redriven" (names it, or the transaction that tells its
// result once more, unless that has failed too); Invalid if it can still not be read. The old one's row is locked, so
// that there is one new one.
func (s *Store) RedriveEvent(ctx context.Context, by By, id uuid.UUID) (fresh uuid.UUID, err error) {
	old, err := s.Event(ctx, by.Context, id)
	if err != nil {
		return fresh, err
	}
	if err := s.resultRedriven(ctx, by.Context, old); err != nil {
		return fresh, err
	}
	var src leader.Source
	var source, channel int32
	err = s.db(ctx).QueryRow(ctx, `SELECT s.source_id, s.channel_id, s.kind, s.map FROM postern.event e JOIN postern.source s ON s.source_id = e.source_id WHERE e.event_id = $1::text::uuid`, id.String()).
		Scan(&source, &channel, &src.Kind, &src.Map)
	if err != nil {
		return fresh, known(err)
	}
	it := src.Item(leader.Item{Identity: "redrive:" + id.String(), Checkpoint: old.Checkpoint, Digest: old.Digest}, old.JSON)
	if it.Undecoded != "" {
		return fresh, fault.New(fault.Invalid, "invalid", "event %s still cannot be read: %s", id, it.Undecoded)
	}
	err = s.run(ctx, func(t *txn) error {
		var status, then string
		var now time.Time
		b := &pgx.Batch{}
		b.Queue(`SELECT status, coalesce(redriven_by::text, '') FROM postern.event WHERE event_id = $1::text::uuid FOR UPDATE`, id.String()).
			QueryRow(func(row pgx.Row) error { return row.Scan(&status, &then) })
		s.readNow(b, &now)
		if err := t.send(ctx, b); err != nil {
			return err
		}
		switch {
		case status != leader.EventDead:
			return fault.New(fault.Conflict, "wrong_state", "event %s is %s: only Dead ones can be redriven", id, status)
		case then != "":
			return fault.New(fault.Conflict, "already_redriven", "event %s was redriven as %s: look at that one", id, then).With("redriven_by", then)
		}
		b = &pgx.Batch{}
		e := &newEvent{Item: it, Context: by.Context, Source: source, by: by.Actor, of: &id, note: by.Reason}
		if err := s.storeEvents(ctx, t, b, channel, []*newEvent{e}, now); err != nil {
			return err
		}
		fresh = e.ID
		b.Queue(`UPDATE postern.event SET redriven_by = $2::text::uuid WHERE event_id = $1::text::uuid`, id.String(), fresh.String())
		s.audit(b, by, "redrive", "/events/"+id.String())
		return t.commit(ctx, b)
	})
	return fresh, err
}
