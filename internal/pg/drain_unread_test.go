package pg_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	pgreads "github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// unjudged inserts a row past the trigger, as a superuser can.
func (w *world) unjudged(queue any, uid, typ, data, column, value string) {
	w.T.Helper()
	c := connect(w.T, w.url())
	w.must1(c.Exec(w.Ctx, `SET session_replication_role = replica; SET max_stack_depth = '7MB'`))
	w.must1(c.Exec(w.Ctx, `INSERT INTO postern.outbox (context_id, actor, queue, uid, type, data, `+column+`)
		VALUES ($1, 'x', $2, $3, $4, `+data+`, `+value+`)`, w.ID, queue, uid, typ))
}

// Rows that came past the trigger hold up nothing: each ends FAILED and says why.
func TestARowThatCannotBeReadEndsFailed(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ uid, typ, data, column, value string }{
		"infinite time":      {"u", "T", `'{}'`, "not_before", `'infinity'`},
		"time before all":    {"u", "T", `'{}'`, "not_before", `'-infinity'`},
		"year of 20000":      {"u", "T", `'{}'`, "not_before", `'20000-01-01'`},
		"null dependency":    {"u", "T", `'{}'`, "depends_on", `'{NULL}'`},
		"nested list":        {"u", "T", `'{}'`, "depends_on", `'{{a},{b}}'`},
		"callback of a list": {"u", "T", `'{}'`, "callback", `'[]'`},
		"callback of null":   {"u", "T", `'{}'`, "callback", `'null'`},
		"tags of a list":     {"u", "T", `'{}'`, "tags", `'[1]'`},
		"tag of a number":    {"u", "T", `'{}'`, "tags", `'{"a": 1}'`},
		"negative retries":   {"u", "T", `'{}'`, "max_retries", `-1`},
		"no type":            {"u", "T U", `'{}'`, "tags", `NULL`},
		"no uid":             {"x y", "T", `'{}'`, "tags", `NULL`},
		"empty uid":          {"", "T", `'{}'`, "tags", `NULL`},
		"staged in no time":  {"u", "T", `'{}'`, "staged_at", `'infinity'`},
		"too deep":           {"u", "T", `(repeat('[', 12000) || repeat(']', 12000))::jsonb`, "tags", `NULL`},
	} {
		for _, queue := range []any{"q", nil, "a/b"} {
			t.Run(fmt.Sprint(what, " in ", queue), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.Dispatcher("T", nil)
				app := w.app(1)
				w.Must(w.submit(app, "q", "T", "before"))
				w.unjudged(queue, c.uid, c.typ, c.data, c.column, c.value)
				for _, q := range []string{"q", "r"} {
					w.Must(w.submit(app, q, "T", "behind-"+q))
				}
				w.must1(app.Exec(w.Ctx, `SELECT postern.submit(NULL, 'T', '{}', 'loose'), postern.submit('s', 'T',
					'{}', 'dep', depends_on => '{loose}')`))
				want := pg.Drained{Rows: 6, Refused: 1}
				if what == "staged in no time" && queue != "a/b" {
					want.Refused = 0 // nothing depends on that
				}
				if out := w.drainAll(w.S); out != want {
					t.Errorf("drained %+v, want %+v", out, want)
				}
				pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
				list, _, err := w.S.Reads.ListTransactions(w.Ctx, w.ID, pgreads.ListFilter{Limit: 100})
				if w.Must(err); len(list) != 6 {
					t.Errorf("the list shows %d", len(list))
				}
				for _, x := range list {
					if _, err := json.Marshal(x); err != nil {
						t.Errorf("%s cannot be shown: %v", x.UID, err)
					}
				}
				if want.Refused == 1 {
					if f := w.failed(); f.Code != "invalid" || f.Error == "" {
						t.Errorf("%+v", f)
					}
				}
				w.work(w.Node("n"))
				for _, uid := range []string{"before", "behind-q", "behind-r", "loose", "dep"} {
					if x := w.ByUID(uid); x.State != outbox.DONE {
						t.Errorf("%s is %s", uid, x.State)
					}
				}
			})
		}
	}
}

// A queue whose rows cannot be written is left alone for a while, and the others go on at their own pace.
func TestOneQueueThatCannotBeDrainedSlowsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	app := w.app(1)
	w.Exec(`ALTER TABLE postern.idempotency ADD CONSTRAINT none_of_these CHECK (key NOT LIKE 'bad%')`)
	for _, uid := range []string{"bad1", "good1"} {
		w.Must(w.submit(app, "sick", "T", uid))
	}
	w.must1(app.Exec(w.Ctx, `SELECT postern.submit(NULL, 'T', '{}', 'bad2'), postern.submit(NULL, 'T', '{}', 'good2')`))
	w.must1(app.Exec(w.Ctx, `SELECT postern.submit('dep', 'T', '{}', 'bad3', depends_on => '{good2}')`))
	d := pg.NewDrainer(w.S.Store)
	var failed []error
	for i := range 40 {
		uid := fmt.Sprint("healthy", i)
		w.Must(w.submit(app, fmt.Sprint("q", i%7), "T", uid))
		w.must1(app.Exec(w.Ctx, `SELECT postern.submit(NULL, 'T', '{}', $1, depends_on => $2)`, uid+"d", []string{uid}))
		for range 3 {
			out, err := d.Once(w.Ctx)
			if err != nil {
				t.Fatalf("one queue fails the round of all: %v", err)
			}
			if out.Failed != nil {
				failed = append(failed, out.Failed)
			}
		}
		if x := w.ByUID(uid + "d"); x.State != outbox.WAITING {
			t.Errorf("%s is %s", uid, x.State)
		}
	}
	if w.ByUID("good2").State != outbox.WAITING {
		t.Error("a good row without a queue waits for a bad one")
	}
	if len(failed) == 0 || len(failed) > 40 {
		t.Errorf("it says %d times that it failed", len(failed))
	}
	for _, err := range failed {
		if fault.KindOf(err) == fault.Retry {
			t.Error(err)
		}
	}
	w.Exec(`ALTER TABLE postern.idempotency DROP CONSTRAINT none_of_these`)
	deadline := time.Now().Add(time.Minute)
	for {
		out, err := d.Once(w.Ctx)
		w.Must(err)
		var left int
		if w.Scan(`SELECT count(*) FROM postern.outbox`, &left); left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d rows stay: %v", left, out.Failed)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if got := fmt.Sprint(w.uids("sick")); got != "[bad1 good1]" {
		t.Errorf("the order is %s", got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// A post that is turned down is counted under its type, as all that ends is.
func TestWhatIsTurnedDownIsCountedUnderItsType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	var counted []string
	w.S.Count = func(typ string, entered outbox.State) { counted = append(counted, typ+" "+string(entered)) }
	w.unjudged("q", "x y", "T", `'{}'`, "tags", `NULL`)
	if out := w.drainAll(w.S); out.Refused != 1 {
		t.Fatalf("drained %+v", out)
	}
	if !slices.Contains(counted, "T FAILED") || slices.Contains(counted, " FAILED") {
		t.Errorf("counted %q", counted)
	}
}
