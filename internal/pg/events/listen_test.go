package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// pageOf is a page whose events are numbered, up to a cursor.
func pageOf(cursor string, more bool, ids ...int) leader.Page {
	p := leader.Page{Cursor: json.RawMessage(cursor), More: more}
	for _, id := range ids {
		p.Items = append(p.Items, leader.Item{Identity: fmt.Sprint(id), JSON: json.RawMessage(fmt.Sprintf(`{"n": %d}`, id)), FQN: "xyz.labs.add@1"})
	}
	return p
}

func (w *world) look(s *stores.Store, n pg.Node) *events.SourceLease {
	w.T.Helper()
	list, _, err := s.Events.LeaseSources(w.Ctx, n, 9, time.Minute)
	w.Must(err)
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

func (w *world) events() string {
	w.T.Helper()
	rows, err := w.S.Pool().Query(w.Ctx, `SELECT identity || ' ' || status FROM postern.event ORDER BY created_at, event_id`)
	w.Must(err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.Must(err)
	return strings.Join(list, ", ")
}

// S1.2: the boundary event that comes twice is stored once, events and cursor are one commit, and an empty page
// or a missing cursor keeps the old one.
func TestEventsAndCursorAreStoredTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Source(nil)
	n := w.Node("n")
	l := w.look(w.S, n)
	if w.look(w.S, n) != nil {
		t.Error("two looks at once")
	}
	out, err := w.S.Events.StorePage(w.Ctx, l, pageOf(`"2"`, true, 1, 2))
	if w.Must(err); out != (events.Stored{New: 2, More: true}) {
		t.Errorf("%+v", out)
	}
	l = w.look(w.S, n) // more: at once
	if l == nil || string(l.Cursor) != `"2"` {
		t.Fatalf("%+v", l)
	}
	broken := errors.New("the connection broke")
	w.S.HoldCommits(func(context.Context, uint32) error { return broken })
	if _, err := w.S.Events.StorePage(w.Ctx, l, pageOf(`"3"`, false, 2, 3)); !errors.Is(err, broken) {
		t.Error(err)
	}
	w.S.HoldCommits(nil)
	if w.events() != "1 Queued, 2 Queued" {
		t.Error(w.events())
	}
	out, err = w.S.Events.StorePage(w.Ctx, l, pageOf(`"3"`, false, 2, 3)) // inclusive: 2 comes again
	if w.Must(err); out != (events.Stored{New: 1, Known: 1}) || w.events() != "1 Queued, 2 Queued, 3 Queued" {
		t.Errorf("%+v %s", out, w.events())
	}
	if w.look(w.S, n) != nil {
		t.Error("it is looked at before poll_every")
	}
	w.Later(time.Second)
	l = w.look(w.S, n)
	out, err = w.S.Events.StorePage(w.Ctx, l, leader.Page{More: true}) // says more, and brings nothing: no spin
	if w.Must(err); out.More {
		t.Errorf("%+v", out)
	}
	if v, err := w.S.Events.Source(w.Ctx, w.ID, "log"); err != nil || string(v.Cursor) != `"3"` || v.Lag != 0 || v.State != "running" {
		t.Errorf("%+v %v", v, err)
	}
}

func TestAnEventThatCannotBeReadStopsTheSourceOrIsStoredDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Source(nil)
	n := w.Node("n")
	page := pageOf(`"3"`, false, 1, 2, 3)
	page.Items[1].Undecoded, page.Items[1].FQN = "it names no tool at /tool", ""
	out, err := w.S.Events.StorePage(w.Ctx, w.look(w.S, n), page)
	if w.Must(err); out.New != 1 || !strings.Contains(out.Stopped, `event "2" cannot be read: it names no tool`) || w.events() != "1 Queued" {
		t.Errorf("%+v %s", out, w.events())
	}
	w.Later(time.Hour)
	if v, err := w.S.Events.Source(w.Ctx, w.ID, "log"); err != nil || v.State != "failed" || v.LastError != out.Stopped || v.Cursor != nil || w.look(w.S, n) != nil {
		t.Errorf("%+v %v", v, err)
	}
	w.Source(func(s *leader.Source) { s.OnUndecodable = "dead" })
	if r, err := w.S.Events.PauseSource(w.Ctx, w.By, "log", false); err != nil || !r.Changed {
		t.Error(r, err)
	}
	out, err = w.S.Events.StorePage(w.Ctx, w.look(w.S, n), page)
	if w.Must(err); out.New != 2 || out.Known != 1 || out.Dead != 1 || w.events() != "1 Queued, 2 Dead, 3 Queued" {
		t.Errorf("%+v %s", out, w.events())
	}
}

