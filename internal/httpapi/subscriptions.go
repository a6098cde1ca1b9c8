package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"net/url"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

func (a *API) subscriptionRoutes() {
	const tag = "subscriptions"
	get(a, tag, "/subscriptions", "list-subscriptions", "List subscriptions", a.listSubscriptions)
	get(a, tag, "/subscriptions/{name}", "get-subscription", "Read one subscription", a.getSubscription)
	put(a, tag, "/subscriptions/{name}", "put-subscription", "Create or replace a subscription", a.putSubscription, 200, 201)
	patch(a, tag, "/subscriptions/{name}", "patch-subscription", "Change a subscription", a.patchSubscription)
	remove(a, tag, "/subscriptions/{name}", "delete-subscription", "End a subscription", a.deleteSubscription)
	post(a, tag, "/subscriptions/{name}/enable", "enable-subscription", "Call a webhook again, from where it stopped", a.enableSubscription, 200)
	post(a, tag, "/subscriptions/{name}/disable", "disable-subscription", "Stop calling a webhook, and keep its events", a.disableSubscription, 200)
	post(a, tag, "/subscriptions/{name}/test", "test-subscription", "Send it an event of its own", a.testSubscription, 202)
	post(a, tag, "/subscriptions/{name}/rotate-secret", "rotate-secret", "Draw a new secret; two are valid for a day", a.rotateSecret, 200)
	post(a, tag, "/subscriptions/{name}/redeliver", "redeliver-subscription", "Send what happened once more", a.redeliver, 202)
	get(a, tag, "/subscriptions/{name}/feed", "feed-subscription", "Fetch what comes after a cursor, or wait for it", a.feed)
	post(a, tag, "/subscriptions/{name}/ack", "ack-subscription", "Acknowledge up to a cursor", a.ack, 200)
	stream(a, tag, "/subscriptions/{name}/stream", "stream-subscription", "The same as server-sent events", a.streamSubscription)
}

// subscriptionSettings is what people write of a subscription.
type subscriptionSettings struct {
	Name    name               `json:"name,omitempty" doc:"If given, the name in the path."`
	Kind    string             `json:"kind" enum:"webhook,pull" doc:"webhook: url is called. pull: fetched by /feed or /stream, and acknowledged."`
	URL     string             `json:"url,omitempty" maxLength:"2000" doc:"Of a webhook; where workers may live."`
	Events  []string           `json:"events,omitempty" maxItems:"20" example:"[\"transaction.done\"]" doc:"transaction.accepted, .done, .failed, .unresolved, .cancelled; batch.result, .timeout; empty: all."`
	Filter  subscriptionFilter `json:"filter,omitzero"`
	OnError string             `json:"on_error,omitempty" enum:"skip,block" doc:"What cannot be delivered for 72h: skip it (default), or block: never give up. Either holds back only its own queue."`
	Include []string           `json:"include,omitempty" maxItems:"2" doc:"data, result: heavy parts of a transaction to send along."`
}

// subscriptionFilter narrows: a repeated field means or, different ones mean and.
type subscriptionFilter struct {
	Queue       []name   `json:"queue,omitempty" maxItems:"100"`
	QueuePrefix []name   `json:"queue_prefix,omitempty" maxItems:"100"`
	Type        []name   `json:"type,omitempty" maxItems:"100"`
	State       []string `json:"state,omitempty" maxItems:"8" doc:"that the event leads to"`
}

// subscriptionView is a subscription as clients read it.
type subscriptionView struct {
	Name           string         `json:"name"`
	Kind           string         `json:"kind" enum:"webhook,pull"`
	URL            string         `json:"url"`
	Events         []string       `json:"events"`
	Filter         *outbox.Filter `json:"filter,omitempty"`
	OnError        string         `json:"on_error" enum:"skip,block"`
	Include        []string       `json:"include"`
	Enabled        bool           `json:"enabled"`
	DisabledReason *string        `json:"disabled_reason"`
	Since          *time.Time     `json:"since" doc:"Complete from then on: every process has heard of it."`
	Pending        int            `json:"pending" doc:"not delivered or acknowledged yet, counted to 100,000"`
	FailingSince   *time.Time     `json:"failing_since" doc:"nothing was delivered since, and something failed"`
	Cursor         string         `json:"cursor" doc:"how far its consumer has got"`
	Newest         string         `json:"newest" doc:"of the newest event"`
	Secret         string         `json:"secret,omitempty" doc:"Shown once, to whoever created it: signs (v1)."`
	SecretUntil    *time.Time     `json:"previous_secret_until" doc:"the secret before signs too until then"`
	PublicKey      *string        `json:"public_key" doc:"of the installation, if it has a signing key: verifies v1a"`
	Version        int64          `json:"version"`
	CreatedAt      time.Time      `json:"created_at"`
}

