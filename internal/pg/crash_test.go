package pg_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/cut"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// A crash is tried at each point of each statement: the connection ends before it, after it, and with its commit done
// and the answer lost. Undisturbed, a statement goes from one world to the next with each of its commits. Whatever ends
// it, the rows are one of these worlds, and what it says is true: what it calls done is done, and what it says failed
// changed nothing, unless it says that this is unknown. Then the process goes on, or another one takes over, and
// nothing stands still. This file tries crashes; crash_stages_test.go has what only they need.

// crashing is a stage whose statements go through a cutter.
type crashing struct {
	*arena
	cutter *cut.Cutter
	store  *stores.Store // of the process that crashes
	pool   *pgxpool.Pool // under it, of one connection
	begin  time.Time
	tried  int
}

// worlds are the states that one statement goes through, from the one before it to the one behind it.
type worlds struct {
	rows []string
	said string
	txns []txn
}

// txn are the statements of one transaction.
type txn struct {
	first, last int
	writes      bool
}

func (w worlds) last() string { return w.rows[len(w.rows)-1] }

func (a *arena) crashing() *crashing {
	a.T.Helper()
	url := a.url()
	c := &crashing{arena: a, cutter: cut.New(a.T, url), begin: a.Now}
	var err error
	c.pool, err = pg.Connect(a.Ctx, c.cutter.URL(url), 1)
	a.Must(err)
	a.T.Cleanup(c.pool.Close)
	c.store, err = stores.Open(a.Ctx, c.pool, pgworld.Quiet)
	a.Must(err)
	c.store.SetNow(&a.Now)
	return c
}

// back brings the stage again, and has the connection of the process open: to open one takes statements, too.
func (c *crashing) back() {
	for db.Fill(c.Ctx, c.pool) == 0 {
		time.Sleep(time.Millisecond)
	}
	c.At(c.begin)
	c.kept.look(c.T, c.Ctx) // since what goes on behind a crash changes more than was seen
	c.kept.back(c.T, c.Ctx)
}

// undisturbed runs a statement without a crash, and notes the worlds that it goes through. It runs twice: the first
// time it reads what a process knows from then on. It runs again where a connection was lost on a busy machine, so
// that a commit went past the cutter.
func (c *crashing) undisturbed(o op) (w worlds) {
	c.T.Helper()
	for tries := 1; ; tries++ {
		c.back()
		w = worlds{rows: []string{c.kept.look(c.T, c.Ctx).rows}}
		c.cutter.Arm(nil, func(_ bool, statements int) {
			now, first := c.kept.look(c.T, c.Ctx).rows, 1
			if n := len(w.txns); n > 0 {
				first = w.txns[n-1].last + 1
			}
			if statements < first {
				return
			}
			w.txns = append(w.txns, txn{first, statements, now != w.last()})
			if now != w.last() {
				w.rows = append(w.rows, now)
			}
		})
		w.said = o.run(c.arena, c.store)
		c.cutter.Disarm()
		now := c.kept.look(c.T, c.Ctx).rows
		switch {
		case now == w.last() && tries > 1:
			return w
		case now != w.last() && tries > 4:
			c.T.Fatalf("%s changed something that no commit explains:%s", o.name, difference(w.last(), now))
		}
	}
}

// crash runs a statement that is cut at a point. It returns the rows that this left, and whether the point was reached.
func (c *crashing) crash(o op, w worlds, at cut.Point) (rows string, hit bool) {
	c.T.Helper()
	c.back()
	heard := w.rows[0]
	c.cutter.Arm(&at, func(told bool, _ int) {
		if told {
			heard = c.kept.look(c.T, c.Ctx).rows
		}
	})
	said := o.run(c.arena, c.store)
	killed := c.cutter.Disarm()
	if len(killed) == 0 {
		return "", false
	}
	c.tried++
	c.untilGone(killed)
	got := end{sight: c.kept.look(c.T, c.Ctx)}
	name := fmt.Sprintf("%s, cut %s statement %d (fatal: %v), says %q", o.name, at.Where, at.Statement, at.Fatal, said)
	if !slices.Contains(w.rows, got.rows) {
		c.T.Errorf("%s, and leaves what is neither before nor after:\nbefore:%s\nafter:%s", name,
			difference(w.rows[0], got.rows), difference(w.last(), got.rows))
	}
	switch {
	case strings.Contains(said, "commit_unknown"):
	case said == w.said && got.rows != w.last():
		c.T.Errorf("%s, and it is not done:%s", name, difference(w.last(), got.rows))
	case got.rows != heard:
		c.T.Errorf("%s, and yet it changed:%s", name, difference(heard, got.rows))
	}
	c.holdsTrue(got)
	if c.T.Failed() {
		c.T.Fatalf("after %s", name)
	}
	return got.rows, true
}

