package worker_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/api/worker"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// open opens a store that closes at the end of t.
func open(t *testing.T, path string) *worker.File {
	t.Helper()
	f, err := worker.OpenFile(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// fill keeps one of each: an answered token, one that was forgotten, one that is open, and a fence.
func fill(t *testing.T, s worker.Store) {
	t.Helper()
	sent := worker.Sent("h-1").WithNonce("7")
	for _, err := range []error{
		second(s.Begin(t.Context(), "a.1", "T")), s.End(t.Context(), "a.1", &sent),
		second(s.Begin(t.Context(), "b.1", "T")), s.End(t.Context(), "b.1", nil),
		second(s.Begin(t.Context(), "c.1", "T")),
		second(s.Raise(t.Context(), "q", 3)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// filled wants all that fill kept.
func filled(t *testing.T, s worker.Store) {
	t.Helper()
	find := func(token, hash string) worker.Entry {
		e, err := s.Find(t.Context(), token, hash)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	if e := find("a.1", ""); e.Open || e.Type != "T" || e.Answer.Hash != "h-1" || e.Answer.Nonce != "7" || find("", "h-1").Token != "a.1" {
		t.Errorf("an answered token: %+v, by hash %+v", e, find("", "h-1"))
	}
	if e := find("b.1", ""); e.Token != "" {
		t.Errorf("a forgotten token: %+v", e)
	}
	if e := find("c.1", ""); !e.Open || e.Type != "T" {
		t.Errorf("an open token: %+v", e)
	}
	for f, want := range map[int64]bool{2: true, 3: false} {
		if lower, err := s.Raise(t.Context(), "q", f); err != nil || lower != want {
			t.Errorf("fence %d: lower %t, %v", f, lower, err)
		}
	}
}

func TestAStoreInAFileSurvivesWhatItsProcessDoesNot(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	f := open(t, path)
	fill(t, f)
	filled(t, f)
	asOfKill, _ := os.ReadFile(path) // the file after a kill -9: nothing is written at Close
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "store")
	if err := os.WriteFile(other, append(asOfKill, `{"token":"d.1","type":`...), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it reads what the first has compacted
		f = open(t, other)
		filled(t, f)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFileThatIsNotOursOrInUseIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	f := open(t, path)
	if _, err := worker.OpenFile(path, 0); err == nil || !strings.Contains(err.Error(), "another worker has it open") {
		t.Errorf("opened twice: %v", err)
	}
	f.Close()
	if err := os.WriteFile(path, []byte("{\"token\":\"a\",\"at\":\"2026-11-20T14:02:07Z\"}\nhello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := worker.OpenFile(path, 0); err == nil || !strings.Contains(err.Error(), "line 2 is none of ours") {
		t.Errorf("a line of somebody else: %v", err)
	}
	if _, err := f.Begin(t.Context(), "x", "T"); err == nil {
		t.Error("a store that was closed takes tokens")
	}
}

func TestWhatIsOldIsForgotten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	old := time.Now().Add(-8 * 24 * time.Hour).Format(time.RFC3339)
	lines := fmt.Sprintf("{\"token\":\"old\",\"type\":\"T\",\"ended\":true,\"answer\":{\"hash\":\"h\",\"done\":null,\"error\":null},\"at\":%q}\n"+
		"{\"line\":\"q\",\"fence\":5,\"at\":%q}\n{\"token\":\"young\",\"type\":\"T\",\"at\":%q}\n", old, old, time.Now().Format(time.RFC3339))
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, path)
	for _, token := range []string{"old", "young"} {
		if e, err := f.Find(t.Context(), token, ""); err != nil || (e.Token != "") != (token == "young") {
			t.Errorf("%s: %+v, %v", token, e, err)
		}
	}
	if e, _ := f.Find(t.Context(), "", "h"); e.Token != "" {
		t.Errorf("by the hash of the old one: %+v", e)
	}
	if b, _ := os.ReadFile(path); strings.Contains(string(b), `"old"`) || strings.Contains(string(b), `"q"`) {
		t.Errorf("the file still holds what is old:\n%s", b)
	}
}

func TestManyAtOnceAreAllOnTheDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	f := open(t, path)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := range 20 {
				token := fmt.Sprintf("%d-%d", i, n)
				done := worker.Done(n)
				if err := second(f.Begin(t.Context(), token, "T")); err != nil {
					t.Error(err)
				}
				if err := f.End(t.Context(), token, &done); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, path)
	for i := range 16 {
		for n := range 20 {
			e, err := again.Find(t.Context(), fmt.Sprintf("%d-%d", i, n), "")
			if err != nil || e.Open || string(e.Answer.Done) != fmt.Sprint(n) {
				t.Fatalf("token %d-%d: %+v, %v", i, n, e, err)
			}
		}
	}
}

// The process dies while the handler runs. The next process knows only what the disk holds at that moment.
func TestACallThatACrashCutOffComesAgainAndIsToldSo(t *testing.T) {
	t.Parallel()
	path, copied := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "store")
	first := worker.New(worker.Options{Store: open(t, path)})
	worker.Handle(first, typ, func(ctx context.Context, c worker.Call[claim]) (worker.Answer, error) {
		asOfCrash, err := os.ReadFile(path)
		if err != nil || os.WriteFile(copied, asOfCrash, 0o600) != nil || c.Again {
			t.Errorf("again %t, %v", c.Again, err)
		}
		return sent(ctx, c)
	})
	call, client := remotetest.Call(serve(t, first), 1), remotetest.Client(t)
	call.Fence = 5
	client.Dispatch(t.Context(), call)

	var asked []worker.Question
	state := worker.Unknown()
	second := worker.New(worker.Options{Store: open(t, copied), Status: func(_ context.Context, q worker.Question) (worker.Status, error) {
		asked = append(asked, q)
		return state, nil
	}})
	again := false
	worker.Handle(second, typ, func(ctx context.Context, c worker.Call[claim]) (worker.Answer, error) {
		again = c.Again
		return sent(ctx, c)
	})
	call.BaseURL = serve(t, second)
	if st := client.Status(t.Context(), call.BaseURL, typ, call.Token(), ""); st.State != outbox.StatusUnknown {
		t.Errorf("status by token, where the hook knows nothing: %+v", st)
	}
	state = worker.Pending()
	state.Hash = "h-1"
	if st := client.Status(t.Context(), call.BaseURL, typ, call.Token(), ""); st.State != outbox.StatusPending || st.Hash != "h-1" {
		t.Errorf("status by token, where the hook has found it: %+v", st)
	}
	if want := (worker.Question{Type: typ, Token: call.Token()}); len(asked) != 2 || asked[0] != want {
		t.Errorf("the hook was asked %+v", asked)
	}
	late := call
	late.ID.Seq, late.Fence = 2, 4
	if a := client.Dispatch(t.Context(), late); a.Class != outbox.ClassAmbiguous || a.Code != "stale_fence" {
		t.Errorf("a lower fence than before the crash: %+v", a)
	}
	if a := client.Dispatch(t.Context(), call); a.Class != "" || !again {
		t.Errorf("sent again: %+v, told that it began before: %t", a, again)
	}
}
