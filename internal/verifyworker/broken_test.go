package verifyworker_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/api/worker"
	"github.com/postern-dev/postern/internal/verifyworker"
)

type data struct{ To string }

// good is a worker that keeps the contract; each broken one is this one with one thing wrong.
func good() http.Handler { return believing("") }

// believing is a good one that wants calls signed, unless the secret is empty.
func believing(secret string) http.Handler {
	w := worker.New(worker.Options{Secret: secret, Status: func(_ context.Context, q worker.Question) (worker.Status, error) {
		if strings.HasPrefix(q.Hash, "h-") {
			return worker.Included(7, 1), nil
		}
		return worker.Unknown(), nil
	}})
	worker.Handle(w, "T", func(_ context.Context, c worker.Call[data]) (worker.Answer, error) {
		return worker.Sent("h-" + c.Transaction), nil
	})
	hook := func(context.Context, worker.Ended[data]) error { return nil }
	worker.OnSuccess(w, "T", hook)
	worker.OnFailure(w, "T", hook)
	w.MaxRetries("T", 3)
	return w.Handler()
}

func TestAGoodWorkerPasses(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(good())
	defer s.Close()
	pass(t, verifyworker.Options{URL: s.URL + "/", Type: "T"})
}

// at replaces the calls whose path begins with prefix.
func at(prefix string, h func(good http.Handler, w http.ResponseWriter, r *http.Request)) func(http.Handler) http.Handler {
	return func(good http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, prefix) {
				h(good, w, r)
				return
			}
			good.ServeHTTP(w, r)
		})
	}
}