// untilGone waits until the server has ended sessions.
func (c *crashing) untilGone(pids []uint32) {
	c.T.Helper()
	ids := make([]int32, len(pids))
	for i, pid := range pids {
		ids[i] = int32(pid)
	}
	for n := 1; n > 0; {
		c.Must(c.monitor.QueryRow(c.Ctx, `SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1)`, ids).Scan(&n))
	}
}

// goesOn lets the process that crashed go on: it does again what it was about, hands back what it does not have, and
// works everything off.
func (c *crashing) goesOn(o op, w worlds, name string) {
	c.T.Helper()
	for db.Fill(c.Ctx, c.pool) == 0 {
		time.Sleep(time.Millisecond)
	}
	said := o.run(c.arena, c.store)
	if strings.Contains(said, "commit_unknown") || strings.Contains(said, "database_unavailable") {
		c.T.Errorf("%s, and again: %q", name, said)
	}
	if got := c.kept.look(c.T, c.Ctx).rows; once(got) != once(w.last()) {
		c.T.Errorf("%s, and again, which says %q: it is not as if it had been done once:%s", name, said,
			difference(w.last(), got))
	}
	for _, n := range []pg.Node{c.n1, c.n2} {
		mine, _, err := c.store.Owned(c.Ctx, n, 0, 1000)
		c.Must(err)
		if done, left, err := c.store.GiveUp(c.Ctx, n, mine); err != nil || done != len(mine) || len(left) > 0 {
			c.T.Errorf("%s, and then it hands back %d of %d, left are %v: %v", name, done, len(mine), left, err)
		}
	}
	c.empties(c.store, name)
}

// once is rows without what a repetition may add: a late answer, a heartbeat, a version, and the audit
// row that each request leaves.
func once(rows string) string {
	lines := slices.DeleteFunc(strings.Split(rows, "\n"), func(l string) bool {
		return strings.Contains(l, `"step":"late"`) || strings.HasPrefix(l, "audit ")
	})
	return counts.ReplaceAllString(strings.Join(lines, "\n"), "")
}

// counts are how often a node has said that it is there, how often something was put, and how often a quarantine was
// entered or released.
var counts = regexp.MustCompile(`"(beats|version|quarantine)":\d+`)

// takenOver lets another process find what the one that crashed has left, and work everything off.
func (c *crashing) takenOver(name string) {
	c.T.Helper()
	c.Later(c.n1.TTL + time.Second)
	c.empties(c.S, name)
}

// empties releases what dead nodes have, lets everything go that an operator has stopped, and works until all has
// ended.
func (c *crashing) empties(s *stores.Store, name string) {
	c.T.Helper()
	n, err := s.Register(c.Ctx, "heir", "test", 10*time.Second)
	c.Must(err)
	_, err = s.Bury(c.Ctx)
	c.Must(err)
	_, err = s.Release(c.Ctx)
	c.Must(err)
	c.letGo(s)
	open := 1
	for round := 0; open > 0; round++ {
		if round == 60 {
			var rest string
			c.Scan(`SELECT string_agg(concat_ws(' ', queue, uid, state, held_until, blocker), '; ') FROM `+
				`(SELECT t.*, '' AS blocker, '' AS held_until FROM postern.tx t WHERE state NOT IN ('DONE', `+
				`'FAILED', 'CANCELLED', 'UNRESOLVED')) t`, &rest)
			c.T.Errorf("%s, and then it stands still: %s", name, rest)
			return
		}
		if worked := c.round(s, n); worked == 0 {
			c.Later(11 * time.Second / 2)
			_, err := s.Beat(c.Ctx, n, pg.NodeLoad{})
			c.Must(err)
		}
		c.Scan(`SELECT count(*) FROM postern.tx WHERE state NOT IN ('DONE', 'FAILED', 'CANCELLED', `+
			`'UNRESOLVED')`, &open)
	}
	pgworld.HoldsTrue(c.T, c.Ctx, c.monitor)
}

