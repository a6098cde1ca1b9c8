package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/domains"
)

func (a *API) intentRoutes() {
	const tag = "domains"
	post(a, tag, "/domains/{name}/intents", "post-intent", "Have something done once", a.postIntent, 201, 200)
	post(a, tag, "/domains/{name}/intents:batch", "post-intents", "Have several things done, all or none",
		a.postIntents, 201)
	get(a, tag, "/domains/{name}/intents", "list-intents", "List intents, the newest first", a.listIntents)
	get(a, tag, "/domains/{name}/works", "list-works", "List what this node coordinates, in the order of the pool",
		a.listWorks)
	get(a, tag, "/domains/{name}/intents/{id}", "get-intent", "Read one intent", a.getIntent)
	get(a, tag, "/domains/{name}/intents/{id}/history", "get-intent-history",
		"What happened to an intent here", a.getIntentHistory)
	get(a, tag, "/domains/{name}/intents/{id}/why", "get-intent-why", "What it waits for", a.whyIntent)
	post(a, tag, "/domains/{name}/intents/{id}/resume", "resume-intent",
		"Have a parked intent go on", a.onIntent(a.Store.Domains.Resume), 200)
	post(a, tag, "/domains/{name}/intents/{id}/cancel", "cancel-intent",
		"End an intent that has sent nothing yet", a.onIntent(a.Store.Domains.Cancel), 200)
	post(a, tag, "/domains/{name}/intents/{id}/release", "release-intent",
		"Say what became of an intent whose permit does not end", a.releaseIntent, 200)
}

// newIntent is what a client wants done once.
type newIntent struct {
	UID       string          `json:"uid,omitempty" maxLength:"200" doc:"The client's own name for it: the same one again is the same intent."`
	Party     string          `json:"party" minLength:"1" maxLength:"200" example:"alice@self" doc:"Whose it is: name@node, or a name of this node."`
	Data      json.RawMessage `json:"data" doc:"What its domain's service is given: any JSON, 512 KiB at most."`
	DependsOn []string        `json:"depends_on,omitempty" maxItems:"100" doc:"Ids or uids of intents of this installation that must succeed first."`
}

// intentView is an intent as clients read it.
type intentView struct {
	ID         string          `json:"id"`
	UID        *string         `json:"uid"`
	Actor      string          `json:"actor"`
	Party      string          `json:"party"`
	Data       json.RawMessage `json:"data"`
	DependsOn  []string        `json:"depends_on" doc:"ids"`
	State      string          `json:"state" enum:"Pending,Delegated,Assembling,Signing,EndorsementGathering,Prepared,Dispatched,Sequenced,Submitted,Confirmed,Reverted,Parked"`
	Since      time.Time       `json:"since"`
	Receipt    *intentReceipt  `json:"receipt" doc:"null until it has ended; there is one, and it does not change"`
	Parked     *string         `json:"parked" doc:"why it is Parked"`
	Delegate   *string         `json:"delegate" doc:"the node that coordinates it"`
	Holder     *string         `json:"permit" doc:"the node that may have its public transaction under way"`
	Unknown    bool            `json:"unknown" doc:"it is not known what became of its public transaction: see release"`
	Generation string          `json:"generation" doc:"of what was assembled last: digits"`
	Nonce      *string         `json:"nonce" doc:"of its public transaction"`
	Hash       *string         `json:"hash" doc:"the newest of its public transaction"`
	Public     *string         `json:"public_uid" doc:"the uid of its public transaction"`
	CreatedAt  time.Time       `json:"created_at"`
	EndedAt    *time.Time      `json:"ended_at"`
}

// intentReceipt is how an intent ended.
type intentReceipt struct {
	Outcome string `json:"outcome" enum:"success,failure"`
	Text    string `json:"text" doc:"of success: the hash; of failure: why"`
}

