// Package webhook has the official library of Standard Webhooks judge what we sign.
package webhook

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// message is what arrived.
type message struct {
	header http.Header
	body   []byte
}

// start runs a whole process for development, and returns a client of its API.
func start(t *testing.T) (call func(method, path, body string) map[string]any) {
	t.Helper()
	c, _, err := app.Load(app.Layers{Environ: map[string]string{"DATABASE_URL": pgtest.New(t).URL, "POSTERN_LISTEN": "127.0.0.1:0", "POSTERN_METRICS_LISTEN": "off"}, Defaults: app.DevDefaults})
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), c, app.Role{Serve: true, Work: true, Version: "test"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })

	return func(method, path, body string) map[string]any {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, a.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		answer := map[string]any{}
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || res.StatusCode >= 300 {
			t.Fatalf("%s %s: %s %v %v", method, path, res.Status, answer, err)
		}
		return answer
	}
}

func TestTheGoOfThePageIsTheOneThatRuns(t *testing.T) {
	page, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("believed_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(page), "```go\n")
	code, _, ok := strings.Cut(code, "```")
	if !ok || !strings.Contains(string(own), "\n"+code) {
		t.Errorf("docs/webhooks.md shows Go that believed_test.go does not have:\n%s", code)
	}
}

// Data may have 256 KiB, a result 1 MiB.
func TestAMessageOfTwoMiBIsBelieved(t *testing.T) {
	const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	body, now := strings.Repeat("x", 2<<20), time.Now()
	signature, err := judge(t, secret).Sign("1", now, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/", strings.NewReader(body))
	r.Header = http.Header{"Webhook-Id": {"1"}, "Webhook-Timestamp": {strconv.FormatInt(now.Unix(), 10)}, "Webhook-Signature": {signature}}
	if got, err := believed(secret, r); err != nil || string(got) != body {
		t.Errorf("%d bytes arrived: %v", len(got), err)
	}
}

func judge(t *testing.T, secret string) *standardwebhooks.Webhook {
	t.Helper()
	w, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatalf("the library does not take the secret as it is shown: %v", err)
	}
	return w
}

func TestTheOfficialLibraryBelievesOurWebhooksAndNoOthers(t *testing.T) {
	call := start(t)
	arrived := make(chan message, 100)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived <- message{r.Header, body}
	}))
	t.Cleanup(endpoint.Close)
	next := func() message {
		t.Helper()
		select {
		case m := <-arrived:
			return m
		case <-time.After(20 * time.Second):
			t.Fatal("nothing arrived")
		}
		return message{}
	}
	call("PUT", "/dispatchers/HELLO", `{"worker_url": "noop:"}`)
	first := call("PUT", "/subscriptions/s", `{"kind": "webhook", "url": "`+endpoint.URL+`", "events": ["transaction.done"], "include": ["data"]}`)["secret"].(string)
	call("POST", "/transactions", `{"type": "HELLO", "queue": "q", "data": {"text": "é \u2028 <&>"}}`)
	m := next()
	if err := judge(t, first).Verify(m.body, m.header); err != nil {
		t.Errorf("ours is not believed: %v\n%v\n%s", err, m.header, m.body)
	}
	if judge(t, first).Verify(append(m.body, ' '), m.header) == nil {
		t.Error("another body is believed")
	}
	if judge(t, "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=").Verify(m.body, m.header) == nil {
		t.Error("another secret is believed")
	}

	second := call("POST", "/subscriptions/s/rotate-secret", "")["secret"].(string)
	for matched, begun := 0.0, time.Now(); matched == 0; { // what has arrived is delivered once the answer is recorded
		if time.Since(begun) > 20*time.Second {
			t.Fatal("what arrived is not recorded as delivered")
		}
		matched = call("POST", "/subscriptions/s/redeliver", `{"since": "2026-01-01T00:00:00Z", "only": "all"}`)["matched"].(float64)
	}
	again := next()
	for _, secret := range []string{first, second} {
		if err := judge(t, secret).Verify(again.body, again.header); err != nil {
			t.Errorf("while a secret is rotated: %v", err)
		}
	}
	if again.header.Get("webhook-id") != m.header.Get("webhook-id") || string(again.body) != string(m.body) {
		t.Errorf("a redelivery is another message: %v %s", again.header, again.body)
	}
}

// A worker that knows nothing but the library: what it is sent is signed, questions and hooks included.
func TestTheOfficialLibraryBelievesOurCallsOfWorkers(t *testing.T) {
	const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	call := start(t)
	heard := make(chan string, 100)
	endpoint := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if _, err := believed(secret, r); err != nil || !strings.HasPrefix(r.Header.Get("webhook-id"), r.URL.Path[1:]+"/") {
				t.Errorf("%s is not believed: %v %v", r.URL.Path, err, r.Header)
			}
			heard <- r.URL.Path
		}
		out.Header().Set("Content-Type", "application/json")
		switch verb, _, _ := strings.Cut(r.URL.Path[1:], "/"); verb {
		case "dispatch":
			io.WriteString(out, `{"hash": "0x1"}`)
		case "status:batch":
			io.WriteString(out, `{"statuses": [{"state": "included", "hash": "0x1", "block_height": "7"}]}`)
		case "on-success":
			io.WriteString(out, `{}`)
		default:
			out.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(endpoint.Close)
	call("PUT", "/dispatchers/PAY", `{"worker_url": "`+endpoint.URL+`", "secret": "`+secret+`", "inclusion": {"poll_every": "10ms"}}`)
	call("POST", "/transactions", `{"type": "PAY", "queue": "q", "data": {"text": "é \u2028 <&>"}}`)
	want := map[string]bool{"/dispatch/PAY": true, "/status:batch": true, "/on-success/PAY": true}
	for len(want) > 0 {
		select {
		case path := <-heard:
			delete(want, path)
		case <-time.After(20 * time.Second):
			t.Fatalf("nothing came to %v", want)
		}
	}
}
