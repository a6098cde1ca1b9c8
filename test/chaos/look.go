package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// openTxSQL lists what has not ended of transactions and will: what stands on purpose does not, nor what a poisoned row
// has put off for ever, with all that stands behind it. It reads the tables, as the view takes seconds for all rows,
// and all of them once: few are open, and to look for the poisoned ones beside each row takes minutes.
const openTxSQL = `WITH open AS MATERIALIZED (SELECT t.queue_id, t.seq, t.type, t.uid, t.not_before FROM postern.task t
			WHERE NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))),
		never AS MATERIALIZED (SELECT queue_id, min(seq) AS seq FROM open
			WHERE not_before > clock_timestamp() + interval '1 day' GROUP BY queue_id)
	SELECT format('transaction %s/%s (%s %s) is open', t.queue_id, t.seq, t.type, t.uid) AS what, t.queue_id, t.seq
	FROM open t LEFT JOIN never USING (queue_id)
	WHERE coalesce(t.uid, '') NOT LIKE 'still-%' AND (never.seq IS NULL OR t.seq < never.seq)`

// inHandSQL lists the first open transaction of each queue that does not merely wait for its turn: it is in the hands
// of a process, or nothing has it claimed. One that needs another which is open waits for that.
const inHandSQL = `SELECT h.what
	FROM (SELECT DISTINCT ON (queue_id) what, queue_id, seq FROM (` + openTxSQL + `) o ORDER BY queue_id, seq) h
	JOIN postern.queue q USING (queue_id)
	WHERE (q.node_id IS NOT NULL OR NOT EXISTS (SELECT FROM postern.ready r WHERE r.queue_id = h.queue_id))
		AND NOT EXISTS (SELECT FROM postern.dependency d WHERE (d.queue_id, d.seq) = (h.queue_id, h.seq)
			AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq) = (d.on_queue, d.on_seq)))`

// look is what was open at a time.
type look struct {
	at     time.Time
	open   int
	first  string
	inHand map[string]bool // by inHandSQL
}

const (
	lookEvery = 10 * time.Second // what is open is counted
	drains    = 15 * time.Second // within which less has to be open where something still is past the limit
)

// standsStill says what stands still at the last of some looks, "" if nothing does. What is open has been given as
// long as it may take. It is a backlog that drains if less of it is open than some seconds before, and no queue has
// stood for as long as that with a transaction that did not merely wait for its turn.
func standsStill(looks []look, limit time.Duration) string {
	now := looks[len(looks)-1]
	if now.open == 0 {
		return ""
	}
	before := now
	stood := map[string]int{}
	since := 0
	for _, l := range looks[:len(looks)-1] {
		if age := now.at.Sub(l.at); before.at.Equal(now.at) || age >= drains {
			before = l
		}
		if now.at.Sub(l.at) <= limit {
			since++
			for what := range l.inHand {
				stood[what]++
			}
		}
	}
	if now.open >= before.open {
		return fmt.Sprintf("%d are open, and %.0f s before %d were: %s", now.open, now.at.Sub(before.at).Seconds(),
			before.open, now.first)
	}
	for what := range now.inHand {
		if since > 1 && stood[what] == since {
			return fmt.Sprintf("others go on, and it has not moved all along: %s", what)
		}
	}
	return ""
}

