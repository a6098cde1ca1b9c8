package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// Events are those of the scenario leader: one tool that does nothing, and eight channels.
const (
	leaderCaps = 8
	leaderTool = "xyz.bench.noop@1"
)

// events measures how fast events that lie there are taken, their tool called, and their workflow told, from the first
// to the last that ends. A call is one over HTTP; what tells the workflow is the built-in worker.
func events(ctx context.Context, b *Bench) ([]*Result, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	tool := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"ok":{}}`)
	})}
	go tool.Serve(l)
	defer tool.Close()
	by := pg.By{Context: b.store.Context("default").ID, Actor: "bench"}
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL, d.Pool = leader.TypeResult, "noop:", leader.PoolOfResults
	if _, err := b.store.PutDispatcher(ctx, by, d, 0); err != nil {
		return nil, err
	}
	for i := range leaderCaps {
		if _, err := b.store.PutSender(ctx, by, pg.Sender{Account: fmt.Sprintf("bench-cap-%d", i+1), Pool: leader.PoolOfResults}, 0); err != nil {
			return nil, err
		}
	}
	def, err := leader.Meta{FQN: leaderTool, URL: "http://" + l.Addr().String(), InputSchema: json.RawMessage(`{"type": "object"}`),
		OutputSchema: json.RawMessage(`{"oneOf": [{"type": "object", "required": ["ok"]}]}`)}.Definition()
	if err != nil {
		return nil, err
	}
	if _, err := b.store.PutTool(ctx, by, def, pg.ToolSettings{TTL: time.Hour}, 0); err != nil {
		return nil, err
	}
	var trials []*trial
	for i := range b.Runs {
		t, err := b.eventRun(ctx, by)
		if err != nil {
			return nil, err
		}
		b.told("leader", i, t)
		trials = append(trials, t)
	}
	r := b.summary("leader", "postern", trials)
	r.Settings["events"], r.Settings["channels"] = b.Events, leaderCaps
	return []*Result{r}, nil
}

func (b *Bench) eventRun(ctx context.Context, by pg.By) (_ *trial, err error) {
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	v := leader.Source{Name: b.name(), Kind: "push", Map: leader.SourceMap{FQN: "/tool"}, Buffer: 1000, MaxRetries: leader.DefaultMaxRetries}
	if _, err := b.store.PutSource(ctx, by, v.WithDefaults(), 0); err != nil {
		return nil, err
	}
	for done := 0; done < b.Events; {
		var list []leader.Item
		for range min(1000, b.Events-done) {
			list = append(list, leader.Item{Identity: fmt.Sprint(done), JSON: json.RawMessage(fmt.Sprintf(`{"tool":%q,"n":%d}`, leaderTool, done)), FQN: leaderTool})
			done++
		}
		if _, err := b.store.PushEvents(ctx, by, v.Name, list, nil); err != nil {
			return nil, err
		}
	}
	if _, err := b.pool.Exec(ctx, `VACUUM (ANALYZE) postern.event, postern.event_move, postern.message, postern.message_end`); err != nil {
		return nil, err
	}
	if err := b.calm(ctx); err != nil {
		return nil, err
	}
	p, err := b.launch(ctx, RoleWork)
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	m, err := b.meter(ctx, map[string]*Process{RoleWork: p})
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := p.Go(); err != nil {
		return nil, err
	}
	t := &trial{n: b.Events}
	moved, before, said := start, -1, start
	for left := t.n; left > 0; {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d events have not ended: %w", left, t.n, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
		if err := b.pool.QueryRow(ctx, `SELECT count(*) FROM postern.event WHERE status IN ('Queued', 'Active')`).Scan(&left); err != nil {
			return nil, err
		}
		switch now := time.Now(); {
		case left != before:
			before, moved = left, now
		case now.Sub(moved) > stuck:
			return nil, fmt.Errorf("%d of %d events have not ended, and no other has for %s", left, t.n, stuck)
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			b.Progress(fmt.Sprintf("%s of %s events ended, %.0f a second", count(t.n-left), count(t.n), float64(t.n-left)/time.Since(start).Seconds()))
		}
	}
	t.took = time.Since(start)
	if t.cost, err = m.stop(ctx); err != nil {
		return nil, err
	}
	var good, once, told int
	err = b.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM postern.event e JOIN postern.source s USING (source_id) WHERE s.name = $1 AND e.status = 'Successful' AND e.retried = 0),
		(SELECT count(*) FROM postern.event_move m JOIN postern.event e USING (event_id) JOIN postern.source s USING (source_id) WHERE s.name = $1 AND m.status = 'Successful'),
		(SELECT count(*) FROM postern.event e JOIN postern.source s USING (source_id) JOIN postern.outcome o ON (o.queue_id, o.seq, o.day) = (e.result_queue, e.result_seq, e.result_day)
			WHERE s.name = $1 AND o.state = 'DONE')`, v.Name).Scan(&good, &once, &told)
	for _, c := range []struct {
		bad  int
		text string
	}{{t.n - good, "%d events did not end well at their first try"}, {t.n - once, "%d events did not end once"}, {t.n - told, "%d results are missing"}} {
		if c.bad != 0 {
			t.wrong, t.bad = append(t.wrong, fmt.Sprintf(c.text, c.bad)), t.bad+max(c.bad, -c.bad)
		}
	}
	return t, err
}
