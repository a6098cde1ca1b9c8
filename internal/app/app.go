package app

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/telemetry"
	"github.com/postern-dev/postern/internal/ui"
	"github.com/postern-dev/postern/internal/work"
)

// Role says what a process is to be.
type Role struct {
	Serve   bool // the API
	Work    bool // the sequencer: leases queues and calls workers
	Home    bool // GET / leads to the dashboard, which offers what development wants
	Version string
}

// App is a process of Postern, built and listening but not yet running.
type App struct {
	cfg   Config
	log   *slog.Logger
	store *stores.Store

	outage    *outage // which lines of the log an outage of the database explains
	unwatched func()  // ends its watch

	database string // its URL

	listener net.Listener
	server   *http.Server
	api      *httpapi.API
	leaving  chan struct{} // closed when the process begins to stop
	ready    atomic.Bool
	loops    safe.Loops
	deaf     func() // nothing is heard of panics any more

	engine  *work.Engine
	remote  *remote.Client
	courier *courier // nil: no node of a Mycelium network is known, or there is no API

	traces        *telemetry.Traces  // nil: off
	metrics       *telemetry.Metrics // nil: off
	metricsServer *http.Server
	metricsAt     net.Listener
}

// spansWithin is how long the last spans may take to their collector.
const spansWithin = 2 * time.Second

