package remote_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

func TestWhatWasNotSentIsBlocked(t *testing.T) {
	t.Parallel()
	client := remotetest.Client(t)
	fake := remotetest.NewFake(t)
	fake.Refuse()
	for _, tc := range []struct{ name, url, code string }{
		{"refused", fake.URL(), "connection_refused"},
		{"no such name", "http://worker.invalid", "dns"},
		{"TLS to one that speaks none", "https" + strings.TrimPrefix(remotetest.NewFake(t).URL(), "http"), ""},
		{"no URL", "", "bad_worker_url"},
		{"another scheme", "file:///etc/passwd", "bad_worker_url"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := client.Dispatch(t.Context(), remotetest.Call(tc.url, 1))
			if a.Class != outbox.ClassBlocked || tc.code != "" && a.Code != tc.code {
				t.Errorf("got class %q code %q (%s), want blocked %q", a.Class, a.Code, a.Message, tc.code)
			}
		})
	}
}

func TestAWorkerThatHangsOrDripsEndsByTheTimeoutAndIsAmbiguous(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]remotetest.Reply{"hang": remotetest.Hang(), "drip": remotetest.Drip(), "executed, then hang": remotetest.Accept("h").ThenHang()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := remotetest.NewFake(t)
			fake.Script(remotetest.Match{}, reply)
			call := remotetest.Call(fake.URL(), 1)
			call.Timeout = 100 * time.Millisecond
			a := remotetest.Client(t).Dispatch(t.Context(), call)
			if a.Class != outbox.ClassAmbiguous || a.Code != "timeout" {
				t.Errorf("got class %q code %q (%s), want ambiguous timeout", a.Class, a.Code, a.Message)
			}
			if a.Elapsed < call.Timeout || a.Elapsed > 10*time.Second {
				t.Errorf("ended after %s, want about %s", a.Elapsed, call.Timeout)
			}
		})
	}
}

// A handshake that is not answered: the request itself is never written.
func TestATimeoutBeforeAnythingIsSentIsBlocked(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	call := remotetest.Call("https://"+l.Addr().String(), 1)
	call.Timeout = 50 * time.Millisecond
	if a := remotetest.Client(t).Dispatch(t.Context(), call); a.Class != outbox.ClassBlocked || a.Code != "timeout" {
		t.Errorf("got class %q code %q (%s), want blocked timeout", a.Class, a.Code, a.Message)
	}
}

func TestARefusedAddressIsBlockedAndNamesTheLever(t *testing.T) {
	t.Parallel()
	fake := remotetest.NewFake(t)
	client := remote.New(remote.Config{})
	defer client.Close()
	for _, url := range []string{fake.URL(), "http://169.254.169.254/latest", "http://[::1]:1", "http://10.0.0.1", "http://[::ffff:127.0.0.1]:80", "http://0.0.0.0:1"} {
		a := client.Dispatch(t.Context(), remotetest.Call(url, 1))
		if a.Class != outbox.ClassBlocked || a.Code != "address_refused" {
			t.Errorf("%s: got class %q code %q (%s), want blocked address_refused", url, a.Class, a.Code, a.Message)
		}
		for _, lever := range []string{"POSTERN_WORKER_ALLOW_CIDR", "--worker-allow-cidr"} {
			if !strings.Contains(a.Message, lever) {
				t.Errorf("%s: message %q does not name %s", url, a.Message, lever)
			}
		}
	}
	if n := len(fake.Calls(remotetest.Match{})); n != 0 {
		t.Errorf("%d calls reached a refused address", n)
	}
}

func TestProxiesOfTheEnvironmentAreIgnored(t *testing.T) {
	fake, proxy := remotetest.NewFake(t), remotetest.NewFake(t)
	t.Setenv("HTTP_PROXY", proxy.URL())
	t.Setenv("NO_PROXY", "")
	remotetest.Client(t).Dispatch(t.Context(), remotetest.Call(fake.URL(), 1))
	if len(proxy.Calls(remotetest.Match{})) != 0 || len(fake.Calls(remotetest.Match{})) != 1 {
		t.Error("the call did not go straight to the worker")
	}
}

