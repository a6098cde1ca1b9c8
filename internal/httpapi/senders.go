package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
)

func (a *API) senderRoutes() {
	const tag = "senders"
	get(a, tag, "/senders", "list-senders", "List senders", a.listSenders)
	get(a, tag, "/senders/{account}", "get-sender", "Read one sender", a.getSender)
	put(a, tag, "/senders/{account}", "put-sender", "Create or replace a sender", a.putSender, 200, 201)
	patch(a, tag, "/senders/{account}", "patch-sender", "Change a sender", a.patchSender)
	remove(a, tag, "/senders/{account}", "delete-sender", "Take a sender out of use", a.deleteSender)
	post(a, tag, "/senders/{account}/pause", "pause-sender", "Keep a sender from taking another queue", a.pauseSender, 200)
	post(a, tag, "/senders/{account}/resume", "resume-sender", "Let a paused or drained sender work again", a.resumeSender, 200)
	post(a, tag, "/senders/{account}/drain", "drain-sender", "Take only what names this sender, accept no more of that", a.drainSender, 200)
	post(a, tag, "/senders/{account}/purge", "purge-sender", "Cancel what waits for this sender alone", a.purgeSender, 200)
	post(a, tag, "/senders/{account}/block", "block-sender", "Block a sender for a while", a.blockSender, 200)
	post(a, tag, "/senders/{account}/unblock", "unblock-sender", "Let a blocked sender work again", a.unblockSender, 200)
}

// senderSettings is what people write of a sender.
type senderSettings struct {
	Account    name            `json:"account,omitempty" doc:"If given, the name in the path."`
	Pool       name            `json:"pool" doc:"Comes into being with its first sender."`
	WorkerURL  string          `json:"worker_url,omitempty" maxLength:"2000" doc:"Its own worker; else the dispatcher's."`
	Attributes json.RawMessage `json:"attributes,omitempty" doc:"An object, handed to the worker. Never a secret key."`
}

// senderView is a sender as clients read it.
type senderView struct {
	Account      string          `json:"account"`
	Pool         string          `json:"pool"`
	WorkerURL    string          `json:"worker_url"`
	Attributes   json.RawMessage `json:"attributes"`
	Paused       bool            `json:"paused"`
	Draining     bool            `json:"draining" doc:"it takes only what names it, and accepts no more of that"`
	State        string          `json:"state" enum:"FREE,BLOCKED,RETRY,DELAY,INCLUSION,WAITING_INCLUSION" doc:"that of the queue that it serves"`
	Queue        *string         `json:"queue"`
	BoundSince   *time.Time      `json:"bound_since"`
	BlockedUntil *time.Time      `json:"blocked_until" doc:"null beside a block_reason: until somebody unblocks it"`
	BlockReason  *string         `json:"block_reason"`
	LastNonce    *string         `json:"last_nonce" doc:"digits"`
	LastUsedAt   *time.Time      `json:"last_used_at"`
	Version      int64           `json:"version"`
	CreatedAt    time.Time       `json:"created_at"`
}

func viewSender(s *pg.Sender) senderView {
	until := s.BlockedUntil
	if until != nil && !until.Before(pg.Forever) {
		until = nil
	}
	return senderView{Account: s.Account, Pool: s.Pool, WorkerURL: s.WorkerURL, Attributes: s.Attributes, Paused: s.Paused, Draining: s.Draining, State: s.State,
		Queue: ptr(s.Queue), BoundSince: utc(s.BoundSince), BlockedUntil: utc(until), BlockReason: ptr(s.BlockReason),
		LastNonce: ptr(s.LastNonce), LastUsedAt: utc(s.LastUsedAt), Version: s.Version, CreatedAt: s.CreatedAt.UTC()}
}

type senderOutput struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Body     senderView
}

type sendersOutput struct {
	Link string `header:"Link"`
	Body struct {
		Items []senderView `json:"items"`
		Next  *string      `json:"next"`
	}
}

type namedPage struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string `query:"cursor" doc:"next of the page before."`
}

func (a *API) listSenders(ctx context.Context, in *namedPage) (*sendersOutput, error) {
	var err error
	out := &sendersOutput{}
	out.Body, out.Link, err = listBy(ctx, a, in, []any{"senders"},
		func(after string, limit int) ([]*pg.Sender, error) {
			return a.Store.Senders(ctx, contextID(ctx), after, limit)
		},
		func(v *pg.Sender) string { return v.Account }, plainly(viewSender))
	return out, err
}

type senderInput struct {
	Account name `path:"account"`
}

func (a *API) getSender(ctx context.Context, in *senderInput) (*senderOutput, error) {
	s, err := a.Store.Sender(ctx, contextID(ctx), string(in.Account))
	if err != nil {
		return nil, err
	}
	return &senderOutput{Status: http.StatusOK, ETag: etag(s.Version), Body: viewSender(s)}, nil
}

type putSenderInput struct {
	Account name `path:"account"`
	Conditions
	Body senderSettings
}

// putSender creates or replaces a sender: 201, 200; 412 if it is not what If-Match says.
func (a *API) putSender(ctx context.Context, in *putSenderInput) (*senderOutput, error) {
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	return a.writeSender(ctx, string(in.Account), in.Body, version)
}

