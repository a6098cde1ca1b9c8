package httpapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

func (a *API) senderRoutes() {
	const tag = "senders"
	get(a, tag, "/senders", "list-senders", "List senders", a.senders().list)
	get(a, tag, "/senders/{account}", "get-sender", "Read one sender", a.getSender)
	put(a, tag, "/senders/{account}", "put-sender", "Create or replace a sender", a.putSender, 200, 201)
	patch(a, tag, "/senders/{account}", "patch-sender", "Change a sender", a.patchSender)
	remove(a, tag, "/senders/{account}", "delete-sender", "Take a sender out of use", a.deleteSender)
	post(a, tag, "/senders/{account}/pause", "pause-sender",
		"Keep a sender from further transactions", a.pauseSender, 200)
	post(a, tag, "/senders/{account}/resume", "resume-sender",
		"Let a paused or drained sender work again", a.resumeSender, 200)
	post(a, tag, "/senders/{account}/drain", "drain-sender",
		"Take only what names this sender, accept no more of that", a.drainSender, 200)
	post(a, tag, "/senders/{account}/purge", "purge-sender",
		"Cancel what waits for this sender alone", a.purgeSender, 200)
	post(a, tag, "/senders/{account}/block", "block-sender",
		"Keep a sender from further transactions for a while", a.blockSender, 200)
	post(a, tag, "/senders/{account}/unblock", "unblock-sender",
		"Let a blocked sender work again", a.unblockSender, 200)
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
	Warned
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
	return senderView{Account: s.Account, Pool: s.Pool, WorkerURL: s.WorkerURL, Attributes: s.Attributes,
		Paused: s.Paused, Draining: s.Draining, State: s.State,
		Queue: ptr(s.Queue), BoundSince: utc(s.BoundSince), BlockedUntil: utc(until), BlockReason: ptr(s.BlockReason),
		LastNonce: ptr(s.LastNonce), LastUsedAt: utc(s.LastUsedAt), Version: s.Version, CreatedAt: s.CreatedAt.UTC()}
}

// senders says what is a sender's own among named things. One that has a transaction in flight when it is removed
// finishes that (S2.13).
func (a *API) senders() resource[senderSettings, *pg.Sender, senderView] {
	return resource[senderSettings, *pg.Sender, senderView]{
		a:        a,
		path:     "/senders",
		page:     pageInContext(a.Store.Senders),
		find:     inContext(a.Store.Sender),
		view:     simply(viewSender),
		head:     func(s *pg.Sender) (string, int64) { return s.Account, s.Version },
		address:  func(s senderSettings) (string, string) { return "/worker_url", s.WorkerURL },
		warnings: func(v *senderView) *[]string { return &v.Warnings },
		settings: func(s *pg.Sender) senderSettings {
			return senderSettings{Pool: name(s.Pool), WorkerURL: s.WorkerURL, Attributes: s.Attributes}
		},
		made: madeSender,
		store: func(ctx context.Context, by db.By, s *pg.Sender, version int64) (bool, error) {
			return a.Store.PutSender(ctx, by, *s, version)
		},
		remove: a.Store.RemoveSender,
	}
}

type senderInput struct {
	Account name `path:"account"`
}

func (a *API) getSender(ctx context.Context, in *senderInput) (*one[senderView], error) {
	return a.senders().read(ctx, string(in.Account))
}

type putSenderInput struct {
	Account name `path:"account"`
	Conditions
	Body senderSettings
}

func (a *API) putSender(ctx context.Context, in *putSenderInput) (*one[senderView], error) {
	return a.senders().replace(ctx, string(in.Account), in.Conditions, in.Body)
}

func madeSender(_ context.Context, account string, s senderSettings) (*pg.Sender, error) {
	if err := ofPath("account", string(s.Account), account); err != nil {
		return nil, err
	}
	if err := checkWorkerURL("/worker_url", s.WorkerURL, false); err != nil {
		return nil, err
	}
	if len(s.Attributes) > 0 {
		if _, ok := outbox.Parsed(s.Attributes).(map[string]any); !ok {
			return nil, fault.At("/attributes", "attributes: want an object")
		}
	}
	if len(s.Attributes) == 0 {
		s.Attributes = json.RawMessage("{}")
	}
	return &pg.Sender{
		Account:    account,
		Pool:       string(s.Pool),
		WorkerURL:  s.WorkerURL,
		Attributes: s.Attributes,
	}, nil
}

type patchSenderInput struct {
	Account name `path:"account"`
	Conditions
	RawBody []byte
	Body    patchBody
}

func (a *API) patchSender(ctx context.Context, in *patchSenderInput) (*one[senderView], error) {
	return a.senders().change(ctx, string(in.Account), in.Conditions, in.RawBody)
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

// blockSender keeps a sender from further transactions; the one that it has in flight keeps it.
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
