package reads_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// A head that stands for more than two seconds is never said to have nothing in its way, however it stands. The answer
// is a sentence, the root is followed, and cancel is not the first lever of a transaction behind another.
func TestWhyNeverSaysNothingOfWhatStands(t *testing.T) {
	for _, c := range pgworld.Stands {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.Stood(c)
			y, err := w.S.Reads.Why(w.Ctx, w.ID, id)
			w.Must(err)
			t.Log(y.Summary)
			var kinds []string
			lever := ""
			for _, b := range y.Blockers {
				kinds = append(kinds, b.Kind)
				if b.Object == "" || b.Since.IsZero() || b.Detail == "" {
					t.Errorf("%+v", b)
				}
				if len(b.Levers) > 0 {
					lever = b.Levers[0].Path
				}
				if b.Kind == "head_of_line" || b.Kind == "dependency" {
					if strings.HasSuffix(b.Levers[0].Path, "/cancel") {
						t.Errorf("cancel is its first lever: %+v", b)
					}
				}
			}
			if got := strings.Join(kinds, ","); got != c.Kinds {
				t.Errorf("%s, want %s: %+v", got, c.Kinds, y.Blockers)
			}
			if strings.Contains(y.Summary, "nothing is in its way") || !strings.Contains(y.Summary, c.Said) {
				t.Errorf("%q, want %q", y.Summary, c.Said)
			}
			if (lever == "") != (c.Lever == "") || !strings.HasSuffix(lever, c.Lever) {
				t.Errorf("lever %q, want %q", lever, c.Lever)
			}
		})
	}
}

// A call that is sent again under its token has a deadline of its own, and is not overdue by that of the call
// before it.
func TestWhyTellsTheDeadlineOfTheCallThatIsOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "a")[0]
	l := w.Claim(w.Node("n"), pgworld.Everything())[0]
	w.Later(9 * time.Minute)
	a := w.Answer(l, pgworld.NobodyKnows())
	a.Step = sequencer.Asked(l.Flight(10), outbox.Status{State: outbox.StatusUnknown}, l.Dispatcher.Dispatcher, 0.5)
	heard := pgworld.NobodyKnows()
	a.Unclear = &heard
	if out := w.Settle(a); out[0].Next == nil || !out[0].Next.Resent {
		t.Fatalf("it is not sent again: %+v", out[0])
	}
	w.Later(3 * time.Second)
	w.Exec(`UPDATE postern.node SET heartbeat_at = $1`, w.Now)
	y, err := w.S.Reads.Why(w.Ctx, w.ID, id)
	w.Must(err)
	t.Log(y.Summary)
	b := y.Blockers[0]
	if b.Kind != "in_worker" || b.Next == nil || b.Next.At.Sub(w.Now) != 10*time.Minute-3*time.Second ||
		!strings.Contains(b.Detail, "before") {
		t.Errorf("%+v, next %+v, now %s", b, b.Next, w.Now)
	}
}

// An API key is called by its name.
func TestWhyNamesTheKeyThatDidIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Node("n")
	w.Exec(`INSERT INTO postern.api_key (key_id, context_id, prefix, name, role, hash, created_by)
		VALUES (gen_random_uuid(), $1, '2bji5ove', 'night shift', 'admin', '', 'root')`, w.ID)
	id := w.Post("q", "T", "a")[0]
	by := db.By{Context: w.ID, Actor: "key:2bji5ove", Via: "http", Reason: "because"}
	w.Lever(w.S.PauseQueue(w.Ctx, by, "q", true))
	w.Lever(w.S.Suspend(w.Ctx, by, id))
	y, err := w.S.Reads.Why(w.Ctx, w.ID, id)
	w.Must(err)
	var said []string
	for _, b := range y.Blockers {
		said = append(said, b.Detail)
	}
	w.Same(said, "paused by night shift: because", "suspended by night shift: because")
}

// A transaction of another context has no name.
func TestWhyNamesNothingOfAnotherContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	n := w.Node("n")
	other := w.Post("secret", "T", "a")[0]
	w.Claim(n, pgworld.Everything())
	w.Exec(`INSERT INTO postern.context (name) VALUES ('other')`)
	w.Must(w.S.Refresh(w.Ctx))
	c := w.S.Context("other").ID
	w.ID, w.By.Context = c, c
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "b")[0]
	w.Beats(n, pg.NodeLoad{Concurrency: 1, Calls: 1})
	y, err := w.S.Reads.Why(w.Ctx, c, id)
	w.Must(err)
	if len(y.Blockers) != 1 || y.Blockers[0].Kind != "node_full" ||
		!strings.Contains(y.Summary, "a transaction of another context") ||
		strings.Contains(y.Summary, other.String()) || strings.Contains(y.Summary, "secret") {
		t.Errorf("%+v", y)
	}
}
