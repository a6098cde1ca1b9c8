package pg_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// sicknesses are errors of each class that a row can cause: of a value, a constraint, a grant, a limit, memory, disk,
// concurrency, time, a trigger of somebody else, and the server itself.
var sicknesses = []string{"22P02", "23514", "42501", "54000", "53200", "53100", "40001", "55P03", "57014", "25006",
	"P0001", "XX000", "0A000", "F0000"}

// sicken makes rows that are marked with "sick" and an SQLSTATE fail with it.
func (w *world) sicken(table, column string) {
	w.Exec(fmt.Sprintf(`CREATE FUNCTION public.sick_%s() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE
			code text := substring(NEW.%s::text from 'sick-([0-9A-Z]{5})');
		BEGIN
			IF code IS NOT NULL THEN
				RAISE EXCEPTION 'this row is sick' USING ERRCODE = code;
			END IF;
			RETURN NEW;
		END $$`, table, column))
	w.Exec(fmt.Sprintf(`CREATE TRIGGER sick BEFORE INSERT ON postern.%s FOR EACH ROW EXECUTE FUNCTION
		public.sick_%[1]s()`, table))
}

// Posts and answers share commits with others. The error of one, whatever it is, is never that of another.
func TestTheErrorOfOneInACommitIsNeverThatOfAnother(t *testing.T) {
	t.Parallel()
	for _, code := range sicknesses {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Dispatcher("T", nil)
			w.sicken("task", "uid")
			w.sicken("outcome", "result")
			in, settler := pg.NewIngester(w.S.Store), pg.NewSettler(w.S.Store)
			const members = 60
			sick := func(i int) bool { return i%20 == 7 }
			var refused, together atomic.Int32
			w.S.HoldCommits(func(context.Context, uint32) error { together.Add(1); return nil })
			var all sync.WaitGroup
			for i := range members {
				all.Go(func() {
					uid := fmt.Sprint("u", i)
					if sick(i) {
						uid = fmt.Sprintf("sick-%s-%d", code, i)
					}
					_, err := in.Submit(w.Ctx, w.Sub(fmt.Sprint("q", i), "T", uid))
					if sick(i) && err != nil {
						refused.Add(1)
					} else if sick(i) != (err != nil) {
						t.Errorf("post %d: %v", i, err)
					}
				})
			}
			all.Wait()
			leases := w.Claim(w.Node("n"), pgworld.Everything())
			if len(leases) != members-3 {
				t.Fatal(len(leases), "are claimed")
			}
			for i, l := range leases {
				all.Go(func() {
					answer := pgworld.Done()
					if sick(i) {
						answer.Result.Done = json.RawMessage(fmt.Sprintf(`"sick-%s-"`, code))
					}
					_, err := settler.Settle(w.Ctx, w.Answer(l, answer))
					switch {
					case sick(i) && strings.HasPrefix(code, "22"): // it is settled without what the worker sent along
						if err != nil {
							t.Errorf("answer %d: %v", i, err)
						}
					case sick(i) != (err != nil):
						t.Errorf("answer %d: %v", i, err)
					}
				})
			}
			all.Wait()
			if n := refused.Load(); n != 3 {
				t.Error(n, "posts were refused")
			}
			if n := together.Load(); n == 0 || n >= 2*members {
				t.Error(n, "commits")
			}
		})
	}
}

// A batch that is not atomic has an answer for each item, whatever becomes of one.
func TestTheErrorOfOneItemOfABatchIsItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.sicken("task", "uid")
	in := pg.NewIngester(w.S.Store)
	for _, size := range []int{5, 100} {
		for _, code := range sicknesses {
			var subs []*pg.Submission
			for i := range size {
				uid := fmt.Sprintf("%s-%d-%d", code, size, i)
				if i == 3 {
					uid = "sick-" + uid
				}
				subs = append(subs, w.Sub(fmt.Sprint("q", i%2), "T", uid))
			}
			out, err := in.SubmitBatch(w.Ctx, subs, false)
			if err != nil || len(out) != size {
				t.Errorf("%s: %d answers, %v", code, len(out), err)
				continue
			}
			for i, a := range out {
				if (i == 3) != (a.Err != nil) {
					t.Errorf("%s, item %d of %d: %v", code, i, size, a.Err)
				}
			}
		}
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// A panic before the commit has stored nothing, and those who share the commit go on.
func TestAPanicBeforeACommitIsOfOneAlone(t *testing.T) {
	quietly(t)
	w := newWorld(t)
	var g db.Group[int, outbox.State]
	g.Limit, g.AtOnce, g.Partable = 256, 1, w.S.Partable
	g.Run = func(ctx context.Context, items []int) ([]outbox.State, error) {
		err := w.S.Run(ctx, func(*db.Txn) error {
			for _, n := range items {
				if n == 7 {
					panic("seven")
				}
			}
			return nil
		})
		return make([]outbox.State, len(items)), err
	}
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			_, err := g.Do(w.Ctx, i)
			if i == 7 && fault.KindOf(err) != fault.Internal || i != 7 && err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	all.Wait()
	w.idle()
}

// A commit whose answer is lost is not tried in parts: it may be committed.
func TestWhatMayBeCommittedIsNotTriedInParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for err, want := range map[error]bool{
		errors.New("anything"):                       true,
		fault.New(fault.Retry, "overloaded", ""):     true,
		fault.New(fault.Retry, "commit_unknown", ""): false,
	} {
		if got := w.S.Partable(w.Ctx, err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
	away, cancel := context.WithCancel(w.Ctx)
	cancel()
	if w.S.Partable(away, errors.New("anything")) {
		t.Error("tried again where the database does not answer")
	}
}
