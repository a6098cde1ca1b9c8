package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/api/worker"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

const typ = "SEND_CLAIM_VOTE" // the type of remotetest.Call

type claim struct {
	ClaimUID string `json:"claimUid"`
}

// serve serves w at a URL until the end of t.
func serve(t *testing.T, w *worker.Worker) string {
	t.Helper()
	s := httptest.NewServer(w.Handler())
	t.Cleanup(s.Close)
	return s.URL
}

func sent(_ context.Context, c worker.Call[claim]) (worker.Answer, error) {
	return worker.Sent("h-" + c.Transaction).WithNonce("7").WithFee("100"), nil
}

func included(_ context.Context, q worker.Question) (worker.Status, error) {
	if !strings.HasPrefix(q.Hash, "h-") {
		return worker.Unknown(), nil
	}
	return worker.Included(1, 3), nil
}

func TestTheKitKeepsTheContractWithEitherStore(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(*testing.T) worker.Store{
		"memory": func(*testing.T) worker.Store { return nil },
		"file":   func(t *testing.T) worker.Store { return open(t, filepath.Join(t.TempDir(), "store")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			remotetest.Exercise(t, func(t *testing.T) string {
				w := worker.New(worker.Options{Store: store(t), Status: included})
				worker.Handle(w, typ, sent)
				worker.OnSuccess(w, typ, func(context.Context, worker.Ended[claim]) error { return nil })
				w.MaxRetries(typ, 5)
				return serve(t, w)
			})
		})
	}
}

func TestAHandlerIsToldEverythingAndItsAnswerArrives(t *testing.T) {
	t.Parallel()
	var got worker.Call[claim]
	w := worker.New(worker.Options{})
	worker.Handle(w, typ, func(ctx context.Context, c worker.Call[claim]) (worker.Answer, error) {
		got = c
		if _, ok := ctx.Deadline(); !ok {
			t.Error("its context has no deadline")
		}
		return sent(ctx, c)
	})
	call := remotetest.Call(serve(t, w), 3)
	call.UID, call.Attempt, call.Retries, call.Fence = "mine", 2, 1, 9
	call.FeeFactor, call.Before = "1.1", json.RawMessage(`{"hash":"h-0","done":null,"error":null,"extra":{"n":1.50}}`)
	call.Fee, call.Nonce, call.PreviousHashes, call.Traceparent = "110", "6", []string{"h-0"}, "00-ab"
	a := remotetest.Client(t).Dispatch(t.Context(), call)
	if a.Class != "" || a.Result.Hash != "h-"+named(call) || a.Result.Nonce != "7" || a.Result.Fee != "100" {
		t.Errorf("answer %+v", a)
	}
	want := worker.Info{Token: call.Token(), Transaction: named(call), UID: "mine", Type: typ, Queue: "claim-7", Account: "B62qfake",
		Attempt: 2, Retries: 1, Fence: 9, Line: call.Line.String(), Position: 3, Fee: "110", Nonce: "6",
		PreviousHashes: []string{"h-0"}, Traceparent: "00-ab",
		PostedAt: call.PostedAt, Deadline: got.Deadline}
	want.FeeFactor = "1.1"
	if got.Before.Hash != "h-0" || string(got.Before.All) != string(call.Before) {
		t.Errorf("told of before: %+v", got.Before)
	}
	if fmt.Sprint(got.Info) != fmt.Sprint(want) || got.Data.ClaimUID != "7" || time.Until(got.Deadline) <= 0 {
		t.Errorf("told %+v\nwant %+v", got, want)
	}
}

func TestAnAttemptOffersWhatItIsTold(t *testing.T) {
	for _, c := range []struct {
		fee, factor string
		first       uint64
		want        string
	}{
		{"", "1", 100, "100"}, {"", "1.1", 100, "110"}, {"", "1.1", 101, "112"}, {"", "1.948718", 3, "6"},
		{"", "2", math.MaxUint64, "36893488147419103230"}, {"", "", 100, "100"}, {"", "much", 100, "100"},
		{"", "1e999999999", 100, "100"}, {"", "-2", 100, "100"}, {"", ".", 100, "100"}, {"77", "1.1", 100, "77"},
	} {
		if got := (worker.Info{Fee: c.fee, FeeFactor: c.factor}).Offer(c.first); got != c.want {
			t.Errorf("fee %q, factor %q of %d: %s, want %s", c.fee, c.factor, c.first, got, c.want)
		}
	}
}

