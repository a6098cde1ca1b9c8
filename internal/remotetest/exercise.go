package remotetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
)

// Exercise is the conformance suite of the worker contract (S2.7, S2.10, S2.11): what Postern relies on
// besides the bare answer to a dispatch. newWorker starts a worker without memory and returns its URL;
// it must take transactions of type SEND_CLAIM_VOTE and include them within seconds. A worker that lacks
// an optional call passes where the contract lets it.
func Exercise(t *testing.T, newWorker func(t *testing.T) (baseURL string)) {
	t.Helper()
	ExerciseBy(t, Client, newWorker)
}

// ExerciseBy is Exercise, by another client.
func ExerciseBy(t *testing.T, by func(testing.TB) *remote.Client, newWorker func(t *testing.T) (baseURL string)) {
	t.Helper()
	for _, tc := range []struct {
		name string
		run  func(suite, *testing.T)
	}{
		{"it accepts a dispatch with a hash, or is done", suite.accepts},
		{"a repeated token is answered like the first time", suite.dedupes},
		{"an unknown token and hash are unknown", suite.unknown},
		{"an accepted one is known by token and by hash", suite.known},
		{"a batch is answered in order", suite.batch},
		{"an accepted one is included in a block", suite.includes},
		{"a lower fence is refused and executes nothing", suite.fences},
		{"an attempt that names an earlier hash does not happen besides it", suite.replaces},
		{"hooks are taken, as often as they come", suite.hooks},
		{"max-retries is a number or missing", suite.maxRetries},
		{"nonsense is refused", suite.nonsense},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.run(suite{url: newWorker(t), client: by(t)}, t)
		})
	}
}

type suite struct {
	url    string
	client *remote.Client
}

// dispatch sends call and wants it accepted or done.
func (s suite) dispatch(t *testing.T, call remote.Call) outbox.Answer {
	t.Helper()
	a := s.client.Dispatch(t.Context(), call)
	if a.Class != "" {
		t.Fatalf("dispatch of %s attempt %d: class %s, code %s: %s", call.ID, call.Attempt, a.Class, a.Code, a.Message)
	}
	return a
}

func (s suite) accepts(t *testing.T) {
	if a := s.dispatch(t, Call(s.url, 1)); a.Result.Hash == "" && a.Result.Done == nil {
		t.Error("neither hash nor done")
	}
}

func (s suite) dedupes(t *testing.T) {
	first := s.dispatch(t, Call(s.url, 1))
	if again := s.dispatch(t, Call(s.url, 1)); again.Result.Hash != first.Result.Hash || string(again.Result.Done) != string(first.Result.Done) {
		t.Errorf("first %+v, then %+v: want the same", first.Result, again.Result)
	}
	if other := s.dispatch(t, Call(s.url, 2)); first.Result.Hash != "" && other.Result.Hash == first.Result.Hash {
		t.Errorf("two transactions share the hash %s", first.Result.Hash)
	}
}

func (s suite) unknown(t *testing.T) {
	call := Call(s.url, 1)
	if st := s.client.Status(t.Context(), s.url, call.Type, call.Token(), ""); st.State != outbox.StatusUnknown && st.State != outbox.StatusUnsupported {
		t.Errorf("status of a token never sent: %+v, want unknown", st)
	}
	if st := s.client.Status(t.Context(), s.url, call.Type, "", "5Jnever"); st.State != outbox.StatusUnknown && st.State != outbox.StatusUnsupported {
		t.Errorf("status of a hash never given: %+v, want unknown", st)
	}
}

func (s suite) known(t *testing.T) {
	call := Call(s.url, 1)
	hash := s.dispatch(t, call).Result.Hash
	if hash == "" {
		t.Skip("done at once: there is nothing to ask after")
	}
	for _, key := range []struct{ token, hash string }{{call.Token(), ""}, {"", hash}} {
		st := s.client.Status(t.Context(), s.url, call.Type, key.token, key.hash)
		switch st.State {
		case outbox.StatusUnsupported:
			t.Skip("the worker has no /status: its transactions want idempotent: true")
		case outbox.StatusPending, outbox.StatusIncluded:
		default:
			t.Errorf("status by %+v: %+v, want pending or included", key, st)
		}
		if key.token != "" && st.Hash != hash {
			t.Errorf("status by token names hash %q, want %q", st.Hash, hash)
		}
	}
}