func viewIntent(i *domains.Intent) intentView {
	v := intentView{
		ID:         i.ID,
		UID:        ptr(i.UID),
		Actor:      i.Actor,
		Party:      i.Party,
		Data:       i.Data,
		DependsOn:  list(i.Image.DependsOn),
		State:      string(i.State),
		Since:      i.Since.UTC(),
		Parked:     ptr(i.Parked),
		Delegate:   ptr(i.Image.Delegate),
		Holder:     ptr(i.Holder),
		Unknown:    i.Unknown,
		Generation: *digits(&i.Image.Generation),
		Nonce:      ptr(i.Nonce),
		Hash:       ptr(i.Hash),
		Public:     ptr(i.CoreUID),
		CreatedAt:  i.CreatedAt.UTC(),
		EndedAt:    utc(i.EndedAt),
	}
	if i.Receipt != "" {
		v.Receipt = &intentReceipt{i.Receipt, i.Text}
	}
	return v
}

type oneIntentOutput struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Replay   string `header:"Idempotent-Replay" doc:"true when the uid was known already"`
	Body     intentView
}

type postIntentInput struct {
	Name name   `path:"name"`
	Key  string `header:"Idempotency-Key" maxLength:"200" doc:"Instead of a uid in the body."`
	Trial
	Body newIntent
}

// postIntent stores one intent: 201; 200 with Idempotent-Replay, where it is there already; 409 idempotency_conflict.
func (a *API) postIntent(ctx context.Context, in *postIntentInput) (*oneIntentOutput, error) {
	switch {
	case in.Body.UID == "":
		in.Body.UID = in.Key
	case in.Key != "" && in.Key != in.Body.UID:
		return nil, fault.At("/uid", "uid %q, and the header Idempotency-Key says %q: want one of them",
			fault.Clip(in.Body.UID),
			fault.Clip(in.Key))
	}
	list, err := a.submitIntents(ctx, string(in.Name), []newIntent{in.Body}, func(int) string { return "" })
	if err != nil {
		return nil, err
	}
	out := &oneIntentOutput{Status: http.StatusCreated, ETag: etag(list[0].Version()), Body: viewIntent(list[0]),
		Location: "/domains/" + string(in.Name) + "/intents/" + list[0].ID}
	if list[0].Replay {
		out.Status, out.Replay = http.StatusOK, "true"
	}
	return out, nil
}

func (a *API) submitIntents(ctx context.Context, domain string, posted []newIntent,
	at func(int) string) ([]*domains.Intent, error) {
	var fresh []domains.NewIntent
	for n, i := range posted {
		switch {
		case len(i.Data) == 0:
			return nil, fault.At(at(n)+"/data", "want data: any JSON")
		case len(i.Data) > 512<<10:
			return nil, fault.At(at(n)+"/data", "data of %d bytes: want at most %d", len(i.Data), 512<<10)
		}
		fresh = append(fresh, domains.NewIntent{UID: i.UID, Party: i.Party, Data: i.Data, DependsOn: i.DependsOn})
	}
	return a.Store.Domains.Submit(ctx, by(ctx, ""), domain, fresh, at)
}

type postIntentsInput struct {
	Name name `path:"name"`
	Trial
	Body struct {
		Intents []newIntent `json:"intents" minItems:"1" maxItems:"1000" doc:"In the order in which they are to go. One may depend on another by its uid."`
	}
}

type postedIntentsOutput struct {
	Status int
	Body   struct {
		Items []intentView `json:"items"`
	}
}

// postIntents stores several intents in one commit, all or none: 201 with all of them in their order.
func (a *API) postIntents(ctx context.Context, in *postIntentsInput) (*postedIntentsOutput, error) {
	list, err := a.submitIntents(ctx, string(in.Name), in.Body.Intents,
		func(n int) string { return "/intents/" + itoa(n) })
	if err != nil {
		return nil, err
	}
	out := &postedIntentsOutput{Status: http.StatusCreated}
	for _, i := range list {
		out.Body.Items = append(out.Body.Items, viewIntent(i))
	}
	return out, nil
}

type listIntentsInput struct {
	Name    name   `path:"name"`
	State   string `query:"state" enum:"Pending,Delegated,Assembling,Signing,EndorsementGathering,Prepared,Dispatched,Sequenced,Submitted,Confirmed,Reverted,Parked"`
	Receipt string `query:"receipt" enum:"success,failure"`
	Limit   int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor  string `query:"cursor" doc:"next of the page before."`
}

