package bench

import (
	"context"
	"fmt"
	"time"
)

// e2e posts over HTTP while what was posted before is dispatched, by one process that does both, and
// measures from the first post to the last outcome.
func e2e(ctx context.Context, b *Bench) ([]*Result, error) {
	var trials []*trial
	for i := range b.Runs {
		t, err := b.both(ctx)
		if err != nil {
			return nil, fmt.Errorf("run %d of %d: %w", i+1, b.Runs, err)
		}
		b.told("e2e", i, t)
		trials = append(trials, t)
	}
	r := b.summary("e2e", "postern", trials)
	r.timed(trials, "post")
	r.Settings["queues"], r.Settings["depth"], r.Settings["connections"] = b.Queues, b.Depth, b.Connections
	return []*Result{r}, nil
}

// both is one run.
func (b *Bench) both(ctx context.Context) (*trial, error) { return b.watched(ctx, 0) }

// watched is one run, while so many live pages of the dashboard are open.
func (b *Bench) watched(ctx context.Context, open int) (_ *trial, err error) {
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	p, err := b.launch(ctx, RoleBoth)
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	if err := b.calm(ctx); err != nil {
		return nil, err
	}
	if err := p.Go(); err != nil {
		return nil, err
	}
	if err := ready(ctx, p.URL); err != nil {
		return nil, err
	}
	unwatch, err := watch(ctx, p.URL, open)
	if err != nil {
		return nil, err
	}
	defer unwatch()
	m, err := b.meter(ctx, map[string]*Process{RoleBoth: p})
	if err != nil {
		return nil, err
	}
	start := time.Now()
	prefix, total := b.name(), b.Queues*b.Depth
	times, err := b.rounds(ctx, p.URL, prefix)
	if err != nil {
		return nil, err
	}
	s, err := b.spanOf(ctx, prefix)
	if err != nil {
		return nil, err
	}
	_, at, err := b.await(ctx, s, total)
	if err != nil {
		return nil, err
	}
	t := &trial{n: total, took: at.Sub(start), times: map[string]*histogram{"post": times}}
	if t.cost, err = m.stop(ctx); err != nil {
		return nil, err
	}
	t.wrong, t.bad, err = b.check(ctx, s, want{stored: total, ended: total, queues: b.Queues, timed: b.local})
	return t, err
}

// rounds posts depth rounds over all queues, so that neighbours in time belong to different queues, as many
// clients would post them.
func (b *Bench) rounds(ctx context.Context, url, prefix string) (*histogram, error) {
	tr := &traffic{url: url, path: "/transactions", prefix: prefix, connections: min(b.Connections, b.Queues),
		counts: make([]int, b.Queues)}
	all := &histogram{}
	for range b.Depth {
		h, _, _, err := tr.run(ctx)
		if err != nil {
			return nil, err
		}
		all.merge(h)
	}
	return all, nil
}

// spanOf finds the queues that were made by posts to names with a prefix.
func (b *Bench) spanOf(ctx context.Context, prefix string) (s span, err error) {
	err = b.pool.QueryRow(ctx, `SELECT coalesce(min(queue_id), 0), coalesce(max(queue_id), 0) FROM postern.queue_name WHERE name LIKE $1 || '-%'`, prefix).
		Scan(&s.first, &s.last)
	return s, err
}
