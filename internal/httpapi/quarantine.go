package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
)

// quarantineRoutes are those of what is kept from leaving, and of what a database says of itself.
func (a *API) quarantineRoutes() {
	const tag = "quarantine"
	get(a, tag, "/quarantine", "get-quarantine", "What is kept from leaving, and why", a.getQuarantine)
	post(a, tag, "/quarantine/enter", "enter-quarantine",
		"Keep everything, or a part, from leaving", a.enterQuarantine, 200, 202)
	post(a, tag, "/quarantine/reconcile", "reconcile-quarantine",
		"Ask workers what they did in the lost time", a.reconcile, 200, 202)
	post(a, tag, "/quarantine/release", "release-quarantine", "Let it go", a.releaseQuarantine, 200)
	post(a, tag, "/identity/announce", "announce-identity",
		"Say under which deployment this database runs", a.announceIdentity, 200)
}

// QuarantineScope says what is put into quarantine, asked about, or released.
type QuarantineScope struct {
	Context name `json:"context,omitempty" doc:"All contexts unless said."`
	Type    name `json:"type,omitempty" doc:"All types unless said."`
}

func (s QuarantineScope) scope() pg.Quarantine {
	return pg.Quarantine{Context: string(s.Context), Type: string(s.Type)}
}

// scopeView is one scope in quarantine.
type scopeView struct {
	Context   *string    `json:"context" doc:"null: all"`
	Type      *string    `json:"type" doc:"null: all"`
	EnteredAt time.Time  `json:"entered_at"`
	By        string     `json:"by"`
	Reason    string     `json:"reason"`
	LostFrom  *time.Time `json:"lost_from" doc:"commits from here on may be missing; null: nothing is lost"`
	LostUntil *time.Time `json:"lost_until"`
	Reconcile roundView  `json:"reconcile"`
	NextStep  string     `json:"next_step"`
}

// roundView is how far a scope's workers were asked.
type roundView struct {
	State     string     `json:"state" enum:"none,begun,finished"`
	BeganAt   *time.Time `json:"began_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Asked     int64      `json:"asked" doc:"transactions that had not ended"`
	MovedOn   int64      `json:"moved_on" doc:"that their worker knew: what it did is recorded"`
	Unknown   int64      `json:"unknown" doc:"that their worker never saw: they go out at the release"`
	Remaining int64      `json:"open" doc:"whose worker did not say: somebody has to decide"`
}

type waitByType struct {
	Context      string `json:"context"`
	Type         string `json:"type"`
	Queues       int64  `json:"queues"`
	Transactions int64  `json:"transactions"`
}

// openView is a transaction that reconciling has not settled: it is not known what happened to it in the lost time.
type openView struct {
	ID      string `json:"id"`
	Context string `json:"context"`
	Type    string `json:"type"`
	Why     string `json:"why" enum:"unreachable,unsupported,ahead,busy"`
	Detail  string `json:"detail"`
}

func viewScope(v *pg.QuarantinedScope) scopeView {
	s := scopeView{EnteredAt: v.EnteredAt.UTC(), By: v.Actor, Reason: v.Reason, NextStep: v.NextStep(),
		Reconcile: roundView{State: "none", BeganAt: utc(v.ReconcileAt), EndedAt: utc(v.ReconciledAt), Asked: v.Asked,
			MovedOn: v.Moved, Unknown: v.Unknown, Remaining: v.Open}}
	if v.Context != "" {
		s.Context = &v.Context
	}
	if v.Type != "" {
		s.Type = &v.Type
	}
	if v.Lost() {
		from, until := v.LostFrom.UTC(), v.LostUntil.UTC()
		s.LostFrom, s.LostUntil = &from, &until
	}
	switch {
	case v.ReconciledAt != nil:
		s.Reconcile.State = "finished"
	case v.ReconcileAt != nil:
		s.Reconcile.State = "begun"
	}
	return s
}

// QuarantineView is what is kept from leaving, as clients read it.
type QuarantineView struct {
	Deployment string       `json:"deployment" doc:"under which this database runs; empty: none has said"`
	Life       string       `json:"life" doc:"drawn anew when commits may be lost"`
	Items      []scopeView  `json:"items" doc:"what is in quarantine"`
	Waiting    []waitByType `json:"waiting" doc:"what waits in any of them, by the type of what goes out next"`
	Open       []openView   `json:"open" doc:"the first hundred"`
	Unheeded   []string     `json:"unheeded" doc:"nodes that do not know of all of it yet"`
}

// ViewQuarantine is what the store has, as clients read it.
func ViewQuarantine(v *pg.QuarantineStatus) QuarantineView {
	b := QuarantineView{Deployment: v.Deployment, Life: strconv.FormatInt(v.Life, 36), Unheeded: v.Unheeded,
		Items: []scopeView{}, Waiting: []waitByType{}, Open: []openView{}}
	for _, s := range v.Scopes {
		b.Items = append(b.Items, viewScope(s))
	}
	for _, w := range v.Waiting {
		b.Waiting = append(b.Waiting, waitByType(w))
	}
	for _, u := range v.Open {
		b.Open = append(b.Open, openView{u.ID.String(), u.Context, u.Type, u.Why, u.Detail})
	}
	if b.Unheeded == nil {
		b.Unheeded = []string{}
	}
	return b
}

type quarantineOutput struct{ Body QuarantineView }

// getQuarantine says what is kept from leaving, since when, why, and what is to be done.
func (a *API) getQuarantine(ctx context.Context, _ *struct{}) (*quarantineOutput, error) {
	v, err := a.Store.Quarantine(ctx)
	if err != nil {
		return nil, err
	}
	return &quarantineOutput{ViewQuarantine(v)}, nil
}

type enterBody struct {
	QuarantineScope
	Reason string `json:"reason" minLength:"1" maxLength:"1000" doc:"Kept, and shown to who asks why something waits."`
}

type enterInput struct {
	Attempt
	Body enterBody
}

// heededWithin is how long entering waits until every node says that it knows of it.
const heededWithin = 20 * time.Second

// enterQuarantine keeps a scope from leaving: 200 when no call of it begins any more, 202 where a node has not said so
// yet.
func (a *API) enterQuarantine(ctx context.Context, in *enterInput) (*leverOutput, error) {
	q := in.Body.scope()
	q.Reason = in.Body.Reason
	if err := a.Store.EnterQuarantine(ctx, by(ctx, in.Body.Reason), q); err != nil {
		return nil, err
	}
	r := pg.LeverResult{Changed: true}
	if !in.DryRun {
		wait, cancel := context.WithTimeout(ctx, heededWithin)
		defer cancel()
		if err := a.Store.AwaitQuarantine(wait); err != nil {
			r.Pending, r.At = true, "when its last node knows of it, or has lost its leases: "+err.Error()
		}
	}
	return lever(r, nil)
}

type reconcileInput struct {
	Body struct {
		QuarantineScope
		Anew   bool   `json:"anew,omitempty" doc:"Begin a round that has not reached its end again."`
		Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Kept in the audit row of the round."`
	}
}

