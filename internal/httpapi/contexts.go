package httpapi

import (
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/db"
)

func (a *API) contextRoutes() {
	const tag = "access"
	contexts := a.contexts()
	get(a, tag, "/contexts", "list-contexts", "List the contexts in which one has a role", a.listContexts)
	get(a, tag, "/contexts/{name}", "get-context", "Read one context", contexts.get)
	put(a, tag, "/contexts/{name}", "put-context", "Create or replace a context", contexts.put, 200, 201)
	patch(a, tag, "/contexts/{name}", "patch-context", "Change a context", a.patchContext)
	remove(a, tag, "/contexts/{name}", "delete-context", "Delete an empty context", contexts.delete)
	post(a, tag, "/contexts/{name}/pause", "pause-context",
		"Send nothing more of a context", turned(a.Store.PauseContext, true), 200)
	post(a, tag, "/contexts/{name}/resume", "resume-context",
		"Let a paused context go on", turned(a.Store.PauseContext, false), 200)
	post(a, tag, "/contexts/{name}/drain", "drain-context",
		"Accept nothing more in a context, work off the rest", onNamed(a.Store.DrainContext), 200)
	post(a, tag, "/contexts/{name}/purge", "purge-context",
		"Cancel what waits in a context", purged(a.Store.PurgeContext), 200)
}

// contextSettings is what people write of a context.
type contextSettings struct {
	Name           name     `json:"name,omitempty" doc:"If given, the name in the path."`
	Admins         []string `json:"admins,omitempty" maxItems:"1000" doc:"Ids of actors; no list in a PUT: they stay."`
	Executors      []string `json:"executors,omitempty" maxItems:"1000"`
	Readers        []string `json:"readers,omitempty" maxItems:"1000"`
	RequireKey     bool     `json:"require_key,omitempty" doc:"Refuse transactions without an idempotency key."`
	DeclaredQueues bool     `json:"declared_queues,omitempty" doc:"Refuse transactions for queues that were not configured."`
	MaxDepth       int      `json:"max_depth,omitempty" minimum:"1" maximum:"1000000000" doc:"Of each queue, unless it has its own; 10000 unless said."`
}

// contextView is a context as clients read it.
type contextView struct {
	Name           string    `json:"name"`
	Admins         []string  `json:"admins"`
	Executors      []string  `json:"executors"`
	Readers        []string  `json:"readers"`
	RequireKey     bool      `json:"require_key"`
	DeclaredQueues bool      `json:"declared_queues"`
	MaxDepth       int       `json:"max_depth"`
	Paused         bool      `json:"paused"`
	Draining       bool      `json:"draining" doc:"it accepts nothing more"`
	Version        int64     `json:"version"`
	CreatedAt      time.Time `json:"created_at"`
}

func viewContext(c *pg.Context, m *pg.Members) contextView {
	return contextView{c.Name, m.Admins, m.Executors, m.Readers, c.RequireKey, c.DeclaredQueues, c.MaxDepth, c.Paused, c.Draining, c.Version, c.CreatedAt.UTC()}
}

// listContexts lists the contexts in which the caller has a role, by name.
func (a *API) listContexts(ctx context.Context, in *namedPage) (*pageOf[contextView], error) {
	p := Paging{Limit: in.Limit, Cursor: in.Cursor}
	limit, err := p.limit(a)
	if err != nil {
		return nil, err
	}
	filters, after := []any{"contexts"}, ""
	if err := p.read(filters, &after); err != nil {
		return nil, err
	}
	all, err := a.Store.Contexts(ctx)
	if err != nil {
		return nil, err
	}
	who := scopeOf(ctx).who
	all = slices.DeleteFunc(all, func(c *pg.Context) bool { return c.Name <= after || who.in(c, a.system()) <= anyone })
	out := &pageOf[contextView]{}
	out.Body.Items = []contextView{}
	if len(all) > limit {
		all = all[:limit]
		out.Body.Next, out.Link = p.next(ctx, filters, all[limit-1].Name)
	}
	var ids []int32
	for _, c := range all {
		ids = append(ids, c.ID)
	}
	members, err := a.Store.MembersOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		out.Body.Items = append(out.Body.Items, viewContext(c, members[c.ID]))
	}
	return out, nil
}

// contexts says what is a context's own among named things: 409 if its last admin would leave, or if one that holds
// something is removed. One that holds nothing goes with its members and API keys.
func (a *API) contexts() resource[contextSettings, *pg.Tenant, contextView] {
	return resource[contextSettings, *pg.Tenant, contextView]{
		a:    a,
		path: "/contexts",
		find: a.Store.Tenant,
		view: simply(func(t *pg.Tenant) contextView { return viewContext(&t.Context, &t.Members) }),
		head: func(t *pg.Tenant) (string, int64) { return t.Name, t.Version },
		settings: func(t *pg.Tenant) contextSettings {
			return contextSettings{
				Admins:         slices.Sorted(slices.Values(t.Admins)),
				Executors:      slices.Sorted(slices.Values(t.Executors)),
				Readers:        slices.Sorted(slices.Values(t.Readers)),
				RequireKey:     t.RequireKey,
				DeclaredQueues: t.DeclaredQueues,
				MaxDepth:       t.MaxDepth,
			}
		},
		kept: func(t *pg.Tenant, s *contextSettings) {
			if s.Admins == nil && s.Executors == nil && s.Readers == nil {
				s.Admins, s.Executors, s.Readers = t.Admins, t.Executors, t.Readers
			}
		},
		made: madeContext,
		store: func(ctx context.Context, by db.By, t *pg.Tenant, version int64) (bool, error) {
			defer a.forget()
			if scopeOf(ctx).opened {
				return a.Store.MakeContext(ctx, by, *t, version)
			}
			return a.Store.PutContext(ctx, by, *t, version)
		},
		remove: func(ctx context.Context, by db.By, called string) error {
			defer a.forget()
			return a.Store.RemoveContext(ctx, by, called)
		},
	}
}

func madeContext(_ context.Context, tenant string, s contextSettings) (*pg.Tenant, error) {
	if err := ofPath("name", string(s.Name), tenant); err != nil {
		return nil, err
	}
	or(&s.MaxDepth, actors.DefaultMaxDepth)
	return &pg.Tenant{
		Context: pg.Context{
			Name:           tenant,
			RequireKey:     s.RequireKey,
			DeclaredQueues: s.DeclaredQueues,
			MaxDepth:       s.MaxDepth,
		},
		Members: pg.Members{Admins: s.Admins, Executors: s.Executors, Readers: s.Readers},
	}, nil
}

// patchContext changes a context; it wants If-Match (428), since lists of members are easily overwritten.
func (a *API) patchContext(ctx context.Context, in *patchNamed) (*one[contextView], error) {
	if in.IfMatch == "" {
		return nil, fault.New(fault.Conflict, "precondition_required", "PATCH of a context wants If-Match with the ETag that was last seen")
	}
	contexts := a.contexts()
	contexts.made = func(ctx context.Context, tenant string, s contextSettings) (*pg.Tenant, error) {
		t, err := madeContext(ctx, tenant, s)
		if err == nil {
			t.Members = t.OrEmpty() // a list that is not there is empty; in a PUT without any the members stay
		}
		return t, err
	}
	return contexts.patch(ctx, in)
}
