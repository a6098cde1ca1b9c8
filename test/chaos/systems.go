package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// The load systems: batches for processors, and events for tools whose results go to a workflow, in two contexts that
// use the same names and the same keys.

// contexts are where batches and events are posted.
var contexts = []string{"default", "two"}

// systems is what there is besides the processes where batches and events are posted.
type systems struct {
	mu      sync.Mutex
	batches []*thing
	events  []*thing
}

// thing is a batch or an event as it was posted.
type thing struct {
	context string
	name    string // the same in all contexts
	atomic  bool
	fails   int // the message that its worker rejects, -1: none
	length  int // messages
	id      string
	tries   int
	unknown int
	bad     string
}

// batch is what is posted of a batch. What fails is tried again, without limit unless it is to be rejected.
func (t *thing) batch() []byte {
	retried := func(fails bool) any {
		times := map[bool]any{false: "indefinitely", true: map[string]int{"amount": 1}}[fails]
		return map[string]any{"times": times, "interval": map[string]int{"seconds": 1}}
	}
	var functions, messages []any
	for i := range t.length {
		function := map[string]any{"domain": "main", "contract_address": "ADD",
			"message_details": map[string]any{"message": map[string]any{"name": "act"}}}
		if !t.atomic {
			function["retry_logic"] = retried(i == t.fails)
		}
		functions = append(functions, function)
		messages = append(messages, map[string]any{"msg": map[string]any{"act": act{t.context + "/" + t.name, i,
			i == t.fails}}})
	}
	how := map[bool]string{true: "atomic", false: "non_atomic"}[t.atomic]
	all := map[string]any{"functions": functions}
	if t.atomic {
		all["retry_logic"] = retried(t.fails >= 0)
	}
	b, _ := json.Marshal(map[string]any{"msgs": messages, "actions_config": map[string]any{how: all}})
	return b
}

// event is what is posted of an event.
func (t *thing) event() []byte {
	b, _ := json.Marshal(map[string]any{"source": "app", "events": []any{map[string]any{
		"identity": map[string]any{"digest": t.name},
		"json":     map[string]any{"tool": toolName, "input": map[string]any{"of": t.context + "/" + t.name}}}}})
	return b
}

// act is one message of a batch, as its worker reads it.
type act struct {
	Of    string `json:"of"`
	I     int    `json:"i"`
	Fails bool   `json:"fails"`
}

// actsOf reads what a call wants: the messages of a batch, or the event whose result it tells. fails: one of them is
// to be rejected.
func actsOf(data json.RawMessage) (names []string, fails bool) {
	type message struct{ Act *act }
	var list []message
	if json.Unmarshal(data, &list) != nil {
		var one message
		json.Unmarshal(data, &one)
		list = []message{one}
	}
	for _, m := range list {
		if m.Act != nil {
			names = append(names, fmt.Sprintf("%s.%d", m.Act.Of, m.Act.I))
			fails = fails || m.Act.Fails
		}
	}
	var told struct {
		Event, Outcome string
		Output         struct{ Ok struct{ Of string } }
	}
	if json.Unmarshal(data, &told) == nil && told.Event != "" && told.Output.Ok.Of != "" {
		names = append(names, "result of "+told.Output.Ok.Of)
	}
	return names, fails
}

// tells says whether a call tells the result of an event. One that fails blocks its channel for a day, and does not.
func (c call) tells() bool { return len(c.Acts) == 1 && strings.HasPrefix(c.Acts[0], "result of ") }

const toolName = "xyz.postern.chaos.echo@1"

