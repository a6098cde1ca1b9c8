package remote_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// overMycelium is a worker behind a node, and the node of those who call it.
func overMycelium(t *testing.T) (near, far *remotetest.MyceliumNode, worker *remotetest.Fake) {
	t.Helper()
	network := remotetest.NewMycelium(t)
	near, far, worker = network.Node(), network.Node(), remotetest.NewFake(t)
	far.Serves(worker.URL())
	return near, far, worker
}

func TestAWorkerBehindMyceliumIsAWorker(t *testing.T) {
	t.Parallel()
	network := remotetest.NewMycelium(t)
	near := network.Node()
	remotetest.ExerciseBy(t, near.Client, func(t *testing.T) string {
		fake, far := remotetest.NewFake(t), network.Node()
		fake.Fencing(true)
		fake.IncludeAll(true)
		far.Serves(fake.URL())
		return far.Worker()
	})
}

func TestAnswersOverMyceliumAreSortedAsAllAre(t *testing.T) {
	t.Parallel()
	near, far, worker := overMycelium(t)
	client := near.Client(t)
	for seq, tc := range []struct {
		name  string
		reply remotetest.Reply
		class outbox.Class
		code  string
	}{
		{"done", remotetest.HTTP(200, `{"done":{"n":1}}`), "", ""},
		{"rejected", remotetest.HTTP(422, `{"error":{"class":"rejected","code":"no"}}`), outbox.ClassRejected, "no"},
		{"retry", remotetest.HTTP(500, `{"error":{"class":"retry","code":"later"}}`), outbox.ClassRetry, "later"},
		{"blocked", remotetest.HTTP(503, `{"error":{"class":"blocked","code":"full"}}`), outbox.ClassBlocked, "full"},
		{"of a gateway", remotetest.HTTP(502, `bad gateway`), outbox.ClassAmbiguous, "http_502"},
		{"redirect", remotetest.HTTP(302, ``), outbox.ClassAmbiguous, "redirect"},
		{"too large", remotetest.HTTP(200, `"`+strings.Repeat("x", 1<<20)+`"`), outbox.ClassAmbiguous,
			"answer_too_large"},
		{"far too large", remotetest.HTTP(200, `"`+strings.Repeat("x", 2<<20)+`"`), outbox.ClassAmbiguous,
			"answer_too_large"},
	} {
		worker.Unscript()
		worker.Script(remotetest.Match{}, tc.reply)
		a := client.Dispatch(t.Context(), remotetest.Call(far.Worker(), int64(seq+1)))
		if a.Class != tc.class || a.Code != tc.code {
			t.Errorf("%s: class %q code %q (%s), want %q %q", tc.name, a.Class, a.Code, a.Message, tc.class, tc.code)
		}
	}
}

// A dispatch of the size that workers must take goes over, in messages that a node takes, and is signed as it went.
func TestTheLargestBodyGoesOverMycelium(t *testing.T) {
	t.Parallel()
	near, far, worker := overMycelium(t)
	call := remotetest.Call(far.Worker()+"/below", 1)
	call.Data = []byte(`"` + strings.Repeat("x", 1<<20-4<<10) + `"`)
	done := `{"done":"` + strings.Repeat("y", 1<<20-4<<10) + `"}`
	worker.Script(remotetest.Match{}, remotetest.HTTP(200, done))
	secret := []byte("01234567890123456789abcdefabcdef")
	a := near.Client(t).Dispatch(remote.Signed(t.Context(), secret), call)
	if a.Class != "" && a.Code != "http_404" {
		t.Fatalf("class %q code %q (%s)", a.Class, a.Code, a.Message)
	}
	call.BaseURL = far.Worker() + "/"
	if a = near.Client(t).Dispatch(remote.Signed(t.Context(), secret), call); len(a.Result.Done) < 1<<20-8<<10 {
		t.Fatalf("class %q code %q (%s), %d bytes", a.Class, a.Code, a.Message, len(a.Result.Done))
	}
	calls := worker.Calls(remotetest.Match{Op: remotetest.OpDispatch})
	seen := calls[len(calls)-1]
	if len(seen.Data) != len(call.Data) || seen.Header.Get("Webhook-Signature") == "" ||
		seen.Header.Get("Idempotency-Key") != call.Token() {
		t.Errorf("%d bytes of data, header %v", len(seen.Data), seen.Header)
	}
}

// A call that is larger than a node takes will never go over, and ends instead of waiting; the node is not asked.
func TestWhatIsTooLargeForMyceliumIsRejected(t *testing.T) {
	t.Parallel()
	near, far, _ := overMycelium(t)
	near.Instead(func(http.ResponseWriter, *http.Request) bool {
		t.Error("the node is asked")
		return false
	})
	call := remotetest.Call(far.Worker(), 1)
	call.Data = []byte(`"` + strings.Repeat("x", 1<<20+1<<18) + `"`)
	if a := near.Client(t).Dispatch(t.Context(), call); a.Class != outbox.ClassRejected ||
		a.Code != "too_large_for_mycelium" || a.Unsent {
		t.Errorf("class %q code %q unsent %v (%s)", a.Class, a.Code, a.Unsent, a.Message)
	}
}

