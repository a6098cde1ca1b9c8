package work_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/remote"
)

// A tool's health and definition are known without anybody's asking, and a definition that is broken changes nothing.
func TestToolsAreProbedAndReadAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	now := time.Now().UTC().Truncate(time.Microsecond)
	h.s.SetNow(&now)
	later := func(d time.Duration) { now = now.Add(d); h.s.SetNow(&now) }
	var status atomic.Int64
	var meta atomic.Pointer[string]
	say := func(description, output string) {
		s := `{"fqn": "xyz.labs.add@1", "description": "` + description + `", "input_schema": true, "output_schema": ` + output + `}`
		meta.Store(&s)
	}
	const variants = `{"oneOf": [{"required": ["ok"]}]}`
	say("one", variants)
	status.Store(200)
	tool := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/meta" {
			_, _ = io.WriteString(w, *meta.Load())
			return
		}
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(tool.Close)
	e := h.manual(func(c *parts) { c.Tools = c.Worker.(*remote.Client) })
	d, err := leader.Meta{FQN: "xyz.labs.add@1", URL: tool.URL, InputSchema: json.RawMessage(`true`), OutputSchema: json.RawMessage(variants)}.Definition()
	h.must(err)
	_, err = h.s.Events.PutTool(h.ctx, h.by, d, events.ToolSettings{TTL: 5 * time.Minute, CheckEvery: time.Minute, Discovered: true}, 0)
	h.must(err)
	probe := func(want int) *events.Tool {
		t.Helper()
		if n, err := e.ProbeOnce(h.ctx); err != nil || n != want {
			t.Errorf("%d tools were due, %v, want %d", n, err, want)
		}
		v, err := h.s.Events.Tool(h.ctx, h.by.Context, "xyz.labs.add@1")
		h.must(err)
		return v
	}
	if v := probe(1); v.Health != "ready" || v.CheckedAt == nil || v.Version != 1 {
		t.Errorf("%+v", v)
	}
	probe(0)
	status.Store(503)
	later(time.Minute)
	if v := probe(1); v.Health != "failing" || v.HealthWhy != "the tool answered HTTP 503: want 200" {
		t.Errorf("%+v", v)
	}
	say("two", variants)
	later(5 * time.Minute)
	if v := probe(1); v.Description != "two" || v.Version != 2 {
		t.Errorf("%+v", v)
	}
	say("three", `{}`)
	later(5 * time.Minute)
	if v := probe(1); v.Description != "two" || v.Version != 2 || v.RefreshWhy == "" || v.ValidateInput([]byte(`1`)) != nil {
		t.Errorf("%+v", v)
	}
	say("four", variants)
	later(time.Minute) // sooner than after the TTL
	if v := probe(1); v.Description != "four" || v.RefreshWhy != "" {
		t.Errorf("%+v", v)
	}
	tool.Close()
	later(5 * time.Minute)
	if v := probe(1); v.Health != "failing" || v.Failures != 5 || v.Description != "four" || v.RefreshWhy == "" {
		t.Errorf("%+v", v)
	}
}
