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
)

func taken(leases []*pg.Lease) (list []string) {
	for _, l := range leases {
		list = append(list, l.Task.UID)
	}
	return list
}

// TestReadyRowsAreFoundBehindAFrontAndBeforeIt lets a post decide early and commit late, when a claim has read on already.
func TestReadyRowsAreFoundBehindAFrontAndBeforeIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.s.SetNow(nil) // a clock that is moved by hand says nothing about order
	w.dispatcher("T", nil)
	w.dispatcher("U", nil)
	for _, q := range []string{"early", "a", "b", "c", "d"} {
		w.post(q, "T", "0"+q)
	}
	w.post("u", "U", "0u")
	n := w.node("n")
	if got := w.claim(n, everything()); len(got) != 6 {
		t.Fatal(taken(got))
	} else {
		for _, l := range got {
			w.settle(w.answer(l, done()))
		}
	}
	o := w.other()
	o.s.SetNow(nil)
	_, err := o.s.PauseQueue(w.ctx, w.by, "early", false) // knows its id
	w.must(err)
	held, finish := hold(o.s, 1)
	committed := make(chan bool)
	go func() {
		defer close(committed)
		if out, err := o.s.Ingest(w.ctx, []*pg.Submission{w.sub("early", "T", "1early")}, false); err != nil || out[0].Err != nil {
			t.Error(out, err)
		}
	}()
	<-held
	time.Sleep(300 * time.Millisecond) // more than the slack
	w.post("a", "T", "1a")
	w.post("b", "T", "1b")
	w.s.FromFronts(false)
	if got := taken(w.claim(n, room(1))); !slices.Equal(got, []string{"1a"}) {
		t.Fatal(got)
	}
	w.s.FromFronts(true)
	w.post("c", "T", "1c")
	w.post("u", "U", "1u")
	if got := taken(w.claim(n, room(2))); !slices.Equal(got, []string{"1b", "1u"}) { // one of each lane in turn
		t.Fatal(got)
	}
	finish(nil)
	<-committed
	if got := taken(w.claim(n, everything())); !slices.Equal(got, []string{"1c"}) {
		t.Fatal(got)
	}
	w.post("d", "T", "1d") // a lane in which nothing was left
	if got := taken(w.claim(n, everything())); !slices.Equal(got, []string{"1d"}) {
		t.Fatal(got)
	}
	lookBack := func(whole, aside bool) {
		t.Helper()
		if got, err := w.s.LookedBack(w.ctx, whole); err != nil || got != aside {
			t.Fatalf("looks aside: %t, %v", got, err)
		}
	}
	lookBack(false, true)
	if got := taken(w.claim(n, everything())); !slices.Equal(got, []string{"1early"}) {
		t.Errorf("nearby: %v", got)
	}
	ago := func(queue string) { // what is posted has waited for two minutes in a lane that claims have read on in
		w.post(queue, "T", "1"+queue)
		for _, sql := range []string{`UPDATE postern.queue q SET entered_at = entered_at - interval '2 minutes'`, `UPDATE postern.ready q SET since = since - interval '2 minutes'`} {
			_, err := w.s.Pool().Exec(w.ctx, sql+` WHERE queue_id = (SELECT queue_id FROM postern.queue_name WHERE name = $1)`, queue)
			w.must(err)
		}
	}
	ago("e")
	lookBack(false, true)
	if got := taken(w.claim(n, everything())); len(got) > 0 {
		t.Errorf("two minutes before a front, and looked for one: %v", got)
	}
	lookBack(true, false) // so few are read in no time
	if got := taken(w.claim(n, everything())); !slices.Equal(got, []string{"1e"}) {
		t.Errorf("from the beginning: %v", got)
	}
	ago("f")
	if got := taken(w.claim(n, everything())); !slices.Equal(got, []string{"1f"}) {
		t.Errorf("from the beginning, by a claim: %v", got)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

// TestTheNewestRowOfAQueueIsLockedAmongMany: while an old snapshot keeps hundreds of versions of a queue, a post and the
// end of its last transaction meet, in both orders; and the newest version is found without reading the others.
func TestTheNewestRowOfAQueueIsLockedAmongMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("q", "T", "a")
	for i := range 20 {
		w.post(fmt.Sprint("beside", i), "T", "")
	}
	old, err := w.second(1).Begin(w.ctx)
	w.must(err)
	defer old.Rollback(w.ctx)
	_, err = old.Exec(w.ctx, `SET LOCAL idle_in_transaction_session_timeout = '5min'`)
	w.must(err)
	_, err = old.Exec(w.ctx, `INSERT INTO postern.mark (queue_id, seq, kind) VALUES (-1, -1, 'held')`)
	w.must(err)
	for range 300 { // 50 fit on a page
		_, err := w.s.Pool().Exec(w.ctx, `UPDATE postern.queue SET max_depth = coalesce(max_depth, 100) + 1`)
		w.must(err)
	}
	w.must(w.s.Refresh(w.ctx))
	var id int64
	w.scan(`SELECT queue_id FROM postern.queue_name WHERE name = 'q'`, &id)
	// also when PostgreSQL has learnt how few rows there are, and how many versions
	_, err = w.s.Pool().Exec(w.ctx, `ANALYZE postern.queue`)
	w.must(err)
	for sql, args := range pg.NewestSQL(id) {
		if plan := w.plan(false, sql, args...); !strings.HasPrefix(sql, "UPDATE") && !strings.Contains(plan, "Index Scan Backward using queue_by_era on queue") || strings.Contains(plan, "Bitmap") {
			t.Errorf("%s\n%s", sql, plan)
		}
	}
	blocks := func(sql string, args ...any) (n int) {
		rows, err := w.s.Pool().Query(w.ctx, `EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) `+sql, args...)
		w.must(err)
		defer rows.Close()
		for rows.Next() {
			var line string
			w.must(rows.Scan(&line))
			if m := regexp.MustCompile(`shared hit=(\d+)`).FindStringSubmatch(line); m != nil && n == 0 {
				n, err = strconv.Atoi(m[1])
				w.must(err)
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

	n := w.node("n")
	for round, first := range []string{"post", "settle"} {
		var l *pg.Lease
		for _, c := range w.claim(n, everything()) {
			if c.Queue == "q" {
				l = c
			} else {
				w.settle(w.answer(c, done()))
			}
		}
		o := w.other()
		warm(w, o.s, "q")
		post := func(s *stores.Store) {
			if out, err := s.Ingest(w.ctx, []*pg.Submission{w.sub("q", "T", fmt.Sprint("b", round))}, false); err != nil || out[0].Err != nil {
				t.Error(out, err)
			}
		}
		var next *pg.Lease
		settle := func(s *stores.Store) {
			out, err := s.Settle(w.ctx, []*pg.Answer{w.answer(l, done())})
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
		held, finish := hold(w.s, 1)
		doneA, doneB := make(chan bool), make(chan bool)
		go func() { a(w.s); close(doneA) }()
		<-held
		go func() { b(o.s); close(doneB) }()
		w.awaitBlocked(o.pid)
		finish(nil)
		<-doneA
		<-doneB
		for next != nil {
			next = w.settle(w.answer(next, done()))[0].Next
		}
		if first == "settle" {
			w.work(n)
		} else {
			w.post("q", "T", "c")
		}
		holdsTrue(t, w.ctx, w.s.Pool())
	}
	var waiting int
	if w.scan(`SELECT count(*) FROM postern.tx WHERE state <> $$`+string(outbox.DONE)+`$$`, &waiting); waiting != 0 {
		t.Errorf("%d transactions are not done", waiting)
	}
}
