package events

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/channels"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// EventMove is one transition of an event.
type EventMove struct {
	At              time.Time
	Machine         string // event; lever for what people did
	From, Event, To string
	Fence           int64
	By              string // an actor, or a node
	Detail          string
}

// EventMoves is the history of an event, oldest first, or NotFound.
func (s *Store) EventMoves(ctx context.Context, contextID int32, id uuid.UUID) ([]*EventMove, error) {
	if _, err := s.Event(ctx, contextID, id); err != nil {
		return nil, err
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT at, 'event', was, event, status, fence, by, detail FROM postern.event_move WHERE event_id = $1::text::uuid
		UNION ALL SELECT at, 'lever', '', action, '', 0, actor, reason FROM postern.audit WHERE context_id = $2 AND object = $3
		ORDER BY 1, 6`, id.String(), contextID, "/events/"+id.String())
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*EventMove, error) {
		v := &EventMove{}
		return v, row.Scan(&v.At, &v.Machine, &v.From, &v.Event, &v.To, &v.Fence, &v.By, &v.Detail)
	})
	return list, db.Known(err)
}

// WhyEvent says what an event waits for: first its own blockers, then those of its transaction.
func (s *Store) WhyEvent(ctx context.Context, contextID int32, id uuid.UUID) (*reads.Why, error) {
	e, err := s.Event(ctx, contextID, id)
	if err != nil {
		return nil, err
	}
	w := &reads.Why{State: e.Status, Blockers: []reads.Blocker{}}
	own := func(kind, object, detail string, levers ...reads.Lever) {
		w.Blockers = append(w.Blockers, reads.Blocker{Kind: kind, Object: object, Since: e.UpdatedAt, Detail: detail, Levers: levers})
	}
	tx := ""
	switch {
	case e.Status == leader.EventSuccessful:
		w.Summary = "it has ended: its workflow has the output of " + e.FQN
	case e.Status == leader.EventDead:
		w.Summary = "it has ended: " + e.Error
		if e.RedrivenBy != nil {
			w.Summary += "; it was redriven as " + e.RedrivenBy.String()
		} else {
			again := reads.NewLever("POST", "admin", "events", id.String(), "redrive")
			own("ended", "/events/"+id.String(), e.Error, again)
		}
	case e.Status == leader.EventQueued && e.NotBefore != nil:
		return w, s.whyDelayed(ctx, contextID, e, w)
	case e.Status == leader.EventQueued:
		return w, s.whyQueued(ctx, contextID, e, w)
	case e.Outcome == "" && e.Tool == "":
		w.Moving, w.Summary = true, "its tool "+e.FQN+" is about to be called"
		own("line_turn", "/channels/"+channels.ChannelOfSource+e.Source, "a node holds the message about it, and posts the transaction that calls its tool")
	case e.Outcome == "":
		tx, w.Summary = e.Tool, "its tool "+e.FQN+" is called"
		own("tool_call", "/transactions/"+tx, "the transaction that calls its tool has not ended")
	case e.Result == "" && s.noDispatcher(contextID, leader.TypeResult):
		w.Summary = "what came of it is known, but not where its workflow is"
		put := reads.NewLever("PUT", "admin", "dispatchers", leader.TypeResult).With("worker_url", reads.AnyWorker)
		own("no_dispatcher", "/dispatchers/"+leader.TypeResult, "there is no dispatcher of results", put)
	case e.Result == "":
		w.Moving, w.Summary = true, "what came of it is about to be sent to its workflow"
		if shut, err := s.shut(ctx, contextID, e, "", w); shut || err != nil {
			return w, err
		}
		own("result_offered", "/channels/"+channels.ChannelOfResults, "the message about it is on its way to the channels")
	default:
		tx, w.Summary = e.Result, "its workflow is told that it "+map[string]string{leader.OutcomeSuccessful: "succeeded", leader.OutcomeFailed: "failed", leader.OutcomeStale: "grew stale"}[e.Outcome]
		own("result_waits", "/transactions/"+tx, "the transaction that tells its workflow has not ended")
	}
	if tx == "" {
		return w, nil
	}
	return w, s.addWhy(ctx, contextID, w, tx)
}

// shut adds what keeps a type of the context, or what the context does itself, from doing what w promises: a
// quarantine, or a pause.
func (s *Store) shut(ctx context.Context, contextID int32, e *Event, typ string, w *reads.Why) (bool, error) {
	list, err := s.Reads.Shut(ctx, contextID, typ, e.UpdatedAt)
	if len(list) == 0 || err != nil {
		return false, err
	}
	w.Blockers, w.Moving = append(w.Blockers, list...), false
	w.Summary = "it waits: " + list[0].Detail
	return true, nil
}

// addWhy adds why a transaction waits to what waits for it.
func (s *Store) addWhy(ctx context.Context, contextID int32, w *reads.Why, tx string) error {
	id, err := outbox.ParseID(tx)
	if err != nil {
		return err
	}
	its, err := s.Reads.Why(ctx, contextID, id)
	if err != nil {
		return err
	}
	w.Blockers, w.Moving = append(w.Blockers, its.Blockers...), its.Moving
	w.Summary += ": " + its.Summary
	return nil
}

func (s *Store) noDispatcher(contextID int32, typ string) bool {
	d := s.DispatcherOf(contextID, typ)
	return d == nil || d.Removed
}

// moreSlots is the lever that lets so many events call tools at a time.
func moreSlots(slots int) reads.Lever {
	return reads.NewLever("PATCH", "admin", "dispatchers", leader.TypeTool).With("slots", slots)
}

// whyDelayed says when an event is tried again, unless that is kept here.
func (s *Store) whyDelayed(ctx context.Context, contextID int32, e *Event, w *reads.Why) error {
	ails, err := s.ailing(ctx, contextID, e.FQN)
	if err != nil {
		return err
	}
	w.Blockers = append(w.Blockers, reads.Blocker{
		Kind:   "retry_delay",
		Object: "/tools/" + e.FQN,
		Since:  e.UpdatedAt,
		Detail: "its tool failed: " + e.Error + ails,
		Next:   &reads.NextStep{At: *e.NotBefore, What: "its tool is called again"},
	})
	w.Moving, w.Summary = true, fmt.Sprintf("its tool is called again, for the %d. time", e.Retried+1)
	_, err = s.shut(ctx, contextID, e, leader.TypeTool, w)
	return err
}

// whyQueued says why an event is not taken.
func (s *Store) whyQueued(ctx context.Context, contextID int32, e *Event, w *reads.Why) error {
	if shut, err := s.shut(ctx, contextID, e, leader.TypeTool, w); shut || err != nil {
		return err
	}
	calling, err := s.calling(ctx, contextID)
	if err != nil {
		return err
	}
	slots, all := 0, 0
	if d := s.DispatcherOf(contextID, leader.TypeTool); d != nil {
		slots = d.Slots
	}
	for _, n := range calling {
		all += n
	}
	b := reads.Blocker{Kind: "line_turn", Object: "/channels/" + channels.ChannelOfSource + e.Source, Since: e.UpdatedAt, Detail: "its turn has not come"}
	w.Moving = true
	switch n := calling[e.FQN]; {
	case s.noDispatcher(contextID, leader.TypeTool):
		b.Kind, b.Object, b.Detail = "no_dispatcher", "/dispatchers/"+leader.TypeTool, "the dispatcher of tool calls was removed"
		put := reads.NewLever("PUT", "admin", "dispatchers", leader.TypeTool).With("worker_url", "tool:")
		b.Levers, w.Moving = []reads.Lever{put}, false
	case n >= toolShare(slots):
		b.Kind, b.Object, b.Detail = "tool_busy", "/tools/"+e.FQN, fmt.Sprintf("%d of at most %d calls of its tool are out", n, toolShare(slots))
		b.Levers = []reads.Lever{moreSlots(max(2*slots, 2*(n+1)))}
	case all >= slots:
		b.Kind, b.Object, b.Detail = "engine_busy", "/dispatchers/"+leader.TypeTool, fmt.Sprintf("%d of at most %d calls of tools are out", all, slots)
		b.Levers = []reads.Lever{moreSlots(max(2*slots, all+1))}
	}
	w.Blockers, w.Summary = append(w.Blockers, b), "it waits to be taken: "+b.Detail
	return nil
}
