package pg_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func TestEnteringEverythingDrawsANewLifeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	life := func() string { return w.Lines(`SELECT life::text FROM postern.store`)[0] }
	born := life()
	w.Dispatcher("T", nil)
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Context: "default", Type: "T", Reason: "the worker is a copy"}))
	if life() != born {
		t.Error("what loses nothing drew a new life")
	}
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Reason: "restored"}))
	lost := life()
	if lost == born {
		t.Error("a loss drew no new life")
	}
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Reason: "restored, as another process says"}))
	if life() != lost {
		t.Error("the same loss drew a second life")
	}
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Reason: "more is lost", LostFrom: time.Now().Add(-time.Hour), LostUntil: time.Now()}))
	if life() == lost {
		t.Error("a loss that begins earlier drew no new life")
	}
	if !w.S.Quarantined(w.ID, "T") || !w.S.Quarantined(w.ID, "U") {
		t.Error("the process that entered it does not know of it")
	}
}

// entering is a quarantine that another process enters.
var entering = op{name: "enter", run: func(a *arena, s *stores.Store) string {
	return refusal(s.EnterQuarantine(a.Ctx, a.By, pg.Quarantine{Context: "default", Reason: "because"}))
}}

// A commit that leases and the commit that enters a quarantine come one after the other. A lease that comes first is
// committed before the quarantine. A claim that comes later takes nothing, though its process has not read of the
// quarantine.
func TestNothingIsLeasedBehindTheCommitOfAQuarantine(t *testing.T) {
	leasesOf := map[string]func(a *arena, s *stores.Store) int{
		"claim": func(a *arena, s *stores.Store) int {
			l, _, err := s.Claim(a.Ctx, a.n1, pgworld.Everything())
			a.Must(err)
			return len(l)
		},
		"take": func(a *arena, s *stores.Store) int {
			c := &crew{node: a.n1, room: 10}
			s.Take(c)
			defer s.Take(nil)
			out, err := s.Ingest(a.Ctx, []*pg.Submission{a.Sub("new", "U", "new")}, false)
			a.Must(err)
			a.Must(out[0].Err)
			return len(c.started)
		},
		"wake": func(a *arena, s *stores.Store) int {
			w, err := s.Wake(a.Ctx, a.n1, 10, 10)
			a.Must(err)
			return len(w.Leases) + len(w.Polls)
		},
	}
	for name, lease := range leasesOf {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stage := func() *arena {
				a := newArena(t)
				a.Dispatcher("U", nil)
				a.Post("q", "U", "a")
				if name == "wake" {
					l := a.Claim(a.n1, pgworld.Everything())[0]
					a.Settle(a.Answer(l, outbox.Answer{Class: outbox.ClassRetry, Code: "x", Message: "not now"}))
					a.Later(time.Hour)
					_, err := a.S.Beat(a.Ctx, a.n1, pg.NodeLoad{})
					a.Must(err)
				}
				a.ready()
				return a
			}
			t.Run("and it is first", func(t *testing.T) {
				a := stage()
				leased := 0
				first := op{name: name, run: func(a *arena, s *stores.Store) string { leased = lease(a, s); return "" }}
				if name == "take" { // its first commit makes the queue
					first.held = 2
				}
				_, waited, held := a.together(first, entering, true)
				if !held || !waited || leased != 1 {
					t.Errorf("it leased %d (held open: %v), and the quarantine waited for its commit: %v", leased, held, waited)
				}
			})
			t.Run("and it comes meanwhile", func(t *testing.T) {
				a := stage()
				leased := 0
				then := op{name: name, run: func(a *arena, s *stores.Store) string { leased = lease(a, s); return "" }}
				if _, _, held := a.together(entering, then, true); !held || leased != 0 {
					t.Errorf("it leased %d while the quarantine was about to commit (held open: %v)", leased, held)
				}
			})
			t.Run("and it comes later", func(t *testing.T) {
				a := stage()
				a.Must(a.S.EnterQuarantine(a.Ctx, a.By, pg.Quarantine{Context: "default", Reason: "because"}))
				if a.b.Quarantined(a.ID, "U") {
					t.Fatal("the other process knows of it already")
				}
				if n := lease(a, a.b); n != 0 {
					t.Errorf("a process that does not know of the quarantine leased %d", n)
				}
			})
		})
	}
}

