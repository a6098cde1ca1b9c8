package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// schedule is an open loop: the i-th transaction is meant to go out i/rate seconds after the beginning, whether the
// ones before it were answered or not, and every duration is counted from then. So a stall is seen by all
// that were to go out while it lasted. A queue belongs to one connection, which keeps its order.
type schedule struct {
	url, prefix string
	rate        float64
	n           int
	connections int
	queues      int                         // a multiple of connections times batch
	batch       int                         // transactions a post, to as many queues; 0 or 1: no batch
	local       bool                        // they are not called anywhere: the worker is the one that does nothing
	visible     int                         // one post in so many is watched until its first transaction is DONE; 0: none
	before      func(context.Context) error // what the tables hold
	beside      func(context.Context) error // what happens meanwhile; posts go on until it is over, and n is how many there were
	gaps        map[string]string           // name in the result -> name in times: for how long nothing came between two of those

	mu     sync.Mutex
	start  time.Time
	times  map[string]*histogram
	at     map[string][]time.Time // when, of each of times
	called map[int]time.Time
}

func (o *schedule) meant(i int) time.Time {
	return o.start.Add(time.Duration(float64(i) / o.rate * float64(time.Second)))
}

func (o *schedule) add(name string, i int, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.times[name] == nil {
		o.times[name] = &histogram{}
	}
	o.times[name].add(at.Sub(o.meant(i)))
	o.at[name] = append(o.at[name], at)
}

// between are the times for which nothing of a name happened, from the beginning to the last time that it did. In the
// longest of them all transactions stood still; a long wait of one transaction may concern it alone. between is nil
// where nothing has happened.
func (o *schedule) between(name string) *histogram {
	at := o.at[name]
	if len(at) == 0 {
		return nil
	}
	slices.SortFunc(at, time.Time.Compare)
	h, last := &histogram{}, o.start
	for _, t := range at {
		h.add(t.Sub(last))
		last = t
	}
	return h
}

// wasCalled is told by the worker. Only the first call of a transaction counts, and none of those that
// come before the first.
func (o *schedule) wasCalled(i int, at time.Time) {
	if i < 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, again := o.called[i]; !again {
		o.called[i] = at
	}
}

// run posts as planned, and returns when the last one is answered, and those that visible asks for are seen to be DONE.
func (o *schedule) run(ctx context.Context) error {
	o.times, o.at, o.called = map[string]*histogram{}, map[string][]time.Time{}, map[int]time.Time{}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	batch, path := 1, "/transactions"
	if o.batch > 1 {
		batch, path = o.batch, "/transactions:batch"
	}
	wires, closeAll, err := dialAll(o.connections, o.url, path)
	if err != nil {
		return err
	}
	defer closeAll()
	defer context.AfterFunc(ctx, closeAll)()
	o.start = time.Now().Add(10 * time.Millisecond)
	var under atomic.Bool // way, as long as there is something beside
	var posted atomic.Int64
	if o.beside != nil {
		under.Store(true)
		wg.Go(func() {
			defer under.Store(false)
			if err := o.beside(ctx); err != nil {
				cancel(err)
			}
		})
	}
	for c, w := range wires {
		wg.Go(func() {
			for i := c * batch; (i < o.n || under.Load()) && ctx.Err() == nil; i += o.connections * batch {
				id, err := o.post(ctx, w, i)
				if err != nil {
					cancel(err)
					return
				}
				posted.Add(int64(batch))
				if id == "" {
					continue
				}
				wg.Go(func() {
					if err := o.see(ctx, id); err != nil {
						cancel(err)
						return
					}
					o.add("post_to_visible", i, time.Now())
				})
			}
		})
	}
	wg.Wait()
	o.n = int(posted.Load())
	return context.Cause(ctx)
}

// dialAll opens so many connections, and returns how to close them.
func dialAll(n int, url, path string) (wires []*wire, closeAll func(), err error) {
	closeAll = func() {
		for _, w := range wires {
			w.conn.Close()
		}
	}
	for range n {
		w, err := dial(url, path)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		wires = append(wires, w)
	}
	return wires, closeAll, nil
}

// post sends the post that begins with the i-th transaction, when it is meant to go out. It returns the id of its first
// transaction if that one is to be watched, else "".
func (o *schedule) post(ctx context.Context, w *wire, i int) (id string, err error) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(o.meant(i))):
	}
	if err := w.post(o.body(i)); err != nil {
		return "", err
	}
	o.add("post", i, time.Now())
	if o.visible == 0 || i/max(o.batch, 1)%o.visible != 0 {
		return "", nil
	}
	return firstID(w.body.Bytes())
}

