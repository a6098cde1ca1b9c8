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
)

// dropDays drops all partitions by days, as an operator may who frees space.
func (w *world) dropDays() {
	w.t.Helper()
	w.exec(`DO $$ DECLARE t text; BEGIN
		FOR t IN SELECT c.oid::regclass::text FROM pg_class c WHERE c.relispartition AND c.relkind = 'r' LOOP EXECUTE 'DROP TABLE ' || t; END LOOP; END $$`)
}

// ready is what a store says is wrong.
func (w *world) ready(s *stores.Store) string {
	var wrong []string
	for _, r := range s.Ready(w.ctx) {
		if r.Detail != "" {
			wrong = append(wrong, r.Name+": "+r.Detail)
		}
	}
	return strings.Join(wrong, "; ")
}

// appStore is a store that is a member of postern_app, and its role.
func (w *world) appStore() (s *stores.Store, role string) {
	w.t.Helper()
	role, url := login(w.t, connect(w.t, w.url()), "postern_app")
	pool, err := pg.Connect(w.ctx, url, 4)
	w.must(err)
	w.t.Cleanup(pool.Close)
	s, err = stores.Open(w.ctx, pool, slog.New(slog.DiscardHandler))
	w.must(err)
	s.SetNow(&w.now)
	return s, role
}

func TestAPostToADayWithoutPartitionsMakesThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	n := w.node("n")
	first := w.post("q", "T", "a")[0]
	w.work(n)
	for name, lose := range map[string]func(){
		"dropped":             w.dropDays,
		"a clock that jumped": func() { w.later(400 * 24 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			lose()
			id := w.post("q", "T", name)[0]
			w.post("", "T", name+" without a queue")
			w.must(w.submit(w.s.Pool(), "r", "T", strings.ReplaceAll(name, " ", "-")+"-staged"))
			w.drainAll(w.s)
			if w.work(n); w.state(id) != outbox.DONE || id.Day < first.Day {
				t.Errorf("%v is %s", id, w.state(id))
			}
			lose()
			out, err := w.s.Ingest(w.ctx, []*pg.Submission{w.sub("a", "T", name+"1"), w.sub("b", "T", name+"2")}, true)
			w.must(err)
			if out[0].Err != nil || out[1].Err != nil {
				t.Error(out)
			}
			lose()
			if got := w.ready(w.s); got != "" {
				t.Error("readiness makes them, too:", got)
			}
		})
	}
}

// A move, several changes in one commit, and a dry run need the day as well.
func TestAMoveToADayWithoutPartitionsMakesThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	for _, dry := range []bool{false, true} {
		id := w.post("q", "T", fmt.Sprint(dry))[0]
		w.later(50 * 24 * time.Hour)
		ctx := w.ctx
		if dry {
			var end func()
			ctx, end = w.s.DryRun(w.ctx)
			defer end()
		}
		if r, err := w.s.MoveTo(ctx, w.by, id, "r", nil); err != nil || !r.Changed {
			t.Error(dry, r, err)
		}
		w.later(50 * 24 * time.Hour)
	}
}

func TestWhatCannotBeMadeIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	s, role := w.appStore()
	post := func() error {
		out, err := s.Ingest(w.ctx, []*pg.Submission{w.sub("q", "T", "")}, false)
		if err == nil {
			err = out[0].Err
		}
		return err
	}
	w.must(post())
	if got := w.ready(s); got != "" {
		t.Fatal(got)
	}
	for _, c := range []struct{ take, give, error, readiness string }{
		{`REVOKE INSERT ON postern.task FROM postern_app`, `SELECT postern.make_roles()`, "permission denied for table task", "may not INSERT on postern.task"},
		{`REVOKE SELECT ON postern.queue_name FROM postern_app`, `SELECT postern.make_roles()`, "", "may not SELECT on postern.queue_name"},
		{`REVOKE USAGE ON SEQUENCE postern.queue_id FROM postern_app`, `SELECT postern.make_roles()`, "", "may not USAGE on postern.queue_id"},
		{`REVOKE SELECT ON postern.goose_db_version FROM postern_app`, `SELECT postern.make_roles()`, "", "permission denied for table goose_db_version"},
		{`REVOKE EXECUTE ON FUNCTION postern.ensure_days FROM postern_app`, `SELECT postern.make_roles()`, "permission denied for function ensure_days",
			"finds no partition postern.task_" + w.now.Format("20060102")},
	} {
		w.exec(c.take)
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
		w.exec(c.give)
		w.must(post())
		if got := w.ready(s); got != "" {
			t.Errorf("%s: %s", c.give, got)
		}
	}
}

// A partition that an operator has detached is not made, since its table is there: the answer names its day.
func TestADetachedDayIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	day := w.now.Format("20060102")
	w.exec(`ALTER TABLE postern.task DETACH PARTITION postern.task_` + day)
	_, err := w.s.Ingest(w.ctx, []*pg.Submission{w.sub("q", "T", "a")}, false)
	if f := fault.As(err); f.Kind != fault.Retry || !strings.Contains(f.Detail, "partitions of "+w.now.Format(time.DateOnly)) {
		t.Errorf("%s %v", f.Kind, f)
	}
	if got := w.ready(w.s); !strings.Contains(got, "finds no partition postern.task_"+day) {
		t.Error(got)
	}
}
