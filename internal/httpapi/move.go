package httpapi

import (
	"context"
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// placeBody is where a transaction is to stand: "head", {"before": id} or {"after": id}.
type placeBody struct {
	before, after string
	wrong         error // it is none of the three
}

// UnmarshalJSON reads one of the three. It keeps what is wrong for place, which tells it with its pointer.
func (p *placeBody) UnmarshalJSON(b []byte) error {
	var word string
	if json.Unmarshal(b, &word) == nil {
		if word != "head" {
			p.wrong = fault.At("/place", "place %q: want %s", fault.Clip(word), placeForms)
		}
		return nil
	}
	var m map[string]string
	if json.Unmarshal(b, &m) != nil || len(m) != 1 || m["before"] == "" && m["after"] == "" {
		p.wrong = fault.At("/place", "place: want %s", placeForms)
	}
	p.before, p.after = m["before"], m["after"]
	return nil
}

const placeForms = `"head", {"before": id} or {"after": id}`

// Schema leaves the form to UnmarshalJSON: generated clients have no type for all three.
func (placeBody) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: placeForms + ", of a transaction that waits in the same queue. head: before all that wait.", Examples: []any{"head"}}
}

// place reads the ids; nil: none is named.
func (p *placeBody) place() (to *pg.Place, err error) {
	switch {
	case p == nil:
		return nil, nil
	case p.wrong != nil:
		return nil, p.wrong
	}
	to = &pg.Place{}
	if to.Before, err = idAt("/place/before", p.before); err == nil {
		to.After, err = idAt("/place/after", p.after)
	}
	return to, err
}

// idAt reads the id of a transaction, nil for none.
func idAt(pointer, text string) (*outbox.ID, error) {
	if text == "" {
		return nil, nil
	}
	id, err := outbox.ParseID(text)
	if err != nil {
		return nil, fault.At(pointer, "%q is no id of a transaction", fault.Clip(text))
	}
	return &id, nil
}

// to checks where something is to go: within its queue there must be a place, and another queue must take posts.
func (a *API) to(ctx context.Context, queue name, place *placeBody) (*pg.Place, error) {
	to, err := place.place()
	if err != nil {
		return nil, err
	}
	if queue == "" {
		if to == nil {
			return nil, fault.At("/place", "want place, queue, or both: place is %s", placeForms)
		}
		return to, nil
	}
	into := queueName(queue)
	return to, a.wanted(ctx, &transactionInput{Queue: &into, UID: "-"})
}

// moving is the lever for one place.
func (a *API) moving(queue name, to *pg.Place) pg.Pull {
	return func(ctx context.Context, by db.By, id outbox.ID) (pg.LeverResult, error) {
		if queue == "" {
			return a.Store.Move(ctx, by, id, *to)
		}
		return a.Store.MoveTo(ctx, by, id, string(queue), to)
	}
}

type moveInput struct {
	ID string `path:"id"`
	Trial
	Body struct {
		Queue  name       `json:"queue,omitempty" doc:"To another queue: it gets a new id there, to which the old one leads. Absent: within its queue."`
		Place  *placeBody `json:"place,omitempty"`
		Reason string     `json:"reason,omitempty" maxLength:"1000" doc:"Kept in the audit row."`
	}
}

// move lets a waiting transaction go out earlier or later in its queue, where its position and id stay, or moves
// it to another queue.
func (a *API) move(ctx context.Context, in *moveInput) (*leverOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	to, err := a.to(ctx, in.Body.Queue, in.Body.Place)
	if err != nil {
		return nil, err
	}
	return lever(a.moving(in.Body.Queue, to)(ctx, by(ctx, in.Body.Reason), id))
}

type moveManyInput struct {
	DryRun bool `query:"dry_run" doc:"As dry_run in the body."`
	Body   struct {
		IDs    []string    `json:"ids,omitempty" maxItems:"1000" doc:"ids, or filter with max."`
		Filter *bulkFilter `json:"filter,omitempty" doc:"As in the list."`
		Max    int         `json:"max,omitempty" minimum:"1" maximum:"10000" doc:"Required with filter: nothing beyond it is touched."`
		After  string      `json:"after,omitempty" doc:"next of the answer before."`
		DryRun bool        `json:"dry_run,omitempty"`
		Reason string      `json:"reason,omitempty" maxLength:"1000"`
		Queue  name        `json:"queue,omitempty" doc:"To another queue, where they get new ids. Absent: within theirs."`
		Place  *placeBody  `json:"place,omitempty"`
	}
}

// moveMany moves several to one place. They keep their order: each stands behind the one before it.
func (a *API) moveMany(ctx context.Context, in *moveManyInput) (*bulkOutput, error) {
	to, err := a.to(ctx, in.Body.Queue, in.Body.Place)
	if err != nil {
		return nil, err
	}
	into, dry := in.Body.Queue, in.DryRun || in.Body.DryRun
	last, follows := map[int64]outbox.ID{}, map[outbox.ID]outbox.ID{}
	pull := func(ctx context.Context, by db.By, id outbox.ID) (pg.LeverResult, error) {
		line := id.Queue
		if into != "" {
			line = 0 // all of them come to stand in one queue
		}
		to := to
		if before, again := follows[id]; again { // its chunk is done once more
			last[line] = before
		}
		before, behind := last[line]
		if follows[id] = before; behind && to != nil && to.Before == nil && before != (outbox.ID{}) {
			to = &pg.Place{After: &before}
		}
		r, err := a.moving(into, to)(ctx, by, id)
		switch {
		case err == nil && r.Moved != nil && !dry: // a dry run left nothing to stand behind
			last[line] = *r.Moved
		case err == nil && r.Moved == nil:
			last[line] = id
		}
		return r, err
	}
	return a.bulk(pull, into != "")(ctx, &bulkInput{DryRun: in.DryRun, Body: bulkInputBody{in.Body.IDs, in.Body.Filter, in.Body.Max, in.Body.After, in.Body.DryRun, in.Body.Reason}})
}
