package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/addresses"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/telemetry"
)

// Config is what an API needs.
type Config struct {
	Store    *stores.Store
	Ingester Ingester
	Log      *slog.Logger
	// Auth "none" is development mode: a request without a credential is by the actor dev. With any other value it is
	// answered 401, unless it is open to all.
	Auth   string
	Limits Limits // zero fields take DefaultLimits
	// Ready lists the checks behind /readyz; nil for the database alone.
	Ready   func(context.Context) []Check
	Version string
	Loops   *safe.Loops        // nil: no check of readiness reports a loop that panics often
	Metrics *telemetry.Metrics // nil for none
	Traces  *telemetry.Traces  // nil for none
	// DebugClock runs what has become due after POST /debug/clock; nil: there is no such route.
	DebugClock func(context.Context) error
	// PublicKey verifies what the installation signs (v1a), as Standard Webhooks writes it; "" for none.
	PublicKey string
	OIDC      OIDC // whose tokens are taken besides API keys
	// PublicURL is the URL of the API as clients call it, without a slash at its end: targets of signed requests begin
	// with it. "": an address of the connection itself.
	PublicURL string
	// Registration "open" lets everybody become an actor, by a request that its key signs, and actors make contexts.
	Registration string
	Tools        *remote.Client // asks and tries tools; nil for one that dials public addresses alone
	// Reconcile asks workers about the next part of what has not ended in a scope in quarantine; nil: this process
	// calls none.
	Reconcile func(ctx context.Context, by db.By, q pg.Quarantine, anew bool) (*pg.QuarantinedScope, error)
}

// Ingester stores posts: pg.Ingester.
type Ingester interface {
	Submit(context.Context, *pg.Submission) (pg.Accepted, error)
	SubmitBatch(ctx context.Context, subs []*pg.Submission, atomic bool) ([]pg.Accepted, error)
}

// API serves the REST surface.
type API struct {
	Config
	huma    huma.API
	router  chi.Router
	endless map[string]bool // paths of streams
	waits   *hub
	news    *news
	ticks   *pace
	paces   *pace // of requests; nil: no actor is held back
	keys    cache[actors.UsedKey]
	actors  cache[principal]
	issuers issuers
	// allowances is what the nodes may call, for those who do not ask the database each time.
	allowances cache[[]addresses.Allowance]
	present    *present
	censuses   censuses
	leaving    atomic.Bool
	drained    atomic.Bool

	requests requests
}

var settings sync.Once

// New builds the router. It does no I/O.
func New(c Config) *API {
	settings.Do(func() {
		huma.ValidateStrictCasing = true
		huma.DefaultArrayNullable = false
		huma.NewErrorWithContext = problemOf
		huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
			return problemOf(nil, status, msg, errs...)
		}
	})
	c.Limits = c.Limits.orDefault()
	if c.Tools == nil {
		c.Tools = remote.New(remote.Config{})
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	a := &API{
		Config:     c,
		router:     chi.NewMux(),
		endless:    map[string]bool{},
		keys:       cache[actors.UsedKey]{life: remembered},
		actors:     cache[principal]{life: remembered},
		allowances: cache[[]addresses.Allowance]{life: allowancesKept},
	}
	a.present = &present{kept: map[int32]*glance{}}
	a.waits = newHub(c.Store, c.Limits.Waits, c.Log)
	a.news = newNews(c.Store, c.Limits.Streams, c.Log)
	a.requests.open = map[*timed]struct{}{}
	a.waits.loops, a.news.loops = c.Loops, c.Loops
	a.ticks = newPace(c.Limits.Ticks)
	if c.Limits.Requests > 0 {
		a.paces = newPace(c.Limits.Requests)
	}
	a.router.Use(a.head, a.identify, a.measure, a.recover, a.guard, a.authenticate, a.readBody)
	a.router.NotFound(func(w http.ResponseWriter, r *http.Request) { a.refuse(w, r, notFound(r)) })
	a.router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { a.refuse(w, r, methodNotAllowed(r)) })
	a.huma = humachi.New(a.router, a.document())
	a.huma.UseMiddleware(a.authorise)
	a.routes()
	a.finish()
	return a
}

// head answers HEAD wherever GET is: as GET, and the server leaves out the body. A stream has no end, and no HEAD.
func (a *API) head(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := chi.RouteContext(r.Context()); c != nil && r.Method == http.MethodHead {
			at := chi.NewRouteContext()
			if a.router.Match(at, http.MethodGet, r.URL.Path) && !a.endless[at.RoutePattern()] {
				c.RouteMethod = http.MethodGet
			}
		}
		next.ServeHTTP(w, r)
	})
}

// Handler serves requests.
func (a *API) Handler() http.Handler { return a.router }

// routes is the whole surface, by the tags of the contract. The routes of a noun stand at the head of its file.
func (a *API) routes() {
	// the core
	a.transactionRoutes()
	a.queueRoutes()
	a.senderRoutes()
	a.poolRoutes()
	a.dispatcherRoutes()
	a.subscriptionRoutes()
	a.deliveryRoutes()

	// processors, authorizations, domains
	a.processorRoutes()
	a.batchRoutes()
	a.peerRoutes()
	a.authorizationRoutes()
	a.executionRoutes()
	a.domainRoutes()
	a.intentRoutes()

	// jobs
	a.flowRoutes()
	a.jobRoutes()
	a.runnerRoutes()
	a.tryRoutes()

	// messages, peers
	a.messageRoutes()
	a.contextPeerRoutes()
	a.peerDoorRoutes()
	a.peerMessageRoutes()

	// leader
	a.sourceRoutes()
	a.eventRoutes()
	a.toolRoutes()
	a.channelRoutes()
	a.channelMessageRoutes()
	a.walkRoutes()

	// all of these by a file
	a.applyRoutes()

	// nodes, quarantine
	a.nodeRoutes()
	a.quarantineRoutes()
	a.identityRoutes()

	// access
	a.contextRoutes()
	a.memberRoutes()
	a.actorRoutes()
	a.apiKeyRoutes()
	a.auditRoutes()

	// service
	a.nowRoutes()
	a.machineRoutes()
	a.healthRoutes()
	a.clockRoutes()
}