func TestWhatAHandlerReturnsIsWhatPosternMakesOfIt(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, tc := range []struct {
		name     string
		answer   worker.Answer
		err      error
		class    outbox.Class
		code     string
		status   outbox.StatusState // by token, afterwards
		repeated bool               // sent again, the handler runs again
	}{
		{"sent", worker.Sent("h-1"), nil, "", "", outbox.StatusIncluded, false},
		{"done", worker.Done(map[string]int{"n": 1}), nil, "", "", outbox.StatusIncluded, false},
		{"done with nothing", worker.Done(nil), nil, "", "", outbox.StatusIncluded, false},
		{"done with too much", worker.Done(strings.Repeat("x", 2<<20)), nil, "", "", outbox.StatusIncluded, false},
		{"done with what is no JSON", worker.Done(func() {}), nil, "", "", outbox.StatusIncluded, false},
		{"rejected", worker.Answer{}, worker.Rejected("no_money", "m"), outbox.ClassRejected, "no_money", outbox.StatusFailed, false},
		{"retry", worker.Answer{}, fmt.Errorf("pay: %w", worker.Retry("busy", "m", time.Minute)), outbox.ClassRetry, "busy", outbox.StatusFailed, false},
		{"blocked", worker.Answer{}, worker.Blocked("closed", "m", until), outbox.ClassBlocked, "closed", outbox.StatusUnknown, true},
		{"ambiguous", worker.Answer{}, worker.Ambiguous("timeout", "m"), outbox.ClassAmbiguous, "timeout", outbox.StatusUnknown, true},
		{"another error", worker.Answer{}, errors.New("m"), outbox.ClassAmbiguous, "handler_failed", outbox.StatusUnknown, true},
		{"nothing", worker.Answer{}, nil, outbox.ClassAmbiguous, "answer_empty", outbox.StatusUnknown, true},
		{"a hash that is none", worker.Sent("h 1"), nil, outbox.ClassAmbiguous, "answer_invalid", outbox.StatusUnknown, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var runs, again int
			w := worker.New(worker.Options{Status: included})
			worker.Handle(w, typ, func(_ context.Context, c worker.Call[claim]) (worker.Answer, error) {
				if runs++; c.Again {
					again++
				}
				return tc.answer, tc.err
			})
			call, client := remotetest.Call(serve(t, w), 1), remotetest.Client(t)
			a := client.Dispatch(t.Context(), call)
			if a.Class != tc.class || a.Code != tc.code {
				t.Fatalf("class %q code %q (%s), want %q %q", a.Class, a.Code, a.Message, tc.class, tc.code)
			}
			switch {
			case tc.class == "" && a.Result.Hash == "" && len(a.Result.Done) == 0:
				t.Error("neither hash nor done arrived")
			case tc.class == outbox.ClassRetry && a.After != time.Minute:
				t.Errorf("after %s, want a minute", a.After)
			case tc.class == outbox.ClassBlocked && !a.Until.Equal(until):
				t.Errorf("until %s, want %s", a.Until, until)
			}
			if st := client.Status(t.Context(), call.BaseURL, typ, call.Token(), ""); st.State != tc.status ||
				st.Final != (tc.class == outbox.ClassRejected) {
				t.Errorf("status by token: %+v, want %s", st, tc.status)
			}
			st := client.Status(t.Context(), call.BaseURL, typ, call.Token(), "")
			if string(st.Done) != string(a.Result.Done) {
				t.Errorf("the dispatch was answered with done %.99s, the question with %.99s", a.Result.Done, st.Done)
			}
			b := client.Dispatch(t.Context(), call)
			if b.Class != a.Class || b.Code != a.Code || b.Result.Hash != a.Result.Hash || string(b.Result.Done) != string(a.Result.Done) {
				t.Errorf("sent again: %+v, want %+v", b, a)
			}
			if (runs == 2) != tc.repeated {
				t.Errorf("the handler ran %d times", runs)
			}
			if open := tc.class == outbox.ClassAmbiguous; (again == 1) != open {
				t.Errorf("%d runs were told that the token began before", again)
			}
		})
	}
}

