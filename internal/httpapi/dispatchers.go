package httpapi

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

func (a *API) dispatcherRoutes() {
	const tag = "dispatchers"
	get(a, tag, "/dispatchers", "list-dispatchers", "List dispatchers", a.listDispatchers)
	get(a, tag, "/dispatchers/{type}", "get-dispatcher", "Read one dispatcher", a.getDispatcher)
	put(a, tag, "/dispatchers/{type}", "put-dispatcher", "Create or replace a dispatcher", a.putDispatcher, 200, 201)
	patch(a, tag, "/dispatchers/{type}", "patch-dispatcher", "Change a dispatcher", a.patchDispatcher)
	remove(a, tag, "/dispatchers/{type}", "delete-dispatcher", "Remove a type", a.deleteDispatcher)
	post(a, tag, "/dispatchers/{type}/pause", "pause-dispatcher", "Send nothing more of a type", a.pauseDispatcher, 200)
	post(a, tag, "/dispatchers/{type}/resume", "resume-dispatcher", "Go on, and accept again", a.resumeDispatcher, 200)
	post(a, tag, "/dispatchers/{type}/check", "check-dispatcher",
		"Ask its worker what it offers; nothing is executed", a.checkDispatcher, 200)
	post(a, tag, "/dispatchers/{type}/drain", "drain-dispatcher",
		"Accept nothing more of a type, work off the rest", a.drainDispatcher, 200)
	post(a, tag, "/dispatchers/{type}/purge", "purge-dispatcher", "Cancel what waits of a type", a.purgeDispatcher, 200)
}

// dispatcherView is a dispatcher as clients read it: its settings in full, and how it does.
type dispatcherView struct {
	DispatcherSettings
	Paused    bool      `json:"paused"`
	Draining  bool      `json:"draining" doc:"it accepts nothing more"`
	Gate      *gateView `json:"gate" doc:"null while calls to its worker come to something"`
	Signed    bool      `json:"signed" doc:"it has a secret, with which what its worker is sent is signed"`
	Warnings  []string  `json:"warnings"`
	Holds     *holdView `json:"holds_sender" doc:"null for a type without a pool"`
	Version   int64     `json:"version"`
	CreatedAt time.Time `json:"created_at"`
}

// holdView says for how long one transaction may hold its sender, part by part. A worker that is asked again and again
// what came of a call holds it longer.
type holdView struct {
	AtMost    string `json:"at_most" doc:"all of these; a block and an unknown outcome come on top"`
	Retries   int    `json:"retries" doc:"where neither the transaction nor the worker names a number"`
	Delays    string `json:"delays" doc:"before the retries, at most; half of it on average where kind is exponential"`
	Calls     string `json:"calls" doc:"timeouts.dispatch for each attempt"`
	Inclusion string `json:"inclusion" doc:"inclusion.deadline for each attempt, if its worker answers with a hash"`
}

// viewHold adds up the settings of a type with a pool.
func viewHold(d *outbox.Dispatcher) *holdView {
	if d.Pool == "" {
		return nil
	}
	n := d.DefaultMaxRetries()
	if d.Retry.MaxRetries != nil {
		n = *d.Retry.MaxRetries
	}
	delays, calls := d.Backoff().Most(n), times(n+1, d.Timeouts.Dispatch)
	inclusion := times(n+1, d.Inclusion.Deadline)
	return &holdView{
		AtMost:    long(plus(plus(delays, calls), inclusion)),
		Retries:   n,
		Delays:    long(delays),
		Calls:     long(calls),
		Inclusion: long(inclusion),
	}
}

// times is n times d, or the longest duration there is.
func times(n int, d outbox.Duration) time.Duration {
	if d > 0 && int64(n) > math.MaxInt64/int64(d) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Duration(d)
}

// plus is a and b together, or the longest duration there is.
func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// long writes a duration; of one that is longer than can be told, its hours.
func long(d time.Duration) string {
	if d == math.MaxInt64 {
		d = d.Truncate(time.Hour)
	}
	return outbox.Duration(d).String()
}