// A pause, a rewind or a replacement of a source raises its fence, so that a look under way stores nothing.
func TestALookThatIsOverStoresNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Source(nil)
	n := w.Node("n")
	first := w.look(w.S, n)
	for _, c := range []struct {
		what string
		act  func() error
	}{
		{"pause", func() error { _, err := w.S.Events.PauseSource(w.Ctx, w.By, "log", true); return err }},
		{"resume", func() error { _, err := w.S.Events.PauseSource(w.Ctx, w.By, "log", false); return err }},
		{"rewind", func() error {
			_, err := w.S.Events.RewindSource(w.Ctx, w.By, "log", json.RawMessage(`"0"`))
			return err
		}},
		{"put", func() error { w.Source(nil); return nil }},
	} {
		w.Must(c.act())
		if out, err := w.S.Events.StorePage(w.Ctx, first, pageOf(`"1"`, false, 1)); err != nil || !out.Fenced || w.events() != "" {
			t.Errorf("after %s: %+v %v %s", c.what, out, err, w.events())
		}
	}
	_, err := w.S.Events.PauseSource(w.Ctx, w.By, "log", false)
	w.Must(err)
	// its node dies: another takes the source, with a higher fence, as soon as that is known
	l := w.look(w.S, n)
	w.Later(11 * time.Second)
	other := w.Node("other")
	if w.look(w.S, other) != nil {
		t.Error("taken from a node that nobody has buried")
	}
	_, err = w.S.Bury(w.Ctx)
	w.Must(err)
	second := w.look(w.S, other)
	out, err := w.S.Events.StorePage(w.Ctx, second, pageOf(`"1"`, false, 1))
	w.Must(err)
	late, err := w.S.Events.StorePage(w.Ctx, l, pageOf(`"9"`, false, 9))
	if w.Must(err); out.New != 1 || !late.Fenced || w.events() != "1 Queued" {
		t.Errorf("%+v %+v %s", out, late, w.events())
	}
	// rewound: nothing is stored twice, and it is written down
	_, err = w.S.Events.RewindSource(w.Ctx, w.By, "log", nil)
	w.Must(err)
	again := w.look(w.S, other)
	if out, err = w.S.Events.StorePage(w.Ctx, again, pageOf(`"1"`, false, 1)); err != nil || out.Known != 1 || again.Cursor != nil {
		t.Errorf("%+v %v", out, err)
	}
	var rewinds int
	w.Scan(`SELECT count(*) FROM postern.audit WHERE action = 'rewind' AND object = '/sources/log'`, &rewinds)
	if rewinds != 2 {
		t.Errorf("%d audit rows", rewinds)
	}
	w.Must(w.S.Events.RemoveSource(w.Ctx, w.By, "log"))
	if _, err := w.S.Events.Source(w.Ctx, w.ID, "log"); fault.KindOf(err) != fault.NotFound || w.events() != "1 Queued" {
		t.Error(err, w.events())
	}
}

func TestTroubleWaitsOrStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Source(nil)
	n := w.Node("n")
	why := func() string {
		t.Helper()
		y, err := w.S.Events.WhySource(w.Ctx, w.ID, "log")
		w.Must(err)
		told := fmt.Sprintf("%s %t %s", y.State, y.Moving, y.Summary)
		for _, b := range y.Blockers {
			told += fmt.Sprintf(" | %s %s: %s", b.Kind, b.Object, b.Detail)
			if b.Next != nil {
				told += " next=" + b.Next.At.Sub(w.Now).String()
			}
			for _, l := range b.Levers {
				told += " " + l.Method + " " + l.Path
			}
		}
		return told
	}
	_, err := w.S.Events.FailPage(w.Ctx, w.look(w.S, n), leader.Refused(503, "away", nil), time.Minute)
	w.Must(err)
	v, err := w.S.Events.Source(w.Ctx, w.ID, "log")
	w.Must(err)
	if v.State != "running" || v.Failures != 1 || !strings.HasPrefix(v.LastError, "HTTP 503: away, ") ||
		!v.NextAt.Equal(w.Now.Add(time.Minute)) || w.look(w.S, n) != nil {
		t.Errorf("%+v", v)
	}
	if got, want := why(), "running true it gives no page, and is asked again for as long as it takes: "+v.LastError+
		" | no_page /sources/log: "+v.LastError+" (asked 1 times) next=1m0s PATCH /sources/log"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.Later(time.Minute)
	out, err := w.S.Events.FailPage(w.Ctx, w.look(w.S, n), leader.Refused(400, "", []byte(`{}`)), time.Minute)
	w.Must(err)
	v, err = w.S.Events.Source(w.Ctx, w.ID, "log")
	if err != nil || v.State != "failed" || v.LastError != "HTTP 400" ||
		out.Stopped != "HTTP 400" || v.Lag != time.Minute {
		t.Errorf("%+v %v", v, err)
	}
	if got := why(); got != "failed false it has stopped: HTTP 400 | source_stopped /sources/log: HTTP 400"+
		" POST /sources/log/resume" {
		t.Error(got)
	}
	_, err = w.S.Events.PauseSource(w.Ctx, w.By, "log", true)
	w.Must(err)
	if got := why(); !strings.HasPrefix(got, "paused false it is not read: somebody paused it | source_paused") {
		t.Error(got)
	}
}

