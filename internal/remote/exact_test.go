package remote_test

import (
	"net"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// An answer is read by the names of the contract as they are written there: what another reader would not find is not
// found here.
func TestNamesInAnswersAreTakenAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]outbox.Class{
		`{"done":{}}`:                    "",
		`{"Done":{}}`:                    outbox.ClassAmbiguous,
		`{"DONE":true}`:                  outbox.ClassAmbiguous,
		`{"Hash":"0xab","done":null}`:    outbox.ClassAmbiguous,
		`{"Error":{"class":"retry"}}`:    outbox.ClassAmbiguous,
		`{"error":{"Class":"retry"}}`:    outbox.ClassAmbiguous,
		`{"error":{"class":"retry"}}`:    outbox.ClassRetry,
		`{"Done":{"a":1},"done":{}}`:     "",
		`{"hash":"","Done":1,"ERROR":2}`: outbox.ClassAmbiguous,
	} {
		f := remotetest.NewFake(t)
		f.Script(remotetest.Match{}, remotetest.Body(body))
		if a := remotetest.Client(t).Dispatch(t.Context(), remotetest.Call(f.URL(), 1)); a.Class != want {
			t.Errorf("%s is of class %q, want %q", body, a.Class, want)
		}
	}
	for body, want := range map[string]outbox.StatusState{
		`{"state":"unknown"}`:                             outbox.StatusUnknown,
		`{"State":"unknown"}`:                             outbox.StatusUnreachable,
		`{"state":"included","block_height":"7"}`:         outbox.StatusIncluded,
		`{"state":"included","Block_Height":"7"}`:         outbox.StatusPending,
		`{"state":"included","BLOCK_HEIGHT":"no number"}`: outbox.StatusPending,
	} {
		f := remotetest.NewFake(t)
		f.Script(remotetest.Match{Op: remotetest.OpStatus}, remotetest.Body(body))
		if s := remotetest.Client(t).Status(t.Context(), f.URL(), "T", "", "h"); s.State != want {
			t.Errorf("%s is %s, want %s", body, s.State, want)
		}
		f.Script(remotetest.Match{Op: remotetest.OpBatch}, remotetest.Body(`{"Statuses":[`+body+`]}`))
		for _, s := range remotetest.Client(t).StatusBatch(t.Context(), f.URL(), "T", []string{"h"}) {
			if s.State != outbox.StatusUnreachable {
				t.Errorf("Statuses are read: %+v", s)
			}
		}
	}
	f := remotetest.NewFake(t)
	f.Script(remotetest.Match{Op: remotetest.OpMaxRetries}, remotetest.Body(`{"Max_Retries":3}`))
	if n, err := remotetest.Client(t).MaxRetries(t.Context(), f.URL(), "T"); err == nil {
		t.Errorf("Max_Retries are %v", *n)
	}
}

// A name that is none of the contract is one of the worker's own, and its member is kept.
func TestAMemberOfAnotherSpellingIsKept(t *testing.T) {
	t.Parallel()
	f := remotetest.NewFake(t)
	f.Script(remotetest.Match{}, remotetest.Body(`{"hash":"h","Hash":"H","ERROR":{"class":"retry"}}`))
	a := remotetest.Client(t).Dispatch(t.Context(), remotetest.Call(f.URL(), 1))
	kept := string(a.Result.Members)
	if a.Class != "" || a.Result.Hash != "h" || !strings.Contains(kept, `"Hash":"H"`) ||
		!strings.Contains(kept, `"ERROR"`) {
		t.Errorf("%+v, members %s", a, kept)
	}
}

// A class that is none is named with those that are, under any status.
func TestAClassThatIsNoneIsNamed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 400, 404, 500} {
		f := remotetest.NewFake(t)
		f.Script(remotetest.Match{}, remotetest.HTTP(status, `{"error":{"class":"REJECTED"}}`))
		a := remotetest.Client(t).Dispatch(t.Context(), remotetest.Call(f.URL(), 1))
		if a.Class == outbox.ClassRejected ||
			!strings.Contains(a.Message, `error.class "REJECTED": want rejected, retry, blocked or ambiguous`) {
			t.Errorf("HTTP %d: %+v", status, a)
		}
	}
}

// An answer with the status 000 is one: what it says is not known, and people are told what came.
func TestAStatusThatIsNoneIsNamed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write([]byte("HTTP/1.1 000 Odd\r\nContent-Length: 11\r\nConnection: close\r\n\r\n{\"done\":{}}"))
			c.Close()
		}
	}()
	a := remotetest.Client(t).Dispatch(t.Context(), remotetest.Call("http://"+l.Addr().String(), 1))
	if a.Class != outbox.ClassAmbiguous || a.Code != "answer_invalid" || !strings.Contains(a.Message, `"000 Odd"`) {
		t.Errorf("%+v", a)
	}
}
