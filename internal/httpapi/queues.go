package httpapi

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

func (a *API) queueRoutes() {
	const tag = "queues"
	queues := a.queues()
	get(a, tag, "/queues", "list-queues", "List queues", a.listQueues)
	get(a, tag, "/queues/{name}", "get-queue", "Read one queue", queues.get)
	put(a, tag, "/queues/{name}", "put-queue", "Create or replace the settings of a queue", queues.put, 200, 201)
	patch(a, tag, "/queues/{name}", "patch-queue", "Change the settings of a queue", queues.patch)
	remove(a, tag, "/queues/{name}", "delete-queue", "Take the settings of a queue back", queues.delete)
	get(a, tag, "/queues/{name}/line", "get-queue-line", "What goes out next, in its order", a.lineOf)
	get(a, tag, "/queues/{name}/why", "get-queue-why", "Why its head does not move", a.whyQueue)
	post(a, tag, "/queues/{name}/pause", "pause-queue",
		"Stop after what is in flight", turned(a.Store.PauseQueue, true), 200)
	post(a, tag, "/queues/{name}/resume", "resume-queue",
		"Go on, and accept again", turned(a.Store.PauseQueue, false), 200)
	post(a, tag, "/queues/{name}/drain", "drain-queue",
		"Accept nothing more, work off the rest", onNamed(a.Store.DrainQueue), 200)
	post(a, tag, "/queues/{name}/purge", "purge-queue", "Cancel what waits", purged(a.Store.PurgeQueue), 200)
}

// queueSettings is what people write of a queue (S2.19).
type queueSettings struct {
	Name      name   `json:"name,omitempty" doc:"If given, the name in the path."`
	Priority  string `json:"priority,omitempty" enum:"High,Med" doc:"Med unless said."`
	MaxDepth  int    `json:"max_depth,omitempty" minimum:"1" maximum:"1000000000" doc:"Else the context's."`
	Pool      name   `json:"pool,omitempty" doc:"Wins over the dispatcher's, for types that take a sender."`
	WhenFull  string `json:"when_full,omitempty" enum:"refuse,drop_oldest" doc:"refuse unless said."`
	OnFailure string `json:"on_failure,omitempty" enum:"continue,pause" doc:"continue unless said."`
}

// queueView is a queue as clients read it.
type queueView struct {
	Name       string            `json:"name"`
	State      outbox.QueueState `json:"state" enum:"FREE,BLOCKED,RETRY,DELAY,INCLUSION,WAITING_INCLUSION"`
	Depth      int64             `json:"depth" doc:"not terminal, the one in flight included; exact"`
	LagSeconds float64           `json:"lag_seconds" doc:"the age of the head"`
	Head       *headView         `json:"head"`
	Blocked    *time.Time        `json:"blocked_since" doc:"since when the calls of its head come to nothing"`
	Sender     *string           `json:"sender"`
	Node       *string           `json:"node"`
	Fence      int64             `json:"fence"`
	Attempt    int               `json:"attempt"`
	NextAt     *time.Time        `json:"next_at"`
	Paused     bool              `json:"paused"`
	Draining   bool              `json:"draining"`
	Configured bool              `json:"configured"`
	Priority   string            `json:"priority"`
	MaxDepth   *int              `json:"max_depth"`
	Pool       *string           `json:"pool"`
	WhenFull   string            `json:"when_full"`
	OnFailure  string            `json:"on_failure"`
	Version    int64             `json:"version"`
	CreatedAt  time.Time         `json:"created_at"`
}

// headView is the first transaction of a queue that has not ended.
type headView struct {
	ID    string       `json:"id"`
	Type  string       `json:"type"`
	State outbox.State `json:"state"`
	Since *time.Time   `json:"since"`
}

func viewQueue(q *pg.Queue, now time.Time) queueView {
	v := queueView{Name: q.Name, State: q.State, Depth: q.Depth, Sender: ptr(q.Sender), Node: ptr(q.Node),
		Fence: q.Fence, Attempt: q.Attempt,
		NextAt: utc(q.NextAt), Paused: q.Paused, Draining: q.Draining, Configured: q.Configured,
		Priority: q.Priority, MaxDepth: ptr(q.MaxDepth),
		Pool: ptr(q.Pool), WhenFull: q.WhenFull, OnFailure: q.OnFailure,
		Version: q.Version, CreatedAt: q.CreatedAt.UTC()}
	if q.Head != nil {
		v.Blocked = utc(q.Blocked)
		v.Head = &headView{q.Head.String(), q.HeadType, q.Phase.Transaction(), utc(q.HeadSince)}
	}
	if q.Oldest != nil {
		v.LagSeconds = max(0, now.Sub(*q.Oldest).Seconds())
	}
	return v
}

type queuesOutput struct {
	Link string `header:"Link"`
	Body struct {
		Items []queueView `json:"items"`
		Next  *string     `json:"next" doc:"null at the end; a page may be short, even empty, before it"`
	}
}

