package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/events"
)

func eventID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return id, fault.New(fault.NotFound, "not_found", "no event %q", fault.Clip(text))
	}
	return id, nil
}

// eventMoveView is one transition of an event.
type eventMoveView struct {
	At      time.Time `json:"at"`
	Machine string    `json:"machine" doc:"event; lever for what people did"`
	From    string    `json:"from" doc:"empty: there was nothing yet"`
	Event   string    `json:"event" doc:"as GET /machines lists them"`
	To      string    `json:"to"`
	By      string    `json:"by" doc:"an actor, or the node that did it"`
	Fence   int64     `json:"fence"`
	Detail  string    `json:"detail"`
}

type eventHistoryOutput struct {
	Body struct {
		Items []eventMoveView `json:"items"`
		Next  *string         `json:"next"`
	}
}

// getEventHistory lists every transition of an event, oldest first. Those of its transactions are at theirs.
func (a *API) getEventHistory(ctx context.Context, in *eventInput) (*eventHistoryOutput, error) {
	id, err := eventID(in.ID)
	if err != nil {
		return nil, err
	}
	list, err := a.Store.Events.EventMoves(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	out := &eventHistoryOutput{}
	out.Body.Items = []eventMoveView{}
	for _, m := range list {
		out.Body.Items = append(out.Body.Items, eventMoveView{m.At.UTC(), m.Machine, m.From, m.Event, m.To, m.By, m.Fence, m.Detail})
	}
	return out, nil
}

// whyEvent says what an event waits for.
func (a *API) whyEvent(ctx context.Context, in *eventInput) (*whyOutput, error) {
	id, err := eventID(in.ID)
	if err != nil {
		return nil, err
	}
	w, err := a.Store.Events.WhyEvent(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	return &whyOutput{viewWhy(w)}, nil
}

type redriveEventInput struct {
	ID string `path:"id" maxLength:"100"`
	Trial
	Body *reasonBody
}

type redriveEventOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     sourceEventView
}

// redriveEvent brings a Dead event once more, as a new one that names it: 201; 409 wrong_state, already_redriven.
func (a *API) redriveEvent(ctx context.Context, in *redriveEventInput) (*redriveEventOutput, error) {
	id, err := eventID(in.ID)
	if err != nil {
		return nil, err
	}
	fresh, err := a.Store.Events.RedriveEvent(ctx, by(ctx, in.Body.reason()), id)
	if err != nil {
		return nil, err
	}
	e, err := a.Store.Events.Event(ctx, contextID(ctx), fresh)
	if err != nil {
		return nil, err
	}
	return &redriveEventOutput{http.StatusCreated, "/events/" + fresh.String(), viewEvent(e, true)}, nil
}

type eventBulkFilter struct {
	Source        oneOrMore  `json:"source,omitempty"`
	Tool          oneOrMore  `json:"tool,omitempty"`
	Digest        oneOrMore  `json:"digest,omitempty"`
	CreatedAfter  *time.Time `json:"created_after,omitempty" doc:"inclusive"`
	CreatedBefore *time.Time `json:"created_before,omitempty" doc:"exclusive"`
}

type redriveEventsInput struct {
	DryRun bool `query:"dry_run" doc:"As dry_run in the body."`
	Body   struct {
		IDs    []string         `json:"ids,omitempty" maxItems:"1000" doc:"ids, or filter with max."`
		Filter *eventBulkFilter `json:"filter,omitempty" doc:"As in the list, of those that are Dead and were not redriven."`
		Max    int              `json:"max,omitempty" minimum:"1" maximum:"1000" doc:"Required with filter: nothing beyond it is touched."`
		DryRun bool             `json:"dry_run,omitempty"`
		Reason string           `json:"reason,omitempty" maxLength:"1000"`
	}
}

// redriveEvents redrives many Dead events, oldest first: by id, or by filter up to max. The same request with a filter
// goes on with the next events, since the filter leaves out those that were redriven.
func (a *API) redriveEvents(ctx context.Context, in *redriveEventsInput) (*bulkOutput, error) {
	b, out := &in.Body, &bulkOutput{}
	out.Body.Refused, out.Body.DryRun = []refusedView{}, in.DryRun || b.DryRun
	ids := b.IDs
	switch {
	case len(b.IDs) > 0 == (b.Filter != nil):
		return nil, fault.At("/filter", "want either ids or filter")
	case b.Filter != nil && b.Max == 0:
		return nil, fault.At("/max", "max is required with filter: 1 to %d", bulkIDs)
	case b.Filter != nil:
		f := events.EventFilter{Source: b.Filter.Source, Tool: b.Filter.Tool, Digest: b.Filter.Digest, Status: []string{"Dead"}, NotRedriven: true, Ascending: true, Limit: b.Max}
		if b.Filter.CreatedAfter != nil {
			f.After = *b.Filter.CreatedAfter
		}
		if b.Filter.CreatedBefore != nil {
			f.Before = *b.Filter.CreatedBefore
		}
		found, err := a.Store.Events.Events(ctx, contextID(ctx), f)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			ids = append(ids, e.ID.String())
		}
	}
	for _, text := range ids {
		if out.Body.Matched++; b.Filter != nil {
			out.tell(text)
		}
		id, err := eventID(text)
		if err == nil {
			err = a.oneRedrive(ctx, by(ctx, b.Reason), id, out.Body.DryRun)
		}
		if f := fault.As(err); err != nil && (f.Kind == fault.NotFound || f.Kind == fault.Conflict || f.Kind == fault.Invalid) {
			out.Body.Refused = append(out.Body.Refused, refusedView{fault.Clip(text), f.Code, f.Detail})
		} else if err != nil {
			return nil, err
		} else {
			out.Body.Changed++
		}
	}
	return out, nil
}

func (a *API) oneRedrive(ctx context.Context, who db.By, id uuid.UUID, dry bool) error {
	if dry {
		joint, end := a.Store.DryRun(ctx)
		defer end()
		ctx = joint
	}
	_, err := a.Store.Events.RedriveEvent(ctx, who, id)
	return err
}
