package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

func (a *API) poolRoutes() {
	const tag = "pools"
	get(a, tag, "/pools", "list-pools", "List pools", a.listPools)
	get(a, tag, "/pools/{name}", "get-pool", "Read one pool", a.getPool)
	put(a, tag, "/pools/{name}", "put-pool", "Create a pool or replace its settings", a.putPool, 200, 201)
	patch(a, tag, "/pools/{name}", "patch-pool", "Change the settings of a pool", a.patchPool)
	remove(a, tag, "/pools/{name}", "delete-pool", "Remove a pool that nothing needs", a.deletePool)
	post(a, tag, "/pools/{name}/pause", "pause-pool", "Let none of its senders take another queue", a.pausePool, 200)
	post(a, tag, "/pools/{name}/resume", "resume-pool", "Let its senders work again", a.resumePool, 200)
}

// poolSettings is what people write of a pool.
type poolSettings struct {
	Name         name   `json:"name,omitempty" doc:"If given, the name in the path."`
	AfterFailure string `json:"after_failure,omitempty" enum:"keep,block" doc:"A transaction that fails after it reached its worker: keep its sender, or block that for a while and go on with another. keep unless said."`
	BlockFor     string `json:"block_for,omitempty" example:"24h" doc:"24h unless said."`
}

// poolView is a pool as clients read it.
type poolView struct {
	Name         string    `json:"name"`
	AfterFailure string    `json:"after_failure" enum:"keep,block"`
	BlockFor     string    `json:"block_for"`
	Paused       bool      `json:"paused"`
	Free         int       `json:"free" doc:"senders that may be taken"`
	Bound        int       `json:"bound" doc:"senders that serve a queue"`
	Blocked      int       `json:"blocked" doc:"senders that are blocked, paused or drained, and serve none"`
	Waiting      int       `json:"waiting" doc:"queues that wait for one of its senders, counted to 10,000"`
	Version      int64     `json:"version"`
	CreatedAt    time.Time `json:"created_at"`
}

func viewPool(p *pg.Pool) poolView {
	return poolView{Name: p.Name, AfterFailure: p.AfterFailure, BlockFor: outbox.Duration(p.BlockFor).String(), Paused: p.Paused, Free: p.Free, Bound: p.Bound,
		Blocked: p.Blocked, Waiting: p.Waiting, Version: p.Version, CreatedAt: p.CreatedAt.UTC()}
}

type poolOutput struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Body     poolView
}

type poolsOutput struct {
	Link string `header:"Link"`
	Body struct {
		Items []poolView `json:"items"`
		Next  *string    `json:"next"`
	}
}

func (a *API) listPools(ctx context.Context, in *namedPage) (*poolsOutput, error) {
	var err error
	out := &poolsOutput{}
	out.Body, out.Link, err = listBy(ctx, a, in, []any{"pools"},
		func(after string, limit int) ([]*pg.Pool, error) {
			return a.Store.SenderPools(ctx, contextID(ctx), after, limit)
		},
		func(v *pg.Pool) string { return v.Name }, plainly(viewPool))
	return out, err
}

type poolInput struct {
	Name name `path:"name"`
}

func (a *API) getPool(ctx context.Context, in *poolInput) (*poolOutput, error) {
	p, err := a.Store.SenderPool(ctx, contextID(ctx), string(in.Name))
	if err != nil {
		return nil, err
	}
	return &poolOutput{Status: http.StatusOK, ETag: etag(p.Version), Body: viewPool(p)}, nil
}

type putPoolInput struct {
	Name name `path:"name"`
	Conditions
	Body poolSettings
}

// putPool creates a pool or replaces its settings: 201, 200; 412 if it is not what If-Match says. Nobody has
// to: a pool comes into being with its first sender.
func (a *API) putPool(ctx context.Context, in *putPoolInput) (*poolOutput, error) {
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	return a.writePool(ctx, string(in.Name), in.Body, version)
}

func (a *API) writePool(ctx context.Context, pool string, s poolSettings, version int64) (*poolOutput, error) {
	if err := ofPath("name", string(s.Name), pool); err != nil {
		return nil, err
	}
	or(&s.AfterFailure, "keep")
	or(&s.BlockFor, "24h")
	length, err := time.ParseDuration(s.BlockFor)
	if err != nil || length < time.Second || length > 365*24*time.Hour {
		return nil, fault.At("/block_for", "block_for %q: want a duration such as \"24h\", from 1s to 8760h", fault.Clip(s.BlockFor))
	}
	created, err := a.Store.PutPool(ctx, by(ctx, ""), pg.Pool{Name: pool, AfterFailure: s.AfterFailure, BlockFor: length}, version)
	if err != nil {
		return nil, err
	}
	out, err := a.getPool(ctx, &poolInput{name(pool)})
	if err == nil && created {
		out.Status, out.Location = http.StatusCreated, "/pools/"+pool
	}
	return out, err
}

type patchPoolInput struct {
	Name name `path:"name"`
	Conditions
	RawBody []byte
	Body    patchBody
}

func (a *API) patchPool(ctx context.Context, in *patchPoolInput) (*poolOutput, error) {
	p, err := a.Store.SenderPool(ctx, contextID(ctx), string(in.Name))
	if err != nil {
		return nil, err
	}
	if err := in.check(p.Version); err != nil {
		return nil, err
	}
	raw, err := merged(poolSettings{AfterFailure: p.AfterFailure, BlockFor: outbox.Duration(p.BlockFor).String()}, in.RawBody)
	if err != nil {
		return nil, err
	}
	var next poolSettings
	if err := a.decode(raw, &next, "poolSettings"); err != nil {
		return nil, err
	}
	return a.writePool(ctx, p.Name, next, p.Version)
}

type deletePoolInput struct {
	Name name `path:"name"`
	Conditions
}

// deletePool removes a pool that nothing needs; 409 in_use.
func (a *API) deletePool(ctx context.Context, in *deletePoolInput) (*struct{}, error) {
	return nil, a.Store.RemovePool(ctx, by(ctx, ""), string(in.Name))
}

type poolActionInput struct {
	Name name `path:"name"`
	Trial
	Body *reasonBody
}

func (a *API) pausePool(ctx context.Context, in *poolActionInput) (*leverOutput, error) {
	return lever(a.Store.PausePool(ctx, by(ctx, in.Body.reason()), string(in.Name), true))
}

func (a *API) resumePool(ctx context.Context, in *poolActionInput) (*leverOutput, error) {
	return lever(a.Store.PausePool(ctx, by(ctx, in.Body.reason()), string(in.Name), false))
}