// letGo ends pauses, suspensions and what is held, as an operator would.
func (c *crashing) letGo(s *stores.Store) {
	c.T.Helper()
	for _, q := range c.Lines(`SELECT n.name FROM postern.queue q JOIN postern.queue_name n USING (queue_id) ` +
		`WHERE q.paused`) {
		c.Lever(s.PauseQueue(c.Ctx, c.By, q, false))
	}
	for _, typ := range c.Lines(`SELECT type FROM postern.dispatcher WHERE paused`) {
		c.Lever(s.PauseDispatcher(c.Ctx, c.By, typ, false))
	}
	for _, account := range c.Lines(`SELECT account FROM postern.sender WHERE paused OR blocked_until IS NOT NULL`) {
		c.Lever(s.PauseSender(c.Ctx, c.By, account, false))
		c.Lever(s.UnblockSender(c.Ctx, c.By, account))
	}
	for kind, pull := range map[string]func(outbox.ID) (pg.LeverResult, error){
		"suspended": func(id outbox.ID) (pg.LeverResult, error) { return s.Resume(c.Ctx, c.By, id) },
		"unknown":   func(id outbox.ID) (pg.LeverResult, error) { return s.WasNotDone(c.Ctx, c.By, id) },
	} {
		for _, uid := range c.Lines(`SELECT t.uid FROM postern.mark m JOIN postern.task t USING (queue_id, `+
			`seq) WHERE m.kind = $1
			AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq) = (m.queue_id, m.seq))`, kind) {
			c.Lever(pull(c.UID(uid)))
		}
	}
}

// round is what a node does once, and how much that was.
func (c *crashing) round(s *stores.Store, n pg.Node) (worked int) {
	c.T.Helper()
	d := pg.NewDrainer(s.Store)
	drained, err := d.Once(c.Ctx)
	c.Must(err)
	w, err := s.Wake(c.Ctx, n, 100, 100)
	c.Must(err)
	claimed, _, err := s.Claim(c.Ctx, n, pgworld.Everything())
	c.Must(err)
	rippled, err := s.Ripple(c.Ctx)
	c.Must(err)
	list := slices.Concat(w.Leases, w.Polls, claimed)
	for _, l := range list {
		for ; l != nil && worked < 1000; worked++ {
			out, err := s.Settle(c.Ctx, []*pg.Answer{c.finishing(l)})
			c.Must(err)
			c.Must(out[0].Err)
			l = out[0].Next
		}
	}
	return worked + drained.Rows + rippled
}

// finishing is what a worker says that did everything once and tells of it.
func (c *crashing) finishing(l *pg.Lease) *pg.Answer {
	f, d := l.Flight(2), l.Dispatcher.Dispatcher
	a := &pg.Answer{Lease: l, Continue: true, Gate: sequencer.MoveOpen, StartedAt: c.Now}
	there := outbox.Status{State: outbox.StatusIncluded, Hash: fmt.Sprintf("0x%d", l.Attempt), BlockHeight: "1"}
	switch {
	case l.Phase == outbox.PhaseDelay:
		var earlier []outbox.Status
		for range l.Hashes() {
			earlier = append(earlier, outbox.Status{State: outbox.StatusFailed})
		}
		a.Step = sequencer.Elapsed(f, earlier, d, 0.5)
	case l.Phase != outbox.PhaseDispatching:
		a.Result.Hash, a.BlockHeight = there.Hash, there.BlockHeight
		a.Step = sequencer.Polled(f, there, d, 0.5)
	case l.Resume:
		a.Step = sequencer.Asked(f, outbox.Status{State: outbox.StatusUnknown}, d, 0.5)
	default:
		return c.Answer(l, pgworld.Done())
	}
	c.Must(a.Step.Err)
	return a
}

// points are the places at which a statement can be cut. Before a statement is the same as after the one before it, but
// for the first of a transaction. A transaction that writes nothing is cut once.
func (w worlds) points(all bool) (list []cut.Point) {
	for _, t := range w.txns {
		if !t.writes {
			list = append(list, cut.Point{Statement: t.last, Where: cut.After})
			continue
		}
		list = append(list, cut.Point{Statement: t.first, Where: cut.Before})
		for n := t.first; n <= t.last; n++ {
			if all || n == t.last {
				list = append(list, cut.Point{Statement: n, Where: cut.After})
			}
		}
		list = append(list, cut.Point{Statement: t.last, Where: cut.Answered},
			cut.Point{Statement: t.last, Where: cut.Answered, Fatal: true})
	}
	return list
}

// everyPoint says whether all crashes are to be tried. Else those in the middle of a transaction are left out: none of
// its statements can be seen before its commit, so that they differ in the locks alone that are held.
func everyPoint() bool { return os.Getenv("POSTERN_CRASHES") == "all" }