func (a *API) viewSubscription(s *pg.Subscription) subscriptionView {
	v := subscriptionView{Name: s.Name, Kind: s.Kind, URL: s.URL, Events: []string{}, Filter: &s.Filter, OnError: s.OnError, Include: s.Include,
		Enabled: s.Enabled, DisabledReason: ptr(s.DisabledReason), Since: utc(s.Since), Pending: s.Pending, FailingSince: utc(s.FailingSince),
		Cursor: pg.Cursor{Subscription: s.ID, Position: s.Cursor}.String(), Newest: pg.Cursor{Subscription: s.ID, Position: s.Newest}.String(),
		SecretUntil: utc(s.SecretUntil), PublicKey: ptr(a.PublicKey), Version: s.Version, CreatedAt: s.CreatedAt.UTC()}
	for _, e := range s.Events {
		v.Events = append(v.Events, e.Name())
	}
	return v
}

type subscriptionOutput struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Body     subscriptionView
}

type subscriptionsOutput struct {
	Link string `header:"Link"`
	Body struct {
		Items []subscriptionView `json:"items"`
		Next  *string            `json:"next"`
	}
}

func (a *API) listSubscriptions(ctx context.Context, in *namedPage) (*subscriptionsOutput, error) {
	var err error
	out := &subscriptionsOutput{}
	out.Body, out.Link, err = listBy(ctx, a, in, []any{"subscriptions"},
		func(after string, limit int) ([]*pg.Subscription, error) {
			return a.Store.Subscriptions(ctx, contextID(ctx), after, limit)
		},
		func(v *pg.Subscription) string { return v.Name }, plainly(a.viewSubscription))
	return out, err
}

type subscriptionInput struct {
	Name name `path:"name"`
}

func (a *API) getSubscription(ctx context.Context, in *subscriptionInput) (*subscriptionOutput, error) {
	s, err := a.Store.Subscription(ctx, contextID(ctx), string(in.Name))
	if err != nil {
		return nil, err
	}
	return &subscriptionOutput{Status: http.StatusOK, ETag: etag(s.Version), Body: a.viewSubscription(s)}, nil
}

type putSubscriptionInput struct {
	Name name `path:"name"`
	Conditions
	Body subscriptionSettings
}

// putSubscription creates a subscription or replaces its settings: 201, with the secret of a webhook; 200;
// 412 if it is not what If-Match says.
func (a *API) putSubscription(ctx context.Context, in *putSubscriptionInput) (*subscriptionOutput, error) {
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	out, err := a.writeSubscription(ctx, string(in.Name), in.Body, version)
	if err == nil && in.DryRun {
		out.Body.Secret = "" // it is nobody's
	}
	return out, err
}

func (a *API) writeSubscription(ctx context.Context, called string, s subscriptionSettings, version int64) (*subscriptionOutput, error) {
	v, err := s.subscription(called)
	if err != nil {
		return nil, err
	}
	var secret []byte
	if v.Kind == "webhook" {
		secret = newSecret()
	}
	created, err := a.Store.PutSubscription(ctx, by(ctx, ""), v, secret, version)
	if err != nil {
		return nil, err
	}
	out, err := a.getSubscription(ctx, &subscriptionInput{name(called)})
	if err == nil && created {
		out.Status, out.Location = http.StatusCreated, "/subscriptions/"+called
		out.Body.Secret = showSecret(secret)
	}
	return out, err
}

// newSecret draws 256 bits, the upper half of what Standard Webhooks allows.
func newSecret() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
}

func showSecret(b []byte) string {
	if b == nil {
		return ""
	}
	return "whsec_" + base64.StdEncoding.EncodeToString(b)
}