func TestAPanicIsAmbiguousAndEndsNothingElse(t *testing.T) {
	t.Parallel()
	w := worker.New(worker.Options{})
	worker.Handle(w, typ, func(_ context.Context, c worker.Call[claim]) (worker.Answer, error) {
		if !c.Again {
			panic("out of cheese")
		}
		return sent(t.Context(), c)
	})
	call, client := remotetest.Call(serve(t, w), 1), remotetest.Client(t)
	if a := client.Dispatch(t.Context(), call); a.Class != outbox.ClassAmbiguous || a.Code != "handler_panicked" || !strings.Contains(a.Message, "cheese") {
		t.Errorf("%+v", a)
	}
	if a := client.Dispatch(t.Context(), call); a.Class != "" {
		t.Errorf("sent again: %+v", a)
	}
}

func TestDataThatDoesNotFitIsRejectedAndUnknownTypesToo(t *testing.T) {
	t.Parallel()
	w := worker.New(worker.Options{})
	worker.Handle(w, typ, sent)
	worker.Handle(w, "LOOSE", func(context.Context, worker.Call[map[string]any]) (worker.Answer, error) { return worker.Done(1), nil })
	client, url := remotetest.Client(t), serve(t, w)
	for i, tc := range []struct{ typ, data, code string }{
		{typ, `[1]`, "bad_data"}, {typ, `null`, "bad_data"}, {typ, ``, "bad_data"}, {"LOOSE", `null`, ""},
	} {
		call := remotetest.Call(url, int64(i+1))
		call.Type, call.Data = tc.typ, []byte(tc.data)
		a := client.Dispatch(t.Context(), call)
		if a.Code != tc.code || (tc.code != "") != (a.Class == outbox.ClassRejected) {
			t.Errorf("%s %s: %+v, want code %q", tc.typ, tc.data, a, tc.code)
		}
	}
}

// A type that a worker does not know may be known to the one that is rolled out next: nothing ends of it.
func TestATypeWithoutHandlerIsBlocked(t *testing.T) {
	t.Parallel()
	w := worker.New(worker.Options{})
	worker.Handle(w, typ, sent)
	call := remotetest.Call(serve(t, w), 1)
	call.Type = "OTHER"
	a := remotetest.Client(t).Dispatch(t.Context(), call)
	if a.Class != outbox.ClassBlocked || a.Code != "unknown_type" {
		t.Errorf("%+v, want blocked", a)
	}
}

func TestWhatIsBlockedSaysHowMuch(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	for scope, err := range map[string]error{
		"":       worker.Blocked("c", "m", until),
		"sender": worker.BlockedSender("c", "m", until),
		"worker": worker.BlockedWorker("c", "m", until),
	} {
		w := worker.New(worker.Options{})
		worker.Handle(w, typ, func(context.Context, worker.Call[claim]) (worker.Answer, error) {
			return worker.Answer{}, err
		})
		resp, err := http.Post(serve(t, w)+"/dispatch/"+typ, "application/json",
			strings.NewReader(`{"txData":{"uid":"1","data":{}}}`))
		if err != nil {
			t.Fatal(err)
		}
		var body struct{ Error worker.Error }
		err = json.NewDecoder(resp.Body).Decode(&body)
		resp.Body.Close()
		if err != nil || body.Error.Scope != scope || body.Error.Class != "blocked" || !body.Error.Until.Equal(until) {
			t.Errorf("scope %q: %+v, %v", scope, body, err)
		}
	}
}

func TestFencesAreComparedWithinALine(t *testing.T) {
	t.Parallel()
	w := worker.New(worker.Options{})
	worker.Handle(w, typ, sent)
	url, client := serve(t, w), remotetest.Client(t)
	for i, tc := range []struct {
		what   string
		number int64 // of the queue: another one once it was reaped and comes back
		name   string
		line   int64 // 0: none
		fence  int64
		taken  bool
	}{
		{what: "the first", number: 7, name: "q", line: 1, fence: 5, taken: true},
		{what: "a lower one", number: 7, name: "q", line: 1, fence: 4},
		{what: "a lower one of the queue after it came back", number: 9, name: "q", line: 1, fence: 4},
		{what: "an equal one of the queue after it came back", number: 9, name: "q", line: 1, fence: 5, taken: true},
		{what: "a lower one of a queue of that name elsewhere", number: 8, name: "q", line: 2, fence: 1, taken: true},
		{what: "unordered work, which has no line", number: 11, fence: 3, taken: true},
		{what: "a lower one without a line", number: 11, fence: 2, taken: true},
	} {
		call := remotetest.Call(url, int64(i+1))
		call.ID.Queue, call.Queue, call.Line, call.Fence = tc.number, tc.name, outbox.Line{Queue: tc.line}, tc.fence
		a := client.Dispatch(t.Context(), call)
		if taken := a.Class == ""; taken != tc.taken || !taken && a.Code != "stale_fence" {
			t.Errorf("%s: %+v, want it taken %t", tc.what, a, tc.taken)
		}
	}
}

