package remote_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// tool answers /meta, /health and /invoke as told.
func tool(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) string {
	s := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(s.Close)
	return s.URL
}

var adds = leader.Meta{FQN: "xyz.labs.add@1", URL: "http://tool", InputSchema: json.RawMessage(`true`),
	OutputSchema: json.RawMessage(`{"oneOf": [{"properties": {"ok": {"required": ["sum"]}}, "required": ["ok"]}]}`)}

// Each row of S1.11 that is seen on the wire.
func TestACallOfAToolIsJudgedByWhatComesBack(t *testing.T) {
	t.Parallel()
	d, err := adds.Definition()
	if err != nil {
		t.Fatal(err)
	}
	say := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = io.WriteString(w, body) }
	}
	for name, c := range map[string]struct {
		tool  http.HandlerFunc
		class leader.Class
		code  string
	}{
		"sum":     {say(200, `{"ok": {"sum": 3}}`), leader.Successful, ""},
		"no sum":  {say(200, `{"ok": {}}`), leader.Fatal, "schema_mismatch"},
		"garbage": {say(200, "\xff\x00{"), leader.Retriable, "no_answer"},
		"large":   {say(200, `{"ok": {"sum": "`+strings.Repeat("x", 2000)+`"}}`), leader.Fatal, "answer_too_large"},
		"nested":  {say(200, `{"ok": `+strings.Repeat(`{"a": `, 64)+`1`+strings.Repeat("}", 65)), leader.Fatal, "answer_nested"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, leader.Retriable, "redirect"},
		"busy":     {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "7"); w.WriteHeader(429) }, leader.Retriable, "http_429"},
		"input":    {say(422, `{"error": "input_deserialization_error", "details": "a"}`), leader.Fatal, "input_deserialization_error"},
		"failed":   {say(500, `oops`), leader.Retriable, "http_500"},
		"slow":     {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() }, leader.Retriable, "timeout"},
		"hangs up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, leader.Retriable, "connection_lost"},
		"breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"ok"`)
		}, leader.Retriable, "answer_broken"},
		"NUL": {say(200, `{"ok": {"sum": "a\u0000b"}}`), leader.Successful, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := remotetest.Call(tool(t, c.tool), 1)
			call.Timeout = 500 * time.Millisecond
			if name != "slow" {
				call.Timeout = 20 * time.Second
			}
			v := d.Judge(remotetest.Client(t).Invoke(t.Context(), call, "token", json.RawMessage(`{"a": 1}`), 1500))
			if v.Class != c.class || v.Code != c.code || strings.Contains(v.Message, "worker") || strings.Contains(string(v.Output), `\u0000`) {
				t.Errorf("%+v, want %s %s", v, c.class, c.code)
			}
			if name == "busy" && v.After != 7*time.Second {
				t.Errorf("Retry-After: %s", v.After)
			}
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	gone := remotetest.Call("http://"+l.Addr().String(), 1)
	if v := d.Judge(remotetest.Client(t).Invoke(t.Context(), gone, "token", json.RawMessage(`{}`), 0)); v.Class != leader.Retriable || v.Code != "connection_refused" {
		t.Errorf("nobody there: %+v", v)
	}
	private := remotetest.Call("http://169.254.169.254/latest", 1)
	if v := d.Judge(remotetest.Client(t).Invoke(t.Context(), private, "token", json.RawMessage(`{}`), 0)); v.Code != "address_refused" || !strings.Contains(v.Message, "the tool's address") {
		t.Errorf("a private address: %+v", v)
	}
}

func TestAToolIsToldWhatAWorkerIsTold(t *testing.T) {
	t.Parallel()
	var seen []*http.Request
	var body []byte
	url := tool(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r)
		body, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, `{"ok": {"sum": 3}}`)
	})
	call := remotetest.Call(url+"/below/", 1)
	c := remotetest.Client(t)
	c.Invoke(t.Context(), call, call.Token(), json.RawMessage(`{"a":1}`), 0)
	call.ID = outbox.ID{}
	c.Invoke(t.Context(), call, "a-trial", json.RawMessage(`{"a":1}`), 0)
	h, trial := seen[0].Header, seen[1].Header
	if seen[0].URL.Path != "/below/invoke" || seen[0].Method != "POST" || string(body) != `{"a":1}` || h.Get("Postern-Transaction") == "" || h.Get("Postern-Fence") == "" ||
		h.Get("Idempotency-Key") == "" || h.Get("Postern-Deadline") == "" || h.Get("Content-Type") != "application/json" {
		t.Errorf("%s %s %s %v", seen[0].Method, seen[0].URL, body, h)
	}
	if trial.Get("Postern-Transaction") != "" || trial.Get("Postern-Attempt") != "" || trial.Get("Idempotency-Key") != "a-trial" {
		t.Errorf("a trial: %v", trial)
	}
}

func TestAToolSaysWhatItIsAndWhetherItIsReady(t *testing.T) {
	t.Parallel()
	ready := 200
	url := tool(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/meta":
			_, _ = io.WriteString(w, `{"fqn": "xyz.labs.add@1"}`)
		case "/health":
			w.WriteHeader(ready)
		case "/large/meta":
			_, _ = w.Write(make([]byte, 256<<10+1))
		case "/moved/meta", "/moved/health":
			http.Redirect(w, r, "/meta", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	})
	c := remotetest.Client(t)
	if raw, err := c.Meta(t.Context(), url); err != nil || string(raw) != `{"fqn": "xyz.labs.add@1"}` {
		t.Errorf("%s %v", raw, err)
	}
	for path, text := range map[string]string{"/large": "larger than 262144 bytes", "/moved": "redirects are not followed", "/none": "the tool answered HTTP 404: want 200"} {
		if _, err := c.Meta(t.Context(), url+path); err == nil || !strings.Contains(err.Error(), text) || fault.As(err).Fields[0].Pointer != "/url" {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := c.Meta(t.Context(), "http://169.254.169.254"); fault.CodeOf(err) != "address_refused" || !strings.Contains(err.Error(), "--worker-allow-cidr") {
		t.Errorf("a private address: %v", err)
	}
	if why := c.Healthy(t.Context(), url); why != "" {
		t.Error(why)
	}
	if why := c.Healthy(t.Context(), url+"/moved"); !strings.Contains(why, "a redirect") {
		t.Error(why)
	}
	for _, ready = range []int{503, 204} {
		if why := c.Healthy(t.Context(), url); !strings.Contains(why, "want 200") {
			t.Errorf("%d: %q", ready, why)
		}
	}
}
