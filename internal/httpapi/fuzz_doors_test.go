package httpapi_test

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest"
)

// A transaction is taken by both doors or by none, and each refusal has a code and names the field. Where several
// things are wrong, each door begins with another one.
func FuzzTheDoorsAgree(f *testing.F) {
	add := func(queue, typ, uid, data, at, tag, tagged, on, url, end string, retries int64) {
		f.Add(queue, typ, uid, data, at, tag, tagged, on, url, end, retries)
	}
	add("q", "T", "u1", `{"n":1}`, "2030-01-02T03:04:05Z", "k", "v", "", "http://w.example/", "DONE", 3)
	add("q q", "T", "u 1", `1e400`, "tomorrow", "", "", "u1", "ftp://x", "WAITING", -1)
	add("", "-T", strings.Repeat("x", 256), `[[[[]]]]`, "2199-01-01T00:00:00Z", "k", strings.Repeat("x", 257),
		"nobody", "http://u:p@h/", "done", 10001)
	add("processor:a:1", "leader.tool", "event:0:result", `null`, "1969-12-31T23:59:59Z", "ü", "\u2028", "ü",
		"HTTP://[::1]:80", "FAILED", 0)
	add("é", "T", "", `"\u0000"`, "2030-01-02T03:04:05.1234567+14:00", " ", "", "u-1", "http://127.1/", "", 1)
	store := pgtest.New(f).Store(f, 4)
	api := httpapi.New(httpapi.Config{Store: store, Ingester: pg.NewIngester(store.Store),
		Log: slog.New(slog.DiscardHandler), Auth: "none", Version: "test"})
	server := httptest.NewServer(nil)
	server.Config.Handler = api.Server().Handler
	f.Cleanup(server.Close)
	call := func(t testing.TB, method, path, body string) (int, map[string]any) {
		r, err := http.NewRequest(method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		var v map[string]any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatalf("%d %s: %v", res.StatusCode, text, err)
		}
		return res.StatusCode, v
	}
	if status, said := call(f, "PUT", "/dispatchers/T", `{"worker_url": "noop:"}`); status != 201 {
		f.Fatal(status, said)
	}
	f.Fuzz(func(t *testing.T, queue, typ, uid, data, at, tag, tagged, on, url, end string, retries int64) {
		if !json.Valid([]byte(data)) || len(data) > 4096 {
			return
		}
		item := map[string]any{"type": typ, "data": json.RawMessage(data)}
		for name, v := range map[string]string{"queue": queue, "uid": uid, "not_before": at} {
			if v != "" {
				item[name] = v
			}
		}
		if tag+tagged != "" {
			item["tags"] = map[string]string{tag: tagged}
		}
		if on != "" {
			item["depends_on"] = []string{on}
		}
		if url != "" {
			item["callback"] = map[string]any{"url": url, "on": strings.Fields(end)}
		}
		if retries != 0 {
			item["max_retries"] = retries
		}
		text, err := json.Marshal(item)
		if err != nil {
			return
		}
		status, said := call(t, "POST", "/transactions", string(text))
		_, err = store.Pool().Exec(t.Context(), `SELECT postern.submit_many(jsonb_build_array($1::jsonb))`,
			string(text))
		var e *pgconn.PgError
		switch {
		case err == nil && status < 300:
			return
		case err == nil:
			t.Errorf("HTTP refuses %s with %d %v, and SQL takes it", text, status, said)
		case !errors.As(err, &e):
			t.Fatal(err)
		case !strings.HasPrefix(e.Code, "ZP"): // it is no jsonb, and so no item
			if status < 400 || e.Code[:2] != "22" {
				t.Errorf("SQL does not understand %s: %v; HTTP answers %d", text, err, status)
			}
		default:
			var doc map[string]any
			if err := json.Unmarshal([]byte(e.Detail), &doc); err != nil {
				t.Fatal(err)
			}
			if status < 400 || !reasoned(said) || !reasoned(doc) {
				t.Errorf("%s: HTTP answers %d %v, SQL %v", text, status, said, doc)
			}
		}
	})
}

// reasoned says whether a problem has its reason, and the field, if it is about one.
func reasoned(doc map[string]any) bool {
	list, _ := doc["errors"].([]any)
	return doc["code"] != "" && doc["detail"] != "" && (doc["code"] != "invalid" || len(list) > 0)
}
