package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remotetest"
)

// collected is what a collector got, read strictly as OTLP writes spans in JSON.
type collected struct {
	ResourceSpans []struct {
		Resource struct {
			Attributes []keyValue `json:"attributes"`
		} `json:"resource"`
		ScopeSpans []struct {
			Scope struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"scope"`
			Spans []span `json:"spans"`
		} `json:"scopeSpans"`
	} `json:"resourceSpans"`
}

type keyValue struct {
	Key   string `json:"key"`
	Value struct {
		String string `json:"stringValue"`
		Int    int64  `json:"intValue,string"`
	} `json:"value"`
}

type span struct {
	TraceID    string     `json:"traceId"`
	SpanID     string     `json:"spanId"`
	Parent     string     `json:"parentSpanId"`
	Name       string     `json:"name"`
	Kind       int        `json:"kind"`
	Start      int64      `json:"startTimeUnixNano,string"`
	End        int64      `json:"endTimeUnixNano,string"`
	Attributes []keyValue `json:"attributes"`
	Status     struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"status"`
}

func value(list []keyValue, key string) string {
	for _, kv := range list {
		if kv.Key == key {
			return kv.Value.String
		}
	}
	return ""
}

func TestATraceLeadsFromThePostToTheWorker(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hush")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
	var mu sync.Mutex
	spans := map[string]span{}
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var got collected
		d := json.NewDecoder(strings.NewReader(string(body)))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil || r.Method != "POST" || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "Bearer hush" {
			t.Errorf("%s %s %v: %v\n%s", r.Method, r.URL.Path, r.Header, err, body)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, of := range got.ResourceSpans {
			if value(of.Resource.Attributes, "service.name") != "postern" || value(of.Resource.Attributes, "deployment.environment") != "test" {
				t.Errorf("they are of %v", of.Resource.Attributes)
			}
			for _, s := range of.ScopeSpans[0].Spans {
				spans[s.Name] = s
			}
		}
		w.Write([]byte("{}"))
	}))
	defer collector.Close()

	fake := remotetest.NewFake(t)
	fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Fail(422, "never"))
	c, _, err := app.Load(app.Layers{Environ: map[string]string{"DATABASE_URL": pgtest.New(t).URL, "POSTERN_LISTEN": "127.0.0.1:0", "POSTERN_METRICS_LISTEN": "off",
		"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "POSTERN_SHUTDOWN_GRACE": "1s"}, Defaults: app.DevDefaults})
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), c, app.Role{Serve: true, Work: true, Version: "test"}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	want(t, 201, "PUT", a.URL()+"/dispatchers/THING", fmt.Sprintf(`{"worker_url": %q, "retry": {"max_retries": 0}}`, fake.URL()))
	req, _ := http.NewRequest("POST", a.URL()+"/transactions?wait=30s", strings.NewReader(`{"type": "THING", "queue": "q", "uid": "traced", "data": {}}`))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	seen, err := fake.WaitCall(t.Context(), remotetest.Match{Op: remotetest.OpDispatch, UID: "traced"})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil { // the stop sends the spans that were not sent before
		t.Error(err)
	}

	mu.Lock()
	defer mu.Unlock()
	posted, sent := spans["POST /transactions"], spans["dispatch THING"]
	if posted.TraceID != "0af7651916cd43dd8448eb211c80319c" || posted.Parent != "b7ad6b7169203331" || posted.Kind != 2 || posted.End <= posted.Start || posted.Status.Code != 0 {
		t.Errorf("the post: %+v", posted)
	}
	if sent.TraceID != posted.TraceID || sent.Parent != posted.SpanID || sent.Kind != 3 || sent.Status.Code != 2 || value(sent.Attributes, "postern.queue") != "q" || value(sent.Attributes, "postern.class") == "" {
		t.Errorf("the dispatch: %+v", sent)
	}
	if got, want := seen.Header.Get("Traceparent"), "00-"+posted.TraceID+"-"+sent.SpanID+"-01"; got != want {
		t.Errorf("the worker is told %q, want %q", got, want)
	}
}

func TestACollectorThatIsAwayOrNoneHoldsUpNothing(t *testing.T) {
	t.Parallel()
	fake := remotetest.NewFake(t)
	fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done(map[string]any{"ok": true}))
	for endpoint, keeps := range map[string]bool{"": true, "http://127.0.0.1:1": false} {
		url := clockedWith(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})
		want(t, 201, "PUT", url+"/dispatchers/THING", fmt.Sprintf(`{"worker_url": %q}`, fake.URL()))
		uid := fmt.Sprint("kept-", keeps)
		req, _ := http.NewRequest("POST", url+"/transactions?wait=30s", strings.NewReader(fmt.Sprintf(`{"type": "THING", "queue": "q", "uid": %q, "data": {}}`, uid)))
		req.Header.Set("Content-Type", "application/json")
		const mine = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		req.Header.Set("traceparent", mine)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if !strings.Contains(string(body), `"DONE"`) {
			t.Errorf("with %q: %s", endpoint, body)
		}
		seen, err := fake.WaitCall(t.Context(), remotetest.Match{Op: remotetest.OpDispatch, UID: uid})
		if err != nil || (seen.Header.Get("Traceparent") == mine) != keeps {
			t.Errorf("with %q the worker is told %q, %v", endpoint, seen.Header.Get("Traceparent"), err)
		}
	}
	c, _, err := app.Load(app.Layers{Environ: map[string]string{"DATABASE_URL": pgtest.New(t).URL, "POSTERN_METRICS_LISTEN": "off", "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.New(t.Context(), c, app.Role{Work: true}, slog.New(slog.DiscardHandler)); fault.CodeOf(err) != "bad_setting" || !strings.Contains(err.Error(), "http://") {
		t.Errorf("a collector without a scheme: %v", err)
	}
}
