package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// traffic is a closed loop: connections that post as fast as they are answered, for a while. Every queue is
// posted to by one connection alone, so that its order is known: counts[q] is how many of it were answered.
type traffic struct {
	url, path, prefix string
	connections       int
	batch             int // transactions a post; 0 or 1: no batch
	length            time.Duration
	counts            []int
}

func (tr *traffic) body(q int) (body string, n int) {
	name := fmt.Sprintf("%s-%d", tr.prefix, q)
	if tr.batch <= 1 {
		return body1(name, tr.counts[q]), 1
	}
	var b strings.Builder
	b.WriteString(`{"items": [`)
	for i := range tr.batch {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(body1(name, tr.counts[q]+i))
	}
	b.WriteString(`]}`)
	return b.String(), tr.batch
}

// run posts until the time is over and returns how long each post took, how many transactions were
// acknowledged, and how long that took. length 0 posts once to each queue.
func (tr *traffic) run(ctx context.Context) (all *histogram, n int, took time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var posted atomic.Int64
	all = &histogram{}
	wires := make([]*wire, tr.connections)
	for i := range wires {
		if wires[i], err = dial(tr.url, tr.path); err != nil {
			return nil, 0, 0, err
		}
		defer wires[i].conn.Close()
	}
	stop := context.AfterFunc(ctx, func() {
		for _, w := range wires {
			w.conn.Close()
		}
	})
	defer stop()
	start := time.Now()
	for c := range tr.connections {
		wg.Go(func() {
			h := &histogram{}
			defer func() {
				mu.Lock()
				all.merge(h)
				mu.Unlock()
			}()
			for q := c; ; q += tr.connections {
				if q >= len(tr.counts) {
					if q = c; tr.length == 0 {
						return
					}
				}
				if tr.length > 0 && time.Since(start) >= tr.length {
					return
				}
				body, n := tr.body(q)
				began := time.Now()
				if err := wires[c].post(body); err != nil {
					cancel(err)
					return
				}
				h.add(time.Since(began))
				tr.counts[q] += n
				posted.Add(int64(n))
			}
		})
	}
	wg.Wait()
	return all, int(posted.Load()), time.Since(start), context.Cause(ctx)
}

// sum is how many transactions were acknowledged in all.
func (tr *traffic) sum() (n int) {
	for _, c := range tr.counts {
		n += c
	}
	return n
}

// ingestHTTP measures POST /transactions, alternating with two handlers that it is compared with: one that
// inserts each request by itself, and our own without the commit.
func ingestHTTP(connections int) Scenario {
	name := fmt.Sprintf("ingest-http-%d", connections)
	if connections == 64 {
		name = "ingest-http"
	}
	return Scenario{name,
		fmt.Sprintf("POST over %d connections, beside one INSERT per request and our handler without its commit",
			connections),
		func(ctx context.Context, b *Bench) ([]*Result, error) {
			trials := map[string][]*trial{}
			roles := []string{RoleServe, RolePlain, RoleNoCommit}
			for i := range b.Runs {
				for j := range roles {
					role := roles[(i+j)%len(roles)]
					t, err := b.ingest(ctx, role, &traffic{path: "/transactions",
						connections: connections, length: b.Length})
					if err != nil {
						return nil, fmt.Errorf("run %d of %d of %s: %w", i+1, b.Runs, role, err)
					}
					b.told(name+" ("+role+")", i, t)
					trials[role] = append(trials[role], t)
				}
			}
			var all []*Result
			systems := []string{"postern", "plain-insert", "postern-without-commit"}
			for i, role := range roles {
				r := b.summary(name, systems[i], trials[role])
				r.timed(trials[role], "post")
				r.Settings["connections"] = connections
				if role == RoleServe {
					p99 := func(t *trial) float64 { return t.times["post"].quantile(0.99).Seconds() }
					r.compare("to_plain_insert", trials[RoleServe], trials[RolePlain], (*trial).rate)
					r.compare("to_no_commit", trials[RoleServe], trials[RoleNoCommit], (*trial).rate)
					r.compare("p99_to_plain_insert", trials[RoleServe], trials[RolePlain], p99)
				}
				all = append(all, r)
			}
			return all, nil
		}}
}

// ingestBatch measures POST /transactions:batch.
func ingestBatch(ctx context.Context, b *Bench) ([]*Result, error) {
	var trials []*trial
	for i := range b.Runs {
		t, err := b.ingest(ctx, RoleServe, &traffic{path: "/transactions:batch", connections: 4,
			batch: b.Batch, length: b.Length})
		if err != nil {
			return nil, fmt.Errorf("run %d of %d: %w", i+1, b.Runs, err)
		}
		b.told("ingest-batch", i, t)
		trials = append(trials, t)
	}
	r := b.summary("ingest-batch", "postern", trials)
	r.timed(trials, "post")
	r.Settings["connections"], r.Settings["batch"] = 4, b.Batch
	return []*Result{r}, nil
}

// ingest is one run of traffic to a process of some role.
func (b *Bench) ingest(ctx context.Context, role string, tr *traffic) (*trial, error) {
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	if err := b.makePlain(ctx); err != nil {
		return nil, err
	}
	if err := b.calm(ctx); err != nil {
		return nil, err
	}
	p, err := b.serving(ctx, role)
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	tr.url, tr.prefix, tr.counts = p.URL, b.name(), make([]int, max(b.Queues, tr.connections))
	first := *tr
	first.length, first.batch = 0, 0 // make the queues
	if first.path = "/transactions"; role == RoleServe || role == RolePlain {
		if _, _, _, err := first.run(ctx); err != nil {
			return nil, err
		}
	}
	m, err := b.meter(ctx, map[string]*Process{role: p})
	if err != nil {
		return nil, err
	}
	h, n, took, err := tr.run(ctx)
	if err != nil {
		return nil, err
	}
	t := &trial{n: n, took: took, times: map[string]*histogram{"post": h}}
	if t.cost, err = m.stop(ctx); err != nil {
		return nil, err
	}
	switch role {
	case RoleServe:
		s, err := b.spanOf(ctx, tr.prefix)
		if err != nil {
			return nil, err
		}
		t.wrong, t.bad, err = b.check(ctx, s, want{stored: tr.sum(), queues: len(tr.counts), ended: 0})
		return t, err
	case RolePlain:
		t.wrong, t.bad, err = b.checkPlain(ctx, tr)
		return t, err
	}
	return t, nil
}
