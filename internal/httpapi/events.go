package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg/events"
)

func (a *API) eventRoutes() {
	const tag = "leader"
	get(a, tag, "/events", "list-events", "List events", a.listEvents)
	post(a, tag, "/events", "push-events", "Bring events to a source of kind push", a.pushEvents, 201, 200)
	get(a, tag, "/events/{id}", "get-event", "Read one event", a.getEvent)
	get(a, tag, "/events/{id}/history", "get-event-history", "What happened to it, oldest first", a.getEventHistory)
	get(a, tag, "/events/{id}/why", "get-event-why", "What it waits for", a.whyEvent)
	post(a, tag, "/events/{id}/redrive", "redrive-event",
		"Bring a Dead event once more, as a new one", a.redriveEvent, 201)
	post(a, tag, "/events:redrive", "redrive-events", "Redrive many Dead events", a.redriveEvents, 200)
}

// sourceEventView is an event as clients read it.
type sourceEventView struct {
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Identity    string          `json:"identity" doc:"how its source names it"`
	Checkpoint  *string         `json:"checkpoint"`
	Digest      *string         `json:"digest"`
	JSON        json.RawMessage `json:"json,omitempty" doc:"of one event only"`
	Tool        *string         `json:"tool" doc:"null if it could not be read"`
	Input       json.RawMessage `json:"input,omitempty" doc:"what its tool is given by the map that its source has now, where that is a part of the event; of one event only"`
	InputURL    string          `json:"input_url,omitempty" doc:"from where that is fetched, where it is not; of one event only"`
	Status      string          `json:"status" enum:"Queued,Active,Successful,Dead"`
	Retried     int             `json:"retried"`
	Outcome     *string         `json:"outcome" enum:"successful,failed,stale" doc:"what its workflow is told; null before that is known"`
	Error       *eventError     `json:"error"`
	NotBefore   *time.Time      `json:"not_before" doc:"of the next try"`
	Transaction *string         `json:"transaction" doc:"the last one that called its tool"`
	Result      *string         `json:"result" doc:"the transaction that tells its workflow"`
	RedriveOf   *string         `json:"redrive_of"`
	RedrivenBy  *string         `json:"redriven_by"`
	CreatedAt   time.Time       `json:"created_at"`
	UpdatedAt   time.Time       `json:"updated_at"`
}

// eventError is why an event failed, at its last try or for good.
type eventError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func viewEvent(e *events.Event, whole bool) sourceEventView {
	v := sourceEventView{ID: e.ID.String(), Source: e.Source, Identity: e.Identity, Checkpoint: ptr(e.Checkpoint), Digest: ptr(e.Digest), Tool: ptr(e.FQN),
		Status: e.Status, Retried: e.Retried, Outcome: ptr(e.Outcome), Transaction: ptr(e.Tool), Result: ptr(e.Result), RedriveOf: idText(e.RedriveOf), RedrivenBy: idText(e.RedrivenBy), NotBefore: utc(e.NotBefore), CreatedAt: e.CreatedAt.UTC(), UpdatedAt: e.UpdatedAt.UTC()}
	if e.Error != "" || e.Code != "" {
		v.Error = &eventError{e.Code, e.Error}
	}
	if whole {
		v.JSON = e.JSON
		v.Input, v.InputURL, _ = e.Map.InputOf(e.JSON) // an event without one ends Dead, and says so
	}
	return v
}

func idText(id *uuid.UUID) *string {
	if id == nil {
		return nil
	}
	return ptr(id.String())
}

type listEventsInput struct {
	Source        []name    `query:"source,explode"`
	Status        []string  `query:"status,explode" enum:"Queued,Active,Successful,Dead"`
	Tool          []string  `query:"tool,explode"`
	Digest        []string  `query:"digest,explode"`
	CreatedAfter  time.Time `query:"created_after"`
	CreatedBefore time.Time `query:"created_before"`
	Paging
}

type eventsOutput struct {
	Link string `header:"Link"`
	Body struct {
		Items []sourceEventView `json:"items"`
		Next  *string           `json:"next" doc:"null at the end; a page may be short, even empty, before it"`
	}
}

type eventCursor struct {
	At time.Time `json:"a"`
	ID uuid.UUID `json:"i"`
}

