package work

import (
	"context"
	"log/slog"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/sequencer"
)

// Every transition is a line at debug level, and counted. A fact that an operator has to know of without having asked
// is a line at a level above, once and not once per transaction: the rows tell the rest.

// began notes that a transaction that waited was leased, to be dispatched.
func (e *Engine) began(l *pg.Lease) {
	since := l.Task.CreatedAt
	if len(l.Earlier) > 0 && l.Earlier[0].AnsweredAt.After(since) { // it came back
		since = l.Earlier[0].AnsweredAt
	}
	e.Metrics.Entered(l.Task.Type, outbox.DISPATCHING)
	e.Metrics.Left(outbox.WAITING, l.ReadAt.Sub(since))
	e.logStep(l, outbox.WAITING, sequencer.SenderBound, outbox.DISPATCHING, "", "")
}

// ended notes what was recorded of a lease. That a transaction has ended is counted by the store, which
// knows of those that people end, too.
func (e *Engine) ended(l *pg.Lease, a *pg.Answer) {
	step := &a.Step
	typ, from, spent := l.Task.Type, l.Phase.Transaction(), l.Now().Sub(l.Since)
	if step.State != from {
		e.Metrics.Left(from, spent)
		if !step.State.Terminal() {
			e.Metrics.Entered(typ, step.State)
		}
	}
	if was := l.Phase.Queue(); was != step.Phase.Queue() {
		e.Metrics.QueueLeft(was, spent)
	}
	if step.Retries > l.Retries {
		e.Metrics.Retried(typ, step.Class)
	}
	var on sequencer.Event
	if len(step.Events) > 0 { // what follows by itself, such as the start of a delay, is not why
		on = step.Events[0]
	}
	e.logStep(l, from, on, step.State, step.Code, step.Message)
	e.tell(l, a)
	for _, s := range e.systems {
		if s.Ended != nil {
			s.Ended(l, a)
		}
	}
}

// logStep writes a transition into the log, where the log has such lines.
func (e *Engine) logStep(l *pg.Lease, from outbox.State, on sequencer.Event, to outbox.State, code, message string) {
	if !e.Log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	args := []any{"tx", l.ID(), "queue", l.Queue, "type", l.Task.Type, "sender", l.Account,
		"attempt", l.Attempt, "fence", l.Fence,
		"from", from, "on", on, "to", to}
	if code != "" || message != "" {
		args = append(args, "code", code, "error", message)
	}
	e.Log.Debug("transition", args...)
}

// tell says what people have to look at: an outcome that will stay unknown.
func (e *Engine) tell(l *pg.Lease, a *pg.Answer) {
	typ := l.Task.Type
	fate := ""
	switch {
	case a.Step.State == outbox.UNRESOLVED:
		fate = "it stays unknown what came of a transaction: it ended UNRESOLVED"
	case a.Step.Then == sequencer.ThenHold:
		fate = "what came of a transaction is not known: it is held until somebody says so (was-done, was-not-done, abandon)"
	default:
		return
	}
	e.Log.Warn(fate, "tx", l.ID(), "queue", l.Queue, "type", typ, "attempt", l.Attempt, "code",
		a.Step.Code, "error", a.Step.Message)
}
