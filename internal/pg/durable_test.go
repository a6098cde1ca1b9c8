package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

// Where commits wait for no standby, an answer that rests on what others have committed costs no statement, from the
// reading of the configuration on, for a while: one that is old, or comes before a doubt, is asked for anew.
func TestAnAnswerAsksNothingWhereCommitsWaitForNoStandby(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	asks := func() bool {
		t.Helper()
		before := w.S.Pool().Stat().AcquireCount()
		w.Must(w.S.Durable(w.Ctx))
		return w.S.Pool().Stat().AcquireCount() != before
	}
	knows := func(what string) {
		t.Helper()
		for {
			read := time.Now()
			w.Must(w.S.Refresh(w.Ctx))
			if !asks() {
				return
			}
			if time.Since(read) < 2*time.Second { // else that is old by now
				t.Fatal(what)
			}
		}
	}
	knows("it asks although it is known that no commit waits")
	warn := `DO $$ BEGIN RAISE WARNING USING ERRCODE = '01000', MESSAGE = 'a wait was cancelled'; END $$`
	if _, err := w.S.Exec(w.Ctx, warn); fault.CodeOf(err) != "commit_unknown" {
		t.Fatal(err)
	}
	if !asks() {
		t.Error("it asks nothing behind a commit that is on no standby")
	}
	knows("it asks although it was read since that no commit waits")
	time.Sleep(3100 * time.Millisecond)
	if !asks() {
		t.Error("it goes by what was read long ago")
	}
}
