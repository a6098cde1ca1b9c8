package httpapi

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/pg/domains"
)

// workView is a work as clients read it.
type workView struct {
	Intent     string     `json:"intent" doc:"the id"`
	Node       string     `json:"node" doc:"of the intent"`
	State      string     `json:"state" doc:"see GET /machines"`
	Since      time.Time  `json:"since"`
	Seconds    float64    `json:"seconds" doc:"that it has been in this state"`
	Generation string     `json:"generation" doc:"of what was assembled last: digits"`
	Waits      []workWait `json:"waits_for" doc:"requests to nodes that have no answer"`
	Needs      []string   `json:"needs" doc:"the intents that make its inputs"`
	Errors     int        `json:"errors" doc:"of assembling it"`
	Rejections int        `json:"rejections" doc:"of endorsers"`
	Reverts    int        `json:"reverts" doc:"of its public transaction"`
	Unknown    bool       `json:"unknown" doc:"what became of its public transaction is unknown: see release"`
	Hash       *string    `json:"hash" doc:"the newest of its public transaction"`
	Public     *string    `json:"public_uid" doc:"the uid of its public transaction"`
}

// workWait is a request that a work waits for.
type workWait struct {
	Kind  string `json:"kind"`
	Node  string `json:"node"`
	Party string `json:"party" doc:"of a signature and an endorsement"`
}

func viewWork(w *domains.WorkRow) workView {
	v := workView{
		Intent:     w.ID,
		Node:       w.Image.Origin,
		State:      string(w.State),
		Since:      w.Since.UTC(),
		Seconds:    w.Now.Sub(w.Since).Seconds(),
		Generation: *digits(&w.Image.Generation),
		Waits:      []workWait{},
		Needs:      list(w.Image.Needs),
		Errors:     w.Image.Errors,
		Rejections: w.Image.Rejections,
		Reverts:    w.Image.Reverts,
		Unknown:    w.Image.Unknown,
		Hash:       ptr(w.Image.Hash),
		Public:     ptr(w.Public),
	}
	for _, a := range w.Image.Asks {
		if a.Answer == "" {
			v.Waits = append(v.Waits, workWait{string(a.Kind), a.Node, a.Party})
		}
	}
	return v
}

type listWorksInput struct {
	Name   name   `path:"name"`
	State  string `query:"state" enum:"PreAssembly_Blocked,Pooled,Assembling,Endorsement_Gathering,Blocked,Confirming_Dispatch,Ready_For_Dispatch,Dispatched,Submitted,Confirmed,Reverted"`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string `query:"cursor" doc:"next of the page before."`
}

func (a *API) listWorks(ctx context.Context, in *listWorksInput) (*pageOf[workView], error) {
	var err error
	out := &pageOf[workView]{}
	out.Body, out.Link, err = listBy(ctx, a, &namedPage{in.Limit, in.Cursor}, []any{"works", in.Name, in.State},
		func(after int64, limit int) ([]*domains.WorkRow, error) {
			return a.Store.Domains.Works(ctx, contextID(ctx), string(in.Name), in.State, after, limit)
		}, func(w *domains.WorkRow) int64 { return w.Place }, plainly(viewWork))
	return out, err
}