type listQueuesInput struct {
	Prefix   string              `query:"prefix" maxLength:"200"`
	State    []outbox.QueueState `query:"state,explode" enum:"FREE,BLOCKED,RETRY,DELAY,INCLUSION,WAITING_INCLUSION"`
	Paused   []string            `query:"paused,explode" enum:"true,false"`
	MinDepth int64               `query:"min_depth" minimum:"0" doc:"Those that hold at least so many."`
	Node     string              `query:"node" maxLength:"200" doc:"Those that a node of this name has leased."`
	StuckFor string              `query:"stuck_for" example:"10m" doc:"Those whose head has stood for so long."`
	Limit    int                 `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor   string              `query:"cursor" doc:"next of the page before."`
}

// listQueues lists by name; the other filters only thin a page.
func (a *API) listQueues(ctx context.Context, in *listQueuesInput) (*queuesOutput, error) {
	p := Paging{Limit: in.Limit, Cursor: in.Cursor}
	limit, err := p.limit(a)
	if err != nil {
		return nil, err
	}
	f := pg.QueueFilter{
		Prefix:   in.Prefix,
		States:   in.State,
		Paused:   oneOf(in.Paused),
		MinDepth: in.MinDepth,
		Node:     in.Node,
		Limit:    limit,
		Examined: max(1, a.Limits.Examined/2), // of each a name and a row
	}
	if in.StuckFor != "" {
		if f.Stuck, err = time.ParseDuration(in.StuckFor); err != nil || f.Stuck < 0 {
			return nil, fault.At("stuck_for", "stuck_for %q: want a duration with its unit, such as 10m or 2h",
				fault.Clip(in.StuckFor))
		}
	}
	filters := []any{"queues", in.Prefix, in.State, in.Paused, in.MinDepth, f.Stuck, in.Node}
	if err := p.read(filters, &f.After); err != nil {
		return nil, err
	}
	found, next, err := a.Store.Queues(ctx, contextID(ctx), f)
	if err != nil {
		return nil, err
	}
	now, err := a.now(ctx)
	if err != nil {
		return nil, err
	}
	out := &queuesOutput{}
	out.Body.Items = []queueView{}
	for _, q := range found {
		out.Body.Items = append(out.Body.Items, viewQueue(q, now))
	}
	if next != "" {
		out.Body.Next, out.Link = p.next(ctx, filters, next)
	}
	return out, nil
}

// queues says what is a queue's own among named things. To remove one takes its settings back; one that held something
// stays in lists, not configured, until the last day of its transactions is dropped.
func (a *API) queues() resource[queueSettings, *pg.Queue, queueView] {
	return resource[queueSettings, *pg.Queue, queueView]{
		a:    a,
		path: "/queues",
		find: inContext(a.Store.Queue),
		view: func(ctx context.Context, q *pg.Queue) (queueView, error) {
			now, err := a.now(ctx)
			return viewQueue(q, now), err
		},
		head: func(q *pg.Queue) (string, int64) { return q.Name, q.Version },
		settings: func(q *pg.Queue) queueSettings {
			return queueSettings{
				Priority:  q.Priority,
				MaxDepth:  q.MaxDepth,
				Pool:      name(q.Pool),
				WhenFull:  q.WhenFull,
				OnFailure: q.OnFailure,
			}
		},
		there: func(q *pg.Queue) bool { return q.Configured }, // a post makes a queue, too
		made:  madeQueue,
		store: func(ctx context.Context, by db.By, q *pg.Queue, version int64) (bool, error) {
			return a.Store.PutQueue(ctx, by, *q, version)
		},
		remove: a.Store.RemoveQueue,
	}
}

func madeQueue(_ context.Context, queue string, s queueSettings) (*pg.Queue, error) {
	if err := ofPath("name", string(s.Name), queue); err != nil {
		return nil, err
	}
	or(&s.Priority, "Med")
	or(&s.WhenFull, "refuse")
	or(&s.OnFailure, "continue")
	if s.WhenFull == "drop_oldest" && outbox.IsPeerQueue(queue) {
		return nil, fault.At("/when_full", "when_full drop_oldest: queue %q has messages to a peer, and a full queue "+
			"drops no message: want refuse; a timeout ends a message that waits for too long", fault.Clip(queue))
	}
	return &pg.Queue{
		Name:      queue,
		Priority:  s.Priority,
		MaxDepth:  s.MaxDepth,
		Pool:      string(s.Pool),
		WhenFull:  s.WhenFull,
		OnFailure: s.OnFailure,
	}, nil
}

type lineInput struct {
	Named
	Limit int `query:"limit" minimum:"1" maximum:"100" default:"20"`
}

type lineOutput struct {
	Body struct {
		Items []transactionView `json:"items"`
	}
}

// lineOf lists what of a queue has not ended, in the order in which it goes out.
func (a *API) lineOf(ctx context.Context, in *lineInput) (*lineOutput, error) {
	list, err := a.Store.Reads.Line(ctx, contextID(ctx), string(in.Name), in.Limit)
	if err != nil {
		return nil, err
	}
	out := &lineOutput{}
	out.Body.Items = []transactionView{}
	for _, t := range list {
		out.Body.Items = append(out.Body.Items, viewTransaction(t, include{}))
	}
	return out, nil
}
