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
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/telemetry"
)

// Config is what an API needs.
type Config struct {
	Store    *pg.Store
	Ingester Ingester
	Log      *slog.Logger
	// Auth "none" is development mode: who shows no credential is the actor dev. Anything else answers 401
	// to that, unless the request is open to all.
	Auth   string
	Limits Limits // zero fields take DefaultLimits
	// Ready lists the checks behind /readyz; nil for the database alone.
	Ready   func(context.Context) []Check
	Version string
	Loops   *safe.Loops        // nil for none: nobody is told of a loop that panics often
	Metrics *telemetry.Metrics // nil for none
	Traces  *telemetry.Traces  // nil for none
	// DebugClock runs what has become due after POST /debug/clock; nil: there is no such route.
	DebugClock func(context.Context) error
	// PublicKey verifies what the installation signs (v1a), as Standard Webhooks writes it; "" for none.
	PublicKey string
	OIDC      OIDC           // whose tokens are taken besides API keys
	Tools     *remote.Client // asks and tries tools; nil for one that dials public addresses alone
	// Reconcile asks workers about the next part of what has not ended in a scope in quarantine; nil: this process calls none.
	Reconcile func(ctx context.Context, by pg.By, q pg.Quarantine, anew bool) (*pg.QuarantinedScope, error)
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
	waits   *hub
	news    *news
	ticks   *pace
	paces   *pace // of requests; nil: nobody is held back
	keys    cache[pg.UsedKey]
	actors  cache[principal]
	issuers issuers
	leaving atomic.Bool
	drained atomic.Bool

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
	a := &API{Config: c, router: chi.NewMux(), keys: cache[pg.UsedKey]{life: remembered}, actors: cache[principal]{life: remembered}}
	a.waits = newHub(c.Store, c.Limits.Waits, c.Log)
	a.news = newNews(c.Store, c.Limits.Streams, c.Log)
	a.requests.open = map[*timed]struct{}{}
	a.waits.loops, a.news.loops = c.Loops, c.Loops
	a.ticks = newPace(c.Limits.Ticks)
	if c.Limits.Requests > 0 {
		a.paces = newPace(c.Limits.Requests)
	}
	a.router.Use(a.identify, a.measure, a.recover, a.guard, a.authenticate, a.readBody)
	a.router.NotFound(func(w http.ResponseWriter, r *http.Request) { a.refuse(w, r, notFound(r)) })
	a.router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { a.refuse(w, r, methodNotAllowed(r)) })
	a.huma = humachi.New(a.router, a.document())
	a.huma.UseMiddleware(a.authorise)
	a.routes()
	a.finish()
	return a
}

// Handler serves requests.
func (a *API) Handler() http.Handler { return a.router }

