package remote_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// A worker says what it blocks. Where it does not, it blocks the queue; an answer of the reference by its code; and a
// call that nothing was written of tells of all that goes the same way.
func TestABlockedAnswerSaysWhatItBlocks(t *testing.T) {
	t.Parallel()
	class := func(more string) remotetest.Reply {
		return remotetest.HTTP(503, `{"error":{"class":"blocked"`+more+`}}`)
	}
	for _, tc := range []struct {
		name  string
		reply remotetest.Reply
		scope outbox.Scope
	}{
		{"no scope", class(""), outbox.ScopeQueue},
		{"scope queue", class(`,"scope":"queue"`), outbox.ScopeQueue},
		{"scope sender", class(`,"scope":"sender"`), outbox.ScopeSender},
		{"scope worker", class(`,"scope":"worker"`), outbox.ScopeWorker},
		{"a scope that is none", class(`,"scope":"galaxy"`), outbox.ScopeQueue},
		{"a scope of another type", class(`,"scope":7`), outbox.ScopeQueue},
		{"a code of the reference beside a class", class(`,"code":"WORKER_UNAVAILABLE"`), outbox.ScopeQueue},
		{"502", remotetest.Fail(502, "The required worker is not available."), outbox.ScopeWorker},
		{"WORKER_UNAVAILABLE", remotetest.Fail("WORKER_UNAVAILABLE", ""), outbox.ScopeWorker},
		{"NO_FEE_PAYER_AVAILABLE", remotetest.Fail("NO_FEE_PAYER_AVAILABLE", ""), outbox.ScopeSender},
		{"502 of a fee payer", remotetest.Fail(502, "There is no fee payer with this account publicKey."),
			outbox.ScopeSender},
		{"502 with a scope", remotetest.FailWith(map[string]any{"code": 502, "scope": "queue"}), outbox.ScopeQueue},
		{"404", remotetest.HTTP(404, ""), outbox.ScopeQueue},
		{"404 with a scope and no class", remotetest.HTTP(404, `{"error":{"scope":"worker"}}`), outbox.ScopeQueue},
		{"a page", remotetest.HTTP(403, "<html>no"), outbox.ScopeQueue},
		{"rejected, with a scope", remotetest.HTTP(200, `{"error":{"class":"rejected","scope":"worker"}}`), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fake := remotetest.NewFake(t)
			fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, tc.reply)
			a := remotetest.Client(t).Dispatch(t.Context(), remotetest.Call(fake.URL(), 1))
			if a.Scope != tc.scope {
				t.Errorf("got class %q with scope %q, want scope %q", a.Class, a.Scope, tc.scope)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		t.Parallel()
		fake := remotetest.NewFake(t)
		fake.Refuse()
		a := remotetest.Client(t).Dispatch(t.Context(), remotetest.Call(fake.URL(), 1))
		if a.Scope != outbox.ScopeWorker || a.Class != outbox.ClassBlocked {
			t.Errorf("got class %q with scope %q, want blocked, worker", a.Class, a.Scope)
		}
	})
}
