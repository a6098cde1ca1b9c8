// Package webhook has the official library of Standard Webhooks judge what we sign.
package webhook

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	official "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// message is what arrived.
type message struct {
	header http.Header
	body   []byte
}

func TestTheOfficialLibraryBelievesOurWebhooksAndNoOthers(t *testing.T) {
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

	arrived := make(chan message, 100)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived <- message{r.Header, body}
	}))
	t.Cleanup(endpoint.Close)
	call := func(method, path, body string) map[string]any {
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
	judge := func(secret string) *official.Webhook {
		t.Helper()
		w, err := official.NewWebhook(secret)
		if err != nil {
			t.Fatalf("the library does not take the secret as it is shown: %v", err)
		}
		return w
	}

	call("PUT", "/dispatchers/HELLO", `{"worker_url": "noop:"}`)
	first := call("PUT", "/subscriptions/s", `{"kind": "webhook", "url": "`+endpoint.URL+`", "events": ["transaction.done"], "include": ["data"]}`)["secret"].(string)
	call("POST", "/transactions", `{"type": "HELLO", "queue": "q", "data": {"text": "é \u2028 <&>"}}`)
	m := next()
	if err := judge(first).Verify(m.body, m.header); err != nil {
		t.Errorf("ours is not believed: %v\n%v\n%s", err, m.header, m.body)
	}
	if judge(first).Verify(append(m.body, ' '), m.header) == nil {
		t.Error("another body is believed")
	}
	if judge("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=").Verify(m.body, m.header) == nil {
		t.Error("another secret is believed")
	}

	second := call("POST", "/subscriptions/s/rotate-secret", "")["secret"].(string)
	call("POST", "/subscriptions/s/redeliver", `{"since": "2026-01-01T00:00:00Z", "only": "all"}`)
	again := next()
	for _, secret := range []string{first, second} {
		if err := judge(secret).Verify(again.body, again.header); err != nil {
			t.Errorf("while a secret is rotated: %v", err)
		}
	}
	if again.header.Get("webhook-id") != m.header.Get("webhook-id") || string(again.body) != string(m.body) {
		t.Errorf("a redelivery is another message: %v %s", again.header, again.body)
	}
}
