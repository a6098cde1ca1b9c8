package reads_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// leftUnknown lets the leases end as calls whose answer is lost and whose worker cannot be asked: they are held.
func (w *world) leftUnknown(leases []*pg.Lease) {
	w.T.Helper()
	for _, l := range leases {
		a := w.Answer(l, outbox.Answer{Class: outbox.ClassAmbiguous, Code: "timeout"})
		unsupported := outbox.Status{State: outbox.StatusUnsupported}
		a.Step = sequencer.Asked(l.Flight(0), unsupported, l.Dispatcher.Dispatcher, 0.5)
		w.Settle(a)
	}
}

// S2.10: lists find held transactions, however old they are, a sample counts them by type, and report.stuck has them at
// once. After an operator's word they are in none of these.
func TestWhatIsHeldIsListedCountedAndReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.S.SetNow(nil)
	w.Dispatcher("T", nil)
	w.Dispatcher("U", nil)
	w.Post("a", "T", "t-1", "waits")
	w.Post("b", "T", "t-2")
	w.Post("c", "U", "u-1")
	w.Post("", "U", "u-2")
	n := w.Node("n")
	w.leftUnknown(w.Claim(n, pgworld.Everything()))
	w.Post("free", "T", "free")
	yes, no := true, false
	check := func(held, others, counts, stuck string) {
		t.Helper()
		for filter, want := range map[*bool]string{&yes: held, &no: others} {
			list, _, err := w.S.Reads.ListTransactions(w.Ctx, w.ID,
				reads.ListFilter{Held: filter, Limit: 10, Ascending: true})
			w.Must(err)
			got := ""
			for _, x := range list {
				if got += x.UID + " "; x.Held != *filter {
					t.Errorf("%s: held is %t", x.UID, x.Held)
				}
			}
			if got != want {
				t.Errorf("held=%t lists %q, want %q", *filter, got, want)
			}
		}
		v, err := w.S.Reads.TakeSample(w.Ctx)
		w.Must(err)
		if got := fmt.Sprint(v.HeldByType); got != counts || v.Trouble.Forgotten != 0 {
			t.Errorf("the sample counts %s, %d forgotten, want %s", got, v.Trouble.Forgotten, counts)
		}
		_, err = w.S.Reads.SampleStuck(w.Ctx)
		w.Must(err)
		got := ""
		for _, line := range w.Lines(`SELECT concat_ws(' ', uid, state, blocker,
					lever = 'POST /transactions/' || id || '/was-done {"reason":"..."}')
				FROM report.stuck ORDER BY uid`) {
			got += line + "; "
		}
		if got != stuck {
			t.Errorf("report.stuck has %q, want %q", got, stuck)
		}
	}
	const blocker = " DISPATCHING outcome_unknown t; "
	check("t-1 t-2 u-1 u-2 ", "waits free ", "map[T:2 U:2]", "t-1"+blocker+"t-2"+blocker+"u-1"+blocker+"u-2"+blocker)
	const older = `WITH older AS (UPDATE postern.task SET created_at = created_at - interval '30 d' WHERE uid = 't-2'
		RETURNING uid, created_at, moved_from)
		UPDATE postern.idempotency i SET salt = postern.salt(o.created_at, o.moved_from) FROM older o
			WHERE i.key = o.uid`
	_, err := w.S.Pool().Exec(w.Ctx, older)
	w.Must(err)
	oldest := reads.ListFilter{Held: &yes, Types: []string{"T"}, Limit: 1, Ascending: true}
	list, _, err := w.S.Reads.ListTransactions(w.Ctx, w.ID, oldest)
	if w.Must(err); len(list) != 1 || list[0].UID != "t-2" {
		t.Errorf("the oldest: %+v", list)
	}
	_, err = w.S.WasDone(w.Ctx, w.By, w.UID("t-1"))
	w.Must(err)
	_, err = w.S.WasNotDone(w.Ctx, w.By, w.UID("t-2"))
	w.Must(err)
	_, err = w.S.Abandon(w.Ctx, w.By, w.UID("u-1"))
	w.Must(err)
	check("u-2 ", "t-2 t-1 waits u-1 free ", "map[U:1]", "u-2"+blocker)
}

// A page of held transactions goes on where the one before ended.
func TestPagesOfWhatIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	for i := range 5 {
		w.Post(fmt.Sprint("q", i), "T", fmt.Sprint("x", i))
		w.Later(time.Second)
	}
	w.leftUnknown(w.Claim(w.Node("n"), pgworld.Everything()))
	yes := true
	var got []string
	for from := (*reads.ListCursor)(nil); ; {
		list, next, err := w.S.Reads.ListTransactions(w.Ctx, w.ID, reads.ListFilter{Held: &yes, Limit: 2, From: from})
		w.Must(err)
		for _, x := range list {
			got = append(got, x.UID)
		}
		if from = next; next == nil {
			break
		}
	}
	w.Same(got, "x4", "x3", "x2", "x1", "x0")
}
