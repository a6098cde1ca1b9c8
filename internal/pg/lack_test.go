package pg_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// dropDays drops all partitions by days, as an operator may who frees space.
func (w *world) dropDays() {
	w.T.Helper()
	w.Exec(dropAllDays)
}

// dropDays does so before a store is opened.
func dropDays(t *testing.T, db *pgtest.DB) {
	t.Helper()
	_, err := db.Pool.Exec(t.Context(), dropAllDays)
	pgworld.OK(t, err)
}

const dropAllDays = `DO $$ DECLARE t text; BEGIN
		FOR t IN SELECT c.oid::regclass::text FROM pg_class c
			WHERE c.relispartition AND c.relkind = 'r' LOOP EXECUTE 'DROP TABLE ' || t; END LOOP; END $$`

// ready is what a store says is wrong.
func (w *world) ready(s *stores.Store) string {
	var wrong []string
	for _, r := range s.Ready(w.Ctx) {
		if r.Detail != "" {
			wrong = append(wrong, r.Name+": "+r.Detail)
		}
	}
	return strings.Join(wrong, "; ")
}

// appStore is a store that is a member of postern_app, and its role.
func (w *world) appStore() (s *stores.Store, role string) {
	w.T.Helper()
	role, url := login(w.T, connect(w.T, w.url()), "postern_app")
	pool, err := pg.Connect(w.Ctx, url, 4)
	w.Must(err)
	w.T.Cleanup(pool.Close)
	s, err = stores.Open(w.Ctx, pool, slog.New(slog.DiscardHandler))
	w.Must(err)
	s.SetNow(&w.Now)
	return s, role
}

func TestAPostToADayWithoutPartitionsMakesThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	n := w.Node("n")
	first := w.Post("q", "T", "a")[0]
	w.work(n)
	for name, lose := range map[string]func(){
		"dropped":             w.dropDays,
		"a clock that jumped": func() { w.Later(400 * 24 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			lose()
			id := w.Post("q", "T", name)[0]
			w.Post("", "T", name+" without a queue")
			w.Must(w.submit(w.S.Pool(), "r", "T", strings.ReplaceAll(name, " ", "-")+"-staged"))
			w.drainAll(w.S)
			if w.work(n); w.State(id) != outbox.DONE || id.Day < first.Day {
				t.Errorf("%v is %s", id, w.State(id))
			}
			lose()
			out, err := w.S.Ingest(w.Ctx, []*pg.Submission{w.Sub("a", "T", name+"1"), w.Sub("b", "T", name+"2")}, true)
			w.Must(err)
			if out[0].Err != nil || out[1].Err != nil {
				t.Error(out)
			}
			lose()
			if got := w.ready(w.S); got != "" {
				t.Error("readiness makes them, too:", got)
			}
		})
	}
}

// A move, several changes in one commit, and a dry run need the day as well.
func TestAMoveToADayWithoutPartitionsMakesThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	for _, dry := range []bool{false, true} {
		id := w.Post("q", "T", fmt.Sprint(dry))[0]
		w.Later(50 * 24 * time.Hour)
		ctx := w.Ctx
		if dry {
			var end func()
			ctx, end = w.S.DryRun(w.Ctx)
			defer end()
		}
		if r, err := w.S.MoveTo(ctx, w.By, id, "r", nil); err != nil || !r.Changed {
			t.Error(dry, r, err)
		}
		w.Later(50 * 24 * time.Hour)
	}
}

func TestWhatCannotBeMadeIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	s, role := w.appStore()
	post := func() error {
		out, err := s.Ingest(w.Ctx, []*pg.Submission{w.Sub("q", "T", "")}, false)
		if err == nil {
			err = out[0].Err
		}
		return err
	}
	w.Must(post())
	if got := w.ready(s); got != "" {
		t.Fatal(got)
	}
	for _, c := range []struct{ take, give, error, readiness string }{
		{`REVOKE INSERT ON postern.task FROM postern_app`, `SELECT postern.make_roles()`, "permission denied for table task", "may not INSERT on postern.task"},
		{`REVOKE SELECT ON postern.queue_name FROM postern_app`, `SELECT postern.make_roles()`, "", "may not SELECT on postern.queue_name"},
		{`REVOKE USAGE ON SEQUENCE postern.queue_id FROM postern_app`, `SELECT postern.make_roles()`, "", "may not USAGE on postern.queue_id"},
		{`REVOKE SELECT ON postern.goose_db_version FROM postern_app`, `SELECT postern.make_roles()`, "", "permission denied for table goose_db_version"},
		{`REVOKE EXECUTE ON FUNCTION postern.ensure_days FROM postern_app`, `SELECT postern.make_roles()`, "permission denied for function ensure_days",
			"finds no partition of postern.task for " + w.Now.Format(time.DateOnly)},
	} {
		w.Exec(c.take)
		if strings.Contains(c.error, "ensure_days") {
			w.dropDays()
		}
		if err := post(); c.error != "" {
			if f := fault.As(err); f.Kind != fault.Retry || !strings.Contains(f.Detail, c.error) || !strings.Contains(f.Detail, `"`+role+`"`) ||
				!strings.Contains(f.Detail, "make_roles") {
				t.Errorf("%s: %s %v", c.take, f.Kind, f)
			}
		}
		if got := w.ready(s); !strings.HasPrefix(got, "grants: ") || !strings.Contains(got, c.readiness) || !strings.Contains(got, role) {
			t.Errorf("%s: %s", c.take, got)
		}
		w.Exec(c.give)
		w.Must(post())
		if got := w.ready(s); got != "" {
			t.Errorf("%s: %s", c.give, got)
		}
	}
}

// A partition that an operator has detached is not made, since its table is there: the answer names its day.
func TestADetachedDayIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	day := w.Now.Format("20060102")
	w.Exec(`ALTER TABLE postern.task DETACH PARTITION postern.task_` + day)
	_, err := w.S.Ingest(w.Ctx, []*pg.Submission{w.Sub("q", "T", "a")}, false)
	if f := fault.As(err); f.Kind != fault.Retry || !strings.Contains(f.Detail, "partitions of "+w.Now.Format(time.DateOnly)) {
		t.Errorf("%s %v", f.Kind, f)
	}
	if got := w.ready(w.S); !strings.Contains(got,
		"finds no partition of postern.task for "+w.Now.Format(time.DateOnly)) {
		t.Error(got)
	}
}