// A reply that does not come in time says nothing: the worker may have acted. What the node does not take was not sent.
func TestWhatTheNodeSaysOfAMessage(t *testing.T) {
	t.Parallel()
	const message = `{"id":"0123456789abcdef","srcPk":"KEY","payload":"PAYLOAD"}`
	for _, tc := range []struct {
		name   string
		status int
		body   string
		class  outbox.Class
		code   string
	}{
		{"no reply in time", 408, `{"id":"0123456789abcdef"}`, outbox.ClassAmbiguous, "timeout"},
		{"no reply waited for", 201, `{"id":"0123456789abcdef"}`, outbox.ClassAmbiguous, "mycelium_unclear"},
		{"not taken", 400, ``, outbox.ClassBlocked, "mycelium_refused"},
		{"too large for it", 413, `length limit exceeded`, outbox.ClassRejected, "too_large_for_mycelium"},
		{"broken", 500, ``, outbox.ClassAmbiguous, "mycelium_unclear"},
		{"a redirect", 302, ``, outbox.ClassAmbiguous, "mycelium_unclear"},
		{"no JSON", 200, `<html>`, outbox.ClassAmbiguous, "mycelium_unclear"},
		{"no id", 200, strings.Replace(message, "0123456789abcdef", "x", 1), outbox.ClassAmbiguous, "mycelium_unclear"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			near, far, _ := overMycelium(t)
			near.Instead(func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(strings.Replace(tc.body, "KEY", far.Key, 1)))
				return true
			})
			a := near.Client(t).Dispatch(t.Context(), remotetest.Call(far.Worker(), 1))
			if a.Class != tc.class || a.Code != tc.code || a.Unsent != (tc.class == outbox.ClassBlocked) {
				t.Errorf("class %q code %q unsent %v (%s), want %q %q", a.Class, a.Code, a.Unsent, a.Message, tc.class,
					tc.code)
			}
		})
	}
}

// The worker hangs behind its node: the time of the call bounds it, and afterwards the worker is asked.
func TestACallOverMyceliumEndsByItsTime(t *testing.T) {
	t.Parallel()
	near, far, worker := overMycelium(t)
	worker.Script(remotetest.Match{}, remotetest.Accept("h").ThenHang())
	call := remotetest.Call(far.Worker(), 1)
	call.Timeout = 200 * time.Millisecond
	client := near.Client(t)
	a := client.Dispatch(t.Context(), call)
	if a.Class != outbox.ClassAmbiguous || a.Code != "timeout" || a.Elapsed > 10*time.Second {
		t.Errorf("class %q code %q after %s (%s)", a.Class, a.Code, a.Elapsed, a.Message)
	}
	worker.Unscript()
	st := client.Status(t.Context(), far.Worker(), call.Type, call.Token(), "")
	if st.State != outbox.StatusPending || st.Hash != "h" {
		t.Errorf("status by token: %+v", st)
	}
}

func TestAReplyOfAnotherKeyIsNoAnswer(t *testing.T) {
	t.Parallel()
	near, far, worker := overMycelium(t)
	near.FromAnother()
	a := near.Client(t).Dispatch(t.Context(), remotetest.Call(far.Worker(), 1))
	if a.Class != outbox.ClassAmbiguous || a.Code != "mycelium_unclear" || !strings.Contains(a.Message, "key") {
		t.Errorf("class %q code %q (%s)", a.Class, a.Code, a.Message)
	}
	if n := len(worker.Calls(remotetest.Match{})); n != 1 {
		t.Errorf("the worker was called %d times", n)
	}
	for payload, code := range map[string]string{
		"x":                                "mycelium_unclear",
		`{"status":0}`:                     "answer_invalid",
		`{"status":200,"headers":{"a":7}}`: "mycelium_unclear",
		`{"status":200,"headers":{"a":["` + strings.Repeat("x", 70<<10) + `"]}}`: "mycelium_unclear",
	} {
		near.Garbled(payload)
		a := near.Client(t).Dispatch(t.Context(), remotetest.Call(far.Worker(), 2))
		if a.Class != outbox.ClassAmbiguous || a.Code != code {
			t.Errorf("%.40s: class %q code %q (%s), want ambiguous %q", payload, a.Class, a.Code, a.Message, code)
		}
	}
}

// Without its node, or without the setting, a process sends nothing; nor does it to a URL that is none.
func TestWithoutANodeNothingIsSent(t *testing.T) {
	t.Parallel()
	near, far, worker := overMycelium(t)
	client := near.Client(t)
	near.Stop()
	for _, tc := range []struct {
		name, url, code string
		client          *remote.Client
	}{
		{"the node is down", far.Worker(), "mycelium_away", client},
		{"the setting is missing", far.Worker(), "no_mycelium", remotetest.Client(t)},
		{"no key", "mycelium:worker/", "bad_worker_url", client},
	} {
		a := tc.client.Dispatch(t.Context(), remotetest.Call(tc.url, 1))
		if a.Class != outbox.ClassBlocked || !a.Unsent || a.Code != tc.code {
			t.Errorf("%s: class %q code %q (%s), want blocked %q", tc.name, a.Class, a.Code, a.Message, tc.code)
		}
		if tc.code == "no_mycelium" && !strings.Contains(a.Message, "POSTERN_MYCELIUM") {
			t.Error(a.Message)
		}
	}
	if n := len(worker.Calls(remotetest.Match{})); n != 0 {
		t.Errorf("the worker was called %d times", n)
	}
}
