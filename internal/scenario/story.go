package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	pgdb "github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remotetest"
)

// start is when every story begins: on the day before it is told, whose partitions each database has, and always at
// ten.
var start = time.Now().UTC().Truncate(24 * time.Hour).Add(-14 * time.Hour)

// story is one story while it is told.
type story struct {
	t       testing.TB
	ctx     context.Context
	pool    *pgxpool.Pool
	store   *stores.Store // of the people who post and pull levers
	by      pgdb.By
	now     time.Time
	nodes   map[string]*node
	workers map[string]*worker
	ids     map[string]outbox.ID // by uid
	events  map[string]string    // ids by name
	around  *outside
	far     *far // nil: there is no domain
	api     *httptest.Server
	fences  map[string][]int64 // of messages, in the order in which they were received
	short   []string           // id, uid, id, uid ...: how ids are shown
}

// Run tells the story in the file at path, in a database of its own, and fails t where it goes
// otherwise than told, or where an invariant is violated. With update the file is written anew.
func Run(t testing.TB, path string, update bool) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list, err := parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	s := begin(t)
	for _, p := range list {
		var said []string
		for _, l := range p.lines {
			if l.cmd == nil {
				continue
			}
			out, err := s.tell(l.cmd)
			if err != nil {
				t.Fatalf("%s:%d: %s: %v", path, l.number, l.text, err)
			}
			said = append(said, out...)
			if !harmless[l.cmd.name] {
				s.check(path, l)
			}
		}
		if got, want := strings.Join(said, "\n"), strings.Join(p.said, "\n"); got != want && !update {
			t.Errorf("%s:%d: after\n%s\nis said\n%s\n\nand should be\n%s", path, p.lines[len(p.lines)-1].number,
				texts(p.lines), indent(got), indent(want))
		}
		p.said = said
	}
	s.end()
	if now := render(list); update && now != string(text) {
		if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func texts(list []line) string {
	var all []string
	for _, l := range list {
		all = append(all, l.text)
	}
	return indent(strings.Join(all, "\n"))
}

func indent(s string) string { return "    " + strings.ReplaceAll(s, "\n", "\n    ") }

func begin(t testing.TB) *story {
	t.Helper()
	db := pgtest.New(t)
	s := &story{t: t, ctx: t.Context(), now: start, nodes: map[string]*node{}, workers: map[string]*worker{},
		ids: map[string]outbox.ID{}, fences: map[string][]int64{}, events: map[string]string{}}
	pool, err := pg.Connect(s.ctx, db.URL, 10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s.pool = pool
	// A connection draws ids of queues in advance: which is lower would depend on who was faster.
	if _, err := pool.Exec(s.ctx, `ALTER SEQUENCE postern.queue_id CACHE 1`); err != nil {
		t.Fatal(err)
	}
	if s.store, err = s.open(); err != nil {
		t.Fatal(err)
	}
	s.by = pgdb.By{Context: s.store.Context("default").ID, Actor: "story", Via: "story"}
	s.workers["worker"] = &worker{Fake: remotetest.NewFake(t)}
	return s
}

// open makes a store by the story's clock: every process has its own, with its own memory.
func (s *story) open() (*stores.Store, error) {
	store, err := stores.Open(s.ctx, s.pool, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	s.set(store)
	_, err = store.EnsureDays(s.ctx)
	return store, err
}

func (s *story) set(store *stores.Store) {
	now := s.now
	store.SetNow(&now)
}

// pass lets time pass for everybody; the nodes that live send their heartbeats.
func (s *story) pass(d time.Duration) error {
	s.now = s.now.Add(d)
	s.set(s.store)
	var alive []int64
	for _, n := range s.nodes {
		s.set(n.store)
		if n.alive {
			alive = append(alive, n.id)
		}
	}
	_, err := s.pool.Exec(s.ctx,
		`UPDATE postern.node SET heartbeat_at = $2 WHERE node_id = ANY ($1) AND dead_at IS NULL`, alive, s.now)
	return err
}

// tell does one command and returns what it says. A refusal is something that it says.
func (s *story) tell(c *command) ([]string, error) {
	do, ok := commands[c.name]
	if !ok {
		var names []string
		for n := range commands {
			names = append(names, n)
		}
		sort.Strings(names)
		return nil, fmt.Errorf("there is no such command: want one of %s", strings.Join(names, ", "))
	}
	if err := s.pass(time.Millisecond); err != nil {
		return nil, err
	}
	copied := &command{name: c.name, words: append([]string(nil), c.words...), options: map[string]string{}}
	for k, v := range c.options {
		copied.options[k] = v
	}
	var out []string
	err := do(s, copied, func(format string, args ...any) {
		for _, l := range strings.Split(strings.TrimRight(fmt.Sprintf(format, args...), "\n"), "\n") {
			out = append(out, s.shorten(strings.TrimRight(l, " ")))
		}
	})
	var f *fault.Error
	if errors.As(err, &f) && f.Kind != fault.Internal {
		out, err = append(out, s.shorten(fmt.Sprintf("refused (%s): %s", f.Code, f.Detail))), nil
	}
	if err == nil {
		err = copied.left()
	}
	return out, err
}

// check wants every invariant to hold now.
func (s *story) check(path string, l line) {
	s.t.Helper()
	found, err := Violations(s.ctx, s.pool)
	if err != nil {
		s.t.Fatalf("%s:%d: %v", path, l.number, err)
	}
	for _, v := range found {
		s.t.Errorf("%s:%d: after %q is violated %s", path, l.number, l.text, v)
	}
}

// end lets go of what is frozen.
func (s *story) end() {
	for _, n := range s.nodes {
		n.die()
	}
}

// know remembers a transaction under its uid.
func (s *story) know(uid string, id outbox.ID) {
	if _, ok := s.ids[uid]; !ok {
		s.ids[uid] = id
		s.short = append(s.short, id.String(), uid)
	}
}

// id is that of the transaction called uid.
func (s *story) id(uid string) (outbox.ID, error) {
	id, ok := s.ids[uid]
	if !ok {
		return id, fmt.Errorf("nothing was posted as %q", uid)
	}
	return id, nil
}

// ids are what shorten looks for.
var ids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// arrivals are what tokens have between the id and the attempt.
var arrivals = regexp.MustCompile(`(` + ids.String() + `)\.[0-9a-f]{12,14}\.`)

// generations are what uids of public transactions end with: the time at which a work was assembled, and a number.
var generations = regexp.MustCompile(`(:coord:\d+:[^ ]+)\.\d{16}`)

// shorten shows tokens without the time of arrival, and ids as uids, or as the numbers of queue and position where they
// have none: an id has the day in it.
func (s *story) shorten(text string) string {
	text = generations.ReplaceAllString(arrivals.ReplaceAllString(text, "$1."), "$1")
	return ids.ReplaceAllStringFunc(strings.NewReplacer(s.short...).Replace(text), func(found string) string {
		id, err := outbox.ParseID(found)
		if err != nil {
			return found
		}
		return fmt.Sprintf("id(%d.%d)", id.Queue, id.Seq)
	})
}

// since shows a moment as the time from now, in whole seconds.
func (s *story) since(t time.Time) string { return t.Sub(s.now).Round(time.Second).String() }
