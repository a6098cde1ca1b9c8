package httpapi

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/help"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// whyView is the chain of blockers from a transaction to the root.
type whyView struct {
	State    string        `json:"state"`
	Moving   bool          `json:"moving" doc:"something happens now, without anybody's help"`
	Summary  string        `json:"summary"`
	Blockers []blockerView `json:"blockers"`
}

type blockerView struct {
	Kind   string      `json:"kind"`
	Object string      `json:"object"`
	Since  time.Time   `json:"since"`
	Detail string      `json:"detail"`
	Help   string      `json:"help" doc:"the page and the place in it that say what this kind means, and what to do"`
	Next   *nextView   `json:"next,omitempty"`
	Levers []leverView `json:"levers"`
	Lane   *laneView   `json:"lane,omitempty" doc:"where its queue stands in turn: a lane is the queues that wait for the same thing"`
}

type nextView struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
}

type leverView struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Role   string `json:"role"`

	Body map[string]any `json:"body,omitempty" doc:"what the request wants at least; ... is for you to say"`
}

type laneView struct {
	Kind       string     `json:"kind" enum:"dispatcher,sender,exclusive,resume"`
	Name       string     `json:"name"`
	GateUntil  *time.Time `json:"gate_until"`
	GateReason *string    `json:"gate_reason"`
	Ahead      int        `json:"ahead" doc:"counted to 1,000"`
}

func viewWhy(w *reads.Why) whyView {
	v := whyView{State: w.State, Moving: w.Moving, Summary: w.Summary, Blockers: []blockerView{}}
	for _, b := range w.Blockers {
		v.Blockers = append(v.Blockers, viewBlocker(b))
	}
	return v
}

func viewBlocker(b reads.Blocker) blockerView {
	v := blockerView{
		Kind:   b.Kind,
		Object: b.Object,
		Since:  b.Since.UTC(),
		Detail: b.Detail,
		Help:   help.Link(help.Why, b.Kind),
		Levers: []leverView{},
	}
	if b.Next != nil {
		v.Next = &nextView{b.Next.At.UTC(), b.Next.What}
	}
	for _, l := range b.Levers {
		v.Levers = append(v.Levers, leverView{l.Method, l.Path, l.Role, l.Body})
	}
	if b.Lane != nil {
		v.Lane = &laneView{b.Lane.Kind, b.Lane.Name, utc(b.Lane.GateUntil), ptr(b.Lane.GateReason), b.Lane.Ahead}
	}
	return v
}

type whyByUIDInput struct {
	UID uidName `path:"uid" doc:"The client's own name."`
}

type whyOutput struct{ Body whyView }

// whyTransaction says what a transaction waits for.
func (a *API) whyTransaction(ctx context.Context, in *idInput) (*whyOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	w, err := a.Store.Reads.Why(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	return &whyOutput{viewWhy(w)}, nil
}

// whyByUID says what waits under a client's own name, also while it is only staged by SQL.
func (a *API) whyByUID(ctx context.Context, in *whyByUIDInput) (*whyOutput, error) {
	id, staged, err := a.find(ctx, string(in.UID))
	if err != nil {
		return nil, err
	}
	w := reads.WhyStaged(staged)
	if staged == nil {
		if w, err = a.Store.Reads.Why(ctx, contextID(ctx), id); err != nil {
			return nil, err
		}
	}
	return &whyOutput{viewWhy(w)}, nil
}

// whyQueue says why the head of a queue does not move.
func (a *API) whyQueue(ctx context.Context, in *Named) (*whyOutput, error) {
	w, err := a.Store.Reads.WhyQueue(ctx, contextID(ctx), string(in.Name))
	if err != nil {
		return nil, err
	}
	return &whyOutput{viewWhy(w)}, nil
}

// whyBatch says what a batch waits for, through the core where that carries it.
func (a *API) whyBatch(ctx context.Context, in *oneBatchInput) (*whyOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	w, err := a.Store.Batches.WhyBatch(ctx, contextID(ctx), string(in.Name), id)
	if err != nil {
		return nil, err
	}
	return &whyOutput{viewWhy(w)}, nil
}

// whyIntent says what an intent waits for: another node, the service of its domain, or its public transaction.
func (a *API) whyIntent(ctx context.Context, in *oneIntentInput) (*whyOutput, error) {
	w, err := a.Store.Domains.WhyIntent(ctx, contextID(ctx), string(in.Name), in.ID)
	if err != nil {
		return nil, err
	}
	return &whyOutput{viewWhy(w)}, nil
}

// whyDomain says what keeps a domain from going on.
func (a *API) whyDomain(ctx context.Context, in *Named) (*whyOutput, error) {
	w, err := a.Store.Domains.WhyDomain(ctx, contextID(ctx), string(in.Name))
	if err != nil {
		return nil, err
	}
	return &whyOutput{viewWhy(w)}, nil
}