func (s suite) batch(t *testing.T) {
	hashes := []string{"5Jnever"}
	for seq := range int64(3) {
		if h := s.dispatch(t, Call(s.url, seq+1)).Result.Hash; h != "" {
			hashes = append(hashes, h)
		}
	}
	for i, st := range s.client.StatusBatch(t.Context(), s.url, "SEND_CLAIM_VOTE", hashes) {
		if st.State == outbox.StatusUnsupported {
			t.Skip("the worker has no /status")
		}
		if (st.State == outbox.StatusUnknown) != (i == 0) || st.State == outbox.StatusUnreachable {
			t.Errorf("status %d of %v: %+v", i, hashes, st)
		}
	}
}

func (s suite) includes(t *testing.T) {
	call := Call(s.url, 1)
	hash := s.dispatch(t, call).Result.Hash
	if hash == "" {
		t.Skip("done at once")
	}
	if st := s.await(t, call.Type, hash); st.State != outbox.StatusIncluded || st.BlockHeight == "" || st.Confirmations < 1 {
		t.Errorf("ended as %+v, want included in a block", st)
	}
}

// await asks until hash is no longer pending.
func (s suite) await(t *testing.T, typ, hash string) outbox.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ask := time.NewTicker(5 * time.Millisecond)
	defer ask.Stop()
	for {
		st := s.client.Status(ctx, s.url, typ, "", hash)
		switch st.State {
		case outbox.StatusUnsupported:
			t.Skip("the worker has no /status")
		case outbox.StatusPending:
		default:
			return st
		}
		select {
		case <-ask.C:
		case <-ctx.Done():
			t.Fatalf("hash %s is pending for 30 s", hash)
		}
	}
}

func (s suite) fences(t *testing.T) {
	newer, older := Call(s.url, 2), Call(s.url, 3)
	newer.Fence, older.Fence = 5, 4
	s.dispatch(t, newer)
	a := s.client.Dispatch(t.Context(), older)
	if a.Class == "" {
		t.Skip("the worker takes any fence: a node that wakes up late may execute")
	}
	if a.Class != outbox.ClassAmbiguous {
		t.Errorf("a lower fence: class %s, code %s, want HTTP 409", a.Class, a.Code)
	}
	if st := s.client.Status(t.Context(), s.url, older.Type, older.Token(), ""); st.State != outbox.StatusUnknown && st.State != outbox.StatusUnsupported {
		t.Errorf("the refused token: %+v, want unknown", st)
	}
	other := Call(s.url, 3)
	other.ID.Queue, other.Line, other.Fence = 8, outbox.Line{Queue: 8}, 1 // a queue of the same name in another context
	s.dispatch(t, other)
}

func (s suite) replaces(t *testing.T) {
	first, second := Call(s.url, 1), Call(s.url, 1)
	first.Fee = "100000000"
	one := s.dispatch(t, first).Result
	if one.Hash == "" {
		t.Skip("done at once")
	}
	second.Attempt, second.Fee, second.PreviousHashes, second.Nonce = 2, "110000000", []string{one.Hash}, one.Nonce
	two := s.dispatch(t, second).Result
	included := 0
	for _, h := range []string{one.Hash, two.Hash} {
		if st := s.await(t, first.Type, h); st.State == outbox.StatusIncluded {
			included++
		}
		if one.Hash == two.Hash { // it was in a block already, and that is what the worker says
			break
		}
	}
	if included != 1 {
		t.Errorf("%d of the hashes %s and %s are in a block, want 1", included, one.Hash, two.Hash)
	}
}

func (s suite) hooks(t *testing.T) {
	call := Call(s.url, 1)
	hash := s.dispatch(t, call).Result.Hash
	for _, hook := range []outbox.Hook{outbox.OnSuccess, outbox.OnFailure} {
		for range 2 {
			a := s.client.Hook(t.Context(), call, hook, json.RawMessage(fmt.Sprintf(`{"hash":%q}`, hash)), nil, call.ID.HookToken(call.PostedAt, hook))
			if !a.OK && !a.Missing {
				t.Errorf("%s: HTTP %d: %s", hook, a.Status, a.Message)
			}
		}
	}
}

func (s suite) maxRetries(t *testing.T) {
	if n, err := s.client.MaxRetries(t.Context(), s.url, "SEND_CLAIM_VOTE"); err != nil {
		t.Errorf("got %v, %v", n, err)
	}
}

func (s suite) nonsense(t *testing.T) {
	if outbox.IsMycelium(s.url) { // the question goes by HTTP alone
		return
	}
	resp, err := http.Post(s.url+"/no-such-call/SEND_CLAIM_VOTE", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode < 400 || resp.StatusCode >= 500 {
		t.Errorf("a call that does not exist: HTTP %d, want 4xx", resp.StatusCode)
	}
	s.accepts(t) // and it goes on working
}
