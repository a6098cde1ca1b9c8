package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net/url"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/deliveries"
)

func (a *API) subscriptionRoutes() {
	const tag = "subscriptions"
	subscriptions := a.subscriptions()
	get(a, tag, "/subscriptions", "list-subscriptions", "List subscriptions", subscriptions.list)
	get(a, tag, "/subscriptions/{name}", "get-subscription", "Read one subscription", subscriptions.get)
	put(a, tag, "/subscriptions/{name}", "put-subscription",
		"Create or replace a subscription", a.putSubscription, 200, 201)
	patch(a, tag, "/subscriptions/{name}", "patch-subscription", "Change a subscription", subscriptions.patch)
	remove(a, tag, "/subscriptions/{name}", "delete-subscription", "End a subscription", subscriptions.delete)
	post(a, tag, "/subscriptions/{name}/enable", "enable-subscription",
		"Call a webhook again, from where it stopped", turned(a.Store.Deliveries.EnableSubscription, true), 200)
	post(a, tag, "/subscriptions/{name}/disable", "disable-subscription",
		"Stop calling a webhook, and keep its events", turned(a.Store.Deliveries.EnableSubscription, false), 200)
	post(a, tag, "/subscriptions/{name}/test", "test-subscription",
		"Send it an event of its own", a.testSubscription, 202)
	post(a, tag, "/subscriptions/{name}/rotate-secret", "rotate-secret",
		"Draw a new secret; two are valid for a day", a.rotateSecret, 200)
	post(a, tag, "/subscriptions/{name}/redeliver", "redeliver-subscription",
		"Send what happened once more", a.redeliver, 202)
	get(a, tag, "/subscriptions/{name}/feed", "feed-subscription",
		"Fetch what comes after a cursor, or wait for it", a.feed)
	post(a, tag, "/subscriptions/{name}/ack", "ack-subscription", "Acknowledge up to a cursor", a.ack, 200)
	stream(a, tag, "/subscriptions/{name}/stream", "stream-subscription",
		"The same as server-sent events", a.streamSubscription)
}

// subscriptionSettings is what people write of a subscription.
type subscriptionSettings struct {
	Name    name               `json:"name,omitempty" doc:"If given, the name in the path."`
	Kind    string             `json:"kind" enum:"webhook,pull" doc:"webhook: url is called. pull: fetched by /feed or /stream, and acknowledged."`
	URL     string             `json:"url,omitempty" maxLength:"2000" doc:"Of a webhook; where workers may live."`
	Events  []string           `json:"events,omitempty" maxItems:"20" example:"[\"transaction.done\"]" doc:"transaction.accepted, .done, .failed, .unresolved, .cancelled; batch.result, .timeout; job.finished, .error; flow.finished, .error; message.received; intent.confirmed, .reverted, .parked; coordinator.changed; empty: all."`
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
	Warned
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
	Pending        int            `json:"pending" doc:"not delivered or acknowledged yet, to 100,000, in lists to 1001"`
	FailingSince   *time.Time     `json:"failing_since" doc:"nothing was delivered since, and something failed"`
	Cursor         string         `json:"cursor" doc:"how far its consumer has got"`
	Newest         string         `json:"newest" doc:"of the newest event"`
	Secret         string         `json:"secret,omitempty" doc:"Shown once, when it is made: signs (v1)."`
	SecretUntil    *time.Time     `json:"previous_secret_until" doc:"the secret before signs too until then"`
	PublicKey      *string        `json:"public_key" doc:"of the installation, if it has a signing key: verifies v1a"`
	Version        int64          `json:"version"`
	CreatedAt      time.Time      `json:"created_at"`
}

