package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// transactionInput is what a client writes of a transaction (S2.1).
type transactionInput struct {
	Queue      *queueName        `json:"queue,omitempty"`
	Type       name              `json:"type" doc:"Names the dispatcher."`
	Data       json.RawMessage   `json:"data,omitempty" doc:"Handed to the worker; any JSON up to 256 KiB. Numbers keep their digits."`
	UID        uidName           `json:"uid,omitempty" doc:"The client's own name, unique in its context; the idempotency key."`
	NotBefore  *time.Time        `json:"not_before,omitempty" doc:"Does not go out before; at most 100 years ahead."`
	MaxRetries *int              `json:"max_retries,omitempty" minimum:"0" maximum:"10000" doc:"Else the dispatcher's, else the worker's, else 10 or, with a pool, 5."`
	Tags       map[string]string `json:"tags,omitempty" maxProperties:"16"`
	Sender     name              `json:"sender,omitempty" doc:"Only this account may sign it."`
	Callback   *callbackInput    `json:"callback,omitempty" doc:"Whom to tell of its end, as a webhook is told, beside all subscriptions."`
	Place      *placeBody        `json:"place,omitempty"`
	DependsOn  []uidName         `json:"depends_on,omitempty" maxItems:"64" doc:"Ids or uids: it goes out only after all of them are DONE, and fails if one ends otherwise."`
}

// decodeTransaction reads and validates one item of a batch as huma does it with a whole body.
func (a *API) decodeTransaction(raw []byte) (*transactionInput, error) {
	in := &transactionInput{}
	return in, a.decode(raw, in, "transactionInput")
}

// submission checks what a schema cannot say, and makes the submission. key is that of the header.
func (a *API) submission(ctx context.Context, in *transactionInput, key string, now time.Time) (*pg.Submission, error) {
	switch {
	case key != "" && in.UID != "" && key != string(in.UID):
		return nil, fault.New(fault.Invalid, "key_mismatch",
			"Idempotency-Key %q and uid %q differ: send one of them, or the same",
			fault.Clip(key), fault.Clip(string(in.UID)))
	case key != "":
		in.UID = uidName(key)
	}
	if len(in.Data) == 0 {
		in.Data = json.RawMessage("{}")
	}
	if len(in.Data) > a.Limits.Data {
		f := fault.At("/data", "data has %d bytes, more than the limit of %d: store it elsewhere and post a reference",
			len(in.Data), a.Limits.Data)
		f.Code = "too_large"
		return nil, f
	}
	if err := checkTags(in.Tags); err != nil {
		return nil, err
	}
	if err := a.wanted(ctx, in); err != nil {
		return nil, err
	}
	sub := &pg.Submission{ContextID: contextID(ctx), UID: string(in.UID),
		Actor: scopeOf(ctx).Actor, Poster: a.poster(ctx),
		Type: string(in.Type), Data: in.Data, MaxRetries: in.MaxRetries, Sender: string(in.Sender)}
	if in.Queue != nil {
		sub.Queue = string(*in.Queue)
	}
	if in.NotBefore != nil {
		if err := checkTime("/not_before", *in.NotBefore, now); err != nil {
			return nil, err
		}
		sub.NotBefore = in.NotBefore.UTC().Truncate(time.Microsecond)
	}
	sub.DependsOn = refs(in.DependsOn)
	var err error
	if sub.Insertion, err = a.insertion(ctx, in); err != nil {
		return nil, err
	}
	if sub.Callback, err = in.Callback.callback(); err != nil {
		return nil, err
	}
	if sub.Callback != nil {
		if err := a.reachableSoon(ctx, "/callback/url", sub.Callback.URL); err != nil {
			return nil, err
		}
	}
	if len(in.Tags) > 0 {
		sub.Tags, _ = json.Marshal(in.Tags)
	}
	if sub.UID != "" { // nothing else is compared with another
		sub.Hash = sub.Fingerprint()
	}
	a.Store.Judge(sub)
	return sub, nil
}

// poster says which kind of poster the caller is.
func (a *API) poster(ctx context.Context) outbox.Poster {
	if s := scopeOf(ctx); s.who.in(s.Context, a.system()) >= admins {
		return outbox.ByAdmin
	}
	return outbox.Anyone
}