// A node that registers while a quarantine is entered has to know it too.
func TestANodeThatRegistersMeanwhileHasToKnowIt(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.Dispatcher("U", nil)
	a.Post("q", "U", "a")
	a.ready()
	var n pg.Node
	register := op{name: "register", run: func(a *arena, s *stores.Store) (said string) {
		var err error
		n, err = s.Register(a.Ctx, "new", "test", 10*time.Second)
		return refusal(err)
	}}
	if _, waited, held := a.together(entering, register, true); !waited || !held {
		t.Errorf("it waited for the quarantine: %v", waited)
	}
	if l, _, err := a.b.Claim(a.Ctx, n, pgworld.Everything()); err != nil || len(l) > 0 {
		t.Errorf("it leased %d, %v", len(l), err)
	}
}

// A node that was buried when a quarantine was entered, and comes back, has to know it too.
func TestANodeThatComesBackHasToKnowIt(t *testing.T) {
	stage := func(t *testing.T) *arena {
		t.Parallel()
		a := newArena(t)
		a.Dispatcher("U", nil)
		a.Post("q", "U", "a")
		a.stale()
		_, err := a.S.Bury(a.Ctx)
		a.Must(err)
		a.ready()
		return a
	}
	check := func(a *arena, n pg.Node, err error) {
		a.T.Helper()
		a.Must(err)
		if l, _, err := a.b.Claim(a.Ctx, n, pgworld.Everything()); err != nil || len(l) > 0 {
			a.T.Errorf("it leased %d, %v", len(l), err)
		}
		if silent, err := a.S.QuarantineUnheeded(a.Ctx); err != nil || !slices.Contains(silent, n.Name) {
			a.T.Errorf("it counts as one that knows of it: %v, %v", silent, err)
		}
		a.Must(a.b.Refresh(a.Ctx))
		if _, err := a.b.Beat(a.Ctx, n, pg.NodeLoad{}); err != nil {
			a.T.Error(err)
		}
		if silent, err := a.S.QuarantineUnheeded(a.Ctx); err != nil || slices.Contains(silent, n.Name) {
			a.T.Errorf("it has said that it knows of it: %v, %v", silent, err)
		}
	}
	t.Run("later", func(t *testing.T) {
		a := stage(t)
		a.Must(a.S.EnterQuarantine(a.Ctx, a.By, pg.Quarantine{Context: "default", Reason: "because"}))
		n, err := a.b.Reincarnate(a.Ctx, a.n1)
		check(a, n, err)
	})
	t.Run("meanwhile", func(t *testing.T) {
		a := stage(t)
		var n pg.Node
		back := op{name: "reincarnate", run: func(a *arena, s *stores.Store) (said string) {
			var err error
			n, err = s.Reincarnate(a.Ctx, a.n1)
			return refusal(err)
		}}
		if _, waited, held := a.together(entering, back, true); !waited || !held {
			t.Errorf("it waited for the quarantine: %v", waited)
		}
		check(a, n, nil)
	})
}

