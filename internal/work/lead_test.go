package work_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// aTool is a tool over HTTP that answers as told, and knows how often it was called with what.
type aTool struct {
	*httptest.Server
	mu     sync.Mutex
	calls  map[string]int // by input
	tokens map[string]string
	answer func(input string, n int) (status int, body string)
}

const (
	anything = `{"type": "object"}`
	okOrErr  = `{"oneOf": [{"type": "object", "required": ["ok"], "properties": {"ok": {"type": "object", "required": ["sum"]}}, "additionalProperties": false},
		{"type": "object", "required": ["err_range"], "properties": {"err_range": {"type": "object"}}, "additionalProperties": false}]}`
)

func (h *house) tool(fqn string, answer func(input string, n int) (int, string)) *aTool {
	h.t.Helper()
	l := &aTool{calls: map[string]int{}, tokens: map[string]string{}, answer: answer}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/invoke" {
			return
		}
		body, _ := io.ReadAll(r.Body)
		l.mu.Lock()
		l.calls[string(body)]++
		n := l.calls[string(body)]
		l.tokens[r.Header.Get("Idempotency-Key")] = string(body)
		l.mu.Unlock()
		status, text := l.answer(string(body), n)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}))
	h.t.Cleanup(l.Close)
	d, err := leader.Meta{FQN: fqn, URL: l.URL, InputSchema: json.RawMessage(anything), OutputSchema: json.RawMessage(okOrErr)}.Definition()
	h.must(err)
	_, err = h.s.Events.PutTool(h.ctx, h.by, d, events.ToolSettings{TTL: time.Minute}, 0)
	h.must(err)
	return l
}

// workflow makes the dispatcher of results, over so many channels.
func (h *house) workflow(channels int, change func(*outbox.Dispatcher)) {
	h.t.Helper()
	h.dispatcher(leader.TypeResult, func(d *outbox.Dispatcher) {
		d.Pool = leader.PoolOfResults
		if change != nil {
			change(d)
		}
	})
	for i := range channels {
		h.sender(leader.PoolOfResults, fmt.Sprintf("cap-%d", i+1))
	}
}

func withTools(h *house) func(*parts) {
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	h.t.Cleanup(client.Close)
	return func(c *parts) { c.Fetch, c.Tools = client.Fetch, client }
}

// ends waits until every event has ended, and returns them by their identity.
func (h *house) ends(n int) map[string]*events.Event {
	h.t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		list, err := h.s.Events.Events(h.ctx, h.by.Context, events.EventFilter{Limit: 100_000})
		h.must(err)
		byID, open := map[string]*events.Event{}, n-len(list)
		for _, e := range list {
			byID[e.Identity] = e
			if e.Status == leader.EventQueued || e.Status == leader.EventActive {
				open++
			}
		}
		if open == 0 {
			return byID
		}
		if time.Now().After(until) {
			h.t.Fatalf("%d of %d events have not ended: %+v", open, n, list[0])
		}
	}
}

// S1.5, S1.11: what tools answer, and what comes of the events that called them.
func TestEventsCallTheirToolsAndWorkflowsHearOfIt(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.workflow(2, nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done("ok"))
	h.tool("xyz.labs.add@1", func(input string, n int) (int, string) {
		var in struct {
			ID int `json:"id"`
		}
		_ = json.Unmarshal([]byte(input), &in)
		switch in.ID {
		case 1:
			return 200, `{"err_range": {"why": "too large"}}`
		case 2:
			return 200, `{"ok": {"total": 3}}`
		case 3:
			if n == 1 {
				return 503, ``
			}
		case 4:
			return 400, `{"error": "bad", "details": "no such thing"}`
		case 5:
			return 500, ``
		}
		return 200, fmt.Sprintf(`{"ok": {"sum": %d}}`, in.ID)
	})
	log := newEventLog(t)
	log.n.Store(7)
	v := sources(log)[0]
	v.MaxRetries = 1
	h.source(v)
	h.engine("n", withTools(h))
	got := h.ends(7)
	for id, want := range map[string]string{
		"0": "Successful 0 successful  ", "1": "Successful 0 successful  ",
		"2": "Dead 0 failed schema_mismatch Output data does not match the output schema",
		"3": "Successful 1 successful  ", "4": "Dead 0 failed http_400 ", "5": "Dead 1 failed retries_exhausted retries exhausted: ", "6": "Successful 0 successful  ",
	} {
		e := got[id]
		if have := fmt.Sprintf("%s %d %s %s %s", e.Status, e.Retried, e.Outcome, e.Code, e.Error); len(have) < len(want) || have[:len(want)] != want {
			t.Errorf("event %s: %q, want %q", id, have, want)
		}
	}
	var bodies []string
	rows, err := h.s.Pool().Query(h.ctx, `SELECT t.data::text FROM postern.task t WHERE type = 'leader.result'`)
	h.must(err)
	for rows.Next() {
		var b string
		h.must(rows.Scan(&b))
		bodies = append(bodies, b)
	}
	if len(bodies) != 7 {
		t.Errorf("the workflow was told %d things: %v", len(bodies), bodies)
	}
}