func TestManyWithOneTokenRunOneHandlerAndAQuestionMeanwhileSaysNothing(t *testing.T) {
	t.Parallel()
	var runs atomic.Int32
	inside, let := make(chan struct{}), make(chan struct{})
	w := worker.New(worker.Options{})
	worker.Handle(w, typ, func(_ context.Context, c worker.Call[claim]) (worker.Answer, error) {
		if runs.Add(1) == 1 {
			close(inside)
		}
		<-let
		return worker.Done(runs.Load()), nil
	})
	call, client := remotetest.Call(serve(t, w), 1), remotetest.Client(t)
	results := make([]outbox.Answer, 8)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i] = client.Dispatch(t.Context(), call) })
	}
	<-inside
	if st := client.Status(t.Context(), call.BaseURL, typ, call.Token(), ""); st.State != outbox.StatusUnreachable {
		t.Errorf("while it runs: %+v, want an answer that says nothing", st)
	}
	close(let)
	wg.Wait()
	for _, a := range results {
		if a.Class != "" || string(a.Result.Done) != "1" {
			t.Errorf("%+v, want the answer of the first", a)
		}
	}
}

func TestAHandlerGoesOnWhenItsCallerHasLeft(t *testing.T) {
	t.Parallel()
	inside, let := make(chan struct{}), make(chan struct{})
	w := worker.New(worker.Options{})
	worker.Handle(w, typ, func(ctx context.Context, c worker.Call[claim]) (worker.Answer, error) {
		close(inside)
		<-let
		return worker.Sent("h-1"), ctx.Err()
	})
	call, client := remotetest.Call(serve(t, w), 1), remotetest.Client(t)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan outbox.Answer)
	go func() { left <- client.Dispatch(ctx, call) }()
	<-inside
	leave()
	if a := <-left; a.Class != outbox.ClassAmbiguous {
		t.Errorf("%+v", a)
	}
	close(let)
	if a := client.Dispatch(t.Context(), call); a.Class != "" || a.Result.Hash != "h-1" {
		t.Errorf("sent again: %+v, want the answer of the run that nobody waited for", a)
	}
}

func TestAHookRunsOnceUnlessItFails(t *testing.T) {
	t.Parallel()
	var told []worker.Ended[claim]
	fail := true
	w := worker.New(worker.Options{})
	worker.OnFailure(w, typ, func(_ context.Context, e worker.Ended[claim]) error {
		if told = append(told, e); fail {
			return errors.New("not now")
		}
		return nil
	})
	call, client := remotetest.Call(serve(t, w), 1), remotetest.Client(t)
	var got []int
	for range 3 {
		a := client.Hook(t.Context(), call, outbox.OnFailure, []byte(`{"hash":"h-1"}`), []byte(`{"code":"500"}`), call.ID.HookToken(call.PostedAt, outbox.OnFailure))
		got = append(got, a.Status)
		fail = false
	}
	if fmt.Sprint(got) != "[503 200 200]" || len(told) != 2 {
		t.Fatalf("statuses %v after %d runs", got, len(told))
	}
	if e := told[1]; e.Transaction != named(call) || e.Data.ClaimUID != "7" || e.Result.Hash != "h-1" || string(e.Result.Error) != `{"code":"500"}` || e.Again {
		t.Errorf("told %+v", e)
	}
	if a := client.Hook(t.Context(), call, outbox.OnSuccess, nil, nil, "x.on-success"); !a.Missing {
		t.Errorf("a hook that it does not have: %+v", a)
	}
}

func TestAStatusThatCannotBeAskedSaysNothing(t *testing.T) {
	t.Parallel()
	t.Run("an error", func(t *testing.T) { saysNothing(t, errors.New("the node is down"), "the node is down") })
	t.Run("no state", func(t *testing.T) { saysNothing(t, nil, "want pending, included, done, failed or unknown") })
}