// Of what is in quarantine by its type or its context, nothing is leased, and the rest goes on.
func TestAQuarantineHasAScope(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 100}}, 0)
	w.Must(err)
	w.Dispatcher("T", nil)
	w.Dispatcher("U", nil)
	shop := w.in(t)
	shop.ID = w.S.Context("shop").ID
	shop.By.Context = shop.ID
	shop.Dispatcher("T", nil)
	n := w.Node("n1")
	w.Post("t1", "T", "t1")
	w.Post("t2", "T", "t2")
	w.Post("u", "U", "u")
	shop.Post("s", "T", "s")
	// t1 and u lie in the lane resume
	lost := w.Node("lost")
	for _, l := range w.Claim(lost, pgworld.Everything()) {
		if l.Queue == "t2" || l.Queue == "s" {
			_, _, err := w.S.GiveUp(w.Ctx, lost, []pg.Fenced{{Queue: l.ID().Queue, Fence: l.Fence}})
			w.Must(err)
		}
	}
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Context: "default", Type: "T", Reason: "because"}))
	_, err = w.S.BuryNode(w.Ctx, w.By, "lost")
	w.Must(err)
	leased := func() (list []string) {
		for _, l := range w.Claim(n, pgworld.Everything()) {
			list = append(list, l.Queue)
		}
		slices.Sort(list)
		return list
	}
	if got := leased(); !slices.Equal(got, []string{"s", "u"}) {
		t.Errorf("with type T in quarantine %v go on, want s of the other context and u", got)
	}
	_, err = w.S.ReleaseQuarantine(w.Ctx, w.By, pg.Quarantine{Context: "default", Type: "T"}, false)
	w.Must(err)
	if got := leased(); !slices.Equal(got, []string{"t1", "t2"}) {
		t.Errorf("after its release %v go on, want t1 and t2", got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestWhatMayBeLostIsReleasedOnlyAfterTheQuestions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Reason: "restored"}))
	refused := func(q pg.Quarantine, code string, says ...string) {
		t.Helper()
		_, err := w.S.ReleaseQuarantine(w.Ctx, w.By, q, false)
		for _, part := range says {
			if fault.CodeOf(err) != code || !strings.Contains(err.Error(), part) {
				t.Errorf("the release of %s says %v, want %s: %s", q, err, code, part)
			}
		}
	}
	refused(pg.Quarantine{}, "not_reconciled", "the workers were not asked yet", "Next: run postern quarantine reconcile. ")
	refused(pg.Quarantine{Context: "default"}, "wrong_state", "there is no quarantine of context default: postern quarantine status lists")
	w.Dispatcher("T", nil)
	w.Post("q", "T", "a")
	v, err := w.S.ReconcileRound(w.Ctx, w.By, pg.Quarantine{}, false)
	w.Must(err)
	refused(pg.Quarantine{}, "not_reconciled", "about a part only", "postern quarantine reconcile, which goes on where it was")
	part, err := w.S.NextUnended(w.Ctx, v, 10)
	w.Must(err)
	open := []pg.Unreconciled{{ID: part[0].ID, Type: "T", Why: pg.OpenUnreachable, Detail: "no answer"}}
	w.Must(w.S.ReconcileStep(w.Ctx, v, pg.Reconciliation{Part: part, Open: open, Last: true}))
	refused(pg.Quarantine{}, "not_reconciled", "of 1 transaction it is not known what became",
		"Next: postern quarantine status lists them: decide about each", "With --anyway it is released as it is")
	_, err = w.S.ReleaseQuarantine(w.Ctx, w.By, pg.Quarantine{}, true)
	w.Must(err)
	refused(pg.Quarantine{}, "wrong_state", "there is no quarantine of everything: a part may be in quarantine, which is to be named")
	if w.S.QuarantinedWhole() {
		t.Error("it is in quarantine still")
	}
}

