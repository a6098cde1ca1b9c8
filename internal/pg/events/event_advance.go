package events

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	pgchannels "github.com/postern-dev/postern/internal/pg/channels"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Advanced says what became of events.
type Advanced struct {
	Moved  map[uuid.UUID]bool
	Ended  map[string]int // by status
	Stale  int
	Alarms []string // events whose workflow could not be told
	Steps  []EventStep
}

// AdvanceEvents brings events on whose tool call or result has ended, whose message was dropped, or whose call takes
// too long (S1.5). It may be called at any time, by any number of processes, also with events that have not changed:
// each is locked, or skipped where another process is at it, and its transactions' outcomes, which never change, are
// read behind the lock. A result is sent on in the commit that writes the outcome.
func (s *Store) AdvanceEvents(ctx context.Context, by string, list []uuid.UUID) (out Advanced, err error) {
	ids := make([]string, 0, len(list))
	for _, id := range list {
		ids = append(ids, id.String())
	}
	for chunk := range slices.Chunk(ids, takeMost) {
		if err := s.advance(ctx, by, chunk, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (s *Store) advance(ctx context.Context, by string, ids []string, sum *Advanced) error {
	var out Advanced
	err := s.Run(ctx, func(t *db.Txn) error {
		out = Advanced{Ended: map[string]int{}, Moved: map[uuid.UUID]bool{}}
		var locked []*eventRow
		var now time.Time
		b := &pgx.Batch{}
		b.Queue(eventSelect+`WHERE e.event_id = ANY ($2::text[]::uuid[]) AND e.status IN ('Queued', 'Active') ORDER BY e.event_id FOR UPDATE OF e SKIP LOCKED`,
			s.Clock(), ids, s.LeaseNow()).Query(collectEvents(&locked))
		s.ReadNow(b, &now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		w := &eventChange{by: by}
		results := map[int32][]pgchannels.Outgoing[EventRef]{}
		var told []string
		for _, v := range locked {
			on, facts := v.news()
			if on == "" {
				continue
			}
			step, err := leader.NextEvent(v.Status, on, facts)
			if err != nil {
				return err
			}
			w.apply(v, on, step, now)
			if err := out.note(v.ID, on, step); err != nil {
				return err
			}
			if v.Dropped != nil {
				told = append(told, v.ID)
			}
			if step.SendResult {
				results[v.Context] = append(results[v.Context], pgchannels.Outgoing[EventRef]{ID: v.ID, Payload: EventRef{v.FQN}})
			}
		}
		if len(out.Moved) == 0 {
			return t.Rollback(ctx)
		}
		b = &pgx.Batch{}
		w.queue(b, now)
		if len(told) > 0 {
			b.Queue(`DELETE FROM postern.event_drop WHERE event_id = ANY ($1::text[]::uuid[])`, told)
		}
		if err := s.sendResults(ctx, t, b, results); err != nil {
			return err
		}
		out.Steps = w.steps
		return t.Commit(ctx, b)
	})
	if err != nil {
		return err
	}
	sum.add(out)
	return nil
}

// note counts a step of an event.
func (out *Advanced) note(event, on string, step leader.EventStep) error {
	id, err := uuid.Parse(event)
	if err != nil {
		return err
	}
	out.Moved[id] = true
	if on == leader.EventStale {
		out.Stale++
	}
	if step.Alarm {
		out.Alarms = append(out.Alarms, event)
	}
	if step.To == leader.EventSuccessful || step.To == leader.EventDead {
		out.Ended[step.To]++
	}
	return nil
}

// add counts what another commit did.
func (out *Advanced) add(more Advanced) {
	if out.Ended == nil {
		out.Ended, out.Moved = map[string]int{}, map[uuid.UUID]bool{}
	}
	maps.Copy(out.Moved, more.Moved)
	out.Stale, out.Alarms = out.Stale+more.Stale, append(out.Alarms, more.Alarms...)
	out.Steps = append(out.Steps, more.Steps...)
	for status, n := range more.Ended {
		out.Ended[status] += n
	}
}

// sendResults queues messages for the channels to the workflows, context by context in their order.
func (s *Store) sendResults(ctx context.Context, t *db.Txn, b *pgx.Batch, results map[int32][]pgchannels.Outgoing[EventRef]) error {
	if len(results) == 0 {
		return nil
	}
	var contexts []int32
	for id := range results {
		contexts = append(contexts, id)
	}
	slices.Sort(contexts)
	channels := map[int32]int32{}
	load := &pgx.Batch{}
	load.Queue(`SELECT context_id, channel_id FROM postern.channel WHERE context_id = ANY ($1) AND name = $2`, contexts, pgchannels.ChannelOfResults).Query(func(rows pgx.Rows) error {
		var context, channel int32
		_, err := pgx.ForEachRow(rows, []any{&context, &channel}, func() error { channels[context] = channel; return nil })
		return err
	})
	if err := t.Send(ctx, load); err != nil {
		return err
	}
	for _, id := range contexts {
		if _, err := pgchannels.ConduitOf[EventRef](s.Channels, channels[id]).SendIn(ctx, t, b, results[id]); err != nil {
			return err
		}
	}
	return nil
}

// news says what has happened to an event since it was written last, "" for nothing.
func (v *eventRow) news() (on string, f leader.EventFacts) {
	f = v.facts()
	switch {
	case v.Dropped != nil && (v.Outcome == "" && (v.Status == leader.EventQueued || v.Tool == "") || v.Outcome != "" && v.Result == ""):
		if v.Outcome == "" {
			f.Code, f.Error = "dropped", *v.Dropped
		} else {
			f.Error = *v.Dropped
		}
		return leader.EventDropped, f
	case v.Status != leader.EventActive:
		return "", f
	case v.Outcome == "" && v.toolState != "":
		f.Class, f.Code, f.Error = v.verdict()
		return leader.ToolDone, f
	case v.Outcome == "" && v.Overdue:
		return leader.EventStale, f
	case v.Outcome == "":
		return "", f
	case v.resultState == string(outbox.DONE):
		return leader.ResultDone, f
	case v.resultState != "":
		f.Error = v.resultWhy
		return leader.ResultFailed, f
	}
	return "", f
}

// verdict is how the tool's transaction ended: it is never retried by the core, so that FAILED is what may be tried
// again, unless the tool refused it for good (S1.5).
func (v *eventRow) verdict() (leader.Class, string, string) {
	switch state := outbox.State(v.toolState); {
	case state == outbox.DONE:
		return leader.Successful, "", ""
	case state == outbox.FAILED && v.toolClass != string(outbox.ClassRejected):
		return leader.Retriable, v.toolCode, v.toolError
	case state == outbox.CANCELLED:
		return leader.Fatal, "cancelled", "the call of its tool was cancelled"
	}
	return leader.Fatal, v.toolCode, v.toolError
}

// LostEvents lists events about which a process may have died before it told, from one on in the order of their ids:
// those that are Active, and those whose message was dropped. next is where to go on, nil for from the beginning.
func (s *Store) LostEvents(ctx context.Context, from uuid.UUID) (list []uuid.UUID, next uuid.UUID, err error) {
	const page = 500
	rows, err := s.Db(ctx).Query(ctx, `(SELECT event_id::text, true FROM postern.event WHERE status = 'Active' AND outcome = '' LIMIT 10000)
		UNION ALL (SELECT event_id::text, true FROM postern.event_drop LIMIT 1000)
		UNION ALL (SELECT event_id::text, false FROM postern.event WHERE status = 'Active' AND outcome <> '' AND event_id > $1::text::uuid ORDER BY event_id LIMIT $2)`, from.String(), page)
	if err != nil {
		return nil, next, db.Known(err)
	}
	n := 0
	var text string
	var all bool
	_, err = pgx.ForEachRow(rows, []any{&text, &all}, func() error {
		id, err := uuid.Parse(text)
		if !all {
			n++
			next = id
		}
		list = append(list, id)
		return err
	})
	if n < page {
		next = uuid.UUID{}
	}
	return list, next, db.Known(err)
}

// OfferDueEvents sends the messages of events again whose next try is due, and returns how many. An event that is
// locked is in the hands of another process, and skipped. Served by event_due.
func (s *Store) OfferDueEvents(ctx context.Context) (n int, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		n = 0
		var ids []string
		lines := map[int32][]pgchannels.Outgoing[EventRef]{}
		b := &pgx.Batch{}
		b.Queue(`SELECT e.event_id::text, e.fqn, s.channel_id FROM postern.event e JOIN postern.source s ON s.source_id = e.source_id
			WHERE e.status = 'Queued' AND e.not_before <= coalesce($1::timestamptz, clock_timestamp()) ORDER BY e.not_before LIMIT $2 FOR UPDATE OF e SKIP LOCKED`,
			s.Clock(), takeMost).Query(func(rows pgx.Rows) error {
			var id, fqn string
			var channel int32
			_, err := pgx.ForEachRow(rows, []any{&id, &fqn, &channel}, func() error {
				ids = append(ids, id)
				lines[channel] = append(lines[channel], pgchannels.Outgoing[EventRef]{ID: id, Payload: EventRef{fqn}})
				return nil
			})
			return err
		})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if n = len(ids); n == 0 {
			return t.Rollback(ctx)
		}
		var channels []int32
		for c := range lines {
			channels = append(channels, c)
		}
		slices.Sort(channels)
		b = &pgx.Batch{}
		for _, c := range channels {
			if _, err := pgchannels.ConduitOf[EventRef](s.Channels, c).SendIn(ctx, t, b, lines[c]); err != nil {
				return err
			}
		}
		b.Queue(`UPDATE postern.event SET not_before = NULL WHERE event_id = ANY ($1::text[]::uuid[])`, ids)
		return t.Commit(ctx, b)
	})
	return n, err
}
