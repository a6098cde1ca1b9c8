package remote_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// finished is the status of what a worker without blocks calls done.
func finished(result string) outbox.Status {
	return outbox.Status{State: outbox.StatusIncluded, Confirmations: math.MaxInt32, Done: json.RawMessage(result)}
}

func withHash(st outbox.Status, hash string) outbox.Status {
	st.Hash = hash
	return st
}

// deepList is nested deeper than we store.
var deepList = strings.Repeat("[", 65) + strings.Repeat("]", 65)

func TestAStatusIsReadOrSaysNothing(t *testing.T) {
	t.Parallel()
	body, http := remotetest.Body, remotetest.HTTP
	for _, tc := range []struct {
		name  string
		reply remotetest.Reply
		want  outbox.Status // Message is not compared
	}{
		{"pending", body(`{"state":"pending","hash":"h","nonce":3}`), outbox.Status{State: outbox.StatusPending, Hash: "h", Nonce: "3"}},
		{"unknown", body(`{"state":"unknown"}`), outbox.Status{State: outbox.StatusUnknown}},
		{"included", body(`{"state":"included","block_height":"12","confirmations":3,"failure_reason":null}`), outbox.Status{State: outbox.StatusIncluded, BlockHeight: "12", Confirmations: 3}},
		{"included by a worker that does not count", body(`{"state":"included","block_height":12}`), outbox.Status{State: outbox.StatusIncluded, BlockHeight: "12", Confirmations: 1}},
		{"included in no block", body(`{"state":"included","block_height":null}`), outbox.Status{State: outbox.StatusPending}},
		{"included, but failed", body(`{"state":"included","block_height":12,"failure_reason":"Fee_payer_nonce"}`), outbox.Status{State: outbox.StatusFailed, BlockHeight: "12", FailureReason: "Fee_payer_nonce"}},
		{"included with reasons, none", body(`{"state":"included","block_height":12,"failure_reason":[]}`), outbox.Status{State: outbox.StatusIncluded, BlockHeight: "12", Confirmations: 1}},
		{"done", body(`{"state":"done"}`), finished("true")},
		{"done with null", body(`{"state":"done","hash":"h","done":null}`), withHash(finished("true"), "h")},
		{"done with a result", body(`{"state":"done","done":{"paid":7}}`), finished(`{"paid":7}`)},
		{"done with a result that we cannot store", body(`{"state":"done","done":` + deepList + `}`), finished("true")},
		{"done, but failed", body(`{"state":"done","failure_reason":"no"}`),
			outbox.Status{State: outbox.StatusUnreachable}},
		{"pending with a result", body(`{"state":"pending","done":{"paid":7}}`),
			outbox.Status{State: outbox.StatusPending}},
		{"failed", body(`{"state":"failed","failure_reason":[{"index":1}]}`), outbox.Status{State: outbox.StatusFailed, FailureReason: `[{"index":1}]`}},

		{"404", http(404, ""), outbox.Status{State: outbox.StatusUnsupported}},
		{"405", http(405, ""), outbox.Status{State: outbox.StatusUnsupported}},
		{"501", http(501, ""), outbox.Status{State: outbox.StatusUnsupported}},
		{"404 of a router", http(404, "404 page not found\n"), outbox.Status{State: outbox.StatusUnsupported}},
		{"501 by class", http(501, `{"error":{"class":"rejected"}}`), outbox.Status{State: outbox.StatusUnsupported}},
		{"404 of a worker that is not ready", http(404, `{"error":{"class":"blocked"}}`),
			outbox.Status{State: outbox.StatusUnreachable}},
		{"404 of an ingress", http(404, "<html>no such page"), outbox.Status{State: outbox.StatusUnreachable}},
		{"405 of a framework", http(405, "<!doctype html>"), outbox.Status{State: outbox.StatusUnreachable}},
		{"501 of a proxy", http(501, "<h1>Not implemented</h1>"), outbox.Status{State: outbox.StatusUnreachable}},
		{"404 of a gateway that writes JSON", http(404, `{"message":"no route matched"}`),
			outbox.Status{State: outbox.StatusUnreachable}},
		{"404 with a code", http(404, `{"error":{"code":404}}`), outbox.Status{State: outbox.StatusUnreachable}},
		{"404 with a long text", http(404, strings.Repeat("not found ", 40)),
			outbox.Status{State: outbox.StatusUnreachable}},

		{"503", http(503, ""), outbox.Status{State: outbox.StatusUnreachable}},
		{"400", http(400, ""), outbox.Status{State: outbox.StatusUnreachable}},
		{"redirect", remotetest.Redirect("http://127.0.0.1:1"), outbox.Status{State: outbox.StatusUnreachable}},
		{"garbage", remotetest.Garbage(), outbox.Status{State: outbox.StatusUnreachable}},
		{"1 GiB", remotetest.Huge(), outbox.Status{State: outbox.StatusUnreachable}},
		{"drop", remotetest.Drop(), outbox.Status{State: outbox.StatusUnreachable}},
		{"a state that is none", body(`{"state":"maybe"}`), outbox.Status{State: outbox.StatusUnreachable}},
		{"a height that is none", body(`{"state":"included","block_height":"high"}`), outbox.Status{State: outbox.StatusUnreachable}},
		{"another's hash", body(`{"state":"included","block_height":"12","hash":"other"}`), outbox.Status{State: outbox.StatusUnreachable}},
		{"a hash that is none", body(`{"state":"pending","hash":"a\u0000"}`), outbox.Status{State: outbox.StatusUnreachable}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fake := remotetest.NewFake(t)
			fake.Script(remotetest.Match{Op: remotetest.OpStatus}, tc.reply)
			got := remotetest.Client(t).Status(t.Context(), fake.URL(), "SEND_CLAIM_VOTE", "", "h")
			if got.State == outbox.StatusUnreachable && got.Message == "" {
				t.Error("unreachable without saying why")
			}
			if got.Message = ""; !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// A plain 404 to a question is that of a worker without /status, unless the worker has answered one before: then a
// proxy may have written it.
func TestAWorkerThatHasAnsweredAQuestionHasAStatus(t *testing.T) {
	t.Parallel()
	fake, client := remotetest.NewFake(t), remotetest.Client(t)
	question := remotetest.Match{Op: remotetest.OpStatus}
	for _, step := range []struct {
		reply remotetest.Reply
		want  outbox.StatusState
	}{
		{remotetest.HTTP(404, "no such page"), outbox.StatusUnsupported},
		{remotetest.Body(`{"state":"nonsense"}`), outbox.StatusUnreachable},
		{remotetest.HTTP(404, "no such page"), outbox.StatusUnsupported},
		{remotetest.Body(`{"state":"unknown"}`), outbox.StatusUnknown},
		{remotetest.HTTP(404, "no such page"), outbox.StatusUnreachable},
		{remotetest.HTTP(405, ""), outbox.StatusUnreachable},
	} {
		fake.Script(question, step.reply)
		got := client.Status(t.Context(), fake.URL(), "T", "token", "")
		if got.State != step.want {
			t.Errorf("%+v is read as %+v, want %s", step.reply, got, step.want)
		}
	}
}

func TestABatchIsAskedInOneCallAndAnsweredInOrder(t *testing.T) {
	t.Parallel()
	fake, client := remotetest.NewFake(t), remotetest.Client(t)
	hashes := manyHashes(fake, 1200)
	check(t, client.StatusBatch(t.Context(), fake.URL(), "T", hashes), 1200)
	if n := len(fake.Calls(remotetest.Match{Op: remotetest.OpBatch})); n != 3 {
		t.Errorf("%d calls for 1200 hashes, want 3 of at most 500", n)
	}
	if n := len(fake.Calls(remotetest.Match{Op: remotetest.OpStatus})); n != 0 {
		t.Errorf("%d single questions", n)
	}
	if got := client.StatusBatch(t.Context(), fake.URL(), "T", nil); len(got) != 0 {
		t.Errorf("no hashes: %v", got)
	}
}

func TestWithoutABatchCallHashesAreAskedOneByOneAndThatIsRemembered(t *testing.T) {
	t.Parallel()
	fake, client := remotetest.NewFake(t), remotetest.Client(t)
	fake.HasBatch(false)
	hashes := manyHashes(fake, 20)
	for range 2 {
		check(t, client.StatusBatch(t.Context(), fake.URL(), "T", hashes), 20)
	}
	if n := len(fake.Calls(remotetest.Match{Op: remotetest.OpBatch})); n != 1 {
		t.Errorf("the missing call was tried %d times", n)
	}
	if n := len(fake.Calls(remotetest.Match{Op: remotetest.OpStatus})); n != 40 {
		t.Errorf("%d single questions, want 40", n)
	}
	fake.HasStatus(false)
	for _, st := range remotetest.Client(t).StatusBatch(t.Context(), fake.URL(), "T", hashes) {
		if st.State != outbox.StatusUnsupported {
			t.Errorf("without /status: %+v", st)
		}
	}
	fake.Refuse()
	for _, st := range client.StatusBatch(t.Context(), fake.URL(), "T", hashes) {
		if st.State != outbox.StatusUnreachable {
			t.Errorf("with nobody there: %+v", st)
		}
	}
}

func TestABatchAnswerThatDoesNotFitSaysNothing(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"statuses":[{"state":"unknown"}]}`, // one too few
		`{"statuses":[{"state":"pending","hash":"h1"},{"state":"pending","hash":"h0"}]}`,
		`{"statuses":null}`, `[]`, `nonsense`,
	} {
		fake := remotetest.NewFake(t)
		fake.Script(remotetest.Match{Op: remotetest.OpBatch}, remotetest.Body(body))
		got := remotetest.Client(t).StatusBatch(t.Context(), fake.URL(), "T", []string{"h0", "h1"})
		if slices.ContainsFunc(got, func(st outbox.Status) bool { return st.State != outbox.StatusUnreachable }) || len(got) != 2 {
			t.Errorf("%s: got %+v, want unreachable twice", body, got)
		}
	}
}

// manyHashes makes n hashes; the i-th has block height i.
func manyHashes(fake *remotetest.Fake, n int) []string {
	hashes := make([]string, n)
	for i := range hashes {
		hashes[i] = fmt.Sprint("h", i)
		fake.SetStatus(hashes[i], outbox.Status{State: outbox.StatusIncluded, BlockHeight: fmt.Sprint(i)})
	}
	return hashes
}

func check(t *testing.T, got []outbox.Status, n int) {
	t.Helper()
	if len(got) != n {
		t.Fatalf("%d statuses for %d hashes", len(got), n)
	}
	for i, st := range got {
		if st.State != outbox.StatusIncluded || st.BlockHeight != fmt.Sprint(i) {
			t.Fatalf("status %d: %+v", i, st)
		}
	}
}