// tool serves a tool that answers what it is given.
func (w *worker) tool(mux *http.ServeMux) {
	one := func(property, of string) string {
		return fmt.Sprintf(`{"type": "object", "properties": {%q: %s}, "required": [%q], "additionalProperties": false}`,
			property, of, property)
	}
	const schema = `"$schema": "https://json-schema.org/draft/2020-12/schema", `
	input := one("of", `{"type": "string"}`)
	meta := fmt.Sprintf(`{"fqn": %q, "type": "offchain", "url": %q, "description": "Answers what it is given.",
		"input_schema": {%s, "output_schema": {%s"oneOf": [%s]}}`, toolName, w.url()+"/tool", schema+input[1:], schema,
		one("ok", input))
	mux.HandleFunc("GET /tool/meta", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		fmt.Fprint(out, meta)
	})
	mux.HandleFunc("GET /tool/health", func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(200) })
	mux.HandleFunc("POST /tool/invoke", w.invoke)
}

// invoke is a call of the tool. A token is executed once; one that lies does nothing.
func (w *worker) invoke(out http.ResponseWriter, r *http.Request) {
	mode := w.behaves()
	if w.instead(mode, out, r) {
		return
	}
	var body struct{ Of string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(out, err.Error(), 400)
		return
	}
	c := call{At: time.Now(), Token: "tool:" + r.Header.Get("Idempotency-Key"), Did: "nothing", Mode: mode,
		Acts: []string{"call of " + body.Of}}
	switch mode {
	case "slow":
		time.Sleep(time.Second)
	case "hang":
		time.Sleep(7 * time.Second)
	}
	w.mu.Lock()
	answer := fmt.Sprintf(`{"ok": {"of": %q}}`, body.Of)
	switch _, known := w.did[c.Token]; {
	case known:
		c.Did = "again"
	case mode == "lie":
		answer = lies[roll(c.Token, uint32(len(lies)))]
	default:
		c.Did, w.did[c.Token] = "done", "done"
	}
	c.Done = time.Now()
	w.log(c)
	w.mu.Unlock()
	w.sync()
	out.Header().Set("Content-Type", "application/json")
	fmt.Fprint(out, answer)
}