func (a *API) writeSender(ctx context.Context, account string, s senderSettings, version int64) (*senderOutput, error) {
	if err := ofPath("account", string(s.Account), account); err != nil {
		return nil, err
	}
	if err := checkWorkerURL("/worker_url", s.WorkerURL, false); err != nil {
		return nil, err
	}
	if len(s.Attributes) > 0 {
		if _, ok := parsed(s.Attributes).(map[string]any); !ok {
			return nil, fault.At("/attributes", "attributes: want an object")
		}
	}
	created, err := a.Store.PutSender(ctx, by(ctx, ""), pg.Sender{Account: account, Pool: string(s.Pool), WorkerURL: s.WorkerURL, Attributes: s.Attributes}, version)
	if err != nil {
		return nil, err
	}
	out, err := a.getSender(ctx, &senderInput{name(account)})
	if err == nil && created {
		out.Status, out.Location = http.StatusCreated, "/senders/"+account
	}
	return out, err
}

type patchSenderInput struct {
	Account name `path:"account"`
	Conditions
	RawBody []byte
	Body    patchBody
}

func (a *API) patchSender(ctx context.Context, in *patchSenderInput) (*senderOutput, error) {
	s, err := a.Store.Sender(ctx, contextID(ctx), string(in.Account))
	if err != nil {
		return nil, err
	}
	if err := in.check(s.Version); err != nil {
		return nil, err
	}
	raw, err := merged(senderSettings{Pool: name(s.Pool), WorkerURL: s.WorkerURL, Attributes: s.Attributes}, in.RawBody)
	if err != nil {
		return nil, err
	}
	var next senderSettings
	if err := a.decode(raw, &next, "senderSettings"); err != nil {
		return nil, err
	}
	return a.writeSender(ctx, s.Account, next, s.Version)
}

type deleteSenderInput struct {
	Account name `path:"account"`
	Conditions
}

// deleteSender takes a sender out of use; one that serves a queue finishes what it holds (S2.13).
func (a *API) deleteSender(ctx context.Context, in *deleteSenderInput) (*struct{}, error) {
	return nil, a.Store.RemoveSender(ctx, by(ctx, ""), string(in.Account))
}

type senderActionInput struct {
	Account name `path:"account"`
	Trial
	Body *reasonBody
}

func (a *API) pauseSender(ctx context.Context, in *senderActionInput) (*leverOutput, error) {
	return lever(a.Store.PauseSender(ctx, by(ctx, in.Body.reason()), string(in.Account), true))
}

func (a *API) resumeSender(ctx context.Context, in *senderActionInput) (*leverOutput, error) {
	return lever(a.Store.PauseSender(ctx, by(ctx, in.Body.reason()), string(in.Account), false))
}

// drainSender lets it take only what names it already, and accepts nothing more that does.
func (a *API) drainSender(ctx context.Context, in *senderActionInput) (*leverOutput, error) {
	return lever(a.Store.DrainSender(ctx, by(ctx, in.Body.reason()), string(in.Account)))
}

func (a *API) unblockSender(ctx context.Context, in *senderActionInput) (*leverOutput, error) {
	return lever(a.Store.UnblockSender(ctx, by(ctx, in.Body.reason()), string(in.Account)))
}

type blockBody struct {
	Until  *time.Time `json:"until,omitempty" doc:"until or for; neither: until somebody unblocks it"`
	For    string     `json:"for,omitempty" example:"24h"`
	Reason string     `json:"reason,omitempty" maxLength:"1000"`
}

type blockInput struct {
	Account name `path:"account"`
	Trial
	Body *blockBody
}

// blockSender keeps a sender from taking another queue; the one that it serves keeps it.
func (a *API) blockSender(ctx context.Context, in *blockInput) (*leverOutput, error) {
	if in.Body == nil {
		in.Body = &blockBody{}
	}
	now, err := a.now(ctx)
	if err != nil {
		return nil, err
	}
	until := pg.Forever
	switch b := in.Body; {
	case b.Until != nil && b.For != "":
		return nil, fault.At("/for", "until and for are both given: send one of them")
	case b.Until != nil:
		if err := checkTime("/until", *b.Until, now); err != nil {
			return nil, err
		}
		if until = *b.Until; !until.After(now) {
			return nil, fault.At("/until", "until %q is over already", until.Format(time.RFC3339))
		}
	case b.For != "":
		d, err := time.ParseDuration(b.For)
		if err != nil || d <= 0 {
			return nil, fault.At("/for", "for %q: want a duration such as \"24h\", above zero", fault.Clip(b.For))
		}
		until = now.Add(d)
	}
	return lever(a.Store.BlockSender(ctx, by(ctx, in.Body.Reason), string(in.Account), until))
}

type purgeSenderInput struct {
	Account name `path:"account"`
	Purging
}

// purgeSender cancels what waits for this account alone.
func (a *API) purgeSender(ctx context.Context, in *purgeSenderInput) (*purgeOutput, error) {
	return in.purge(ctx, string(in.Account), a.Store.PurgeSender)
}
