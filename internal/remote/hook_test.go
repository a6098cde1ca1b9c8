package remote_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

func TestAHookIsDeliveredMissingOrToBeRepeated(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		reply       remotetest.Reply
		ok, missing bool
	}{
		{"200", remotetest.Body(`{"noted":true}`), true, false},
		{"204", remotetest.HTTP(204, ""), true, false},
		{"200 with garbage", remotetest.Garbage(), true, false},
		{"200 breaking off", remotetest.Body(`{"noted":true}`).ThenCut(), true, false},
		{"404", remotetest.HTTP(404, ""), false, true},
		{"405", remotetest.HTTP(405, ""), false, true},
		{"501", remotetest.HTTP(501, ""), false, true},
		{"400", remotetest.HTTP(400, ""), false, false},
		{"500", remotetest.HTTP(500, ""), false, false},
		{"302", remotetest.Redirect("http://127.0.0.1"), false, false},
		{"drop", remotetest.Drop(), false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fake := remotetest.NewFake(t)
			fake.Script(remotetest.Match{Op: remotetest.OpOnSuccess}, tc.reply)
			call := remotetest.Call(fake.URL(), 1)
			a := remotetest.Client(t).Hook(t.Context(), call, outbox.OnSuccess, json.RawMessage(`{"hash":"h","done":{"a":1},"data":[2]}`), nil, call.ID.HookToken(call.PostedAt, outbox.OnSuccess))
			if a.OK != tc.ok || a.Missing != tc.missing {
				t.Errorf("got %+v, want ok %v missing %v", a, tc.ok, tc.missing)
			}
			if !a.OK && a.Message == "" {
				t.Error("not delivered, without saying why")
			}
			got := fake.Calls(remotetest.Match{})[0]
			if want := `{"hash":"h","done":{"a":1},"error":null,"data":[2]}`; string(got.Result) != want {
				t.Errorf("result %s, want %s", got.Result, want)
			}
			if want := call.ID.HookToken(call.PostedAt, outbox.OnSuccess); got.Token != want || got.Header.Get("Idempotency-Key") != want {
				t.Errorf("token %q, key %q, want %q", got.Token, got.Header.Get("Idempotency-Key"), want)
			}
		})
	}
}

func TestAFailureHookCarriesTheError(t *testing.T) {
	t.Parallel()
	fake := remotetest.NewFake(t)
	call := remotetest.Call(fake.URL(), 1)
	call.Hash = "5Jlast"
	remotetest.Client(t).Hook(t.Context(), call, outbox.OnFailure, nil, json.RawMessage(`{"code":"20205"}`), "token")
	got := fake.Calls(remotetest.Match{Op: remotetest.OpOnFailure})
	if want := `{"hash":"5Jlast","done":null,"error":{"code":"20205"}}`; len(got) != 1 || string(got[0].Result) != want {
		t.Errorf("got %+v, want the result %s", got, want)
	}
}

