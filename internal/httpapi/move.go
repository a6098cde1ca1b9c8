package httpapi

import (
	"context"
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// placeBody is where a transaction is to stand: "head", {"before": id} or {"after": id}.
type placeBody struct{ before, after string }

// UnmarshalJSON reads one of the three.
func (p *placeBody) UnmarshalJSON(b []byte) error {
	var word string
	if json.Unmarshal(b, &word) == nil {
		if word != "head" {
			return fault.At("/place", "place %q: want %s", fault.Clip(word), placeForms)
		}
		return nil
	}
	var m map[string]string
	if json.Unmarshal(b, &m) != nil || len(m) != 1 || m["before"] == "" && m["after"] == "" {
		return fault.At("/place", "place: want %s", placeForms)
	}
	p.before, p.after = m["before"], m["after"]
	return nil
}

const placeForms = `"head", {"before": id} or {"after": id}`

// Schema leaves the form to UnmarshalJSON: generated clients have no type for all three.
func (placeBody) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: placeForms + ", of a transaction that waits in the same queue. head: before all that wait.", Examples: []any{"head"}}
}

// place reads the ids.
func (p *placeBody) place() (to pg.Place, err error) {
	for text, at := range map[string]**outbox.ID{p.before: &to.Before, p.after: &to.After} {
		if text == "" {
			continue
		}
		id, err := outbox.ParseID(text)
		if err != nil {
			return to, fault.At("/place", "%q is no id of a transaction", fault.Clip(text))
		}
		*at = &id
	}
	return to, nil
}

type moveInput struct {
	ID string `path:"id"`
	Trial
	Body struct {
		Place  placeBody `json:"place"`
		Reason string    `json:"reason,omitempty" maxLength:"1000" doc:"Kept in the audit row."`
	}
}

// move lets a waiting transaction go out earlier or later in its queue; its position and id stay.
func (a *API) move(ctx context.Context, in *moveInput) (*leverOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	to, err := in.Body.Place.place()
	if err != nil {
		return nil, err
	}
	return lever(a.Store.Move(ctx, by(ctx, in.Body.Reason), id, to))
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
		Place  placeBody   `json:"place"`
	}
}

// moveMany moves several to one place. They keep their order: each stands behind the one before it.
func (a *API) moveMany(ctx context.Context, in *moveManyInput) (*bulkOutput, error) {
	to, err := in.Body.Place.place()
	if err != nil {
		return nil, err
	}
	last, follows := map[int64]outbox.ID{}, map[outbox.ID]outbox.ID{}
	return a.bulk(func(ctx context.Context, by pg.By, id outbox.ID) (pg.LeverResult, error) {
		to := to
		if before, again := follows[id]; again { // its chunk is done once more
			last[id.Queue] = before
		}
		before, behind := last[id.Queue]
		if follows[id] = before; behind && to.Before == nil && before != (outbox.ID{}) {
			to = pg.Place{After: &before}
		}
		r, err := a.Store.Move(ctx, by, id, to)
		if err == nil {
			last[id.Queue] = id
		}
		return r, err
	})(ctx, &bulkInput{DryRun: in.DryRun, Body: bulkInputBody{in.Body.IDs, in.Body.Filter, in.Body.Max, in.Body.After, in.Body.DryRun, in.Body.Reason}})
}