// body is the post that begins with the i-th transaction.
func (o *schedule) body(i int) string {
	one := func(i int) string { return body1(fmt.Sprintf("%s-%d", o.prefix, i%o.queues), i) }
	if o.batch <= 1 {
		return one(i)
	}
	var items []string
	for k := range o.batch {
		items = append(items, one(i+k))
	}
	return `{"items": [` + strings.Join(items, ", ") + `]}`
}

// firstID is the first transaction in the answer to a post.
func firstID(body []byte) (string, error) {
	var t struct {
		ID    string
		Items []struct{ Transaction struct{ ID string } }
	}
	err := json.Unmarshal(body, &t)
	if len(t.Items) > 0 {
		t.ID = t.Items[0].Transaction.ID
	}
	if err == nil && t.ID == "" {
		err = fmt.Errorf("a post is answered without an id: %.300s", body)
	}
	return t.ID, err
}

// watching keeps its connections: many clients watch at a time.
var watching = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}

// see waits until a client that asks is told that a transaction is DONE.
func (o *schedule) see(ctx context.Context, id string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url+"/transactions/"+id+"?wait=30s", nil)
	if err != nil {
		return err
	}
	res, err := watching.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	var t struct{ State string }
	if err != nil || json.Unmarshal(body, &t) != nil || t.State != "DONE" {
		return fmt.Errorf("transaction %s is not DONE after 30 s: %.300s %w", id, body, err)
	}
	return nil
}

// latency runs a schedule against an API and a sequencer, apart or in one process, with a worker that is
// this process unless it is local, and checks what it left.
func (b *Bench) latency(ctx context.Context, o *schedule, roles ...string) (t *trial, err error) {
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	if o.before != nil {
		if err := o.before(ctx); err != nil {
			return nil, err
		}
	}
	if err := b.calm(ctx); err != nil {
		return nil, err
	}
	worker := &Nothing{Called: o.wasCalled}
	url, stop, err := serveNothing(worker)
	if err != nil {
		return nil, err
	}
	defer stop()
	called := func(f func() error) error { return b.called(ctx, url, 0, f) }
	if o.local {
		called = func(f func() error) error { return f() }
	}
	err = called(func() error {
		parts := map[string]*Process{}
		defer func() {
			for _, p := range parts {
				p.Stop()
			}
		}()
		if err := b.launchAll(ctx, o, parts, roles); err != nil {
			return err
		}
		s, err := b.warm(ctx, o)
		if err != nil {
			return err
		}
		m, err := b.meter(ctx, parts)
		if err != nil {
			return err
		}
		if err := o.run(ctx); err != nil {
			return err
		}
		if _, _, err := b.await(ctx, s, o.n+o.queues); err != nil {
			return err
		}
		t = &trial{n: o.n, took: time.Since(o.start), times: o.times}
		if t.cost, err = m.stop(ctx); err != nil {
			return err
		}
		return b.account(ctx, o, s, t, worker)
	})
	return t, err
}

// launchAll starts a process for each role, and waits until the API answers.
func (b *Bench) launchAll(ctx context.Context, o *schedule, parts map[string]*Process, roles []string) error {
	for _, role := range roles {
		p, err := b.launch(ctx, role)
		if err != nil {
			return err
		}
		parts[role] = p
		if err := p.Go(); err != nil {
			return err
		}
		if p.URL != "" {
			o.url = p.URL
			if err := ready(ctx, p.URL); err != nil {
				return err
			}
		}
	}
	return nil
}

// warm makes the queues of a schedule: one transaction goes through each, before any that count.
func (b *Bench) warm(ctx context.Context, o *schedule) (span, error) {
	o.prefix = b.name()
	warm := &traffic{
		url:         o.url,
		path:        "/transactions",
		prefix:      o.prefix,
		connections: o.connections,
		counts:      make([]int, o.queues),
	}
	for q := range warm.counts {
		warm.counts[q] = -1
	}
	if _, _, _, err := warm.run(ctx); err != nil {
		return span{}, err
	}
	s, err := b.spanOf(ctx, o.prefix)
	if err != nil {
		return s, err
	}
	_, _, err = b.await(ctx, s, o.queues)
	return s, err
}

// account adds the times that the worker and the tables know, and checks what the schedule left.
func (b *Bench) account(ctx context.Context, o *schedule, s span, t *trial, worker *Nothing) (err error) {
	for i, at := range o.called {
		o.add("post_to_call", i, at)
	}
	if err := b.recorded(ctx, s, o); err != nil {
		return err
	}
	for name, of := range o.gaps {
		t.times[name] = o.between(of)
	}
	if t.wrong, t.bad, err = b.check(ctx, s, want{stored: o.n + o.queues, ended: o.n + o.queues, queues: o.queues, timed: b.local}); err != nil {
		return err
	}
	if !o.local {
		wrong, bad := worker.Seen().once(o.n + o.queues)
		t.wrong, t.bad = append(t.wrong, wrong...), t.bad+bad
	}
	return nil
}

