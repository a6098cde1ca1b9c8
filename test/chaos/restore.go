package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// restore takes a backup, lets some seconds go by, and puts the backup in the place of the database, under running
// processes. They have to notice, and nothing may leave until an operator has had the workers asked and releases it.
// Then the client posts again what was acknowledged meanwhile.
func restore(ctx context.Context, w *world, r *rand.Rand) {
	began := time.Now()
	again, cancel := context.WithTimeout(w.life, 5*time.Minute) // however long the restore has taken
	defer cancel()
	backup := w.backup(ctx)
	if backup == nil {
		w.missed("no backup was taken")
		return
	}
	wait(ctx, time.Duration(2000+r.Int64N(3000))*time.Millisecond)
	q, noticed := w.putBack(ctx, backup)
	if !noticed {
		w.client.repeat(again, began)
		return
	}
	key := w.reconcile(ctx, q, w.processes[:2])
	w.release(q, key)
	w.largest["posts lost by a restore"] += w.client.repeat(again, began)
}

// quiet is the time behind a restore, until an operator releases what was restored.
type quiet struct {
	restored time.Time // the store: each fence that it draws is of a later moment
	span               // since what held a lease before has noticed, and until it is released

	unaware map[string]time.Time // the processes that could not notice, and since when they ran
}

// wrong says what is wrong with a call that begins at a time, under a fence that is 0 where there is none, by one of
// some processes, or by any. A lease from before the restore may still begin one until the processes have noticed. One
// that the restored store gave may not, but to a process that began anew and had nothing to miss, until another one
// notices: such a call is excused.
func (q *quiet) wrong(at time.Time, fence int64, by []string) (wrong, excused bool) {
	switch {
	case !at.After(q.restored) || !at.Before(q.to):
		return false, false
	case at.After(q.from):
		return true, false
	case fence < q.restored.UnixMilli():
		return false, false
	}
	for name, since := range q.unaware {
		if since.Before(at) && (len(by) == 0 || slices.Contains(by, name)) {
			return false, true
		}
	}
	return true, false
}

// reconcile is an operator who has the workers asked once the processes have noticed. It returns the key to release
// with. Until then nothing may leave.
func (w *world) reconcile(ctx context.Context, q *quiet, apis []*process) (key string) {
	wait(ctx, w.ttl) // leases of the time before may still begin a call
	q.from, q.unaware = time.Now(), map[string]time.Time{}
	for _, p := range w.processes { // one that ran for less than a lease may not have written anything
		if at := p.unaware(q.restored.Add(-w.ttl)); !at.IsZero() && at.Before(q.from) {
			q.unaware[p.name] = at
		}
	}
	for _, p := range apis {
		w.note(p.await(30 * time.Second))
	}
	wait(ctx, 2*time.Second)
	key = "POSTERN_API_KEY_FILE=" + filepath.Join(w.dir, "root.key")
	_, err := w.postern(key, "quarantine", "reconcile", "--url", w.ways.direct[0])
	w.note(err)
	return key
}

// isReleased ends a quiet time: its release is asked for now.
func (w *world) isReleased(q *quiet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q.to = time.Now()
	w.quiet = append(w.quiet, *q)
}

// gap is what a restore has put back: from before its backup was begun until the release. What had begun before and
// ended behind it may be in the backup half done.
type gap struct {
	far bool // of the second installation
	span
}

type gaps []gap

// at are those of one installation.
func (g gaps) at(far bool) gaps {
	return slices.DeleteFunc(slices.Clone(g), func(x gap) bool { return x.far != far })
}

// meet says whether something that went on from one time to another, zero if it has not ended, did so in one of them.
func (g gaps) meet(from, to time.Time) bool {
	return slices.ContainsFunc(g, func(x gap) bool { return from.Before(x.to) && (to.IsZero() || to.After(x.from)) })
}

// backup takes a backup of the database; nil: that failed.
func (w *world) backup(ctx context.Context) *postgres {
	to := *w.pg
	to.dir = filepath.Join(w.dir, "backup")
	w.note(os.RemoveAll(to.dir))
	w.note(to.own(to.dir))
	if err := w.pg.backup(ctx, &to); err != nil {
		w.note(err)
		return nil
	}
	return &to
}

// putBack puts a backup in the place of the database, and says when, and whether the processes have noticed.
func (w *world) putBack(ctx context.Context, backup *postgres) (q *quiet, noticed bool) {
	w.must(w.pg.stop(ctx, "immediate"))
	gone := filepath.Join(w.dir, "gone")
	w.must(os.RemoveAll(gone))
	w.must(os.Rename(w.pg.data(), gone))
	w.must(os.Rename(backup.data(), w.pg.data()))
	q = &quiet{restored: time.Now()} // the processes find the server before the harness does
	w.must(w.pg.start(ctx))
	if w.quarantined(ctx) {
		return q, true
	}
	w.violate("a restore is noticed", "there is no quarantine half a minute after it")
	return q, false
}

// release lets everything go. Nothing is open but what waits for a worker that is not there: all else was learned.
func (w *world) release(q *quiet, key string) {
	text, err := w.postern(key, "quarantine", "status", "--url", w.ways.direct[0], "-o", "json")
	w.note(err)
	var status struct {
		Open []struct{ ID, Type, Why, Detail string }
	}
	w.note(json.Unmarshal([]byte(text), &status))
	for _, o := range status.Open {
		if o.Type != "GONE" {
			w.violate("reconcile learns what was done", "%s is %s: %s", o.ID, o.Why, o.Detail)
		}
	}
	w.isReleased(q)
	_, err = w.postern(key, "quarantine", "release", "--url", w.ways.direct[0], "--anyway", "--reason", "asked")
	w.note(err)
}

// quarantined waits until the processes have noticed.
func (w *world) quarantined(ctx context.Context) bool {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); wait(ctx, 100*time.Millisecond) {
		if n, err := w.query(ctx, `SELECT count(*)::text FROM postern.quarantine`); err == nil && n != "0" {
			return true
		}
	}
	return false
}