func (a *API) listEvents(ctx context.Context, in *listEventsInput) (*eventsOutput, error) {
	limit, err := in.limit(a)
	if err != nil {
		return nil, err
	}
	f := events.EventFilter{Source: texts(in.Source), Status: in.Status, Tool: in.Tool, Digest: in.Digest, After: in.CreatedAfter, Before: in.CreatedBefore,
		Ascending: in.Order == "asc", Limit: limit + 1}
	filters := []any{"events", f.Source, f.Status, f.Tool, f.Digest, f.After, f.Before, f.Ascending}
	var c eventCursor
	if err := in.read(filters, &c); err != nil {
		return nil, err
	}
	f.FromAt, f.FromID = c.At, c.ID
	found, err := a.Store.Events.Events(ctx, contextID(ctx), f)
	if err != nil {
		return nil, err
	}
	out := &eventsOutput{}
	out.Body, out.Link, err = cutTo(ctx, &in.Paging, limit, filters, found,
		func(e *events.Event) eventCursor { return eventCursor{e.CreatedAt, e.ID} },
		plainly(func(e *events.Event) sourceEventView { return viewEvent(e, false) }))
	return out, err
}

type eventInput struct {
	ID string `path:"id" maxLength:"100"`
}

type eventOutput struct {
	ETag string `header:"ETag"`
	Body sourceEventView
}

func (a *API) getEvent(ctx context.Context, in *eventInput) (*eventOutput, error) {
	id, err := eventID(in.ID)
	if err != nil {
		return nil, err
	}
	e, err := a.Store.Events.Event(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	return &eventOutput{etag(e.Tag()), viewEvent(e, true)}, nil
}

// pushedEvent is one event as it is brought.
type pushedEvent struct {
	Identity eventIdentity   `json:"identity"`
	JSON     json.RawMessage `json:"json"`
}

type eventIdentity struct {
	Checkpoint string `json:"checkpoint,omitempty" maxLength:"100"`
	Digest     string `json:"digest" minLength:"1" maxLength:"200"`
	Index      int    `json:"index,omitempty" minimum:"0" doc:"of the event in what the digest is of"`
}

type pushInput struct {
	Body struct {
		Source   name            `json:"source" doc:"of kind push"`
		Identity *eventIdentity  `json:"identity,omitempty" doc:"of one event"`
		JSON     json.RawMessage `json:"json,omitempty" doc:"of one event"`
		Events   []pushedEvent   `json:"events,omitempty" maxItems:"1000" doc:"several, instead of identity and json"`
		Cursor   json.RawMessage `json:"cursor,omitempty" doc:"where the next push goes on; stored with them"`
	}
}

type pushOutput struct {
	Status int
	Body   struct {
		Items []pushedView `json:"items" doc:"in the order of the request"`
	}
}

type pushedView struct {
	ID    string `json:"id"`
	Known bool   `json:"known" doc:"it was stored before"`
}

// pushEvents stores events and the cursor of who brings them in one SQL transaction: 201, or 200 if all were
// stored before; 409 if one was, with another content; 422 if one cannot be read, and then none is stored.
func (a *API) pushEvents(ctx context.Context, in *pushInput) (*pushOutput, error) {
	src, err := a.Store.Events.Source(ctx, contextID(ctx), string(in.Body.Source))
	if err != nil {
		return nil, err
	}
	list := in.Body.Events
	switch one := in.Body.Identity != nil || len(in.Body.JSON) > 0; {
	case one && len(list) > 0:
		return nil, fault.At("/events", "events: give one event with identity and json, or several with events")
	case one && in.Body.Identity == nil, !one && len(list) == 0:
		return nil, fault.At("/identity", "identity is required: the digest by which its source names an event, and its index")
	case one && len(in.Body.JSON) == 0:
		return nil, fault.At("/json", "json is required: the event itself")
	case one:
		list = []pushedEvent{{*in.Body.Identity, in.Body.JSON}}
	}
	var items []leader.Item
	seen := map[string]bool{}
	for i, e := range list {
		it := src.Item(leader.Item{Identity: e.Identity.Digest + ":" + itoa(e.Identity.Index), Checkpoint: e.Identity.Checkpoint, Digest: e.Identity.Digest}, e.JSON)
		switch {
		case it.Undecoded != "":
			return nil, fault.At("/events/"+itoa(i)+"/json", "this event cannot be read: %s", it.Undecoded)
		case seen[it.Identity]:
			return nil, fault.At("/events/"+itoa(i)+"/identity", "identity %q stands in this request twice", fault.Clip(it.Identity))
		}
		seen[it.Identity] = true
		items = append(items, it)
	}
	cursor := in.Body.Cursor
	if string(cursor) == "null" {
		cursor = nil
	}
	stored, err := a.Store.Events.PushEvents(ctx, by(ctx, ""), src.Name, items, cursor)
	if err != nil {
		return nil, err
	}
	out := &pushOutput{Status: http.StatusOK}
	for _, p := range stored {
		if !p.Known {
			out.Status = http.StatusCreated
		}
		out.Body.Items = append(out.Body.Items, pushedView{p.ID.String(), p.Known})
	}
	return out, nil
}