// startSystems makes the contexts, and in each the types, a processor, a tool, channels and a source.
func (w *world) startSystems(ctx context.Context) error {
	w.systems = &systems{}
	if _, err := w.client.ask(ctx, "PUT", "/contexts/two", `{}`); err != nil {
		return err
	}
	settings := `"worker_url":"` + w.toWorker() + `","timeouts":{"dispatch":"5s"},` +
		`"retry":{"initial":"200ms","max_retries":50},"inclusion":{"poll_every":"200ms"}`
	for _, name := range contexts {
		for _, one := range [][2]string{
			{"/dispatchers/ADD", `{"capabilities":["atomic"],` + settings + `}`},
			{"/processors/main", `{"tick_interval":"100ms"}`},
			{"/dispatchers/leader.result", "{" + settings + "}"},
			{"/channels/cap-1", `{"kind":"cap","cap":"0xa1","gas_coin":"0xb1"}`},
			{"/channels/cap-2", `{"kind":"cap","cap":"0xa2","gas_coin":"0xb2"}`},
			{"/tools/" + toolName, `{"url":"` + w.toWorker() + `/tool","timeout":"5s"}`},
			{"/sources/app", `{"kind":"push","map":{"fqn":"/tool","input":"/input"},"max_retries":50}`},
		} {
			if _, err := w.client.askIn(ctx, name, "PUT", one[0], one[1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// run posts a batch and an event to each context, rate times a second, until ctx ends, and waits for the last answers
// until life ends.
func (s *systems) run(ctx, life context.Context, c *client, rate int) {
	var all sync.WaitGroup
	atRate(ctx, rate, func(n int) {
		for _, in := range contexts {
			name := fmt.Sprintf("b%05d", n)
			b := &thing{context: in, name: name, length: 1 + roll(name, 4), fails: -1, atomic: n%3 == 0}
			if n%5 == 0 {
				b.fails = roll(name+in, uint32(b.length))
			}
			e := &thing{context: in, name: fmt.Sprintf("e%05d", n)}
			s.mu.Lock()
			s.batches, s.events = append(s.batches, b), append(s.events, e)
			s.mu.Unlock()
			all.Go(func() { s.post(life, c, b, "/processors/main/batches", b.batch(), n) })
			all.Go(func() { s.post(life, c, e, "/events", e.event(), n) })
		}
	})
	all.Wait()
}

// post repeats a post until it is acknowledged, or refused for good.
func (s *systems) post(ctx context.Context, c *client, t *thing, path string, body []byte, n int) {
	for try := 0; ctx.Err() == nil; try++ {
		r, err := http.NewRequestWithContext(ctx, "POST", c.apis[(n+try)%len(c.apis)]+path, bytes.NewReader(body))
		if err != nil {
			return
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Postern-Context", t.context)
		if path != "/events" { // an event is known by its identity
			r.Header.Set("Idempotency-Key", t.name)
		}
		status, answer := c.do(r)
		var said struct {
			ID    json.Number
			Code  string
			Items []struct{ ID string }
		}
		json.Unmarshal(answer, &said)
		id := said.ID.String()
		if len(said.Items) == 1 {
			id = said.Items[0].ID
		}
		s.mu.Lock()
		t.tries++
		switch {
		case status == 200 || status == 201:
			t.id = id
		case status == 0 || said.Code == "commit_unknown":
			t.unknown++
		case !retryable(answer):
			t.bad = fmt.Sprintf("%d %.300s", status, answer)
		}
		over := t.id != "" || t.bad != ""
		s.mu.Unlock()
		if over {
			return
		}
		wait(ctx, min(time.Duration(50<<min(try, 5))*time.Millisecond, time.Second))
	}
}

// openSystemsSQL lists what is open of batches and events.
const openSystemsSQL = `SELECT format('batch %s is %s', batch_id, state) AS what FROM postern.batch WHERE state <> 'Done'
	UNION ALL SELECT format('event %s is %s', identity, status) FROM postern.event
		WHERE status NOT IN ('Successful', 'Dead')`

// judgeSystems reads what the worker and the rows say, and compares.
func (w *world) judgeSystems(ctx context.Context, c *pgx.Conn, out *result, say found) (err error) {
	s := w.systems
	e := &systemsEvidence{batches: s.batches, events: s.events}
	if e.calls, err = w.worker.logged(); err != nil {
		return err
	}
	if e.rows, err = readThings(ctx, c); err != nil {
		return err
	}
	n := e.check(say)
	for _, t := range slices.Concat(s.batches, s.events) {
		out.Unknown += t.unknown
	}
	out.Systems = &n
	rows, err := c.Query(ctx, openSystemsSQL+` LIMIT 50`)
	if err != nil {
		return err
	}
	if out.Stalled, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return err
	}
	out.Stalled = append(out.Stalled, rowsOpen(ctx, c)...)
	return nil
}

// readThings reads what the database says of batches and events.
func readThings(ctx context.Context, c *pgx.Conn) ([]thingRow, error) {
	rows, err := c.Query(ctx, `SELECT 'batch', c.name, b.request_key, b.batch_id::text, b.state, b.result, b.result_n,
			b.messages::text, coalesce(b.result_reason, '')
		FROM postern.batch b JOIN postern.context c USING (context_id)
		UNION ALL SELECT 'event', c.name, split_part(e.identity, ':', 1), e.event_id::text, e.status, e.outcome, 0,
			e.json::text, e.error
		FROM postern.event e JOIN postern.context c USING (context_id)`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r thingRow, err error) {
		var result *string
		err = row.Scan(&r.kind, &r.context, &r.name, &r.id, &r.state, &result, &r.n, &r.content, &r.reason)
		if result != nil {
			r.result = *result
		}
		return r, err
	})
}

// belongs says whether what was posted to one context is in it: the content names it.
func (r thingRow) belongs() bool { return strings.Contains(r.content, `"`+r.context+"/"+r.name+`"`) }