func TestDelaysThatAWorkerNames(t *testing.T) {
	t.Parallel()
	soon, most := time.Now().Add(time.Hour).UTC(), 5*time.Minute
	own := func(status int) remotetest.Reply {
		return remotetest.HTTP(status, `{"error":{"class":"blocked"}}`)
	}
	for _, tc := range []struct {
		name       string
		reply      remotetest.Reply
		from, till time.Duration
	}{
		{"seconds", remotetest.HTTP(429, "").With("Retry-After", "90"), 90 * time.Second, 90 * time.Second},
		{"date", own(429).With("Retry-After", soon.Format(http.TimeFormat)), 59 * time.Minute, time.Hour},
		{"for ever", own(429).With("Retry-After", "999999999999999999"), 24 * time.Hour, 24 * time.Hour},
		{"date, of a gateway", remotetest.HTTP(429, "").With("Retry-After", soon.Format(http.TimeFormat)), most, most},
		{"hours, of a gateway", remotetest.HTTP(429, "").With("Retry-After", "86400"), most, most},
		{"hours, of a maintenance page", remotetest.HTTP(503, page).With("Retry-After", "14400"), most, most},
		{"hours, with a page in place of an answer", remotetest.Body(page).With("Retry-After", "14400"), most, most},
		{"hours, of what refuses the request", remotetest.HTTP(422, "").With("Retry-After", "14400"), most, most},
		{"error.until of a gateway", remotetest.HTTP(429, `{"error":{"until":"2999-01-01T00:00:00Z"}}`), 0, 0},
		{"error.after of a gateway", remotetest.HTTP(400, `{"error":{"after":"90s"}}`), 0, 0},
		{"nonsense", remotetest.HTTP(429, "").With("Retry-After", "-5"), 0, 0},
		{"error.after as a number", remotetest.FailWith(map[string]any{"code": 1, "class": "retry", "after": 2.5}), 2500 * time.Millisecond, 2500 * time.Millisecond},
		{"error.after as a duration", remotetest.FailWith(map[string]any{"class": "retry", "after": "90s"}), 90 * time.Second, 90 * time.Second},
		{"error.after without bound", remotetest.FailWith(map[string]any{"class": "retry", "after": 1e300}), 24 * time.Hour, 24 * time.Hour},
		{"error.until", remotetest.FailWith(map[string]any{"class": "blocked", "until": soon.Format(time.RFC3339)}), 59 * time.Minute, time.Hour},
		{"error.until in the past", remotetest.FailWith(map[string]any{"class": "blocked", "until": "2001-01-01T00:00:00Z"}), 0, 0},
		{"503 with Retry-After", remotetest.HTTP(503, "").With("Retry-After", "7"), 6 * time.Second, 7 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fake := remotetest.NewFake(t)
			fake.Script(remotetest.Match{}, tc.reply)
			a := remotetest.Client(t).Dispatch(t.Context(), remotetest.Call(fake.URL(), 1))
			got := a.After
			if !a.Until.IsZero() {
				got = a.Until.Sub(a.StartedAt.Add(a.Elapsed))
			}
			if got < tc.from-time.Second/100 || got > tc.till+time.Second/100 {
				t.Errorf("got %s, want %s to %s", got, tc.from, tc.till)
			}
		})
	}
}

// A worker is left alone until the moment that it names, and not a microsecond less, which is the least that PostgreSQL
// tells apart.
func TestABlockedWorkerIsLeftAloneForAsLongAsItSays(t *testing.T) {
	t.Parallel()
	named := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for name, at := range map[string]time.Time{
		"a microsecond":           named.Add(123457 * time.Microsecond),
		"a part of a microsecond": named.Add(123456001 * time.Nanosecond),
		"a second":                named,
	} {
		fake := remotetest.NewFake(t)
		fake.Script(remotetest.Match{}, remotetest.FailWith(map[string]any{
			"class": "blocked",
			"until": at.Format(time.RFC3339Nano),
		}))
		a := remotetest.Client(t).Dispatch(t.Context(), remotetest.Call(fake.URL(), 1))
		kept := a.Until.Truncate(time.Microsecond) // as PostgreSQL keeps it
		if kept.Before(at) || kept.Sub(at) >= time.Microsecond {
			t.Errorf("%s: until %s, want %s", name, kept, at)
		}
	}
}

