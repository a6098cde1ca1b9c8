package pg_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func taken(leases []*pg.Lease) (list []string) {
	for _, l := range leases {
		list = append(list, l.Task.UID)
	}
	return list
}

// TestReadyRowsAreFoundBehindAFrontAndBeforeIt lets a post decide early and commit late, when a claim has read on
// already.
func TestReadyRowsAreFoundBehindAFrontAndBeforeIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.S.SetNow(nil) // a clock that is moved by hand says nothing about order
	w.Dispatcher("T", nil)
	w.Dispatcher("U", nil)
	for _, q := range []string{"early", "a", "b", "c", "d"} {
		w.Post(q, "T", "0"+q)
	}
	w.Post("u", "U", "0u")
	n := w.Node("n")
	if got := w.Claim(n, pgworld.Everything()); len(got) != 6 {
		t.Fatal(taken(got))
	} else {
		for _, l := range got {
			w.Settle(w.Answer(l, pgworld.Done()))
		}
	}
	o := w.Other()
	o.S.SetNow(nil)
	_, err := o.S.PauseQueue(w.Ctx, w.By, "early", false) // knows its id
	w.Must(err)
	held, finish := pgworld.Hold(o.S, 1)
	committed := make(chan bool)
	go func() {
		defer close(committed)
		if out, err := o.S.Ingest(w.Ctx, []*pg.Submission{w.Sub("early", "T", "1early")}, false); err != nil || out[0].Err != nil {
			t.Error(out, err)
		}
	}()
	<-held
	time.Sleep(300 * time.Millisecond) // more than the slack
	w.Post("a", "T", "1a")
	w.Post("b", "T", "1b")
	w.S.FromFronts(false)
	if got := taken(w.Claim(n, pgworld.Room(1))); !slices.Equal(got, []string{"1a"}) {
		t.Fatal(got)
	}
	w.S.FromFronts(true)
	w.Post("c", "T", "1c")
	w.Post("u", "U", "1u")
	if got := taken(w.Claim(n, pgworld.Room(2))); !slices.Equal(got, []string{"1b", "1u"}) { // one of each lane in turn
		t.Fatal(got)
	}
	finish(nil)
	<-committed
	if got := taken(w.Claim(n, pgworld.Everything())); !slices.Equal(got, []string{"1c"}) {
		t.Fatal(got)
	}
	w.Post("d", "T", "1d") // a lane in which nothing was left
	if got := taken(w.Claim(n, pgworld.Everything())); !slices.Equal(got, []string{"1d"}) {
		t.Fatal(got)
	}
	lookBack := func(whole, aside bool) {
		t.Helper()
		if got, err := w.S.LookedBack(w.Ctx, whole); err != nil || got != aside {
			t.Fatalf("looks aside: %t, %v", got, err)
		}
	}
	lookBack(false, true)
	if got := taken(w.Claim(n, pgworld.Everything())); !slices.Equal(got, []string{"1early"}) {
		t.Errorf("nearby: %v", got)
	}
	ago := func(queue string) { // it posts to a lane that claims have read on in, as if two minutes ago
		w.Post(queue, "T", "1"+queue)
		for _, sql := range []string{`UPDATE postern.queue q SET entered_at = entered_at - interval '2 minutes'`, `UPDATE postern.ready q SET since = since - interval '2 minutes'`} {
			_, err := w.S.Pool().Exec(w.Ctx, sql+` WHERE queue_id = (SELECT queue_id FROM postern.queue_name WHERE name = $1)`, queue)
			w.Must(err)
		}
	}
	ago("e")
	lookBack(false, true)
	if got := taken(w.Claim(n, pgworld.Everything())); len(got) > 0 {
		t.Errorf("two minutes before a front, and looked for one: %v", got)
	}
	lookBack(true, false) // so few are read in no time
	if got := taken(w.Claim(n, pgworld.Everything())); !slices.Equal(got, []string{"1e"}) {
		t.Errorf("from the beginning: %v", got)
	}
	ago("f")
	if got := taken(w.Claim(n, pgworld.Everything())); !slices.Equal(got, []string{"1f"}) {
		t.Errorf("from the beginning, by a claim: %v", got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// TestTheNewestRowOfAQueueIsLockedAmongMany: while an old snapshot keeps hundreds of versions of a queue, a post and
// the end of its last transaction meet, in both orders; and the newest version is found without reading the others.
func TestTheNewestRowOfAQueueIsLockedAmongMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q", "T", "a")
	for i := range 20 {
		w.Post(fmt.Sprint("beside", i), "T", "")
	}
	old, err := w.Second(1).Begin(w.Ctx)
	w.Must(err)
	defer old.Rollback(w.Ctx)
	_, err = old.Exec(w.Ctx, `SET LOCAL idle_in_transaction_session_timeout = '5min'`)
	w.Must(err)
	_, err = old.Exec(w.Ctx, `INSERT INTO postern.mark (queue_id, seq, kind) VALUES (-1, -1, 'held')`)
	w.Must(err)
	for range 300 { // 50 fit on a page
		_, err := w.S.Pool().Exec(w.Ctx, `UPDATE postern.queue SET max_depth = coalesce(max_depth, 100) + 1`)
		w.Must(err)
	}
	w.Must(w.S.Refresh(w.Ctx))
	var id int64
	w.Scan(`SELECT queue_id FROM postern.queue_name WHERE name = 'q'`, &id)
	// also when PostgreSQL has learnt how few rows there are, and how many versions
	_, err = w.S.Pool().Exec(w.Ctx, `ANALYZE postern.queue`)
	w.Must(err)
	for sql, args := range pg.NewestSQL(id) {
		if plan := w.Plan(false, sql, args...); !strings.HasPrefix(sql, "UPDATE") && !strings.Contains(plan, "Index Scan Backward using queue_by_era on queue") || strings.Contains(plan, "Bitmap") {
			t.Errorf("%s\n%s", sql, plan)
		}
	}
	blocks := func(sql string, args ...any) (n int) {
		rows, err := w.S.Pool().Query(w.Ctx, `EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) `+sql, args...)
		w.Must(err)
		defer rows.Close()
		for rows.Next() {
			var line string
			w.Must(rows.Scan(&line))
			if m := regexp.MustCompile(`shared hit=(\d+)`).FindStringSubmatch(line); m != nil && n == 0 {
				n, err = strconv.Atoi(m[1])
				w.Must(err)
			}
		}
		return n
	}
	all := blocks(`SELECT FROM postern.queue q WHERE q.queue_id = ANY ($1) FOR UPDATE`, []int64{id})
	for sql, args := range map[string][]any{pg.LockSQL: {[]int64{id}, []int32{0}}, pg.LockOneSQL: {id, 0}} {
		if newest := blocks(sql, args...); newest > all/2 || newest > 8 {
			t.Errorf("%d blocks to lock the newest version, %d to read them all: %s", newest, all, sql)
		}
	}

	n := w.Node("n")
	for round, first := range []string{"post", "settle"} {
		var l *pg.Lease
		for _, c := range w.Claim(n, pgworld.Everything()) {
			if c.Queue == "q" {
				l = c
			} else {
				w.Settle(w.Answer(c, pgworld.Done()))
			}
		}
		o := w.Other()
		warm(w, o.S, "q")
		post := func(s *stores.Store) {
			if out, err := s.Ingest(w.Ctx, []*pg.Submission{w.Sub("q", "T", fmt.Sprint("b", round))}, false); err != nil || out[0].Err != nil {
				t.Error(out, err)
			}
		}
		var next *pg.Lease
		settle := func(s *stores.Store) {
			out, err := s.Settle(w.Ctx, []*pg.Answer{w.Answer(l, pgworld.Done())})
			if err != nil {
				t.Error(err)
				return
			}
			next = out[0].Next
		}
		a, b := post, settle
		if first == "settle" {
			a, b = settle, post
		}
		held, finish := pgworld.Hold(w.S, 1)
		doneA, doneB := make(chan bool), make(chan bool)
		go func() { a(w.S); close(doneA) }()
		<-held
		go func() { b(o.S); close(doneB) }()
		w.AwaitBlocked(o.PID)
		finish(nil)
		<-doneA
		<-doneB
		for next != nil {
			next = w.Settle(w.Answer(next, pgworld.Done()))[0].Next
		}
		if first == "settle" {
			w.work(n)
		} else {
			w.Post("q", "T", "c")
		}
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	}
	var waiting int
	if w.Scan(`SELECT count(*) FROM postern.tx WHERE state <> $$`+string(outbox.DONE)+`$$`, &waiting); waiting != 0 {
		t.Errorf("%d transactions are not done", waiting)
	}
}

// TestLanesThatANodeLeavesAloneDoNotHideTheOthers has more lanes of a type that the node does not take than a look
// walks through. The lane of its own type is found behind them, also once its front is forgotten.
func TestLanesThatANodeLeavesAloneDoNotHideTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("ALONE", func(d *outbox.Dispatcher) { d.Exclusive = "field:/uid" })
	w.Dispatcher("T", nil)
	n := w.Typed("n", "T")
	var subs []*pg.Submission
	for i := range 2200 {
		name := fmt.Sprint("alone-", i)
		subs = append(subs, w.Sub(name, "ALONE", name))
	}
	for part := range slices.Chunk(subs, 200) {
		w.Ingest(w.S, part...)
	}
	for i := range 3 { // one that walks on from where the one before came
		uid := fmt.Sprint("own-", i)
		w.Post("own", "T", uid)
		got := w.Claim(n, pgworld.Everything())
		if list := taken(got); !slices.Equal(list, []string{uid}) {
			t.Fatalf("of its own type, behind 2,200 lanes of another, the node took %v", list)
		}
		w.Settle(w.Answer(got[0], pgworld.Done()))
	}
	all := w.Node("all")
	seen := map[string]bool{}
	for range 20 {
		for _, l := range w.Claim(all, pgworld.Room(200)) {
			seen[l.Task.UID] = true
		}
	}
	if len(seen) != len(subs) {
		t.Errorf("of %d lanes %d were served", len(subs), len(seen))
	}
}