// routes is the whole surface on one screen.
func (a *API) routes() {
	tag := "transactions"
	get(a, tag, "/transactions", "list-transactions", "List transactions", a.listTransactions)
	post(a, tag, "/transactions", "post-transaction", "Post one transaction", a.postTransaction, 201, 200)
	op := operation(tag, http.MethodPost, batchPath, "post-transactions", "Post up to 1,000 transactions", []int{201, 200, 207})
	batchRequest(&op, a.huma.OpenAPI().Components.Schemas)
	register(a, op, a.postBatch)
	stream(a, tag, "/transactions:stream", "stream-transactions", "Acceptances and ends as server-sent events", a.streamTransactions)
	get(a, tag, "/transactions/by-uid/{uid}", "get-transaction-by-uid", "Read one transaction by the client's name", a.getByUID, 304)
	get(a, tag, "/transactions/by-uid/{uid}/why", "get-transaction-why-by-uid", "What it waits for, by the client's name", a.whyByUID)
	get(a, tag, "/transactions/{id}", "get-transaction", "Read one transaction, or wait for it", a.getTransaction, 304)
	get(a, tag, "/transactions/{id}/history", "get-transaction-history", "Every transition, oldest first", a.getHistory)
	get(a, tag, "/transactions/{id}/attempts", "get-transaction-attempts", "One entry per dispatch", a.getAttempts)
	get(a, tag, "/transactions/{id}/why", "get-transaction-why", "What it waits for", a.whyTransaction)
	post(a, tag, "/transactions/{id}/cancel", "cancel-transaction", "Take back what has not gone out", a.cancel, 200, 202)
	post(a, tag, "/transactions/{id}/retry", "retry-transaction", "End a delay now", a.retryNow, 200)
	post(a, tag, "/transactions/{id}/suspend", "suspend-transaction", "Keep it from going out", a.suspend, 200, 202)
	post(a, tag, "/transactions/{id}/resume", "resume-transaction", "Let a suspended one go out", a.resume, 200)
	post(a, tag, "/transactions/{id}/move", "move-transaction", "Let it go out earlier or later in its queue", a.move, 200)
	post(a, tag, "/transactions/{id}/abandon", "abandon-transaction", "End what an outage made immovable", a.abandon, 200)
	post(a, tag, "/transactions/{id}/redrive", "redrive-transaction", "Post what ended badly once more", a.redrive, 201, 200)

	post(a, tag, "/transactions:cancel", "cancel-transactions", "Take back many", a.bulk(a.Store.Cancel), 200)
	post(a, tag, "/transactions:retry", "retry-transactions", "End the delays of many", a.bulk(a.Store.RetryNow), 200)
	post(a, tag, "/transactions:suspend", "suspend-transactions", "Keep many from going out", a.bulk(a.Store.Suspend), 200)
	post(a, tag, "/transactions:resume", "resume-transactions", "Let many suspended ones go out", a.bulk(a.Store.Resume), 200)
	post(a, tag, "/transactions:move", "move-transactions", "Move many, which keep their order", a.moveMany, 200)
	post(a, tag, "/transactions:redrive", "redrive-transactions", "Post once more many that ended badly", a.bulk(a.redriveAgain), 200)

	tag = "queues"
	get(a, tag, "/queues", "list-queues", "List queues", a.listQueues)
	get(a, tag, "/queues/{name}", "get-queue", "Read one queue", a.getQueue)
	put(a, tag, "/queues/{name}", "put-queue", "Create or replace the settings of a queue", a.putQueue, 200, 201)
	patch(a, tag, "/queues/{name}", "patch-queue", "Change the settings of a queue", a.patchQueue)
	remove(a, tag, "/queues/{name}", "delete-queue", "Take the settings of a queue back", a.deleteQueue)
	get(a, tag, "/queues/{name}/why", "get-queue-why", "Why its head does not move", a.whyQueue)
	post(a, tag, "/queues/{name}/pause", "pause-queue", "Stop after what is in flight", a.pauseQueue, 200)
	post(a, tag, "/queues/{name}/resume", "resume-queue", "Go on, and accept again", a.resumeQueue, 200)
	post(a, tag, "/queues/{name}/drain", "drain-queue", "Accept nothing more, work off the rest", a.drainQueue, 200)
	post(a, tag, "/queues/{name}/purge", "purge-queue", "Cancel what waits", a.purgeQueue, 200)

	tag = "senders"
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

	tag = "pools"
	get(a, tag, "/pools", "list-pools", "List pools", a.listPools)
	get(a, tag, "/pools/{name}", "get-pool", "Read one pool", a.getPool)
	put(a, tag, "/pools/{name}", "put-pool", "Create a pool or replace its settings", a.putPool, 200, 201)
	patch(a, tag, "/pools/{name}", "patch-pool", "Change the settings of a pool", a.patchPool)
	remove(a, tag, "/pools/{name}", "delete-pool", "Remove a pool that nothing needs", a.deletePool)
	post(a, tag, "/pools/{name}/pause", "pause-pool", "Let none of its senders take another queue", a.pausePool, 200)
	post(a, tag, "/pools/{name}/resume", "resume-pool", "Let its senders work again", a.resumePool, 200)

	tag = "dispatchers"
	get(a, tag, "/dispatchers", "list-dispatchers", "List dispatchers", a.listDispatchers)
	get(a, tag, "/dispatchers/{type}", "get-dispatcher", "Read one dispatcher", a.getDispatcher)
	put(a, tag, "/dispatchers/{type}", "put-dispatcher", "Create or replace a dispatcher", a.putDispatcher, 200, 201)
	patch(a, tag, "/dispatchers/{type}", "patch-dispatcher", "Change a dispatcher", a.patchDispatcher)
	remove(a, tag, "/dispatchers/{type}", "delete-dispatcher", "Remove a type", a.deleteDispatcher)
	post(a, tag, "/dispatchers/{type}/pause", "pause-dispatcher", "Send nothing more of a type", a.pauseDispatcher, 200)
	post(a, tag, "/dispatchers/{type}/resume", "resume-dispatcher", "Go on, and accept again", a.resumeDispatcher, 200)
	post(a, tag, "/dispatchers/{type}/check", "check-dispatcher", "Ask its worker what it offers; nothing is executed", a.checkDispatcher, 200)
	post(a, tag, "/dispatchers/{type}/drain", "drain-dispatcher", "Accept nothing more of a type, work off the rest", a.drainDispatcher, 200)
	post(a, tag, "/dispatchers/{type}/purge", "purge-dispatcher", "Cancel what waits of a type", a.purgeDispatcher, 200)

	tag = "subscriptions"
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
	get(a, tag, "/deliveries", "list-deliveries", "List deliveries", a.listDeliveries)
	get(a, tag, "/deliveries/{id}", "get-delivery", "Read one delivery, with its attempts", a.getDelivery)
	post(a, tag, "/deliveries/{id}/retry", "retry-delivery", "Deliver now, or once more", a.retryDelivery, 200, 202)

	tag = "processors"
	get(a, tag, "/processors", "list-processors", "List processors", a.listProcessors)
	get(a, tag, "/processors/{name}", "get-processor", "Read one processor", a.getProcessor)
	put(a, tag, "/processors/{name}", "put-processor", "Create a processor or replace its settings", a.putProcessor, 200, 201)
	patch(a, tag, "/processors/{name}", "patch-processor", "Change the settings of a processor", a.patchProcessor)
	remove(a, tag, "/processors/{name}", "delete-processor", "Remove a processor without batches", a.deleteProcessor)
	put(a, tag, "/processors/{name}/height", "put-height", "Raise the block height of its domain", a.putHeight, 200)
	post(a, tag, "/processors/{name}/pause", "pause-processor", "Refuse ticks", a.pauseProcessor, 200)
	post(a, tag, "/processors/{name}/resume", "resume-processor", "Allow ticks again", a.resumeProcessor, 200)
	post(a, tag, "/processors/{name}/tick", "tick-processor", "Look at one batch", a.tickProcessor, 200)
	get(a, tag, "/processors/{name}/batches", "list-batches", "List batches, or those of a line in its order", a.listBatches)
	post(a, tag, "/processors/{name}/batches", "enqueue-batch", "Put a batch at the back of its line", a.enqueueBatch, 201, 200)
	post(a, tag, "/processors/{name}/insert", "insert-batch", "Put a batch anywhere into its line", a.insertBatch, 201, 200)
	post(a, tag, "/processors/{name}/evict", "evict-batch", "End a batch that is not being executed", a.evictBatch, 200)
	get(a, tag, "/processors/{name}/batches/{id}", "get-batch", "Read one batch", a.getBatch)
	get(a, tag, "/processors/{name}/batches/{id}/history", "get-batch-history", "What happened to it, oldest first", a.getBatchHistory)
	get(a, tag, "/processors/{name}/batches/{id}/why", "get-batch-why", "What it waits for", a.whyBatch)
	post(a, tag, "/processors/{name}/callbacks/{id}", "post-callback", "Confirm the action that a batch waits for", a.postCallback, 200)
	put(a, tag, "/processors/{name}/peers/{peer}", "put-peer", "Let another installation send it batches", a.putPeer, 200)
	remove(a, tag, "/processors/{name}/peers/{peer}", "delete-peer", "Take no more of another installation", a.deletePeer)
	a.peerRoutes()
	tag = "authorizations"
	get(a, tag, "/authorizations", "list-authorizations", "List authorizations", a.listAuthorizations)
	post(a, tag, "/authorizations", "post-authorization", "Create an authorization", a.postAuthorization, 201)
	get(a, tag, "/authorizations/{label}", "get-authorization", "Read one authorization", a.getAuthorization)
	put(a, tag, "/authorizations/{label}", "put-authorization", "Create or replace an authorization", a.putAuthorization, 200, 201)
	patch(a, tag, "/authorizations/{label}", "patch-authorization", "Change the settings of an authorization", a.patchAuthorization)
	remove(a, tag, "/authorizations/{label}", "delete-authorization", "Remove an authorization of which nothing runs", a.deleteAuthorization)
	post(a, tag, "/authorizations/{label}/enable", "enable-authorization", "Let batches be sent", a.enableAuthorization, 200)
	post(a, tag, "/authorizations/{label}/disable", "disable-authorization", "Let no more batches be sent", a.disableAuthorization, 200)
	post(a, tag, "/authorizations/{label}/send", "send-batch", "Send a batch, or hear which rule forbids it", a.sendBatch, 201, 200)
	get(a, tag, "/authorizations/{label}/executions", "list-executions", "List what was sent, and how it ended", a.listExecutions)
	post(a, tag, "/authorizations/{label}/executions/{id}/retry", "retry-execution", "Send again what was not delivered in time", a.retryExecution, 200)
	put(a, tag, "/authorizations/{label}/grants/{actor}", "put-grant", "Give an actor calls", a.putGrant, 200)
	a.leaderRoutes()
	tag = "nodes"
	get(a, tag, "/nodes", "list-nodes", "List the processes that dispatch", a.listNodes)
	get(a, tag, "/nodes/{name}", "get-node", "Read one node", a.getNode)
	post(a, tag, "/nodes/{name}/drain", "drain-node", "Hand back what it holds, claim nothing more", a.drainNode, 200, 202)
	post(a, tag, "/nodes/{name}/resume", "resume-node", "Let a drained node claim again", a.resumeNode, 200)
	post(a, tag, "/nodes/{name}/bury", "bury-node", "Take a node for dead now, and let others go on with its queues", a.buryNode, 200)
	a.quarantineRoutes()
	tag = "access"
	get(a, tag, "/contexts", "list-contexts", "List the contexts in which one has a role", a.listContexts)
	get(a, tag, "/contexts/{name}", "get-context", "Read one context", a.getContext)
	put(a, tag, "/contexts/{name}", "put-context", "Create or replace a context", a.putContext, 200, 201)
	patch(a, tag, "/contexts/{name}", "patch-context", "Change a context", a.patchContext)
	remove(a, tag, "/contexts/{name}", "delete-context", "Delete an empty context", a.deleteContext)
	post(a, tag, "/contexts/{name}/pause", "pause-context", "Send nothing more of a context", a.pauseContext, 200)
	post(a, tag, "/contexts/{name}/resume", "resume-context", "Let a paused context go on", a.resumeContext, 200)
	post(a, tag, "/contexts/{name}/drain", "drain-context", "Accept nothing more in a context, work off the rest", a.drainContext, 200)
	post(a, tag, "/contexts/{name}/purge", "purge-context", "Cancel what waits in a context", a.purgeContext, 200)
	put(a, tag, "/contexts/{name}/members/{actor}", "put-member", "Give an actor exactly these roles", a.putMember, 200)
	remove(a, tag, "/contexts/{name}/members/{actor}", "delete-member", "Take an actor out of a context", a.deleteMember)
	get(a, tag, "/actors", "list-actors", "List actors", a.listActors)
	post(a, tag, "/actors", "post-actor", "Make an actor", a.postActor, 201, 200)
	get(a, tag, "/actors/{id}", "get-actor", "Read one actor", a.getActor)
	patch(a, tag, "/actors/{id}", "patch-actor", "Change an actor", a.patchActor)
	remove(a, tag, "/actors/{id}", "delete-actor", "Forget an actor that is no member", a.deleteActor)
	get(a, tag, "/api-keys", "list-api-keys", "List API keys", a.listAPIKeys)
	post(a, tag, "/api-keys", "post-api-key", "Make an API key and show its secret once", a.postAPIKey, 201, 200)
	get(a, tag, "/api-keys/{id}", "get-api-key", "Read one API key", a.getAPIKey)
	remove(a, tag, "/api-keys/{id}", "delete-api-key", "Revoke an API key", a.deleteAPIKey)
	post(a, tag, "/api-keys/{id}/rotate", "rotate-api-key", "Give an API key another secret", a.rotateAPIKey, 201)
	get(a, tag, "/audit", "list-audit", "Who did what, newest first", a.listAudit)

	tag = "service"
	get(a, tag, "/machines", "list-machines", "The state machines", a.listMachines)
	op = operation(tag, http.MethodGet, "/machines/{name}", "get-machine", "One state machine", nil)
	machineAnswers(&op, a.huma.OpenAPI().Components.Schemas)
	register(a, op, a.getMachine)
	get(a, tag, "/limits", "get-limits", "The limits in force", a.limits)
	if a.DebugClock != nil {
		post(a, tag, "/debug/clock", "move-clock", "Set or advance the time (only with --debug-clock)", a.moveClock, 200)
	}
	get(a, tag, "/livez", "get-livez", "Whether the process lives", a.livez)
	get(a, tag, "/readyz", "get-readyz", "Whether it should get requests, and why not", a.readyz)
}
