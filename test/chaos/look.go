package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// openTxSQL lists what has not ended of transactions and will: what stands on purpose does not, nor what a poisoned row
// has put off for ever, with all that stands behind it. It reads the tables, as the view takes seconds for all rows.
const openTxSQL = `SELECT format('transaction %s/%s (%s %s) is open', t.queue_id, t.seq, t.type, t.uid) AS what
	FROM postern.task t
	WHERE NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))
		AND coalesce(t.uid, '') NOT LIKE 'still-%'
		AND NOT EXISTS (SELECT FROM postern.task h
			WHERE h.queue_id = t.queue_id AND h.seq <= t.seq AND h.not_before > clock_timestamp() + interval '1 day'
				AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq) = (h.queue_id, h.seq)))`

// awaitEnd waits until nothing is under way any more but what stands on purpose. Every ten seconds it says what is.
func (w *world) awaitEnd(ctx context.Context, from, until time.Time) {
	for said := from; time.Now().Before(until) && wait(ctx, time.Second); {
		w.findOut(ctx)
		what, err := w.firstOpen(ctx)
		if err == nil && what == "" {
			return
		}
		if err != nil {
			what = err.Error()
		}
		w.lastOpen = fmt.Sprintf("%.1f s: %s", time.Since(from).Seconds(), what)
		if time.Since(said) > 10*time.Second {
			fmt.Fprintf(os.Stderr, "nothing is broken any more since %s\n", w.lastOpen)
			said = time.Now()
		}
	}
}

// firstOpen returns one thing that has not ended, at any installation; "" if there is none.
func (w *world) firstOpen(ctx context.Context) (string, error) {
	what, err := w.firstOf(ctx, w.openSQL()...)
	if err != nil || what != "" {
		return what, err
	}
	if w.pair != nil {
		what, err = w.pair.far.firstOf(ctx, openPairSQL, openSQL, openTxSQL)
		return far(what), err
	}
	if w.domain != nil {
		return w.domain.firstOpen(ctx)
	}
	return "", nil
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

// far marks what was found at another installation.
func far(what string) string {
	if what == "" {
		return ""
	}
	return "far: " + what
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