// subscription checks what a schema cannot say.
func (s *subscriptionSettings) subscription(of string) (v outbox.Subscription, err error) {
	v = outbox.Subscription{Name: of, Kind: s.Kind, URL: s.URL, OnError: s.OnError, Include: s.Include}
	or(&v.OnError, "skip")
	if err := ofPath("name", string(s.Name), of); err != nil {
		return v, err
	}
	switch {
	case s.Kind == "pull" && s.URL != "":
		return v, fault.At("/url", "url: what is pulled is not called; leave it out, or make it a webhook")
	case s.Kind == "webhook":
		if err := checkEndpoint("/url", s.URL); err != nil {
			return v, err
		}
	}
	for i, e := range s.Events {
		event, ok := outbox.ParseEvent(e)
		if !ok {
			return v, fault.At("/events/"+itoa(i), "event %q: want one of %s", fault.Clip(e), eventNames())
		}
		v.Events = append(v.Events, event)
	}
	for i, part := range s.Include {
		if part != "data" && part != "result" {
			return v, fault.At("/include/"+itoa(i), "include %q: want data or result", fault.Clip(part))
		}
	}
	v.Filter, err = s.Filter.filter("/filter")
	return v, err
}

func (f *subscriptionFilter) filter(pointer string) (outbox.Filter, error) {
	v := outbox.Filter{Queue: texts(f.Queue), QueuePrefix: texts(f.QueuePrefix), Type: texts(f.Type)}
	for i, s := range f.State {
		state := outbox.State(s)
		if state != outbox.WAITING && !state.Terminal() {
			return v, fault.At(pointer+"/state/"+itoa(i), "state %q: events lead to WAITING, DONE, FAILED, UNRESOLVED or CANCELLED", fault.Clip(s))
		}
		v.State = append(v.State, state)
	}
	return v, nil
}

func texts(list []name) (out []string) {
	for _, n := range list {
		out = append(out, string(n))
	}
	return out
}

func eventNames() (list []string) {
	for _, e := range outbox.Events {
		list = append(list, e.Name())
	}
	return list
}

// checkEndpoint refuses what is no address of an endpoint. Whether it may be dialled is known when it is:
// names change what they mean.
func checkEndpoint(pointer, raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fault.At(pointer, "url %q: want an absolute http or https URL", fault.Clip(raw))
	case u.User != nil, u.Fragment != "":
		return fault.At(pointer, "url: want neither credentials nor a fragment in it; verify the signature instead")
	}
	return nil
}

type patchSubscriptionInput struct {
	Name name `path:"name"`
	Conditions
	RawBody []byte
	Body    patchBody
}

func (a *API) patchSubscription(ctx context.Context, in *patchSubscriptionInput) (*subscriptionOutput, error) {
	s, err := a.Store.Subscription(ctx, contextID(ctx), string(in.Name))
	if err != nil {
		return nil, err
	}
	if err := in.check(s.Version); err != nil {
		return nil, err
	}
	have := subscriptionSettings{Kind: s.Kind, URL: s.URL, OnError: s.OnError, Include: s.Include, Filter: subscriptionFilter{
		Queue: names(s.Filter.Queue), QueuePrefix: names(s.Filter.QueuePrefix), Type: names(s.Filter.Type)}}
	for _, state := range s.Filter.State {
		have.Filter.State = append(have.Filter.State, string(state))
	}
	for _, e := range s.Events {
		have.Events = append(have.Events, e.Name())
	}
	raw, err := merged(have, in.RawBody)
	if err != nil {
		return nil, err
	}
	var next subscriptionSettings
	if err := a.decode(raw, &next, "subscriptionSettings"); err != nil {
		return nil, err
	}
	return a.writeSubscription(ctx, s.Name, next, s.Version)
}

func names(list []string) (out []name) {
	for _, s := range list {
		out = append(out, name(s))
	}
	return out
}

type deleteSubscriptionInput struct {
	Name name `path:"name"`
	Conditions
}

// deleteSubscription ends a subscription; what it did not deliver stays listed, as failed.
func (a *API) deleteSubscription(ctx context.Context, in *deleteSubscriptionInput) (*struct{}, error) {
	return nil, a.Store.RemoveSubscription(ctx, by(ctx, ""), string(in.Name))
}