// gateView says that nothing came of the calls to the worker, and when it is tried again.
type gateView struct {
	Failures int        `json:"failures" doc:"how often in a row it closed"`
	Until    *time.Time `json:"until" doc:"then one probe goes out"`
	Reason   string     `json:"reason" doc:"the last answer"`
	Since    *time.Time `json:"since" doc:"since when it is closed"`
	Node     string     `json:"node" doc:"whose call came to nothing last"`
	Probing  bool       `json:"probing" doc:"a probe is out"`
}

func viewDispatcher(d *pg.Dispatcher) (dispatcherView, error) {
	v := dispatcherView{Paused: d.Paused, Draining: d.Draining, Signed: len(d.Secret) > 0, Version: d.Version,
		CreatedAt: d.CreatedAt.UTC(), Warnings: []string{}}
	shown := d.Dispatcher
	shown.Retry = d.Backoff()
	b, err := json.Marshal(shown)
	if err == nil {
		err = json.Unmarshal(b, &v.DispatcherSettings)
	}
	v.Holds = viewHold(&d.Dispatcher)
	if d.Failures > 0 {
		v.Gate = &gateView{
			Failures: d.Failures,
			Until:    utc(d.GateUntil),
			Reason:   d.GateWhy,
			Since:    utc(d.GateSince),
			Node:     d.GateNode,
			Probing:  d.GateProbing,
		}
	}
	if !d.Idempotent && !strings.HasPrefix(d.WorkerURL, "noop:") && !strings.HasPrefix(d.WorkerURL, "run:") &&
		d.WorkerURL != outbox.PeerURL {
		fate := "is held for an operator"
		if d.Unknown == outbox.UnknownUnresolved {
			fate = "ends UNRESOLVED"
		}
		when := "if the worker has no /status"
		if d.Mute() {
			when = "since the worker has no /status"
		}
		v.Warnings = append(v.Warnings, when+", each call that a stop or crash cuts off "+fate+
			": give it /status, or set idempotent if the same token may be sent again")
	}
	return v, err
}

// dispatchers says what is a dispatcher's own among named things. Its settings are read from the bytes of the body: a
// member that is left out takes a default, and one that is empty does not; see putDispatcher.
func (a *API) dispatchers() resource[DispatcherSettings, *pg.Dispatcher, dispatcherView] {
	return resource[DispatcherSettings, *pg.Dispatcher, dispatcherView]{
		a:        a,
		path:     "/dispatchers",
		page:     a.pageOfDispatchers,
		find:     inContext(a.Store.Dispatcher),
		view:     func(_ context.Context, d *pg.Dispatcher) (dispatcherView, error) { return viewDispatcher(d) },
		head:     func(d *pg.Dispatcher) (string, int64) { return d.Type, d.Version },
		address:  func(s DispatcherSettings) (string, string) { return "/worker_url", s.WorkerURL },
		warnings: func(v *dispatcherView) *[]string { return &v.Warnings },
		settings: settingsOfDispatcher,
		secret:   func(d *pg.Dispatcher) []byte { return d.Secret },
		made: func(_ context.Context, typ string, s DispatcherSettings) (*pg.Dispatcher, error) {
			d, err := settingsOf(typ, s.raw, s.said)
			return &pg.Dispatcher{Dispatcher: d}, err
		},
		store: func(ctx context.Context, by db.By, d *pg.Dispatcher, version int64) (bool, error) {
			return a.Store.PutDispatcher(ctx, by, d.Dispatcher, version)
		},
		remove: func(ctx context.Context, by db.By, typ string) error {
			return a.Store.RemoveDispatcher(ctx, by, typ, false)
		},
	}
}

func settingsOfDispatcher(d *pg.Dispatcher) (s DispatcherSettings) {
	if b, err := json.Marshal(d.Dispatcher); err == nil {
		_ = json.Unmarshal(b, &s) // the settings in full, which the view shows so, too
	}
	s.Type = ""
	return s
}

// pageOfDispatchers lists those of a context by type: all are known here.
func (a *API) pageOfDispatchers(ctx context.Context, after string, limit int) ([]*pg.Dispatcher, error) {
	all, err := a.Store.Dispatchers(ctx, contextID(ctx))
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(d *pg.Dispatcher) bool { return d.Type <= after })
	return all[:min(len(all), limit)], nil
}