// A quarantine that is entered again covers a new loss: nothing has been asked about it, and its reason is the new one.
func TestAQuarantineThatIsEnteredAgainAsksAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q", "T", "a")
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Reason: "the first restore"}))
	round := func() *pg.QuarantinedScope {
		v, err := w.S.ReconcileRound(w.Ctx, w.By, pg.Quarantine{}, false)
		w.Must(err)
		part, err := w.S.NextUnended(w.Ctx, v, 10)
		w.Must(err)
		if len(part) != 1 {
			t.Fatalf("%d are to be asked about, want the one that was posted", len(part))
		}
		w.Must(w.S.ReconcileStep(w.Ctx, v, pg.Reconciliation{Part: part, Unknown: 1, Last: true}))
		v, err = w.S.QuarantinedScope(w.Ctx, pg.Quarantine{})
		w.Must(err)
		return v
	}
	if v := round(); v.ReconciledAt == nil || v.Asked != 1 || v.NextStep() != "postern quarantine release --reason ..." {
		t.Fatalf("after the questions it is %+v, next %s", v, v.NextStep())
	}
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Reason: "the second restore"}))
	v, err := w.S.QuarantinedScope(w.Ctx, pg.Quarantine{})
	w.Must(err)
	if v.Reason != "the second restore" || v.ReconcileAt != nil || v.ReconciledAt != nil || v.Asked+v.Moved+v.Unknown != 0 {
		t.Errorf("after the second loss it is %+v", v)
	}
	if _, err := w.S.ReleaseQuarantine(w.Ctx, w.By, pg.Quarantine{}, false); fault.CodeOf(err) != "not_reconciled" {
		t.Errorf("it is released although nothing was asked about the second loss: %v", err)
	}
	if v := round(); v.ReconciledAt == nil || v.Asked != 1 {
		t.Errorf("after the second questions it is %+v", v)
	}
	_, err = w.S.ReleaseQuarantine(w.Ctx, w.By, pg.Quarantine{}, false)
	w.Must(err)
}

// dies has the session end that does something to a table, until the function that it returns is called.
func (w *world) dies(event, table string) (mend func()) {
	w.Exec(`CREATE FUNCTION public.dies() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_terminate_backend(pg_backend_pid());
		RETURN NULL;
	END $$`)
	w.Exec(`CREATE TRIGGER dies BEFORE ` + event + ` ON ` + table + ` FOR EACH ROW EXECUTE FUNCTION public.dies()`)
	return func() { w.Exec(`DROP FUNCTION public.dies CASCADE`) }
}

// A part of a round is recorded with what it left open, or not at all: where its connection breaks, the next step asks
// about the part again, and what is open is not lost.
func TestAPartIsRecordedWithWhatIsOpenOrNotAtAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q", "T", "a")
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Reason: "restored"}))
	v, err := w.S.ReconcileRound(w.Ctx, w.By, pg.Quarantine{}, false)
	w.Must(err)
	step := func() error {
		part, err := w.S.NextUnended(w.Ctx, v, 10)
		w.Must(err)
		if len(part) != 1 {
			t.Fatalf("%d are to be asked about, want the one that was posted", len(part))
		}
		open := []pg.Unreconciled{{ID: part[0].ID, Type: "T", Why: pg.OpenUnreachable, Detail: "no answer"}}
		return w.S.ReconcileStep(w.Ctx, v, pg.Reconciliation{Part: part, Open: open, Last: true})
	}
	for _, at := range [][2]string{{"INSERT", "postern.unreconciled"}, {"UPDATE", "postern.quarantine"}} {
		mend := w.dies(at[0], at[1])
		if err := step(); err == nil {
			t.Errorf("the session ended at the %s of %s, and the step was recorded", at[0], at[1])
		}
		mend()
		if v, err = w.S.QuarantinedScope(w.Ctx, pg.Quarantine{}); err != nil || v.Asked != 0 || v.ReconciledAt != nil || v.Open != 0 {
			t.Fatalf("the session ended at the %s of %s, and half of the step is there: %+v, %v", at[0], at[1], v, err)
		}
	}
	w.Must(step())
	if v, err = w.S.QuarantinedScope(w.Ctx, pg.Quarantine{}); err != nil || v.Asked != 1 || v.ReconciledAt == nil || v.Open != 1 {
		t.Errorf("after the next step it is %+v, %v", v, err)
	}
	if _, err := w.S.ReleaseQuarantine(w.Ctx, w.By, pg.Quarantine{}, false); fault.CodeOf(err) != "not_reconciled" {
		t.Errorf("it is released although one is open: %v", err)
	}
}
