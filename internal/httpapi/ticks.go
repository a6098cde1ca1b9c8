package httpapi

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

type tickInput struct {
	Name name   `path:"name"`
	Wait string `query:"wait" example:"30s" doc:"How long to wait for the end of the execution that it begins, at most 60s."`
}

type tickOutput struct {
	Body struct {
		Outcome string       `json:"outcome" enum:"rotated,executing,requeued,waiting,finished" doc:"rotated: in its cooldown, to the back; executing: its execution has begun; requeued: its next action or try stands at the back; waiting: for a callback, or, not delivered in time, to be sent again; finished: with a result"`
		Batch   batchView    `json:"batch"`
		Result  *batchResult `json:"result"`
	}
}

func tickAnswer(t batches.Ticked) (*tickOutput, error) {
	v, err := viewBatch(t.Batch)
	out := &tickOutput{}
	out.Body.Outcome, out.Body.Batch, out.Body.Result = t.Outcome, v, v.Result
	return out, err
}

// busyFor is how long a tick waits for the execution of another batch (S4.4).
const busyFor = 30 * time.Second

// tickProcessor looks at one batch (S4.4): 200; 409 processor_paused, nothing_to_process, and busy when another batch
// has been executed for 30 s; 429 for an actor that ticks too often: anybody may tick, and each tick locks a row.
func (a *API) tickProcessor(ctx context.Context, in *tickInput) (*tickOutput, error) {
	spec, err := a.waitOf(&Waiting{Wait: in.Wait})
	if err != nil {
		return nil, err
	}
	who := by(ctx, "")
	if err := a.paced(who); err != nil {
		return nil, err
	}
	out, err := a.Store.Batches.Tick(ctx, who, string(in.Name))
	if fault.CodeOf(err) == "busy" {
		if refused := a.waitOften(ctx, busyFor, func() bool {
			out, err = a.Store.Batches.Tick(ctx, who, string(in.Name))
			return fault.CodeOf(err) != "busy"
		}); refused != nil {
			return nil, refused
		}
	}
	if err == nil && out.Outcome == batches.TickExecuting {
		begun := out.Batch
		_ = a.waitOften(ctx, spec.length, func() bool { // who lost its role is told of the beginning
			if err = a.Store.Batches.AdvanceProcessor(ctx, who.Context, begun.Processor); err == nil {
				out.Batch, err = a.Store.Batches.Batch(ctx, who.Context, begun.Processor, begun.ID)
			}
			return err != nil || out.Batch.State != processor.Executing || out.Batch.Runs != begun.Runs
		})
		if err == nil {
			out.Outcome = stateOutcome[out.Batch.State]
		}
	}
	if err != nil {
		return nil, err
	}
	return tickAnswer(out)
}

// paced refuses an actor of a context that does too often what anybody may do.
func (a *API) paced(who db.By) error {
	if wait := a.ticks.take(strconv.Itoa(int(who.Context))+" "+who.Actor, time.Now()); wait > 0 {
		return fault.New(fault.Retry, "rate_limited", "actor %q ticks more than %d times a second", fault.Clip(who.Actor), a.Limits.Ticks).After(wait)
	}
	return nil
}

// stateOutcome is what an execution that has begun has led to.
var stateOutcome = map[processor.State]string{
	processor.Executing: batches.TickExecuting, processor.Queued: batches.TickRequeued, processor.WaitingCallback: batches.TickWaiting,
	processor.TimedOut: batches.TickWaiting, processor.Done: batches.TickFinished,
}

type confirmInput struct {
	Name name   `path:"name"`
	ID   string `path:"id" maxLength:"20"`
	Body struct {
		Payload json.RawMessage `json:"payload" doc:"What the function's callback_confirmation says; another one is a failure of the action."`
	}
}

// postCallback confirms the action that a batch waits for (S4.8): 200; 403 "Invalid callback sender"; 404.
func (a *API) postCallback(ctx context.Context, in *confirmInput) (*tickOutput, error) {
	id, err := (&oneBatchInput{in.Name, in.ID}).id()
	if err != nil {
		return nil, fault.New(fault.NotFound, "not_found", "Pending callback not found")
	}
	out, err := a.Store.Batches.Confirm(ctx, by(ctx, ""), string(in.Name), id, in.Body.Payload)
	if err != nil {
		return nil, err
	}
	return tickAnswer(out)
}