// What a source says is stored, also where it has a NUL in it, which no text of the database can have: else the same
// page would be asked for and refused for ever, and /why would name no trouble.
func TestANulInWhatASourceSaysStopsNoLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Source(func(s *leader.Source) { s.OnUndecodable = "dead" })
	n := w.Node("n")
	trouble := &leader.Trouble{Retryable: true, Text: "JSON-RPC error 5: a\x00b"}
	_, err := w.S.Events.FailPage(w.Ctx, w.look(w.S, n), trouble, time.Minute)
	w.Must(err)
	v, err := w.S.Events.Source(w.Ctx, w.ID, "log")
	if w.Must(err); v.Failures != 1 || v.LastError != "JSON-RPC error 5: a b" {
		t.Errorf("%+v", v)
	}
	w.Later(time.Minute)
	l := w.look(w.S, n)
	page := pageOf(`"1"`, false, 1)
	it := l.Item(leader.Item{Identity: "2", Checkpoint: "7\x00"}, []byte(`{"checkpoint": "7\u0000"}`))
	page.Items = append(page.Items, it)
	_, err = w.S.Events.StorePage(w.Ctx, l, page)
	if w.Must(err); w.events() != "1 Queued, 2 Dead" {
		t.Error(w.events())
	}
}

// In each pair the first is held before its commit and the second runs in another session.
func TestTwoSessionsOnOneSource(t *testing.T) {
	t.Parallel()
	for _, p := range []struct {
		name   string
		first  func(w *world, l *events.SourceLease) error
		second func(w *world, s *stores.Store, l *events.SourceLease) string
		waits  bool
		said   string
		events string
	}{
		{"two store under one look", store(1), func(w *world, s *stores.Store, l *events.SourceLease) string {
			out, err := s.Events.StorePage(w.Ctx, l, pageOf(`"2"`, false, 1, 2))
			return fmt.Sprintf("%+v %v", out, err)
		}, true, "{New:1 Known:1 Dead:0 Fenced:false More:false Stopped:} <nil>", "1 Queued, 2 Queued"},
		{"taken while it is stored", store(1), func(w *world, s *stores.Store, _ *events.SourceLease) string {
			list, _, err := s.Events.LeaseSources(w.Ctx, pg.Node{ID: 99, Epoch: 1}, 1, time.Minute)
			return fmt.Sprint(len(list), err)
		}, false, "0 <nil>", "1 Queued"},
		{"paused while it is stored", store(1), func(w *world, s *stores.Store, _ *events.SourceLease) string {
			r, err := s.Events.PauseSource(w.Ctx, w.By, "log", true)
			return fmt.Sprint(r.Changed, err)
		}, true, "true <nil>", "1 Queued"},
		{"stored while it is paused", func(w *world, _ *events.SourceLease) error {
			_, err := w.S.Events.PauseSource(w.Ctx, w.By, "log", true)
			return err
		},
			func(w *world, s *stores.Store, l *events.SourceLease) string {
				out, err := s.Events.StorePage(w.Ctx, l, pageOf(`"2"`, false, 2))
				return fmt.Sprint(out.Fenced, err)
			}, true, "true <nil>", ""},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Source(nil)
			l := w.look(w.S, w.Node("n"))
			other := w.Another(2)
			said, waited := w.Beside(func() error { return p.first(w, l) }, func() string { return p.second(w, other, l) })
			if said != p.said || waited != p.waits || w.events() != p.events {
				t.Errorf("said %q, waited %v, events %q; want %q, %v, %q", said, waited, w.events(), p.said, p.waits, p.events)
			}
		})
	}
}

func store(id int) func(*world, *events.SourceLease) error {
	return func(w *world, l *events.SourceLease) error {
		_, err := w.S.Events.StorePage(w.Ctx, l, pageOf(fmt.Sprintf("%q", fmt.Sprint(id)), false, id))
		return err
	}
}

func TestEventsArePushedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Source(func(s *leader.Source) { s.Kind, s.URL = "push", "" })
	page := pageOf("", false, 1, 2)
	out, err := w.S.Events.PushEvents(w.Ctx, w.By, "log", page.Items, json.RawMessage(`{"at": 2}`))
	w.Must(err)
	again, err := w.S.Events.PushEvents(w.Ctx, w.By, "log", pageOf("", false, 2, 3).Items, nil)
	w.Must(err)
	if out[0].Known || out[1].Known || !again[0].Known || again[0].ID != out[1].ID || again[1].Known || w.events() != "1 Queued, 2 Queued, 3 Queued" {
		t.Errorf("%v %v %s", out, again, w.events())
	}
	other := pageOf("", false, 4, 1).Items
	other[1].JSON = json.RawMessage(`{"n": 7}`)
	if _, err := w.S.Events.PushEvents(w.Ctx, w.By, "log", other, nil); fault.CodeOf(err) != "idempotency_conflict" || strings.Contains(w.events(), "4") {
		t.Errorf("another content: %v %s", err, w.events())
	}
	v, err := w.S.Events.Source(w.Ctx, w.ID, "log")
	if w.Must(err); string(v.Cursor) != `{"at": 2}` {
		t.Errorf("%s", v.Cursor)
	}
	list, err := w.S.Events.Events(w.Ctx, w.ID, events.EventFilter{Source: []string{"log"}, Limit: 2})
	w.Must(err)
	rest, err := w.S.Events.Events(w.Ctx, w.ID, events.EventFilter{FromAt: list[1].CreatedAt, FromID: list[1].ID, Limit: 9})
	w.Must(err)
	one, err := w.S.Events.Event(w.Ctx, w.ID, list[0].ID)
	w.Must(err)
	if len(list) != 2 || list[0].Identity != "3" || len(rest) != 1 || rest[0].Identity != "1" || string(one.JSON) != `{"n": 3}` || one.FQN != "xyz.labs.add@1" {
		t.Errorf("%+v %+v %+v", list[0], rest, one)
	}
	w.Source(nil)
	if _, err := w.S.Events.PushEvents(w.Ctx, w.By, "log", page.Items, nil); fault.CodeOf(err) != "wrong_state" {
		t.Errorf("into what is fetched: %v", err)
	}
}

// A context that is drained takes no event, and asks no source; one that is there already has its answer. What it has
// taken before goes on: its tool is called.
func TestADrainedContextWorksOffItsEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Source(nil)
	w.calling(9, 1, "xyz.labs.add@1")
	push := func(identity string) string {
		out, err := w.S.Events.PushEvents(w.Ctx, w.By, "app", []leader.Item{{Identity: identity,
			JSON: json.RawMessage(`{"tool": "xyz.labs.add@1"}`), FQN: "xyz.labs.add@1"}}, nil)
		if err != nil {
			return fault.CodeOf(err)
		}
		return fmt.Sprint(out[0].Known)
	}
	n := w.Node("n")
	_, err := w.S.DrainContext(w.Ctx, w.By, "default")
	w.Must(err)
	w.Must(w.S.Refresh(w.Ctx))
	if l := w.look(w.S, n); l != nil {
		t.Errorf("source %s of a drained context is asked", l.Name)
	}
	for _, name := range []string{"log", "app"} {
		why, err := w.S.Events.WhySource(w.Ctx, w.ID, name)
		w.Must(err)
		if b := why.Blockers; why.Moving || len(b) != 1 || b[0].Kind != "context_draining" ||
			b[0].Object != "/contexts/default" || len(b[0].Levers) != 1 {
			t.Errorf("why of source %s: %+v", name, why)
		}
	}
	if old, fresh := push("xyz.labs.add@10"), push("new"); old != "true" || fresh != "queue_draining" {
		t.Errorf("an event that is there: %s, and a new one: %s", old, fresh)
	}
	if taken, active := w.takes(w.S, n), w.active(); taken != 1 || active != "xyz.labs.add@1 1" {
		t.Errorf("%d messages are taken, and there are %s", taken, active)
	}
	w.Same(w.Lines(`SELECT type FROM postern.task`), leader.TypeTool)
	_, err = w.S.PauseContext(w.Ctx, w.By, "default", false)
	w.Must(err)
	w.Must(w.S.Refresh(w.Ctx))
	if w.look(w.S, n) == nil || push("new") != "false" {
		t.Error("a context that is resumed takes no events")
	}
}