// recorded adds how long it took until an outcome was decided; its commit is a moment later.
func (b *Bench) recorded(ctx context.Context, s span, o *schedule) error {
	rows, err := b.pool.Query(ctx, `SELECT (t.data->>'n')::int, o.done_at FROM postern.outcome o JOIN postern.task t USING (queue_id, seq, day)
		WHERE o.queue_id BETWEEN $1 AND $2 AND (t.data->>'n')::int >= 0`, s.first, s.last)
	if err != nil {
		return err
	}
	var i int
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&i, &at}, func() error { o.add("post_to_done", i, at); return nil })
	return err
}

// idle measures one post a second: what a single transaction waits for where nothing else is to be done,
// with API and sequencer in processes of their own, and in one, in turns.
func idle(ctx context.Context, b *Bench) (all []*Result, err error) {
	ways := []struct {
		name  string
		roles []string
	}{{"idle-latency", []string{RoleWork, RoleServe}}, {"idle-latency-one-process", []string{RoleBoth}}}
	trials := make([][]*trial, len(ways))
	for i := range b.Runs {
		for j, way := range ways {
			t, err := b.latency(ctx, &schedule{rate: b.Rate, n: b.Samples, connections: 1, queues: 10, visible: 1}, way.roles...)
			if err != nil {
				return nil, fmt.Errorf("run %d of %d: %w", i+1, b.Runs, err)
			}
			b.toldTimes(way.name, i, t)
			trials[j] = append(trials[j], t)
		}
	}
	for j, way := range ways {
		r := b.summary(way.name, "postern", trials[j])
		r.timed(trials[j], "post_to_call", "post", "post_to_visible", "post_to_done")
		r.Settings["posts_per_s"], r.Settings["posts"] = b.Rate, b.Samples
		all = append(all, r)
	}
	return all, nil
}

// loaded measures what a transaction waits for at a part of the rate that the same processes can carry,
// which is measured just before, in each run.
func loaded(ctx context.Context, b *Bench) (all []*Result, err error) {
	roles := []string{RoleWork, RoleServe}
	queues := max(b.Queues/b.Connections, 1) * b.Connections
	parts := []float64{0.5, 0.8}
	name := func(part float64) string { return fmt.Sprintf("loaded-latency-%.0f", 100*part) }
	trials := make([][]*trial, len(parts))
	var limits []*trial
	for i := range b.Runs {
		full := &schedule{rate: 1e6, n: b.Queues * b.Depth, connections: b.Connections, queues: queues} // as fast as it goes
		limit, err := b.latency(ctx, full, roles...)
		if err != nil {
			return nil, fmt.Errorf("the capacity, run %d of %d: %w", i+1, b.Runs, err)
		}
		b.told("loaded-latency (capacity)", i, limit)
		limits = append(limits, limit)
		for j, part := range parts {
			o := &schedule{rate: part * limit.rate(), connections: b.Connections, queues: queues}
			o.n = max(int(o.rate*b.Length.Seconds()), 1)
			t, err := b.latency(ctx, o, roles...)
			if err != nil {
				return nil, fmt.Errorf("%s, run %d of %d: %w", name(part), i+1, b.Runs, err)
			}
			b.toldTimes(name(part), i, t)
			trials[j] = append(trials[j], t)
		}
	}
	for j, part := range parts {
		r := b.summary(name(part), "postern", trials[j])
		r.timed(trials[j], "post_to_call", "post", "post_to_done")
		r.Settings["capacity"], r.Settings["connections"] = round(median(each(limits, (*trial).rate))), b.Connections
		r.compare("to_capacity", trials[j], limits, (*trial).rate)
		all = append(all, r)
	}
	return all, nil
}

// toldTimes says how a run went whose times are what counts.
func (b *Bench) toldTimes(name string, run int, t *trial) {
	h, until := t.times["post_to_call"], "call"
	if h == nil {
		h, until = t.times["post_to_visible"], "visible"
	}
	if t.bad > 0 || h == nil {
		b.told(name, run, t)
		return
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	text := fmt.Sprintf("%s: run %d of %d: POST to %s p50 %.2f ms, p99 %.2f ms, at most %.2f ms", name, run+1, b.Runs, until, ms(h.quantile(0.5)), ms(h.quantile(0.99)), ms(h.max))
	if gaps := t.times["between_ends"]; gaps != nil {
		text += fmt.Sprintf("; none ended for %.2f ms at most", ms(gaps.max))
	}
	b.Progress(text)
}