// New opens the database, builds what the role says and listens. Faults: no_database, bad_setting,
// database_unavailable, migrations_differ, bad_file, address_in_use, and those of an apply. What New returned must be
// run or closed.
func New(ctx context.Context, cfg Config, role Role, log *slog.Logger) (_ *App, err error) {
	database, err := cfg.Database()
	if err != nil {
		return nil, err
	}
	a := &App{
		cfg:       cfg,
		outage:    newOutage(log.Handler()),
		database:  database,
		unwatched: func() {},
		leaving:   make(chan struct{}),
	}
	log = slog.New(a.outage.handler())
	a.log = log
	if cfg.MetricsListen != "off" && cfg.MetricsListen != "" {
		a.metrics = telemetry.New()
	}
	a.deaf = safe.Hear(a.panicked) // from here on a panic reads log and metrics: neither is written again
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if err := a.openStore(ctx, role); err != nil {
		return nil, err
	}
	if err := a.measure(role.Version); err != nil {
		return nil, err
	}
	if cfg.OTLPEndpoint != "" {
		if a.traces, err = telemetry.NewTraces(cfg.OTLPEndpoint, role.Version, cfg.NodeName, log); err != nil {
			return nil, fault.New(fault.Invalid, "bad_setting", "%v", err)
		}
	}
	if len(cfg.SigningKey) == 0 {
		log.Warn("there is no signing key: callbacks go out unsigned, and webhooks with the secret of their subscription alone, and tools that want signed calls are not called; openssl genpkey -algorithm ed25519 makes one for POSTERN_SIGNING_KEY_FILE")
	}
	a.remote = remote.New(remote.Config{
		AllowCIDR:  cfg.WorkerAllowCIDR,
		UserAgent:  "postern/" + role.Version,
		Mycelium:   cfg.Mycelium,
		SigningKey: ed25519.PrivateKey(cfg.SigningKey),
	})
	if role.Work {
		a.engine = a.newEngine(role.Version)
	}
	if role.Serve {
		if err := a.openAPI(ctx, role); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// openStore opens the database for what the role says, and compares it with what the process knows of it.
func (a *App) openStore(ctx context.Context, role Role) (err error) {
	var parts []pg.Part
	var keep *Days
	if role.Serve {
		parts = append(parts, pg.Posts)
	}
	if role.Work {
		parts, keep = append(parts, pg.Works), &a.cfg.Retention
	}
	if a.store, err = open(ctx, a.database, a.log, keep, parts...); err != nil {
		return err
	}
	watched, unwatched := context.WithCancel(context.WithoutCancel(ctx))
	a.unwatched = unwatched
	go safe.Run("outages", func() { a.outage.watch(watched, a.store.Pool().Ping) })
	a.store.Events.SourceSchemas = a.cfg.SourceSchemas
	return compare(ctx, a.store, a.cfg, a.log)
}

// openAPI builds the API and listens. Where no engine of this process hears of posts, it rings for those of others.
func (a *App) openAPI(ctx context.Context, role Role) error {
	if !role.Work {
		bell, err := work.InsertOnlyDoorbell(a.store.Pool(), a.log)
		if err != nil {
			return err
		}
		a.store.Doorbell = bell.Ring
	}
	if err := bootstrap(ctx, a.store, a.cfg, a.log); err != nil {
		return err
	}
	a.api = httpapi.New(httpapi.Config{
		Store:      a.store,
		Ingester:   pg.NewIngester(a.store.Store),
		Log:        a.log,
		Auth:       a.cfg.Auth,
		Ready:      a.checks,
		Loops:      &a.loops,
		Version:    role.Version,
		Limits:     httpapi.Limits{Body: int64(a.cfg.MaxBody), Items: a.cfg.MaxBatch, Requests: int(a.cfg.Rate)},
		PublicKey:  a.cfg.SigningKey.Public(),
		Tools:      a.remote,
		DebugClock: a.due(a.cfg),
		Metrics:    a.metrics,
		Traces:     a.traces,
		OIDC: httpapi.OIDC{
			Issuers:   a.cfg.OIDCIssuers,
			Audiences: a.cfg.OIDCAudiences,
			Client:    remote.Guarded(a.cfg.WorkerAllowCIDR, 10*time.Second),

			ClientID:     a.cfg.OIDCClientID,
			ClientSecret: a.cfg.OIDCClientSecret,
		},
		PublicURL:    strings.TrimSuffix(a.cfg.PublicURL, "/"),
		Registration: a.cfg.Registration,
		Reconcile: func(ctx context.Context, by db.By, q pg.Quarantine, anew bool) (*pg.QuarantinedScope, error) {
			return work.Reconcile(ctx, a.store, remote.Mux{Next: a.remote, Jobs: a.store.Flows}, by, q, anew)
		},
	})
	if err := applyFile(ctx, a.api, a.cfg, a.log); err != nil {
		return err
	}
	var err error
	if a.listener, err = listen(a.cfg.Listen, "listen"); err != nil {
		return err
	}
	if a.cfg.Mycelium != "" {
		a.courier = newCourier(a.cfg.Mycelium, a.api.Door(), a.log)
	}
	a.server = a.api.Server()
	if a.cfg.UI == "on" {
		a.server.Handler = a.dashboard(role).Beside(a.server.Handler)
	}
	return nil
}

// dashboard is what is served under /ui: it asks the API of this process.
func (a *App) dashboard(role Role) *ui.UI {
	c := ui.Config{
		API:      a.api.Handler(),
		Sessions: a.store.Actors,
		ParseKey: httpapi.ParseKey,
		Visiting: func(ctx context.Context, who *actors.SignedIn, ask bool) context.Context {
			return httpapi.Visiting(ctx, httpapi.Visit{Via: "ui", Who: who, Ask: ask})
		},
		Auth: a.cfg.Auth,
		Home: role.Home,
		Dev:  role.Home,
		Log:  a.log,
		Now:  func() time.Time { return a.store.Moment(time.Now()) },
		Stop: a.leaving,
	}
	if flow := a.api.CodeFlow(); flow != nil {
		c.Provider = flow
	}
	return ui.New(c)
}

// panicked counts and logs a panic that ended one piece of work.
func (a *App) panicked(p *safe.Panic) {
	a.log.Error("panic: what it was about has failed, and the rest goes on", "place", p.Place, "panic", fmt.Sprint(p.Value), "stack", string(p.Stack))
	a.metrics.Panicked(p.Place)
}

// listen says in one sentence why an address cannot be listened on.
func listen(address, flag string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fault.New(fault.Conflict, "address_in_use", "cannot listen on %s: choose another address with --%s", address, flag).Because(err)
	}
	return l, nil
}

// URL is where the API can be reached from this machine, "" if the process has none.
func (a *App) URL() string { return urlOf(a.listener) }

// PublicKey verifies what this installation signs; "" if it signs nothing.
func (a *App) PublicKey() string { return a.cfg.SigningKey.Public() }

func urlOf(l net.Listener) string {
	if l == nil {
		return ""
	}
	host, port, _ := net.SplitHostPort(l.Addr().String())
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// checks lists what readiness depends on: the process is neither starting nor stopping, the database
// answers, and the sequencer, if there is one, can dispatch. A process that starts or stops says so without asking the
// database: its balancer has to learn it within the drain delay, however slowly the database answers.
func (a *App) checks(ctx context.Context) []httpapi.Check {
	if !a.ready.Load() {
		return []httpapi.Check{{Name: "running", Detail: "the process is starting or stopping"}}
	}
	panics := a.loops.Failing()
	list := []httpapi.Check{{Name: "running", OK: true}, {Name: "loops", OK: panics == "", Detail: panics}}
	for _, r := range a.store.Ready(ctx) {
		list = append(list, httpapi.Check{Name: r.Name, OK: r.Detail == "", Detail: r.Detail})
	}
	if a.engine != nil {
		for _, c := range a.engine.Checks(ctx) {
			list = append(list, httpapi.Check(c))
		}
	}
	if a.store.QuarantinedAny() { // it takes posts all the same
		list = append(list, httpapi.Check{Name: "quarantine", OK: true, Detail: "everything, or a part, is in quarantine and does not leave: postern quarantine status"})
	}
	return list
}

// due is what runs when the debug clock was moved: a sweep, which makes every loop look at once what is
// due. nil where the clock cannot be moved.
func (a *App) due(cfg Config) func(context.Context) error {
	switch {
	case !cfg.DebugClock:
		return nil
	case a.engine == nil: // nothing dispatches here
		return func(context.Context) error { return nil }
	}
	return a.engine.SweepOnce
}

// disownedGrace is how long what is being answered may take when the process ends because its leases are not its own
// any more.
const disownedGrace = time.Second

// Run works until ctx ends or a part fails, then stops in the order that the package comment gives and
// closes everything. nil: it was asked to stop, and did. A fault "database_went_back": commits that the database
// had acknowledged are gone, and it is in quarantine; "node_gone": it has forgotten this process. Both leave calls
// and answers where they are.
func (a *App) Run(ctx context.Context) error {
	defer a.Close()
	working, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	worked, served := make(chan error, 1), make(chan error, 1)
	if a.engine != nil {
		go safe.Run("engine", func() {
			worked <- safe.Try("engine", func() error { return a.engine.Run(working) })
		})
	} else {
		go a.loops.Run(working, "configuration", a.store.KeepFresh)
		go a.loops.Run(working, "staged rows", func(ctx context.Context) { work.Drain(ctx, a.store, false, a.log) })
	}
	a.serve(working, served)
	a.serveMetrics()
	a.ready.Store(true)

	var first error
	workEnded := a.engine == nil
	select {
	case <-ctx.Done():
		a.log.Info("stopping", "grace", a.cfg.ShutdownGrace.String())
	case first = <-worked:
		workEnded = true
	case first = <-served:
		served <- first // leave sees it, too
	case <-a.store.Lost():
	}
	a.ready.Store(false)
	a.outage.leave()
	grace, delay := a.cfg.ShutdownGrace, a.cfg.DrainDelay
	if loss := a.store.Loss(); loss != nil {
		first = abandon(ctx, a.database, loss, a.log)
	}
	if disowned(first) {
		grace, delay = min(grace, disownedGrace), 0
	}
	stopWork()
	if a.api != nil {
		a.leave(ctx, served, delay)
	}
	if !workEnded {
		first = a.await(worked, first)
	}
	if a.server != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		ended := make(chan error, 1) // a node that hangs takes no time from requests over HTTP
		go safe.Run("mycelium end", func() { ended <- a.courier.end(last) })
		if err := errors.Join(a.server.Shutdown(last), <-ended); err != nil {
			a.api.GiveUp()
			a.server.Close()
		}
	}
	return first
}

// serve has the API answer what comes, until it is shut down, and what peers send over a Mycelium network until ctx
// ends.
func (a *App) serve(ctx context.Context, served chan<- error) {
	if a.server != nil {
		go safe.Run("listener", func() {
			served <- safe.Try("listener", func() error { return a.server.Serve(a.listener) })
		})
		a.log.Info("listening", "url", a.URL())
	}
	if a.courier != nil {
		go a.loops.Run(ctx, "mycelium", a.courier.run)
	}
}

// leave gives clients the delay to find another process: all requests are still answered, and posts stay for others.
// Then no more posts are taken. The configuration that the API reads stays fresh, although this process dispatches no
// more.
func (a *App) leave(ctx context.Context, served chan error, delay time.Duration) {
	defer a.api.Drain()
	a.api.Leave()
	close(a.leaving)
	if delay == 0 {
		return
	}
	a.log.Info("answering until others are asked", "delay", delay.String())
	serving, over := context.WithTimeout(context.WithoutCancel(ctx), delay)
	defer over()
	go a.loops.Run(serving, "configuration", a.store.KeepFresh)
	select {
	case <-serving.Done():
	case err := <-served: // there is no port any more
		served <- err
	}
}

// await waits for the end of the engine, unless the process ends because its leases are not its own: then a part that
// does not end is left.
func (a *App) await(worked <-chan error, first error) error {
	var enough <-chan time.Time
	if disowned(first) {
		enough = time.After(disownedGrace)
	}
	select {
	case err := <-worked:
		if errors.Is(err, context.Canceled) || disowned(err) && disowned(first) { // asked to stop before it had begun; or told already
			return first
		}
		return errors.Join(first, err)
	case <-enough:
		return first
	}
}

// Close lets go of what New took. It may be called twice, and after Run.
func (a *App) Close() {
	a.deaf()
	a.unwatched()
	a.outage.leave()
	if a.server != nil {
		a.server.Close()
	} else if a.listener != nil {
		a.listener.Close()
	}
	if a.metricsServer != nil {
		a.metricsServer.Close()
		a.metricsAt.Close()
	}
	if a.remote != nil {
		a.remote.Close()
	}
	last, cancel := context.WithTimeout(context.Background(), spansWithin)
	defer cancel()
	a.traces.Close(last)
	if a.store != nil {
		a.store.Close()
	}
}