// listDispatchers lists by type, without schemas.
func (a *API) listDispatchers(ctx context.Context, in *namedPage) (*pageOf[dispatcherView], error) {
	out, err := a.dispatchers().list(ctx, in)
	if err != nil {
		return nil, err
	}
	for i := range out.Body.Items {
		out.Body.Items[i].Schema = nil
	}
	return out, nil
}

type dispatcherInput struct {
	Type name `path:"type"`
}

func (a *API) getDispatcher(ctx context.Context, in *dispatcherInput) (*one[dispatcherView], error) {
	return a.dispatchers().read(ctx, string(in.Type))
}

type putDispatcherInput struct {
	Type name `path:"type"`
	Conditions
	RawBody []byte
	Body    DispatcherSettings
}

// putDispatcher creates or replaces a dispatcher: 201, 200; 412 if it is not what If-Match says.
func (a *API) putDispatcher(ctx context.Context, in *putDispatcherInput) (*one[dispatcherView], error) {
	in.Body.keep(in.RawBody)
	return a.dispatchers().replace(ctx, string(in.Type), in.Conditions, in.Body)
}

type patchDispatcherInput struct {
	Type name `path:"type"`
	Conditions
	RawBody []byte
	Body    patchBody
}

func (a *API) patchDispatcher(ctx context.Context, in *patchDispatcherInput) (*one[dispatcherView], error) {
	d, err := a.Store.Dispatcher(ctx, contextID(ctx), string(in.Type))
	if err != nil {
		return nil, err
	}
	if err := in.check(d.Version); err != nil {
		return nil, err
	}
	raw, err := merged(d.Dispatcher, in.RawBody)
	if err != nil {
		return nil, err
	}
	var next DispatcherSettings
	if err := a.decode(raw, &next, "DispatcherSettings"); err != nil {
		return nil, err
	}
	if err := a.dispatchers().reachable(ctx, next, &DispatcherSettings{WorkerURL: d.WorkerURL}); err != nil {
		return nil, err
	}
	// null takes away, as in any patch
	if s, ok := outbox.Parsed(in.RawBody).(map[string]any)["secret"]; ok && s == nil {
		if raw, err = merged(json.RawMessage(raw), []byte(`{"secret": ""}`)); err != nil {
			return nil, err
		}
	}
	next.raw, next.said = raw, in.RawBody
	if _, err := a.dispatchers().write(ctx, d.Type, next, d.Version); err != nil {
		return nil, err
	}
	return a.dispatchers().warned(ctx, d.Type, next)
}

type deleteDispatcherInput struct {
	Type name `path:"type"`
	Conditions
	Force bool `query:"force" doc:"Even while transactions of the type wait: they wait until it comes back."`
}

func (a *API) deleteDispatcher(ctx context.Context, in *deleteDispatcherInput) (*struct{}, error) {
	return nil, a.Store.RemoveDispatcher(ctx, by(ctx, ""), string(in.Type), in.Force)
}

type dispatcherActionInput struct {
	Type name `path:"type"`
	Trial
	Body *reasonBody
}

func (a *API) pauseDispatcher(ctx context.Context, in *dispatcherActionInput) (*leverOutput, error) {
	return lever(a.Store.PauseDispatcher(ctx, by(ctx, in.Body.reason()), string(in.Type), true))
}

func (a *API) resumeDispatcher(ctx context.Context, in *dispatcherActionInput) (*leverOutput, error) {
	return lever(a.Store.PauseDispatcher(ctx, by(ctx, in.Body.reason()), string(in.Type), false))
}

// drainDispatcher accepts nothing more of a type, and works off the rest.
func (a *API) drainDispatcher(ctx context.Context, in *dispatcherActionInput) (*leverOutput, error) {
	return lever(a.Store.DrainDispatcher(ctx, by(ctx, in.Body.reason()), string(in.Type)))
}

type purgeDispatcherInput struct {
	Type name `path:"type"`
	Purging
}

// purgeDispatcher cancels what waits of a type.
func (a *API) purgeDispatcher(ctx context.Context, in *purgeDispatcherInput) (*purgeOutput, error) {
	return in.purge(ctx, string(in.Type), a.Store.PurgeDispatcher)
}
