package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// An error that comes while a SQL transaction is committed, after all of its statements have been answered, is told:
// also where one batch is the whole transaction, without a BEGIN of its own.
func TestWhatGoesWrongInACommitIsTold(t *testing.T) {
	for name, forget := range map[string]bool{"one batch": false, "more than one": true} {
		for _, c := range []struct {
			name, does, code string
			done             bool
		}{
			{"refused", `RAISE EXCEPTION 'not today'`, "", false},
			// An error that ends the session may come behind the commit, as when a wait for the standby is ended so.
			{"cut off", `PERFORM pg_terminate_backend(pg_backend_pid())`, "commit_unknown", false},
			// The text of the warning is in the language of the server.
			{"without its standby", `RAISE WARNING 'storniere Warten auf synchrone Replikation wegen Benutzeraufforderung'`, "commit_unknown", true},
		} {
			t.Run(name+", "+c.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.Dispatcher("T", nil)
				w.Post("q", "T", "a")
				a := w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Done())
				w.Exec(`CREATE FUNCTION public.at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ` + c.does + `; RETURN NULL; END $$`)
				w.Exec(`CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON postern.queue DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.at_commit()`)
				if forget {
					w.S.Distrust()
				}
				if w.S.Recallable(a) == forget {
					t.Fatalf("tried by memory: %v", !forget)
				}
				if _, err := w.S.Settle(w.Ctx, []*pg.Answer{a}); err == nil || fault.CodeOf(err) != c.code && c.code != "" {
					t.Fatalf("the settlement says %v, want %q", err, c.code)
				}
				if state := w.ByUID("a").State; (state == outbox.DONE) != c.done {
					t.Errorf("a is %s", state)
				}
				w.Exec(`DROP TRIGGER at_commit ON postern.queue`)
				if out := w.Settle(a)[0]; out.Fenced != c.done || out.Err != nil {
					t.Errorf("once more: %+v", out)
				}
				pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
			})
		}
	}
}