type reconcileOutput struct {
	Status int
	Body   scopeView
}

// reconcile asks workers about the next part of what has not ended: 202 while there is more, to be asked for by the
// same request, 200 at the end of the round. The request after that begins another.
func (a *API) reconcile(ctx context.Context, in *reconcileInput) (*reconcileOutput, error) {
	if a.Reconcile == nil {
		return nil, fault.New(fault.Conflict, "wrong_state", "this process calls no workers")
	}
	q := in.Body.scope()
	q.Reason = in.Body.Reason
	v, err := a.Reconcile(ctx, by(ctx, in.Body.Reason), q, in.Body.Anew)
	if err != nil {
		return nil, err
	}
	out := &reconcileOutput{Status: http.StatusOK, Body: viewScope(v)}
	if v.ReconciledAt == nil {
		out.Status = http.StatusAccepted
	}
	return out, nil
}

type releaseInput struct {
	Attempt
	Body struct {
		QuarantineScope
		Anyway bool   `json:"anyway,omitempty" doc:"Also where workers were not asked, or something is open."`
		Reason string `json:"reason" minLength:"1" maxLength:"1000"`
	}
}

// releaseQuarantine lets a scope go. 409 not_reconciled, with numbers, where something may be lost and its workers were
// not asked about everything.
func (a *API) releaseQuarantine(ctx context.Context, in *releaseInput) (*leverOutput, error) {
	_, err := a.Store.ReleaseQuarantine(ctx, by(ctx, in.Body.Reason), in.Body.scope(), in.Body.Anyway)
	return lever(pg.LeverResult{Changed: err == nil}, err)
}

type announceInput struct {
	Attempt
	Body struct {
		Deployment string `json:"deployment" minLength:"1" maxLength:"200" doc:"As its processes have it in POSTERN_DEPLOYMENT."`
		Reason     string `json:"reason" minLength:"1" maxLength:"1000"`
	}
}

// announceIdentity says under which deployment this database is meant to run from now on.
func (a *API) announceIdentity(ctx context.Context, in *announceInput) (*leverOutput, error) {
	return lever(a.Store.AnnounceDeployment(ctx, by(ctx, in.Body.Reason), in.Body.Deployment))
}