func TestWhatAnAnswerCarriesIsKeptFitForPostgreSQL(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ body, done, data, nonce, fee, message string }{
		{body: `{"hash":"h","data":{"a": [1, 2]},"nonce":"17","fee":100000000}`, data: `{"a": [1, 2]}`, nonce: "17", fee: "100000000"},
		{body: `{"hash":"h","nonce":17,"fee":"-1"}`, nonce: "17"},
		{body: `{"hash":"h","nonce":"x17","fee":1.5}`},
		{body: `{"done":{"a\u0000":"b\u0000c"}}`, done: "{\"a\uFFFD\":\"b\uFFFDc\"}"},
		{body: `{"done":"\ud800<&>"}`, done: "\"\uFFFD<&>\""},
		{body: "{\"done\":\"\xff\"}", done: "\"\uFFFD\""},
		{body: `{"done":[1e5,1e999999,123456789012345678901234567890]}`, done: `[1e5,"1e999999",123456789012345678901234567890]`},
		{body: `{"done":"say \"\\u0000\" aloud"}`, done: `"say \"\\u0000\" aloud"`},
		{body: `{"hash":"","done":null,"error":{"code":20203,"message":"a\u0000b\nc` + strings.Repeat("é", 2000) + `"}}`, message: "a b c" + strings.Repeat("é", 509)},
	} {
		fake := remotetest.NewFake(t)
		fake.Script(remotetest.Match{}, remotetest.Body(tc.body))
		a := remotetest.Client(t).Dispatch(t.Context(), remotetest.Call(fake.URL(), 1))
		r := a.Result
		if string(r.Done) != tc.done || string(r.Data) != tc.data || r.Nonce != tc.nonce || r.Fee != tc.fee || a.Message != tc.message {
			t.Errorf("%.80s: got done %s data %s nonce %q fee %q message %q", tc.body, r.Done, r.Data, r.Nonce, r.Fee, a.Message)
		}
	}
}

// net/http repeats a request with an Idempotency-Key by itself when a kept connection breaks. Ours must
// not: whether it was done is asked first (S2.10).
func TestACallOverAKeptConnectionThatBreaksIsNotRepeated(t *testing.T) {
	t.Parallel()
	fake, client := remotetest.NewFake(t), remotetest.Client(t)
	fake.Script(remotetest.Match{}, remotetest.Accept("h"), remotetest.Drop(), remotetest.Accept("h2"))
	if a := client.Dispatch(t.Context(), remotetest.Call(fake.URL(), 1)); a.Class != "" {
		t.Fatalf("the first call: %+v", a)
	}
	if a := client.Dispatch(t.Context(), remotetest.Call(fake.URL(), 2)); a.Class != outbox.ClassAmbiguous || a.Code != "connection_lost" {
		t.Errorf("got class %q code %q (%s), want ambiguous connection_lost", a.Class, a.Code, a.Message)
	}
	if n := len(fake.Calls(remotetest.Match{})); n != 2 {
		t.Errorf("the worker saw %d calls for 2 dispatches", n)
	}
}

func TestAWorkerThatRestartsIsCalledOverANewConnection(t *testing.T) {
	t.Parallel()
	fake, client := remotetest.NewFake(t), remotetest.Client(t)
	for seq := range int64(5) {
		if a := client.Dispatch(t.Context(), remotetest.Call(fake.URL(), seq)); a.Class != "" {
			t.Errorf("call %d to a worker that is back: %+v", seq, a)
		}
		fake.Refuse()
		if a := client.Dispatch(t.Context(), remotetest.Call(fake.URL(), seq)); a.Class != outbox.ClassBlocked || a.Code != "connection_refused" {
			t.Errorf("call %d to a stopped worker: class %q code %q", seq, a.Class, a.Code)
		}
		fake.Listen(t)
	}
}

