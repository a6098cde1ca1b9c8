package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/session"
)

// commits measures how many durable commits a second the server makes for so many clients. Each client inserts one
// narrow row after the other. The rate is that of the machine, and other rates are compared with it.
func commits(clients int) Scenario {
	name := fmt.Sprintf("commit-%d", clients)
	return Scenario{name, fmt.Sprintf("durable commits a second of %d clients: one narrow row each, to compare with", clients),
		func(ctx context.Context, b *Bench) ([]*Result, error) {
			var trials []*trial
			for i := range b.Runs {
				t, err := b.commit(ctx, clients, b.Length)
				if err != nil {
					return nil, err
				}
				b.told(name, i, t)
				trials = append(trials, t)
			}
			r := b.summary(name, "postgresql", trials)
			r.timed(trials, "commit")
			r.Settings["clients"] = clients
			return []*Result{r}, nil
		}}
}

// commit is one run of clients that commit as fast as they can.
func (b *Bench) commit(ctx context.Context, clients int, length time.Duration) (*trial, error) {
	if err := b.makePlain(ctx); err != nil {
		return nil, err
	}
	conns, closeAll, err := b.connect(ctx, clients)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	for _, c := range conns {
		if _, err := c.Prepare(ctx, "one", `INSERT INTO postern_bench.durable (client, n, body) VALUES ($1, $2, $3)`); err != nil {
			return nil, err
		}
	}
	m, err := b.meter(ctx, nil)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	var n atomic.Int64
	all := &histogram{}
	start := time.Now()
	for i, c := range conns {
		wg.Go(func() {
			h := &histogram{}
			var err error
			for k := int64(0); err == nil && time.Since(start) < length; k++ {
				began := time.Now()
				if _, err = c.Exec(ctx, "one", i, k, "B62qre3erTHfzQckNuibViWQGyyKwZseztqrjPZBv6SQF384Rg6ESAy"); err == nil {
					h.add(time.Since(began))
					n.Add(1)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.merge(h)
			if err != nil {
				failed = err
			}
		})
	}
	wg.Wait()
	t := &trial{n: int(n.Load()), took: time.Since(start), times: map[string]*histogram{"commit": all}}
	if failed != nil {
		return nil, failed
	}
	closeAll() // so that they report what they wrote
	if t.cost, err = m.stop(ctx); err != nil {
		return nil, err
	}
	var stored int
	err = b.pool.QueryRow(ctx, `SELECT count(*) FROM postern_bench.durable`).Scan(&stored)
	if stored != t.n {
		t.wrong, t.bad = []string{fmt.Sprintf("%d committed, %d stored", t.n, stored)}, max(t.n-stored, stored-t.n)
	}
	return t, err
}

// connect opens so many sessions, and returns how to close them.
func (b *Bench) connect(ctx context.Context, n int) (conns []*pgx.Conn, closeAll func(), err error) {
	closeAll = func() {
		for _, c := range conns {
			c.Close(context.WithoutCancel(ctx))
		}
	}
	for range n {
		c, err := session.Connect(ctx, b.url)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		conns = append(conns, c)
	}
	return conns, closeAll, nil
}
