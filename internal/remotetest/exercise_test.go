package remotetest_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

func TestTheFakeIsAWorker(t *testing.T) {
	t.Parallel()
	remotetest.Exercise(t, func(t *testing.T) string {
		fake := remotetest.NewFake(t)
		fake.Fencing(true)
		fake.IncludeAll(true)
		return fake.URL()
	})
}

func TestTheFakeIsAWorkerWithoutWhatIsOptional(t *testing.T) {
	t.Parallel()
	remotetest.Exercise(t, func(t *testing.T) string {
		fake := remotetest.NewFake(t)
		fake.HasStatus(false)
		fake.HasHooks(false)
		return fake.URL()
	})
}

func TestScriptsGoFromReplyToReplyAndTheLastOneStays(t *testing.T) {
	t.Parallel()
	fake, client := remotetest.NewFake(t), remotetest.Client(t)
	fake.Script(remotetest.Match{UID: "a"}, remotetest.Fail(20203, "once"),
		remotetest.HTTP(503, ""), remotetest.Accept("h"))
	call, other := remotetest.Call(fake.URL(), 1), remotetest.Call(fake.URL(), 2)
	call.UID, other.UID = "a", "b"
	var got []outbox.Class
	for range 4 {
		got = append(got, client.Dispatch(t.Context(), call).Class)
	}
	if want := [4]outbox.Class{outbox.ClassRetry, outbox.ClassAmbiguous, "", ""}; [4]outbox.Class(got) != want {
		t.Errorf("classes %q, want %q", got, want)
	}
	if a := client.Dispatch(t.Context(), other); a.Class != "" {
		t.Errorf("another transaction: %+v", a)
	}
	if n := fake.Executed(call.Token()); n != 1 {
		t.Errorf("the token was executed %d times", n)
	}
	if calls := fake.Calls(remotetest.Match{UID: "a"}); len(calls) != 4 || !calls[3].Repeat || calls[2].Repeat {
		t.Errorf("log %+v", calls)
	}
}

func TestALostAnswerWasExecuted(t *testing.T) {
	t.Parallel()
	fake, client := remotetest.NewFake(t), remotetest.Client(t)
	fake.Script(remotetest.Match{}, remotetest.Accept("h").ThenDrop())
	call := remotetest.Call(fake.URL(), 1)
	if a := client.Dispatch(t.Context(), call); a.Class != outbox.ClassAmbiguous {
		t.Errorf("got %+v", a)
	}
	fake.Unscript()
	if st := client.Status(t.Context(), fake.URL(), call.Type,
		call.Token(), ""); st.State != outbox.StatusPending || st.Hash != "h" {
		t.Errorf("status by token: %+v", st)
	}
	fake.Forget()
	if st := client.Status(t.Context(), fake.URL(), call.Type, call.Token(), ""); st.State != outbox.StatusUnknown {
		t.Errorf("after forgetting: %+v", st)
	}
}