func (a *API) listIntents(ctx context.Context, in *listIntentsInput) (*pageOf[intentView], error) {
	var err error
	out := &pageOf[intentView]{}
	out.Body, out.Link, err = listBy(ctx, a, &namedPage{in.Limit, in.Cursor},
		[]any{"intents", in.Name, in.State, in.Receipt},
		func(before int64, limit int) ([]*domains.Intent, error) {
			return a.Store.Domains.Intents(ctx, contextID(ctx), string(in.Name),
				domains.IntentFilter{State: in.State, Receipt: in.Receipt, Before: before, Limit: limit})
		}, (*domains.Intent).Seq, plainly(viewIntent))
	return out, err
}

type oneIntentInput struct {
	Name name   `path:"name"`
	ID   string `path:"id" maxLength:"200" doc:"The id, or the uid."`
}

func (a *API) getIntent(ctx context.Context, in *oneIntentInput) (*oneIntentOutput, error) {
	i, err := a.Store.Domains.Intent(ctx, contextID(ctx), string(in.Name), in.ID)
	if err != nil {
		return nil, err
	}
	return &oneIntentOutput{Status: http.StatusOK, ETag: etag(i.Version()), Body: viewIntent(i)}, nil
}

type intentStepsOutput struct {
	Body struct {
		Items   []intentStep       `json:"items"`
		Seconds map[string]float64 `json:"seconds" doc:"that the intent has been in each state so far"`
	}
}

type intentStep struct {
	At         time.Time `json:"at"`
	Machine    string    `json:"machine" enum:"originator_transaction,coordinator_transaction"`
	Event      string    `json:"event"`
	From       string    `json:"from" doc:"empty: there was nothing yet"`
	To         string    `json:"to"`
	Generation string    `json:"generation" doc:"digits"`
	Node       string    `json:"node" doc:"that the event came from"`
	Reason     string    `json:"reason"`
}

func (a *API) getIntentHistory(ctx context.Context, in *oneIntentInput) (*intentStepsOutput, error) {
	steps, err := a.Store.Domains.History(ctx, contextID(ctx), string(in.Name), in.ID)
	if err != nil {
		return nil, err
	}
	now, err := a.now(ctx)
	if err != nil {
		return nil, err
	}
	out := &intentStepsOutput{}
	out.Body.Items, out.Body.Seconds = []intentStep{}, domains.Seconds(steps, now)
	for _, s := range steps {
		out.Body.Items = append(out.Body.Items, intentStep{s.At.UTC(), s.Machine, s.Event, s.From, s.To,
			*digits(&s.Generation),
			s.Node, s.Reason})
	}
	return out, nil
}

type actIntentInput struct {
	Name name   `path:"name"`
	ID   string `path:"id" maxLength:"200"`
	Trial
	Body *reasonBody
}

// onIntent is an action on an intent.
func (a *API) onIntent(
	act func(ctx context.Context, by db.By, domain, called string) (pg.LeverResult, error),
) func(context.Context, *actIntentInput) (*leverOutput, error) {
	return func(ctx context.Context, in *actIntentInput) (*leverOutput, error) {
		return lever(act(ctx, by(ctx, in.Body.reason()), string(in.Name), in.ID))
	}
}

type releaseIntentInput struct {
	Name name   `path:"name"`
	ID   string `path:"id" maxLength:"200"`
	Trial
	Body struct {
		Outcome string `json:"outcome" enum:"done,not_done" doc:"done: the ledger has it. not_done: nothing of it is on its way any more; it is done again, and where that was wrong, twice."`
		Reason  string `json:"reason" minLength:"1" maxLength:"1000" doc:"Kept in the audit row."`
	}
}

func (a *API) releaseIntent(ctx context.Context, in *releaseIntentInput) (*leverOutput, error) {
	return lever(a.Store.Domains.Release(ctx, by(ctx, in.Body.Reason), string(in.Name), in.ID,
		in.Body.Outcome == "done"))
}