func TestMaxRetriesIsAskedOnceAndRemembered(t *testing.T) {
	t.Parallel()
	three := 3
	for _, tc := range []struct {
		name  string
		reply remotetest.Reply
		want  *int
		fails bool
	}{
		{"a number", remotetest.Body("3\n"), &three, false},
		{"an object", remotetest.Body(`{"max_retries":3}`), &three, false},
		{"404", remotetest.HTTP(404, ""), nil, false},
		{"500", remotetest.HTTP(500, ""), nil, true},
		{"negative", remotetest.Body("-1"), nil, true},
		{"a fraction", remotetest.Body("2.5"), nil, true},
		{"garbage", remotetest.Garbage(), nil, true},
		{"1 GiB", remotetest.Huge(), nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fake, client := remotetest.NewFake(t), remotetest.Client(t)
			fake.Script(remotetest.Match{Op: remotetest.OpMaxRetries}, tc.reply)
			for range 3 {
				n, err := client.MaxRetries(t.Context(), fake.URL(), "T")
				if (err != nil) != tc.fails || (n == nil) != (tc.want == nil) || n != nil && *n != *tc.want {
					t.Errorf("got %v, %v", n, err)
				}
			}
			if n := len(fake.Calls(remotetest.Match{})); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

func TestNoopIsDoneWithoutAWorker(t *testing.T) {
	t.Parallel()
	fake := remotetest.NewFake(t)
	mux := remote.Mux{Next: remotetest.Client(t)}
	call := remotetest.Call(remote.NoopURL, 1)
	if a := mux.Dispatch(t.Context(), call); a.Class != "" || string(a.Result.Done) != `{"noop":true}` || time.Since(a.StartedAt) > time.Minute {
		t.Errorf("got %+v", a)
	}
	if st := mux.StatusBatch(t.Context(), remote.NoopURL, "T", []string{"a", "b"}); len(st) != 2 || st[0].State != outbox.StatusUnknown {
		t.Errorf("got %+v", st)
	}
	call.BaseURL = fake.URL()
	if a := mux.Dispatch(t.Context(), call); a.Class != "" || len(fake.Calls(remotetest.Match{})) != 1 {
		t.Errorf("a real worker was not called: %+v", a)
	}
}

// No call is larger than the 1 MiB that workers must take, though an answer may have had 1 MiB, and data comes twice:
// what stays out is named, the least missed first.
func TestWhatWouldMakeACallTooLargeIsLeftOutAndNamed(t *testing.T) {
	t.Parallel()
	big := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n) + `"`) }
	for _, tc := range []struct {
		name                      string
		txData, done, data, extra int
		left                      []string
	}{
		{"all fits", 200_000, 200_000, 200_000, 200_000, nil},
		{"data twice", 600_000, 10, 600_000, 10, []string{"result.data"}},
		{"data twice, and members", 900_000, 10, 900_000, 200_000, []string{"result.data", "result.*"}},
		{"a large done, too", 900_000, 900_000, 900_000, 200_000, []string{"result.data", "result.*", "result.done"}},
		{"data as large as an answer", 1<<20 - 20, 10, 1<<20 - 20, 10,
			[]string{"result.data", "result.*", "result.done", "txData.data"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fake := remotetest.NewFake(t)
			fake.Script(remotetest.Match{Op: remotetest.OpOnSuccess}, remotetest.Body(`{}`))
			call := remotetest.Call(fake.URL(), 1)
			call.Data, call.Members = big(tc.txData), json.RawMessage(`{"extra":`+string(big(tc.extra))+`}`)
			result := json.RawMessage(`{"hash":"h","done":` + string(big(tc.done)) +
				`,"data":` + string(big(tc.data)) + `}`)
			remotetest.Client(t).Hook(t.Context(), call, outbox.OnSuccess, result, nil, "token")
			got := fake.Calls(remotetest.Match{})[0]
			var body struct {
				TxData  struct{ Data json.RawMessage }
				Result  map[string]json.RawMessage
				Postern struct {
					LeftOut []string `json:"left_out"`
				}
			}
			if err := json.Unmarshal(got.Body, &body); err != nil || len(got.Body) > 1<<20 {
				t.Fatalf("%d bytes, %v", len(got.Body), err)
			}
			if !slices.Equal(body.Postern.LeftOut, tc.left) {
				t.Errorf("left out %q, want %q", body.Postern.LeftOut, tc.left)
			}
			if string(body.Result["hash"]) != `"h"` || string(body.Result["error"]) != "null" {
				t.Errorf("result without its hash and error: %.100s", got.Body)
			}
		})
	}
	fake := remotetest.NewFake(t)
	call := remotetest.Call(fake.URL(), 2)
	call.Data, call.Before = big(900_000), remote.Baton("h", json.RawMessage(`{"extra":`+string(big(200_000))+`}`), nil)
	remotetest.Client(t).Dispatch(t.Context(), call)
	got := fake.Calls(remotetest.Match{})[0]
	if len(got.Body) > 1<<20 || !strings.Contains(string(got.Body), `"left_out":["result"]`) || !json.Valid(got.Body) {
		t.Errorf("a dispatch of %d bytes", len(got.Body))
	}
}
