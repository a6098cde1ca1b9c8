package httpapi

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

func (a *API) poolRoutes() {
	const tag = "pools"
	pools := a.pools()
	get(a, tag, "/pools", "list-pools", "List pools", pools.list)
	get(a, tag, "/pools/{name}", "get-pool", "Read one pool", pools.get)
	put(a, tag, "/pools/{name}", "put-pool", "Create a pool or replace its settings", pools.put, 200, 201)
	patch(a, tag, "/pools/{name}", "patch-pool", "Change the settings of a pool", pools.patch)
	remove(a, tag, "/pools/{name}", "delete-pool", "Remove a pool that nothing needs", pools.delete)
	post(a, tag, "/pools/{name}/pause", "pause-pool",
		"Let none of its senders take another queue", turned(a.Store.PausePool, true), 200)
	post(a, tag, "/pools/{name}/resume", "resume-pool",
		"Let its senders work again", turned(a.Store.PausePool, false), 200)
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
	return poolView{Name: p.Name, AfterFailure: p.AfterFailure, BlockFor: outbox.Duration(p.BlockFor).String(),
		Paused: p.Paused, Free: p.Free, Bound: p.Bound,
		Blocked: p.Blocked, Waiting: p.Waiting, Version: p.Version, CreatedAt: p.CreatedAt.UTC()}
}

// pools says how a pool differs from other named things. A pool need not be put: it comes into being with its first
// sender.
func (a *API) pools() resource[poolSettings, *pg.Pool, poolView] {
	return resource[poolSettings, *pg.Pool, poolView]{
		a:    a,
		path: "/pools",
		page: pageInContext(a.Store.SenderPools),
		find: inContext(a.Store.SenderPool),
		view: simply(viewPool),
		head: func(p *pg.Pool) (string, int64) { return p.Name, p.Version },
		settings: func(p *pg.Pool) poolSettings {
			return poolSettings{AfterFailure: p.AfterFailure, BlockFor: outbox.Duration(p.BlockFor).String()}
		},
		made: madePool,
		store: func(ctx context.Context, by db.By, p *pg.Pool, version int64) (bool, error) {
			return a.Store.PutPool(ctx, by, *p, version)
		},
		remove: a.Store.RemovePool,
	}
}

func madePool(_ context.Context, pool string, s poolSettings) (*pg.Pool, error) {
	if err := ofPath("name", string(s.Name), pool); err != nil {
		return nil, err
	}
	or(&s.AfterFailure, "keep")
	or(&s.BlockFor, "24h")
	length, err := time.ParseDuration(s.BlockFor)
	if err != nil || length < time.Second || length > 365*24*time.Hour {
		return nil, fault.At("/block_for",
			"block_for %q: want a duration such as \"24h\", from 1s to 8760h", fault.Clip(s.BlockFor))
	}
	return &pg.Pool{Name: pool, AfterFailure: s.AfterFailure, BlockFor: length}, nil
}