// TestACrashAnywhere tries the statements of a short history whose turn it is with a crash at the beginning of each
// transaction and at its end, in the first stage in which each changes something; with POSTERN_CRASHES=all, each with a
// crash at each point, and in all stages in which pairs of statements meet.
func TestACrashAnywhere(t *testing.T) {
	t.Parallel()
	all := everyPoint()
	var tried sync.Map // statements that have changed something
	for _, s := range crashStages() {
		if !all && !slices.Contains(shortHistory, s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if all {
				t.Parallel()
			}
			a := newArena(t)
			s.set(a)
			ops := slices.DeleteFunc(s.ops(a), func(o op) bool {
				_, done := tried.Load(o.name)
				return done || !everyPoint() && !pgtest.Turn(o.name)
			})
			if len(ops) == 0 {
				return
			}
			a.ready()
			c := a.crashing()
			for _, o := range ops {
				if c.everywhere(o) && !all {
					tried.Store(o.name, true)
				}
			}
			t.Logf("%d crashes", c.tried)
		})
	}
}

// everywhere tries one statement with a crash at each point. From each world that this leaves another process takes
// over once, and the one that crashed goes on once for each kind of point. It says whether the statement changes
// something.
func (c *crashing) everywhere(o op) bool {
	c.T.Helper()
	w := c.undisturbed(o)
	points := w.points(everyPoint())
	if len(points) == 0 {
		c.T.Errorf("%s says nothing to the database", o.name)
	}
	missed, after := 0, map[string]bool{}
	once := func(what, rows string) bool {
		was := after[what+rows]
		after[what+rows] = true
		return !was
	}
	for _, at := range points {
		rows, hit := c.crash(o, w, at)
		if !hit {
			missed++
			continue
		}
		name := fmt.Sprintf("%s, cut %s statement %d of %v", o.name, at.Where, at.Statement, w.txns)
		switch {
		case once(at.Where.String(), rows):
			c.goesOn(o, w, name)
		case once("inherited", rows):
			c.takenOver(name)
		}
		if c.T.Failed() {
			c.T.Fatalf("after %s", name)
		}
	}
	if missed*2 > len(points) {
		c.T.Errorf("%s: %d of %d points were not reached", o.name, missed, len(points))
	}
	return len(w.rows) > 1
}

// TestCrashesAtRandom runs random histories, in which each statement may crash at a random point: after each crash the
// rows are one of the worlds, and what it left is what goes on. POSTERN_MODEL_STEPS is how many statements.
func TestCrashesAtRandom(t *testing.T) {
	t.Parallel()
	steps := 30
	if n, err := strconv.Atoi(os.Getenv("POSTERN_MODEL_STEPS")); err == nil {
		steps = n
	}
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("POSTERN_CRASH_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("POSTERN_CRASH_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for done := 0; done < steps && !t.Failed(); {
		s := stages[r.IntN(len(stages))]
		t.Run(s.name, func(t *testing.T) {
			a := newArena(t)
			s.set(a)
			ops := s.ops(a)
			a.ready()
			c := a.crashing()
			for range 6 {
				c.randomly(r, ops[r.IntN(len(ops))])
				done++
			}
			c.takenOver("a random history")
			t.Logf("%d crashes", c.tried)
		})
	}
}

// randomly crashes one statement at a random point, and makes what that left the stage of the next.
func (c *crashing) randomly(r *rand.Rand, o op) {
	c.T.Helper()
	w := c.undisturbed(o)
	points := w.points(everyPoint())
	if len(points) == 0 {
		return
	}
	at := points[r.IntN(len(points))]
	at.Fatal = r.IntN(2) == 0
	c.crash(o, w, at)
	c.Later(time.Duration(r.IntN(8)) * time.Second)
	c.keepThis()
}

// keepThis makes the rows as they are now those that back brings.
func (c *crashing) keepThis() {
	c.T.Helper()
	for _, table := range tables {
		c.Exec(`TRUNCATE public.base_` + table.name + `; INSERT INTO public.base_` + table.name +
			` SELECT * FROM postern.` + table.name)
	}
	c.kept.rows = see(c.T, c.Ctx, c.kept.pool).tables
	c.begin = c.Now
}

// A node whose registration was lost on the way back registers once more. The row of the first try beats no more.
func TestANodeIsRegisteredThoughAnAnswerIsLost(t *testing.T) {
	t.Parallel()
	c := newArena(t).crashing()
	for db.Fill(c.Ctx, c.pool) == 0 {
		time.Sleep(time.Millisecond)
	}
	c.cutter.Arm(&cut.Point{Statement: 1, Where: cut.Answered}, nil)
	n, err := c.store.Register(c.Ctx, "new", "test", 10*time.Second)
	if lost := c.cutter.Disarm(); len(lost) != 1 || err != nil {
		t.Fatalf("%d answers were lost: %v", len(lost), err)
	}
	if alive, err := c.store.Beat(c.Ctx, n, pg.NodeLoad{}); !alive || err != nil {
		t.Errorf("its heart beats: %t, %v", alive, err)
	}
}