func saysNothing(t *testing.T, err error, why string) {
	w := worker.New(worker.Options{Status: func(context.Context, worker.Question) (worker.Status, error) { return worker.Status{}, err }})
	worker.Handle(w, typ, sent)
	call, client := remotetest.Call(serve(t, w), 1), remotetest.Client(t)
	client.Dispatch(t.Context(), call)
	for _, st := range append(client.StatusBatch(t.Context(), call.BaseURL, typ, []string{"h-1", "h-2"}),
		client.Status(t.Context(), call.BaseURL, typ, "", "h-1"), client.Status(t.Context(), call.BaseURL, typ, call.Token(), "")) {
		if st.State != outbox.StatusUnreachable {
			t.Errorf("%+v, want unreachable", st)
		}
	}
	resp, err := http.Post(call.BaseURL+"/status/"+typ, "application/json", strings.NewReader(`{"hash":"h-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 503 || !strings.Contains(string(b), why) {
		t.Errorf("HTTP %d %s, want 503 with %q in it", resp.StatusCode, b, why)
	}
}

func TestItStopsWhenCallsHaveEndedAndCutsOffThoseThatDoNot(t *testing.T) {
	t.Parallel()
	for name, grace := range map[string]time.Duration{"in time": time.Minute, "cut off": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inside, let := make(chan struct{}), make(chan struct{})
			store := open(t, filepath.Join(t.TempDir(), "store"))
			w := worker.New(worker.Options{Store: store, Grace: grace})
			worker.Handle(w, typ, func(ctx context.Context, c worker.Call[claim]) (worker.Answer, error) {
				close(inside)
				select {
				case <-let:
					return worker.Sent("h-1"), nil
				case <-ctx.Done():
					return worker.Answer{}, ctx.Err()
				}
			})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			stopped, answered := make(chan error), make(chan outbox.Answer)
			go func() { stopped <- w.Serve(ctx, l) }()
			call, client := remotetest.Call("http://"+l.Addr().String(), 1), remotetest.Client(t)
			go func() { answered <- client.Dispatch(t.Context(), call) }()
			<-inside
			stop()
			want := outbox.ClassAmbiguous
			if grace > time.Second {
				close(let)
				want = ""
			}
			if a := <-answered; a.Class != want {
				t.Errorf("%+v, want class %q", a, want)
			}
			if err := <-stopped; err != nil {
				t.Error(err)
			}
			if _, err := store.Find(t.Context(), "x", ""); err == nil {
				t.Error("the store is still open")
			}
			if a := client.Dispatch(t.Context(), call); a.Class != outbox.ClassBlocked {
				t.Errorf("afterwards: %+v, want nobody there", a)
			}
		})
	}
}

func TestItCountsAndTellsItsHealth(t *testing.T) {
	t.Parallel()
	ill := errors.New("the node is down")
	w := worker.New(worker.Options{Health: func(context.Context) error { return ill }})
	worker.Handle(w, typ, sent)
	url, client := serve(t, w), remotetest.Client(t)
	for range 2 {
		client.Dispatch(t.Context(), remotetest.Call(url, 1))
	}
	late := remotetest.Call(url, 2)
	late.Fence = 0
	client.Dispatch(t.Context(), late)
	body := get(t, url+"/metrics", 200)
	for _, line := range []string{`{type="SEND_CLAIM_VOTE",outcome="sent"} 1`, `outcome="repeated"} 1`, `outcome="stale"} 1`, "postern_worker_running 0"} {
		if !strings.Contains(body, line) {
			t.Errorf("the counters lack %s:\n%s", line, body)
		}
	}
	if body := get(t, url+"/health", 503); !strings.Contains(body, "the node is down") {
		t.Error(body)
	}
	ill = nil
	get(t, url+"/health", 200)
}

func get(t *testing.T, url string, want int) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		t.Errorf("%s: HTTP %d (%v), want %d", url, resp.StatusCode, err, want)
	}
	return string(b)
}

// named is what a worker knows the transaction of a call by: its token without the attempt.
func named(call remote.Call) string {
	return strings.TrimSuffix(call.Token(), "."+strconv.Itoa(call.Attempt))
}
