package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/httpapi"
)

// patience is how long a test waits for what must happen soon, on a machine that others use too.
const patience = time.Minute

// raw is a connection whose bytes a test writes and reads itself.
type raw struct {
	net.Conn
	in *bufio.Reader
}

// dial connects to the door and sends a head; lines end as in HTTP.
func (d *door) dial(t *testing.T, head ...string) *raw {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, strings.Join(append(head, "Host: localhost", "", ""), "\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return &raw{c, bufio.NewReader(c)}
}

// answer reads one answer with its body.
func (r *raw) answer(t *testing.T) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(r.in, nil)
	if err != nil {
		t.Fatalf("there is no answer: %v", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("the answer broke off: %v", err)
	}
	return res, string(b)
}

// closed wants that the server closes the connection without another byte.
func (r *raw) closed(t *testing.T) {
	t.Helper()
	n, err := io.Copy(io.Discard, r.in)
	if e, ok := err.(net.Error); ok && e.Timeout() || n > 0 {
		t.Errorf("after the answer came %d bytes, and %v: want the end of the connection", n, err)
	}
}

// drips are heads of requests whose body comes a byte a second. KEY stands for a credential.
var drips = map[string][]string{
	"a post":                        {"POST /transactions HTTP/1.1", "KEY", "Content-Length: 200000", "Content-Type: application/json"},
	"a post in chunks":              {"POST /transactions HTTP/1.1", "KEY", "Transfer-Encoding: chunked"},
	"a batch":                       {"POST /transactions:batch HTTP/1.1", "KEY", "Content-Length: 5000000"},
	"a post without a credential":   {"POST /transactions HTTP/1.1", "Content-Length: 200000"},
	"chunks without a credential":   {"POST /transactions HTTP/1.1", "Transfer-Encoding: chunked"},
	"a wrong credential":            {"POST /transactions HTTP/1.1", "Authorization: Bearer nonsense", "Content-Length: 200000"},
	"no such path":                  {"POST /nowhere HTTP/1.1", "KEY", "Content-Length: 200000"},
	"no such path, no credential":   {"POST /nowhere HTTP/1.1", "Content-Length: 200000"},
	"no such method":                {"PATCH /livez HTTP/1.1", "Content-Length: 200000"},
	"a probe with a body":           {"GET /livez HTTP/1.1", "Content-Length: 200000"},
	"a read with a body":            {"GET /queues HTTP/1.1", "KEY", "Content-Length: 200000"},
	"another media type":            {"PUT /queues/q HTTP/1.1", "KEY", "Content-Length: 200000", "Content-Type: text/plain"},
	"too large":                     {"POST /transactions HTTP/1.1", "KEY", "Content-Length: 9000000"},
	"a body that waits to be asked": {"POST /transactions HTTP/1.1", "KEY", "Content-Length: 200000", "Expect: 100-continue"},
	"the same without a credential": {"POST /transactions HTTP/1.1", "Content-Length: 200000", "Expect: 100-continue"},
	"a peer":                        {"POST /contexts/default/processors/p/peers/x/batches HTTP/1.1", "Content-Length: 200000"},
	"what asks about the server":    {"OPTIONS * HTTP/1.1", "Content-Length: 4000"},
	"HTTP/1.0":                      {"POST /transactions HTTP/1.0", "Connection: keep-alive", "Content-Length: 200000"},
}

// A body has 15 s to arrive, on any path and by any sender; then its connection is closed, and what it took is free
// again.
func TestAThousandDrippingBodiesAreCutOff(t *testing.T) {
	d, key := closedDoor(t)
	began, before := time.Now(), runtime.NumGoroutine()
	var all []*raw
	var open sync.Map
	var left sync.WaitGroup
	for len(all) < 1000 {
		for name, head := range drips {
			head = strings.Split(strings.ReplaceAll(strings.Join(head, "\n"), "KEY", key), "\n")
			r := d.dial(t, head...)
			all = append(all, r)
			open.Store(r, name)
			left.Go(func() {
				if _, err := io.Copy(io.Discard, r); !isTimeout(err) {
					open.Delete(r)
				}
			})
		}
	}
	over := make(chan struct{})
	go func() { left.Wait(); close(over) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for wait := true; wait; {
		select {
		case <-tick.C:
			for _, r := range all {
				_, _ = io.WriteString(r, "1") // of a chunked body this is the length of a chunk that never begins
			}
		case <-over:
			wait = false
		}
	}
	still := map[string]int{}
	open.Range(func(_, name any) bool { still[name.(string)]++; return true })
	if len(still) > 0 {
		t.Errorf("after %s these connections are still open: %v", time.Since(began), still)
	}
	for _, r := range all {
		r.Close()
	}
	within(t, "its goroutines have ended", func() bool { return runtime.NumGoroutine() < before+100 })
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// within waits for a condition.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

func TestWhoStallsIsToldBeforeTheConnectionIsClosed(t *testing.T) {
	d := newDoor(t, func(c *httpapi.Config) { c.Limits.BodyRead = 1 })
	for _, length := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
		r := d.dial(t, "POST /transactions HTTP/1.1", length)
		res, body := r.answer(t)
		if res.StatusCode != 408 || res.Header.Get("Content-Type") != "application/problem+json" || !res.Close || !strings.Contains(body, `"body_timeout"`) {
			t.Errorf("%s: %s %v %s", length, res.Status, res.Header, body)
		}
		r.closed(t)
	}
}

// A refusal does not wait for the body: the answer is there at once, and the connection is closed, however long a body
// may take.
func TestARefusalClosesInsteadOfReadingOn(t *testing.T) {
	d, key := closedDoor(t, func(c *httpapi.Config) { c.Limits.BodyRead = 3600 })
	for name, c := range map[string]struct {
		status int
		head   []string
	}{
		"without a credential": {401, []string{"POST /transactions HTTP/1.1", "Content-Length: 200000"}},
		"in chunks":            {401, []string{"POST /transactions HTTP/1.1", "Transfer-Encoding: chunked"}},
		"not asked for":        {401, []string{"POST /transactions HTTP/1.1", "Content-Length: 200000", "Expect: 100-continue"}},
		"too large":            {413, []string{"POST /transactions HTTP/1.1", key, "Content-Length: 1048577"}},
		"a batch":              {413, []string{"POST /transactions:batch HTTP/1.1", key, "Content-Length: 9000000"}},
		"bad path":             {422, []string{"POST /queues/%ff HTTP/1.1", key, "Content-Length: 200000"}},
	} {
		r := d.dial(t, c.head...)
		res, body := r.answer(t)
		if res.StatusCode != c.status || !res.Close || res.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %s %v %s", name, res.Status, res.Header, body)
		}
		r.closed(t)
	}
	// a client that sends all of its request before it reads gets the answer, too
	for _, size := range []int{10, 200_000, 2_000_000, 20_000_000} {
		r := d.dial(t, "POST /transactions HTTP/1.1", fmt.Sprintf("Content-Length: %d", size))
		if n, err := io.WriteString(r, strings.Repeat("x", size)); err != nil {
			t.Errorf("%d of %d bytes are sent: %v", n, size, err)
		}
		if res, body := r.answer(t); res.StatusCode != 401 {
			t.Errorf("%d bytes: %s %s", size, res.Status, body)
		}
	}
	// a refusal of what has arrived keeps the connection
	r := d.dial(t, "POST /transactions HTTP/1.1", key, "Content-Length: 2")
	_, _ = io.WriteString(r, "{}")
	if res, body := r.answer(t); res.StatusCode != 422 || res.Close {
		t.Errorf("%s %v %s", res.Status, res.Header, body)
	}
}

// open counts the connections of the door's server that have not been closed.
func (d *door) open() (n int) {
	d.conns.Range(func(any, any) bool { n++; return true })
	return n
}

// A client that does not read its answers loses its connection.
func TestWhoDoesNotReadIsCutOff(t *testing.T) {
	d := newDoor(t, func(c *httpapi.Config) { c.Limits.Taken = 1 })
	r := d.dial(t, "GET /livez HTTP/1.1")
	r.answer(t)
	if d.open() != 1 {
		t.Fatalf("%d connections are open", d.open())
	}
	_ = r.SetWriteDeadline(time.Now().Add(patience))
	for range 200 { // more than the buffers of both sides take
		if _, err := io.WriteString(r, "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			break
		}
	}
	within(t, "it has lost its connection", func() bool { return d.open() == 0 })
}

// Requests that ask to wait, and streams, have times of their own.
func TestWaitsAndStreamsOutlastTheTimesOfOthers(t *testing.T) {
	d := newDoor(t, func(c *httpapi.Config) { c.Limits.Answer, c.Limits.Taken, c.Limits.BodyRead = 4, 1, 1 })
	d.dispatcher("pay")
	events, _ := d.listen("/transactions:stream", "")
	began := time.Now()
	tx := d.want(201, "POST", "/transactions?wait=6s", `{"type": "pay", "queue": "q"}`)
	if tx.header.Get("Preference-Applied") != "wait=6" || time.Since(began) < 6*time.Second {
		t.Errorf("it waited %s: %v", time.Since(began), tx.header)
	}
	d.want(200, "GET", "/transactions/"+tx.str("id")+"?wait=6s", "")
	d.want(201, "PUT", "/channels/between", `{"kind": "integrity", "capacity": 1}`)
	d.want(204, "POST", "/channels/between/receive?wait=6s", "")
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q"}`)
	d.number()
	for range 2 {
		if e := d.next(events); e[1] != "WAITING" {
			t.Errorf("%v", e)
		}
	}
}

// holdCommits makes each commit that changes a queue take so long.
func (d *door) holdCommits(seconds int) {
	d.t.Helper()
	_, err := d.store.Pool().Exec(d.t.Context(), fmt.Sprintf(`CREATE OR REPLACE FUNCTION public.hold() RETURNS trigger
		LANGUAGE plpgsql
		AS $$ BEGIN PERFORM pg_sleep(%d); RETURN NULL; END $$`, seconds))
	if err == nil && seconds > 0 {
		_, err = d.store.Pool().Exec(d.t.Context(), `CREATE CONSTRAINT TRIGGER hold
			AFTER UPDATE ON postern.queue DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION public.hold()`)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// A post whose commit does not answer in time is answered commit_unknown, and so are the posts that were gathered
// behind it. A post that is repeated under its key finds the same transaction.
func TestAPostWhoseCommitIsHeldIsUnknown(t *testing.T) {
	d := newDoor(t, func(c *httpapi.Config) { c.Limits.Answer = 4 })
	d.dispatcher("pay")
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q"}`)
	d.holdCommits(12)
	var posts sync.WaitGroup
	post := func(key string) answer {
		return d.call("POST", "/transactions", `{"type": "pay", "queue": "q"}`, "Idempotency-Key: "+key)
	}
	for n := range 20 {
		posts.Go(func() {
			a := post(fmt.Sprint("k", n))
			if a.status != 503 || a.str("code") != "commit_unknown" || a.body["retryable"] != true || a.header.Get("Retry-After") == "" ||
				!strings.Contains(a.str("detail"), "same Idempotency-Key") || a.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%d %s", a.status, a.raw)
			}
		})
	}
	posts.Wait()
	d.want(200, "GET", "/queues/q", "")
	d.holdCommits(0)
	for n := range 20 {
		key := fmt.Sprint("k", n)
		within(t, "the post is there under its key", func() bool { return post(key).status == 200 })
	}
	if q := d.want(200, "GET", "/queues/q", ""); q.body["depth"] != 21.0 {
		t.Errorf("posted 21 times, the queue holds %v", q.body["depth"])
	}
}