// says answers always the same.
func says(status int, body string) func(http.Handler, http.ResponseWriter, *http.Request) {
	return func(_ http.Handler, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// hears changes the body of a call before the good worker hears it. It leaves a body that is no object as it is.
func hears(change func(body, postern map[string]any)) func(http.Handler, http.ResponseWriter, *http.Request) {
	return func(good http.Handler, w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var body map[string]any
		if json.Unmarshal(b, &body) == nil && body != nil {
			if postern, ok := body["postern"].(map[string]any); ok {
				change(body, postern)
			} else {
				change(body, map[string]any{})
			}
			b, _ = json.Marshal(body)
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
		good.ServeHTTP(w, r)
	}
}

// answers changes what the good worker answers with 200.
func answers(change func(answer map[string]any)) func(http.Handler, http.ResponseWriter, *http.Request) {
	return func(good http.Handler, w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		good.ServeHTTP(rec, r)
		var answer map[string]any
		b := rec.Body.Bytes()
		if rec.Code == http.StatusOK && json.Unmarshal(b, &answer) == nil {
			change(answer)
			b, _ = json.Marshal(answer)
		}
		w.WriteHeader(rec.Code)
		w.Write(b)
	}
}

var count atomic.Int64

func TestEachBrokenWorkerFailsWithTheRightWords(t *testing.T) {
	t.Parallel()
	for _, tc := range []brokenWorker{
		{"ignores the token", at("/dispatch/", hears(func(_, p map[string]any) { p["token"] = fmt.Sprintf("%.24s%012x.1", p["token"], count.Add(1)) })),
			"resend, resend at once, status by token, replacement", "resend", "it was executed again", "happens twice"},
		{"accepts a lower fence", at("/dispatch/", hears(func(_, p map[string]any) { p["fence"] = 1 })),
			"lower fence", "lower fence", "fence 4 after fence 5 of the same queue: it was accepted", "frozen"},
		{"refuses an equal fence", at("/dispatch/", refusesEqual()),
			"distinct hashes, other fences", "other fences", "the next transaction with the same fence is not accepted", "rightful owner"},
		{"compares fences by the name of the queue",
			at("/dispatch/", line(func(_, queue, _ string) string { return queue })), "other fences", "other fences",
			"fence 1 of another line, of a queue of the same name is not accepted", "rightful owner"},
		{"compares fences by the number of the queue",
			at("/dispatch/", line(func(number, _, _ string) string { return number })), "lower fence", "lower fence",
			"of the queue after it was forgotten and came back: it was accepted", "frozen"},
		{"compares fences where there is no line", at("/dispatch/", line(func(_, _, line string) string {
			if line == "" {
				return "none"
			}
			return line
		})), "other fences", "other fences", "fence 1 of work without a line is not accepted", "rightful owner"},
		{"answers done and error", at("/dispatch/", says(200, `{"hash":"","done":{"ok":true},"error":{"code":20203,"message":"oh"}}`)),
			"dispatch, shape of answers", "shape of answers", "done and error in one answer", "ambiguous"},
		{"forgets", at("/status/", says(200, `{"state":"unknown","block_height":null,"failure_reason":null}`)),
			"status by token, status by hash, inclusion", "status by token", "forgotten", "queue stands still"},
		{"gives a status without the hash", at("/status/", answers(func(a map[string]any) { delete(a, "hash") })),
			"status by token", "status by token", "names no hash", "it cannot be found out"},
		{"calls everything pending", at("/status/", says(200, `{"state":"pending","hash":null,"block_height":null,"failure_reason":null}`)),
			"status by token, status of the unknown, lower fence", "status of the unknown", "a token that was never sent: it is said to be pending", "waits for ever"},
		{"is included nowhere", at("/status/", answers(func(a map[string]any) { delete(a, "block_height") })),
			"shape of answers", "shape of answers", "included without a block_height", "ambiguous"},
		{"says 200 with garbage", at("/dispatch/", says(200, "Welcome")),
			"dispatch, shape of answers", "dispatch", "no TxnResult", "Nothing goes out"},
		{"says 500 to everything", at("/", says(500, "Internal Server Error")),
			"health, dispatch, max-retries, shape of answers", "dispatch", "HTTP 500 counts as ambiguous", "Nothing goes out"},
		{"redirects", at("/dispatch/", func(_ http.Handler, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}), "dispatch, shape of answers", "dispatch", "redirects are not followed", "Nothing goes out"},
		{"gives another hash when it is sent again", at("/dispatch/", answers(func(a map[string]any) { a["hash"] = fmt.Sprintf("h-%d", count.Add(1)) })),
			"resend, resend at once, status by token, replacement", "resend", `hash "h-`, "two hashes stand for one transaction"},
		{"answers without end", at("/dispatch/", func(_ http.Handler, w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}), "dispatch, shape of answers", "dispatch", "longer than 1 MiB", "Nothing goes out"},
		{"gives everything one hash", at("/dispatch/", answers(func(a map[string]any) { a["hash"] = "h-1" })),
			"distinct hashes, side by side, status by token", "distinct hashes", "two transactions were given the hash h-1", "watched as one"},
		{"includes both attempts", at("/dispatch/", answersPerToken()),
			"status by token, replacement", "replacement", "both attempts of one transaction are included", "paid twice"},
		{"mixes up a batch", at("/status:batch", answers(func(a map[string]any) { s := a["statuses"].([]any); s[0], s[1] = s[1], s[0] })),
			"status batch", "status batch", "status 1 of 3", "wrong transactions"},
		{"fails its hooks", at("/on-", says(500, "")), "hooks", "hooks", "HTTP 500 to on-success", "72 hours"},
		{"has many retries", at("/max-retries/", says(200, `"many"`)), "max-retries", "max-retries", "want a number", "default"},
		{"is ill", at("/health", says(503, "")), "health", "health", "HTTP 503", "restarts it"},
		{"executes garbage", at("/dispatch/", func(good http.Handler, w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			if strings.TrimSpace(string(b)) == "{}" {
				io.WriteString(w, `{"hash":"h-1","done":null,"error":null}`)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(b))
			good.ServeHTTP(w, r)
		}), "garbage", "garbage", "names nothing is answered with HTTP 200", "executes something"},
		{"takes any size", at("/dispatch/", func(good http.Handler, w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			if len(b) > 2<<20 {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(b))
			good.ServeHTTP(w, r)
		}), "oversized", "oversized", "16 MiB is answered with HTTP 200", "memory"},
		{"takes no large data", at("/dispatch/", func(good http.Handler, w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 100<<10)
			b, err := io.ReadAll(r.Body)
			if err != nil {
				w.WriteHeader(413)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(b))
			good.ServeHTTP(w, r)
		}), "large data", "large data", "HTTP 413", "never goes out"},
		{"has an error class of its own", at("/dispatch/", answers(func(a map[string]any) {
			if e, ok := a["error"].(map[string]any); ok {
				e["class"] = "user_error"
			}
		})), "errors, shape of answers", "shape of answers", `error.class is "user_error"`, "ambiguous"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.fails(t)
		})
	}
}

// brokenWorker is a way to keep the contract badly.
type brokenWorker struct {
	name   string
	broken func(http.Handler) http.Handler
	failed string // the checks, in their order
	check  string // one of them
	found  string // what it says
	cost   string // what it says that would cost
}

// fails checks that exactly these checks fail, in the right words.
func (tc brokenWorker) fails(t *testing.T) {
	t.Helper()
	s := httptest.NewServer(tc.broken(good()))
	defer s.Close()
	r, err := verifyworker.Run(t.Context(), verifyworker.Options{URL: s.URL, Type: "T", Timeout: 5 * time.Second, Wait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range r.Checks {
		if (c.State == verifyworker.Failed) != (c.Cost != "") {
			t.Errorf("%s is %s and costs %q", c.Name, c.State, c.Cost)
		}
		if c.State != verifyworker.Failed {
			continue
		}
		names = append(names, c.Name)
		if c.Name == tc.check && (!strings.Contains(c.Found, tc.found) || !strings.Contains(c.Cost, tc.cost)) {
			t.Errorf("%s: %q costs %q, want %q and %q in them", c.Name, c.Found, c.Cost, tc.found, tc.cost)
		}
	}
	if got := strings.Join(names, ", "); got != tc.failed || !strings.Contains(got, tc.check) {
		t.Errorf("failed: %s; want %s\n%+v", got, tc.failed, r.Checks)
	}
	if r.OK || r.Failed != len(names) {
		t.Errorf("ok %t with %d failed of %d", r.OK, r.Failed, len(names))
	}
}

// refusesEqual is a worker whose fence must rise with each transaction, not with each owner.
func refusesEqual() func(http.Handler, http.ResponseWriter, *http.Request) {
	var seen syncMap
	return func(good http.Handler, w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var c struct {
			Sender  struct{ Queue string }
			Postern struct {
				Token string
				Fence int64
			}
		}
		if json.Unmarshal(b, &c) == nil && c.Postern.Token != "" && c.Sender.Queue != "" {
			key := fmt.Sprintf("%.12s/%d", c.Postern.Token, c.Postern.Fence)
			if !seen.same(key, strings.Split(c.Postern.Token, ".")[0]) {
				w.WriteHeader(http.StatusConflict)
				return
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
		good.ServeHTTP(w, r)
	}
}

// line is a worker that compares fences within something else.
func line(of func(number, queue, line string) string) func(http.Handler, http.ResponseWriter, *http.Request) {
	return func(good http.Handler, w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var c struct {
			Sender  struct{ Queue string }
			Postern struct{ Token string }
		}
		_ = json.Unmarshal(b, &c) // garbage has no queue
		number := c.Postern.Token[:min(12, len(c.Postern.Token))]
		if other := of(number, c.Sender.Queue, r.Header.Get("Postern-Line")); other == "" {
			r.Header.Del("Postern-Line")
		} else {
			r.Header.Set("Postern-Line", other)
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
		good.ServeHTTP(w, r)
	}
}

// answersPerToken is a worker to which each attempt is another transaction.
func answersPerToken() func(http.Handler, http.ResponseWriter, *http.Request) {
	return func(good http.Handler, w http.ResponseWriter, r *http.Request) {
		token := r.Header.Get("Idempotency-Key")
		answers(func(a map[string]any) { a["hash"] = "h-" + token })(good, w, r)
	}
}

// finishes is a worker without blocks that keeps the contract.
func finishes() http.Handler {
	w := worker.New(worker.Options{})
	worker.Handle(w, "T", func(_ context.Context, c worker.Call[data]) (worker.Answer, error) {
		return worker.Done(map[string]string{"paid": c.Transaction}), nil
	})
	return w.Handler()
}

func TestAWorkerWithoutBlocksSaysDoneWithTheSameResult(t *testing.T) {
	t.Parallel()
	absent := []string{"distinct hashes", "status by hash", "status batch", "inclusion", "replacement"}
	for _, tc := range []struct {
		name   string
		broken func(http.Handler) http.Handler
		found  string
	}{
		{"good", at("/none", nil), ""},
		{"done, and no result", at("/status/", answers(func(a map[string]any) { delete(a, "done") })), ""},
		{"another result", at("/status/", answers(func(a map[string]any) {
			if a["state"] == "done" {
				a["done"] = map[string]string{"paid": "nothing"}
			}
		})), `the status by token has done {"paid":"nothing"}`},
		{"unknown", at("/status/", says(200, `{"state":"unknown"}`)), "the token of a call that is done is unknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(tc.broken(finishes()))
			defer s.Close()
			if tc.found == "" {
				pass(t, verifyworker.Options{URL: s.URL, Type: "T"}, absent...)
				return
			}
			r, err := verifyworker.Run(t.Context(), verifyworker.Options{URL: s.URL, Type: "T"})
			if err != nil || r.Failed != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
			for _, c := range r.Checks {
				want := c.Name == "status by token" && strings.Contains(c.Found, tc.found)
				if (c.State == verifyworker.Failed) != want {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// Every check names its paragraph, which the page has; and each section that asks something of a worker is checked.
func TestEveryCheckNamesAParagraphOfTheContract(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/worker-contract.md")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(good())
	defer s.Close()
	secret := []byte("0123456789abcdef01234567") // so that signatures are checked
	r, err := verifyworker.Run(t.Context(), verifyworker.Options{URL: s.URL, Type: "T", Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	checked := map[string]bool{}
	for _, c := range r.Checks {
		if !bytes.Contains(page, []byte("\n**"+c.Paragraph+"** ")) {
			t.Errorf("%s names paragraph %q, which docs/worker-contract.md does not have", c.Name, c.Paragraph)
		}
		section, _, _ := strings.Cut(c.Paragraph, ".")
		checked[section] = true
	}
	for _, h := range regexp.MustCompile(`(?m)^## (\d+) (.*)$`).FindAllSubmatch(page, -1) {
		section, tells := string(h[1]), string(h[1]) == "2" || string(h[1]) == "3" // what Postern sends
		if checked[section] == tells {
			t.Errorf("section %s %s: checked %t", section, h[2], checked[section])
		}
	}
}

func TestWhatCannotBeCheckedSaysWhy(t *testing.T) {
	t.Parallel()
	const gone = "http://127.0.0.1:1" // the kernel gives port 1 to no process that asks for any
	for _, tc := range []struct {
		o    verifyworker.Options
		want string
	}{
		{verifyworker.Options{URL: gone, Type: "T"}, "nothing listens"},
		{verifyworker.Options{URL: "ftp://worker", Type: "T"}, "want http(s)://"},
		{verifyworker.Options{URL: gone}, "the type is empty"},
		{verifyworker.Options{URL: gone, Type: "T", Data: json.RawMessage("{")}, "no JSON"},
		{verifyworker.Options{URL: strings.Replace(gone, "http://", "http://me:secret@", 1), Type: "T"}, "http://me:xxxxx@"},
	} {
		if _, err := verifyworker.Run(t.Context(), tc.o); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v, want %q in it", tc.o, err, tc.want)
		}
	}
}

// syncMap remembers the first value of each key.
type syncMap struct {
	mu   sync.Mutex
	seen map[string]string
}

func (m *syncMap) same(key, value string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = map[string]string{}
	}
	if _, ok := m.seen[key]; !ok {
		m.seen[key] = value
	}
	return m.seen[key] == value
}

func TestASignedWorkerPassesAndOneThatOnlySeemsToDoesNot(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdef0123456789abcdef")
	careful := httptest.NewServer(believing("whsec_" + base64.StdEncoding.EncodeToString(key)))
	defer careful.Close()
	pass(t, verifyworker.Options{URL: careful.URL, Type: "T", Secret: key})

	careless := httptest.NewServer(good())
	defer careless.Close()
	r, err := verifyworker.Run(t.Context(), verifyworker.Options{URL: careless.URL, Type: "T", Secret: key})
	if err != nil || r.Failed != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, c := range r.Checks {
		if (c.State == verifyworker.Failed) != (c.Name == "signature") {
			t.Errorf("%+v", c)
		}
	}
}