// refs lists what is depended on, each once.
func refs(list []uidName) (out []string) {
	for _, r := range list {
		if !slices.Contains(out, string(r)) {
			out = append(out, string(r))
		}
	}
	return out
}

// insertion reads a place, which is for admins, as moving is; nil without one.
func (a *API) insertion(ctx context.Context, in *transactionInput) (*pg.Insertion, error) {
	to, err := in.Place.place()
	if err != nil || to == nil {
		return nil, err
	}
	s := scopeOf(ctx)
	switch only := s.who.only; {
	case in.Queue == nil || *in.Queue == "":
		return nil, fault.At("/place", "place: a transaction without a queue has none")
	case s.who.in(s.Context, a.system()) < admins:
		return nil, fault.New(fault.Forbidden, "forbidden", "place: it is for the role admin or higher; "+
			"without it the transaction stands at the end of its queue").About("/place")
	case len(only) > 0 && !slices.Contains(only, "operate"):
		return nil, fault.New(fault.Forbidden, "forbidden", "place: this API key may only %s, "+
			"and this needs one that may operate", strings.Join(only, " and ")).About("/place")
	}
	return &pg.Insertion{Place: *to, By: by(ctx, "")}, nil
}

// wanted checks what a context may want of every transaction.
func (a *API) wanted(ctx context.Context, in *transactionInput) error {
	queue := ""
	if in.Queue != nil {
		queue = string(*in.Queue)
	}
	if err := outbox.Reserved(outbox.Anyone, string(in.Type), string(in.UID), queue); err != nil {
		return err
	}
	if err := a.wantsKey(ctx, in.UID != "", "Idempotency-Key or uid"); err != nil {
		return err
	}
	return a.wantsDeclared(ctx, "/queue", queue)
}

// wantsKey refuses what is not named, in a context that wants a name of each post: a client that repeats one would post
// twice. by says how it is named.
func (a *API) wantsKey(ctx context.Context, named bool, by string) error {
	if c := scopeOf(ctx).Context; c.RequireKey && !named {
		return fault.New(fault.Invalid, "key_required", "context %s wants an idempotency key: send %s", c.Name, by)
	}
	return nil
}

// wantsDeclared refuses a queue that was not configured, in a context that takes declared ones only.
func (a *API) wantsDeclared(ctx context.Context, at, queue string) error {
	c := scopeOf(ctx).Context
	if !c.DeclaredQueues || queue == "" {
		return nil
	}
	declared, err := a.Store.Declared(ctx, c.ID, queue)
	if err == nil && !declared {
		f := fault.At(at, "queue %q is not configured, and context %s takes declared queues only: "+
			"PUT /queues/{name} declares one", fault.Clip(queue), c.Name)
		f.Code = "unknown_queue"
		return f
	}
	return err
}

func checkTags(tags map[string]string) error {
	for k, v := range tags {
		switch {
		case len(k) == 0 || len(k) > 64:
			return fault.At("/tags", "the tag %q has %d bytes: want 1 to 64", fault.Clip(k), len(k))
		case len(v) > 256:
			return fault.At("/tags/"+k, "the value of tag %q has %d bytes: want at most 256", k, len(v))
		}
	}
	return nil
}

// checkTime refuses a time that cannot be meant: before 1970, after 9999, or more than 100 years ahead.
func checkTime(pointer string, t, now time.Time) error {
	switch {
	case t.Year() < 1970 || t.Year() > 9999:
		return fault.At(pointer, "%s %q lies before 1970 or after 9999",
			strings.TrimPrefix(pointer, "/"), t.Format(time.RFC3339))
	case t.After(now.AddDate(100, 0, 0)):
		return fault.At(pointer, "%s %q lies more than 100 years ahead",
			strings.TrimPrefix(pointer, "/"), t.Format(time.RFC3339))
	}
	return nil
}

// keyOf reads Idempotency-Key, bare or as a quoted string.
func keyOf(header string) (string, error) {
	key := header
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	if header != "" && !isUID(key) {
		return "", &fault.Error{Kind: fault.Invalid, Code: "invalid",
			Detail: fmt.Sprintf("Idempotency-Key %q: want %s", fault.Clip(key), uidIs),
			Fields: []fault.Field{{Pointer: "Idempotency-Key", Detail: "want " + uidIs}}}
	}
	return key, nil
}