// awaitEnd waits until nothing is under way any more but what stands on purpose, and over is closed: until then
// something may be posted. Every ten seconds it says what is. Past the limit it says what stands still. A backlog that
// drains may go on for as long again, and is told apart.
func (w *world) awaitEnd(ctx context.Context, from time.Time, limit time.Duration, over <-chan struct{}) {
	const invariant = "nothing stands still"
	var looks []look
	blind := 0
	for wait(ctx, time.Second) {
		ended := isClosed(over)
		w.findOut(ctx)
		what, err := w.firstOpen(ctx)
		if err == nil && what == "" {
			if ended {
				return
			}
			continue
		}
		since := time.Since(from)
		past := since > limit
		if n := len(looks); n > 0 && time.Since(looks[n-1].at) < lookEvery && (!past || looks[n-1].at.Sub(from) > limit) {
			continue
		}
		l, err := w.look(ctx)
		if err != nil {
			w.lastOpen = fmt.Sprintf("%.1f s: %v", since.Seconds(), err)
			if blind++; past && blind > 3 {
				w.violate(invariant, "what is open cannot be read: %s", w.lastOpen)
				return
			}
			continue
		}
		blind = 0
		if looks = append(looks, l); l.open == 0 {
			continue
		}
		w.lastOpen = fmt.Sprintf("%.1f s: %s", since.Seconds(), l.first)
		fmt.Fprintf(os.Stderr, "nothing is broken any more, and %d are open since %s\n", l.open, w.lastOpen)
		if !past {
			continue
		}
		w.draining = fmt.Sprintf("%.1f s: %d are open", since.Seconds(), l.open)
		why := standsStill(looks, limit)
		if why == "" && since > 2*limit {
			why = fmt.Sprintf("%d are open after twice the time: %s", l.open, l.first)
		}
		if why != "" {
			w.violate(invariant, "%.1f s after the last fault %s", since.Seconds(), why)
			return
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// over returns what is closed once all these are, and what runs besides the faults has ended at each installation.
func (w *world) over(all ...<-chan struct{}) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		for _, c := range all {
			<-c
		}
		for _, p := range w.places() {
			p.at.behind.Wait()
		}
	}()
	return over
}

// place is an installation, and the lists of what is open there.
type place struct {
	name  string
	at    *world
	lists []string
}

// places are the installations of a run.
func (w *world) places() []place {
	all := []place{{"", w, w.openSQL()}}
	if w.pair != nil {
		all = append(all, place{"far: ", w.pair.far, []string{openPairSQL, openSQL, openTxSQL}})
	}
	if w.domain != nil {
		all[0].lists = append(all[0].lists, openIntentsSQL)
		for i, side := range w.domain.sides[1:] {
			all = append(all, place{domainNodes[i+1] + ": ", side, []string{openIntentsSQL}})
		}
	}
	return all
}

// firstOpen returns one thing that has not ended, at any installation; "" if there is none.
func (w *world) firstOpen(ctx context.Context) (string, error) {
	for _, p := range w.places() {
		if what, err := p.at.firstOf(ctx, p.lists...); err != nil || what != "" {
			return p.name + what, err
		}
	}
	return "", nil
}

// look counts what is open at all installations.
func (w *world) look(ctx context.Context) (look, error) {
	l := look{at: time.Now(), inHand: map[string]bool{}}
	for _, p := range w.places() {
		if err := l.add(ctx, p); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (l *look) add(ctx context.Context, p place) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, p.at.pg.url())
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	for _, list := range p.lists {
		var n int
		var first string
		err := c.QueryRow(ctx, `SELECT count(*), coalesce(min(what), '') FROM (`+list+`) o`).Scan(&n, &first)
		if err != nil {
			return err
		}
		if l.open += n; l.first == "" && n > 0 {
			l.first = p.name + first
		}
	}
	if !slices.Contains(p.lists, openTxSQL) {
		return nil
	}
	inHand, err := listOf(ctx, c, inHandSQL)
	for _, what := range inHand {
		l.inHand[p.name+what] = true
	}
	return err
}

// firstOpen returns an intent of any node that has not ended; "" if there is none.
func (d *domain) firstOpen(ctx context.Context) (string, error) {
	for _, side := range d.sides {
		if what, err := side.firstOf(ctx, openIntentsSQL); err != nil || what != "" {
			return what, err
		}
	}
	return "", nil
}

// openSQL are the lists of what is open under the load of a run, at its first installation.
func (w *world) openSQL() []string {
	untold := `SELECT 'a callback is not told' AS what FROM postern.delivery
		WHERE state IN ('queued', 'pending') AND tries = '[]' AND url = ` + quote(w.client.told)
	lists := []string{openTxSQL, untold}
	if w.flows != nil {
		lists = append(lists, openSQL)
	}
	if w.systems != nil {
		lists = append(lists, openSystemsSQL)
	}
	if w.pair != nil {
		lists = append(lists, openPairSQL)
	}
	return lists
}

// quote writes a text as one of SQL.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// firstOf returns the first row of the first of these lists that has one.
func (w *world) firstOf(ctx context.Context, lists ...string) (what string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, w.pg.url())
	if err != nil {
		return "", err
	}
	defer c.Close(context.WithoutCancel(ctx))
	for _, list := range lists {
		err = c.QueryRow(ctx, `SELECT what FROM (`+list+`) o LIMIT 1`).Scan(&what)
		if !errors.Is(err, pgx.ErrNoRows) {
			return what, err
		}
	}
	return "", nil
}