func (a *API) viewSubscription(s *deliveries.Subscription) subscriptionView {
	v := subscriptionView{Name: s.Name, Kind: s.Kind, URL: s.URL, Events: []string{}, Filter: &s.Filter, OnError: s.OnError, Include: s.Include,
		Enabled: s.Enabled, DisabledReason: ptr(s.DisabledReason), Since: utc(s.Since), Pending: s.Pending, FailingSince: utc(s.FailingSince),
		Cursor: deliveries.Cursor{Subscription: s.ID, Position: s.Cursor}.String(), Newest: deliveries.Cursor{Subscription: s.ID, Position: s.Newest}.String(),
		SecretUntil: utc(s.SecretUntil), PublicKey: ptr(a.PublicKey), Version: s.Version, CreatedAt: s.CreatedAt.UTC()}
	for _, e := range s.Events {
		v.Events = append(v.Events, e.Name())
	}
	return v
}

// subscriptions says how a subscription differs from other named things. Deliveries of a removed one that had not gone
// out stay listed, as failed.
func (a *API) subscriptions() resource[subscriptionSettings, *deliveries.Subscription, subscriptionView] {
	return resource[subscriptionSettings, *deliveries.Subscription, subscriptionView]{
		a:        a,
		path:     "/subscriptions",
		page:     pageInContext(a.Store.Deliveries.Subscriptions),
		find:     inContext(a.Store.Deliveries.Subscription),
		view:     simply(a.viewSubscription),
		head:     func(s *deliveries.Subscription) (string, int64) { return s.Name, s.Version },
		settings: settingsOfSubscription,
		address:  func(s subscriptionSettings) (string, string) { return "/url", s.URL },
		warnings: func(v *subscriptionView) *[]string { return &v.Warnings },
		made:     madeSubscription,
		store: func(ctx context.Context, by db.By, v *deliveries.Subscription, version int64) (bool, error) {
			created, _, err := a.storeSubscription(ctx, by, v, version)
			return created, err
		},
		remove: a.Store.Deliveries.RemoveSubscription,
	}
}

func settingsOfSubscription(s *deliveries.Subscription) subscriptionSettings {
	have := subscriptionSettings{
		Kind:    s.Kind,
		URL:     s.URL,
		OnError: s.OnError,
		Include: s.Include,
		Filter: subscriptionFilter{
			Queue:       names(s.Filter.Queue),
			QueuePrefix: names(s.Filter.QueuePrefix),
			Type:        names(s.Filter.Type),
		},
	}
	for _, state := range s.Filter.State {
		have.Filter.State = append(have.Filter.State, string(state))
	}
	for _, e := range s.Events {
		have.Events = append(have.Events, e.Name())
	}
	return have
}

// putSubscription creates a subscription or replaces its settings: 201, with the secret of a webhook; 200;
// 412 if it is not what If-Match says.
func (a *API) putSubscription(ctx context.Context, in *putNamed[subscriptionSettings]) (*one[subscriptionView], error) {
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	called := string(in.Name)
	if err := a.subscriptions().reachable(ctx, in.Body, nil); err != nil {
		return nil, err
	}
	v, err := madeSubscription(ctx, called, in.Body)
	if err != nil {
		return nil, err
	}
	created, secret, err := a.storeSubscription(ctx, by(ctx, ""), v, version)
	if err != nil {
		return nil, err
	}
	out, err := a.subscriptions().written(ctx, called, in.Body, created)
	if err == nil && created && !in.DryRun { // the secret of a dry run signs nothing
		out.Body.Secret = showSecret(secret)
	}
	return out, err
}

func madeSubscription(_ context.Context, called string, s subscriptionSettings) (*deliveries.Subscription, error) {
	v, err := s.subscription(called)
	return &deliveries.Subscription{Subscription: v}, err
}

// storeSubscription also returns the secret that a webhook has if it was created.
func (a *API) storeSubscription(
	ctx context.Context, by db.By, v *deliveries.Subscription, version int64,
) (created bool, secret []byte, err error) {
	if v.Kind == "webhook" {
		secret = newSecret()
	}
	created, err = a.Store.Deliveries.PutSubscription(ctx, by, v.Subscription, secret, version)
	return created, secret, err
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

func names(list []string) (out []name) {
	for _, s := range list {
		out = append(out, name(s))
	}
	return out
}
