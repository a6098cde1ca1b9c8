package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
)

func (a *API) contextRoutes() {
	const tag = "access"
	get(a, tag, "/contexts", "list-contexts", "List the contexts in which one has a role", a.listContexts)
	get(a, tag, "/contexts/{name}", "get-context", "Read one context", a.getContext)
	put(a, tag, "/contexts/{name}", "put-context", "Create or replace a context", a.putContext, 200, 201)
	patch(a, tag, "/contexts/{name}", "patch-context", "Change a context", a.patchContext)
	remove(a, tag, "/contexts/{name}", "delete-context", "Delete an empty context", a.deleteContext)
	post(a, tag, "/contexts/{name}/pause", "pause-context", "Send nothing more of a context", a.pauseContext, 200)
	post(a, tag, "/contexts/{name}/resume", "resume-context", "Let a paused context go on", a.resumeContext, 200)
	post(a, tag, "/contexts/{name}/drain", "drain-context", "Accept nothing more in a context, work off the rest", a.drainContext, 200)
	post(a, tag, "/contexts/{name}/purge", "purge-context", "Cancel what waits in a context", a.purgeContext, 200)
}

// contextSettings is what people write of a context.
type contextSettings struct {
	Name           name     `json:"name,omitempty" doc:"If given, the name in the path."`
	Admins         []string `json:"admins,omitempty" maxItems:"1000" doc:"Ids of actors."`
	Executors      []string `json:"executors,omitempty" maxItems:"1000"`
	Readers        []string `json:"readers,omitempty" maxItems:"1000"`
	RequireKey     bool     `json:"require_key,omitempty" doc:"Refuse transactions without an idempotency key."`
	DeclaredQueues bool     `json:"declared_queues,omitempty" doc:"Refuse transactions for queues that nobody configured."`
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

type contextOutput struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Body     contextView
}

type contextsOutput struct {
	Link string `header:"Link"`
	Body struct {
		Items []contextView `json:"items"`
		Next  *string       `json:"next"`
	}
}

// listContexts lists the contexts in which the caller has a role, by name.
func (a *API) listContexts(ctx context.Context, in *namedPage) (*contextsOutput, error) {
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
	out := &contextsOutput{}
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

type contextInput struct {
	Name name `path:"name"`
}

func (a *API) getContext(ctx context.Context, in *contextInput) (*contextOutput, error) {
	t, err := a.Store.Tenant(ctx, string(in.Name))
	if err != nil {
		return nil, err
	}
	return &contextOutput{Status: http.StatusOK, ETag: etag(t.Version), Body: viewContext(&t.Context, &t.Members)}, nil
}

type putContextInput struct {
	Name name `path:"name"`
	Conditions
	Body contextSettings
}

// putContext creates or replaces a context: 201, 200; 409 if its last admin would leave.
func (a *API) putContext(ctx context.Context, in *putContextInput) (*contextOutput, error) {
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	return a.writeContext(ctx, string(in.Name), in.Body, version)
}

func (a *API) writeContext(ctx context.Context, tenant string, s contextSettings, version int64) (*contextOutput, error) {
	if err := ofPath("name", string(s.Name), tenant); err != nil {
		return nil, err
	}
	or(&s.MaxDepth, pg.DefaultMaxDepth)
	created, err := a.Store.PutContext(ctx, by(ctx, ""), pg.Tenant{
		Context: pg.Context{Name: tenant, RequireKey: s.RequireKey, DeclaredQueues: s.DeclaredQueues, MaxDepth: s.MaxDepth},
		Members: pg.Members{Admins: s.Admins, Executors: s.Executors, Readers: s.Readers}}, version)
	if err != nil {
		return nil, err
	}
	a.forget()
	out, err := a.getContext(ctx, &contextInput{name(tenant)})
	if err == nil && created {
		out.Status, out.Location = http.StatusCreated, "/contexts/"+tenant
	}
	return out, err
}

type patchContextInput struct {
	Name name `path:"name"`
	Conditions
	RawBody []byte
	Body    patchBody
}

// patchContext changes a context; it wants If-Match (428), since lists of members are easily overwritten.
func (a *API) patchContext(ctx context.Context, in *patchContextInput) (*contextOutput, error) {
	if in.IfMatch == "" {
		return nil, fault.New(fault.Conflict, "precondition_required", "PATCH of a context wants If-Match with the ETag that was last seen")
	}
	t, err := a.Store.Tenant(ctx, string(in.Name))
	if err != nil {
		return nil, err
	}
	if err := in.check(t.Version); err != nil {
		return nil, err
	}
	raw, err := merged(contextSettings{Admins: t.Admins, Executors: t.Executors, Readers: t.Readers, RequireKey: t.RequireKey,
		DeclaredQueues: t.DeclaredQueues, MaxDepth: t.MaxDepth}, in.RawBody)
	if err != nil {
		return nil, err
	}
	var next contextSettings
	if err := a.decode(raw, &next, "contextSettings"); err != nil {
		return nil, err
	}
	return a.writeContext(ctx, t.Name, next, t.Version)
}

type deleteContextInput struct {
	Name name `path:"name"`
	Conditions
}

// deleteContext takes away a context that holds nothing, with its members and API keys; else 409 in_use.
func (a *API) deleteContext(ctx context.Context, in *deleteContextInput) (*struct{}, error) {
	defer a.forget()
	return nil, a.Store.RemoveContext(ctx, by(ctx, ""), string(in.Name))
}

type contextActionInput struct {
	Name name `path:"name"`
	Trial
	Body *reasonBody
}

func (a *API) pauseContext(ctx context.Context, in *contextActionInput) (*leverOutput, error) {
	return lever(a.Store.PauseContext(ctx, by(ctx, in.Body.reason()), string(in.Name), true))
}

func (a *API) resumeContext(ctx context.Context, in *contextActionInput) (*leverOutput, error) {
	return lever(a.Store.PauseContext(ctx, by(ctx, in.Body.reason()), string(in.Name), false))
}

// drainContext accepts nothing more in a context, and works off the rest.
func (a *API) drainContext(ctx context.Context, in *contextActionInput) (*leverOutput, error) {
	return lever(a.Store.DrainContext(ctx, by(ctx, in.Body.reason()), string(in.Name)))
}

// purgeContext cancels what waits in a context.
func (a *API) purgeContext(ctx context.Context, in *purgeInput) (*purgeOutput, error) {
	return in.purge(ctx, string(in.Name), a.Store.PurgeContext)
}
