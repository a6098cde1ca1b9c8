package work

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/events"
)

// How often a node looks after events: at once when it knows of something, else so often, and so often for what
// somebody died over.
const (
	leadEvery = 200 * time.Millisecond
	leadRest  = 3 * time.Millisecond // between two rounds, so that one takes what several brought
	lostEvery = time.Second
	lastLooks = 20 // at an event whose transaction has ended, until its row says which that was
)

// ledger lists events whose transactions have just ended in this process. All of it may be lost: the rows tell the
// same to a later look.
type ledger struct {
	mu    sync.Mutex
	ended map[uuid.UUID]int // how often they were looked at since
	bell  chan struct{}

	from uuid.UUID // where the look for what was lost goes on
	next time.Time // when it does
}

func (l *ledger) note(id uuid.UUID, looks int) {
	l.mu.Lock()
	if l.ended == nil {
		l.ended = map[uuid.UUID]int{}
	}
	l.ended[id] = looks
	l.mu.Unlock()
}

func (l *ledger) take() map[uuid.UUID]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.ended
	l.ended = nil
	return all
}

func (l *ledger) ring() { knock(l.bell) }

// calledFor notes that a transaction of the leader has ended.
func (e *Events) calledFor(l *pg.Lease, a *pg.Answer) {
	if typ := l.Task.Type; typ != leader.TypeTool && typ != leader.TypeResult || !a.Step.State.Terminal() {
		return
	}
	if id, ok := leader.EventOfUID(l.Task.UID); ok {
		e.ledger.note(id, 0)
		e.ledger.ring()
	}
}

// lead is the loop that brings events on.
func (e *Events) lead() Loop {
	return Loop{
		Name:      "events",
		Does:      "bring events on",
		Await:     e.any(events.Sources),
		Leased:    true,
		Every:     leadEvery,
		Bell:      e.ledger.bell,
		Rest:      leadRest,
		Retry:     leadEvery,
		RetryMost: 2 * time.Second,
		Once: func(ctx context.Context) (Turn, error) {
			n, err := e.LeadOnce(ctx)
			turn := Turn{Did: n}
			if n > 0 {
				turn.Next = AtOnce
			}
			return turn, err
		},
	}
}

// LeadOnce does everything about events that can be done now, once, and returns how many it moved: it hears how
// transactions ended, tells workflows, and takes events for which there is room (S1.5).
func (e *Events) LeadOnce(ctx context.Context) (n int, err error) {
	if e.Store.QuarantinedWhole() {
		return 0, nil
	}
	list := e.ledger.take()
	work, err := e.Store.Events.LeaderWork(ctx)
	if err != nil || !work.Any && len(list) == 0 {
		return 0, err
	}
	node := *e.node.Load()
	if len(list) > 0 {
		out, err := e.advance(ctx, node, list)
		if n += len(out.Moved); err != nil {
			return n, err
		}
		work, err = e.Store.Events.LeaderWork(ctx)
		if err != nil {
			return n, err
		}
	}
	told, err := e.Store.Events.SendResults(ctx, work, node)
	if n += told; err != nil {
		return n, err
	}
	taken, err := e.Store.Events.TakeEvents(ctx, work, node)
	e.moved(taken.Steps)
	if n += taken.Messages; err != nil {
		return n, err
	}
	lost, err := e.findLost(ctx, node)
	return n + lost, err
}

// advance brings on events whose transactions have ended. Those that have not moved are looked at again for a while:
// the transaction may have been faster than the row that is to name it.
func (e *Events) advance(ctx context.Context, node pg.Node, list map[uuid.UUID]int) (events.Advanced, error) {
	out, err := e.Store.Events.AdvanceEvents(ctx, node.Name, slices.Collect(maps.Keys(list)))
	for id, looks := range list {
		if looks++; !out.Moved[id] && looks < lastLooks {
			e.ledger.note(id, looks)
		}
	}
	e.hear(out)
	return out, err
}

// findLost looks now and then for changes that came without a word: tries that are due, transactions that ended
// unheard, calls that take too long, messages that were dropped.
func (e *Events) findLost(ctx context.Context, node pg.Node) (int, error) {
	if time.Now().Before(e.ledger.next) {
		return 0, nil
	}
	e.ledger.next = time.Now().Add(lostEvery)
	return e.LostOnce(ctx, node)
}

// LostOnce is one such look.
func (e *Events) LostOnce(ctx context.Context, node pg.Node) (int, error) {
	due, err := e.Store.Events.OfferDueEvents(ctx)
	if err != nil {
		return due, err
	}
	list, next, err := e.Store.Events.LostEvents(ctx, e.ledger.from)
	if err != nil {
		return due, err
	}
	e.ledger.from = next
	out, err := e.Store.Events.AdvanceEvents(ctx, node.Name, list)
	e.hear(out)
	return due + len(out.Moved), err
}

// hear counts and tells what became of events.
func (e *Events) hear(out events.Advanced) {
	e.moved(out.Steps)
	for status, n := range out.Ended {
		e.Metrics.EventsEnded(status, n)
	}
	if out.Stale > 0 {
		e.Metrics.EventsStale(out.Stale)
		e.Log.Error("events grew stale: the calls of their tools did not end in time, which should not happen",
			"events", out.Stale)
	}
	e.Metrics.EventsUntold(len(out.Alarms))
	for _, id := range out.Alarms {
		e.Log.Error("a workflow could not be told what came of an event: redrive the event, or its result", "event", id)
	}
}

// moved counts and tells the transitions of events, as those of transactions are (S0.5).
func (e *Events) moved(steps []events.EventStep) {
	debug := e.Log.Enabled(context.Background(), slog.LevelDebug)
	for _, s := range steps {
		if s.From != s.To {
			e.Metrics.EventLeft(s.From, s.Stayed)
		}
		if debug {
			e.Log.Debug("transition", "machine", leader.Event.Name, "event", s.ID, "tool", s.Tool, "from", s.From, "on",
				s.On, "to", s.To, "detail", s.Why)
		}
	}
}
