package bench

import (
	"context"
	"fmt"
	"net/http"
	"sync"
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

func (b *Bench) both(ctx context.Context) (_ *trial, err error) {
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
	c := client(b.Connections)
	defer c.CloseIdleConnections()
	if err := p.Go(); err != nil {
		return nil, err
	}
	if err := ready(ctx, c, p.URL); err != nil {
		return nil, err
	}
	m, err := b.meter(ctx, map[string]*Process{RoleBoth: p})
	if err != nil {
		return nil, err
	}
	start := time.Now()
	prefix, total := b.name(), b.Queues*b.Depth
	times, err := b.rounds(ctx, c, p.URL, prefix)
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
// clients would post them. A queue is always posted to by the same connection, one after the other: its
// order is then known, and checked.
func (b *Bench) rounds(ctx context.Context, c *http.Client, url, prefix string) (*histogram, error) {
	all := &histogram{}
	var mu sync.Mutex
	var first error
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for conn := range b.Connections {
		wg.Go(func() {
			h := &histogram{}
			err := func() error {
				for i := range b.Depth {
					for q := conn; q < b.Queues; q += b.Connections {
						began := time.Now()
						if err := post(ctx, c, url, fmt.Sprintf("%s-%d", prefix, q), i); err != nil {
							return err
						}
						h.add(time.Since(began))
					}
				}
				return nil
			}()
			mu.Lock()
			defer mu.Unlock()
			all.merge(h)
			if err != nil && first == nil {
				first = err
				cancel()
			}
		})
	}
	wg.Wait()
	return all, first
}

// spanOf finds the queues that were made by posts to names with a prefix.
func (b *Bench) spanOf(ctx context.Context, prefix string) (s span, err error) {
	err = b.pool.QueryRow(ctx, `SELECT coalesce(min(queue_id), 0), coalesce(max(queue_id), 0) FROM postern.queue_name WHERE name LIKE $1 || '-%'`, prefix).
		Scan(&s.first, &s.last)
	return s, err
}
