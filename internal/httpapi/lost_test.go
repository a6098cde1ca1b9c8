package httpapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pgtest"
)

// ask sends a request, and returns its status and body; a connection that ends without an answer is status 0.
func (d *door) ask(method, path, key, body string) (int, string) {
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		d.t.Error(err)
		return 0, ""
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		return 0, err.Error()
	}
	return a.StatusCode, string(text)
}

// insist sends a request until it succeeds. Each other answer has to say that it may be sent again.
func (d *door) insist(retries *atomic.Int64, method, path, key, body string) {
	for range 500 {
		status, text := d.ask(method, path, key, body)
		if status >= 200 && status < 300 {
			return
		}
		var p struct {
			Code      string
			Retryable bool
		}
		if json.Unmarshal([]byte(text), &p) != nil || !p.Retryable {
			d.t.Errorf("%s %s: %d %s", method, path, status, text)
			return
		}
		retries.Add(1)
		time.Sleep(2 * time.Millisecond)
	}
	d.t.Errorf("%s %s did not succeed", method, path)
}

// All connections to the database are ended fifty times in the middle of posts, settings, levers and reads. Each answer
// is a success, or says that the same request may be sent again; sent again under the same key, it is one transaction.
func TestConnectionsThatAreLostInMidRequest(t *testing.T) {
	d := newDoor(t)
	d.want(201, "PUT", "/dispatchers/T", `{"worker_url": "noop:"}`)
	d.want(201, "PUT", "/senders/acct", `{"pool": "p"}`)
	d.want(201, "PUT", "/queues/q1", `{}`)
	admin, err := pgx.Connect(t.Context(), pgtest.URL(d.store.Pool()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(t.Context()) })
	var retries, posted atomic.Int64
	end := make(chan struct{})
	var clients sync.WaitGroup
	client := func(name string, once func(i int)) {
		clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				default:
					once(i)
				}
			}
		})
	}
	for c := range 4 {
		client("posts", func(i int) {
			uid := fmt.Sprint("p-", c, "-", i)
			d.insist(&retries, "POST", "/transactions", uid, fmt.Sprintf(`{"queue": "q%d", "type": "T", "data": {}}`, i%5))
			posted.Add(1)
		})
	}
	client("batches", func(i int) {
		d.insist(&retries, "POST", "/transactions:batch", "", fmt.Sprintf(`{"items": [{"uid": "b-%d", "queue": "q1", "type": "T", "data": {}}, {"uid": "c-%d", "type": "T", "data": {}}], "atomic": %t}`, i, i, i%2 == 0))
		posted.Add(2)
	})
	client("settings", func(i int) {
		d.insist(&retries, "PUT", "/dispatchers/T", "", fmt.Sprintf(`{"worker_url": "noop:", "slots": %d}`, 10+i%10))
		d.insist(&retries, "PUT", "/queues/q1", "", fmt.Sprintf(`{"max_depth": %d}`, 100000+i))
		d.insist(&retries, "PUT", "/senders/acct", "", `{"pool": "p"}`)
		d.insist(&retries, "PUT", "/sources/s", "", `{"kind": "push", "map": {"fqn": "/tool"}}`)
		d.insist(&retries, "PUT", "/subscriptions/s", "", `{"kind": "pull"}`)
	})
	client("levers", func(i int) {
		verb := []string{"pause", "resume"}[i%2]
		for _, of := range []string{"/dispatchers/T/", "/queues/q1/", "/senders/acct/", "/pools/p/"} {
			d.insist(&retries, "POST", of+verb, "", `{"reason": "because"}`)
		}
	})
	client("reads", func(i int) {
		for _, path := range []string{"/transactions", "/queues", "/queues/q1", "/dispatchers", "/audit", "/sources"} {
			d.insist(&retries, "GET", path, "", "")
		}
	})
	for range 50 {
		time.Sleep(150 * time.Millisecond)
		if _, err := admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
			t.Fatal(err)
		}
	}
	close(end)
	clients.Wait()
	var n, keys int64
	if err := admin.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT uid) FROM postern.transactions`).Scan(&n, &keys); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d posted, %d answers said to send it again", posted.Load(), retries.Load())
	if n != posted.Load() || keys != n {
		t.Errorf("%d transactions with %d keys, of %d", n, keys, posted.Load())
	}
	if retries.Load() == 0 {
		t.Error("nothing was lost: this shows nothing")
	}
}