func TestACallThatIsCalledOffIsNeverRejected(t *testing.T) {
	t.Parallel()
	fake := remotetest.NewFake(t)
	fake.Script(remotetest.Match{}, remotetest.Hang())
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan outbox.Answer)
	go func() { answer <- remotetest.Client(t).Dispatch(ctx, remotetest.Call(fake.URL(), 1)) }()
	if _, err := fake.WaitCall(t.Context(), remotetest.Match{Op: remotetest.OpDispatch}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if a := <-answer; a.Class != outbox.ClassAmbiguous || a.Code != "cancelled" {
		t.Errorf("got class %q code %q, want ambiguous cancelled", a.Class, a.Code)
	}
}

func TestAWorkerIsToldEverything(t *testing.T) {
	t.Parallel()
	fake := remotetest.NewFake(t)
	call := remotetest.Call(fake.URL()+"/", 3)
	call.Type, call.UID, call.Attempt, call.Retries, call.Fence = "A TYPE/1", "claim \"7\" é", 2, 1, 9
	call.Fee, call.PreviousHashes, call.Nonce, call.Hash, call.SenderWorkerURL = "110", []string{"5Ja", "5Jb"}, "4", "5Jb", "http://w"
	call.Line = outbox.Line{Installation: 4711, Queue: 7}
	call.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	call.Data = json.RawMessage(`{"text": "<é>", "n": 12345678901234567890}`)
	a := remotetest.Client(t).Dispatch(t.Context(), call)
	if a.Class != "" || a.Result.Hash == "" {
		t.Fatalf("not accepted: %+v", a)
	}
	got := fake.Calls(remotetest.Match{})[0]
	token := call.Token()
	if got.Type != call.Type || got.UID != call.UID || string(got.Data) != string(call.Data) || got.State != "DISPATCHING" || got.Hash != "5Jb" ||
		got.Account != "B62qfake" || got.SecretKey != "" || got.WorkerURL != "http://w" || got.Queue != "claim-7" || got.SenderState != "BLOCKED" || got.Retries != 1 ||
		got.Token != token || got.Attempt != 2 || got.Fence != 9 || got.Position != 3 || got.Fee != "110" || got.Nonce != "4" ||
		len(got.PreviousHashes) != 2 || got.PreviousHashes[1] != "5Jb" {
		t.Errorf("the worker saw %+v", got)
	}
	for name, want := range map[string]string{
		"Postern-Transaction": call.ID.String(), "Postern-Attempt": "2", "Postern-Fence": "9", "Idempotency-Key": token,
		"Postern-Line": "40f62466f480a2f19bd33fcb", "Traceparent": call.Traceparent, "Content-Type": "application/json", "Postern-Deadline": got.Deadline, "User-Agent": "postern",
	} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("header %s: got %q, want %q", name, v, want)
		}
	}
	if at, err := time.Parse(time.RFC3339, got.Deadline); err != nil || at.Before(a.StartedAt.Add(19*time.Second)) {
		t.Errorf("deadline %q: want RFC 3339, the timeout after the start", got.Deadline)
	}
	if !json.Valid(got.Body) {
		t.Errorf("the body is no JSON: %s", got.Body)
	}
	call.UID, call.Line = "", outbox.Line{}
	remotetest.Client(t).Dispatch(t.Context(), call)
	got = fake.Calls(remotetest.Match{})[1]
	if got.UID != call.ID.String() {
		t.Errorf("without a uid the worker saw %q, want the id", got.UID)
	}
	if line, sent := got.Header["Postern-Line"]; sent {
		t.Errorf("work without a line was sent with the line %q", line)
	}
}