// A claim that walks through its lanes in several looks says that a queue waits for a sender, in any of these.
func TestAClaimTellsWhatEachOfItsLooksHasLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("ALONE", func(d *outbox.Dispatcher) { d.Exclusive = "field:/uid" })
	lanes := func(name string, n int) {
		var subs []*pg.Submission
		for i := range n {
			subs = append(subs, w.Sub(fmt.Sprint(name, i), "ALONE", fmt.Sprint(name, i)))
		}
		for part := range slices.Chunk(subs, 200) {
			w.Ingest(w.S, part...)
		}
	}
	lanes("before-", 40)
	w.Sender("p", "s")
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.Post("a", "T", "a")
	w.Post("b", "T", "b")
	lanes("behind-", 1500)
	n := w.Typed("n", "T")
	if got := taken(w.Claim(n, pgworld.Everything())); len(got) != 1 {
		t.Fatal(got)
	}
	for range 5 {
		got, more, err := w.S.Claim(w.Ctx, n, pgworld.Everything())
		if w.Must(err); len(got) > 0 || !more {
			t.Fatalf("%v is leased, and more is %t: a queue waits for the sender", taken(got), more)
		}
	}
}

// A lane is found among all of its type by its value: a field may have had very many.
func TestALaneIsFoundByItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Exclusive = "field:/uid" })
	w.Post("q", "T", "a")
	w.Exec(`INSERT INTO postern.lane (kind, dispatcher_id, value)
		SELECT 'exclusive', dispatcher_id, '/uid ' || n FROM postern.lane, generate_series(1, 5000) n
		WHERE kind = 'exclusive'`)
	w.Exec(`ANALYZE postern.lane`)
	var of int32
	w.Scan(`SELECT dispatcher_id FROM postern.lane WHERE value = '/uid 17'`, &of)
	plan := w.Plan(false, pg.LaneSQL, "exclusive", of, 0, 0, "/uid 17", 0)
	if !strings.Contains(plan, "(value = ") || strings.Contains(plan, "Filter: ((value") ||
		strings.Contains(plan, "Seq Scan on lane") {
		t.Error(plan)
	}
}
