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
	"github.com/postern-dev/postern/internal/pg/db"
	pgevents "github.com/postern-dev/postern/internal/pg/events"
)

// Events are those of the scenario leader: one tool that does nothing, and eight channels.
const (
	leaderCaps = 8
	leaderTool = "xyz.bench.noop@1"
)

// events measures how fast events that lie there are taken, their tool called, and their workflow told, from the first
// to the last that ends. A call is one over HTTP; the built-in worker tells the workflow.
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
	by := db.By{Context: b.store.Context("default").ID, Actor: "bench"}
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
	if _, err := b.store.Events.PutTool(ctx, by, def, pgevents.ToolSettings{TTL: time.Hour}, 0); err != nil {
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

func (b *Bench) eventRun(ctx context.Context, by db.By) (_ *trial, err error) {
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	v := leader.Source{Name: b.name(), Kind: "push", Map: leader.SourceMap{FQN: "/tool"}, Buffer: 1000, MaxRetries: leader.DefaultMaxRetries}
	if _, err := b.store.Events.PutSource(ctx, by, v.WithDefaults(), 0); err != nil {
		return nil, err
	}
	for done := 0; done < b.Events; {
		var list []leader.Item
		for range min(1000, b.Events-done) {
			list = append(list, leader.Item{Identity: fmt.Sprint(done), JSON: json.RawMessage(fmt.Sprintf(`{"tool":%q,"n":%d}`, leaderTool, done)), FQN: leaderTool})
			done++
		}
		if _, err := b.store.Events.PushEvents(ctx, by, v.Name, list, nil); err != nil {
			return nil, err
		}
	}
	t, err := b.untilEnded(ctx, b.Events, "events", `postern.event, postern.event_move, postern.channel_message, postern.channel_message_end`, `SELECT count(*) FROM postern.event WHERE status IN ('Queued', 'Active')`)
	if err != nil {
		return nil, err
	}
	var good, once, told int
	err = b.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM postern.event e JOIN postern.source s USING (source_id) WHERE s.name = $1 AND e.status = 'Successful' AND e.retried = 0),
		(SELECT count(*) FROM postern.event_move m JOIN postern.event e USING (event_id) JOIN postern.source s USING (source_id) WHERE s.name = $1 AND m.status = 'Successful'),
		(SELECT count(*) FROM postern.event e JOIN postern.source s USING (source_id) JOIN postern.outcome o ON (o.queue_id, o.seq, o.day) = (e.result_queue, e.result_seq, e.result_day)
			WHERE s.name = $1 AND o.state = 'DONE')`, v.Name).Scan(&good, &once, &told)
	t.judge(amiss{t.n - good, "%d events did not end well at their first try"}, amiss{t.n - once, "%d events did not end once"}, amiss{t.n - told, "%d results are missing"})
	return t, err
}
