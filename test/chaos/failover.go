package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// follow makes a standby of w.pg of w.other, and has commits wait for it.
func (w *world) follow(ctx context.Context) error {
	os.RemoveAll(w.other.data())
	if err := w.pg.backup(ctx, w.other); err != nil {
		return err
	}
	conf := fmt.Sprintf("primary_conninfo = 'host=127.0.0.1 port=%d user=postgres application_name=standby'\n", w.pg.port)
	if err := appendTo(filepath.Join(w.other.data(), "postgresql.conf"), conf); err != nil {
		return err
	}
	signal := filepath.Join(w.other.data(), "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		return err
	}
	if u := w.other.user; u != nil {
		os.Chown(signal, int(u.Uid), int(u.Gid))
	}
	if err := w.other.start(ctx); err != nil {
		return err
	}
	if err := w.synchronous(ctx, "*"); err != nil {
		return err
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if w.followed(ctx) {
			return nil
		}
	}
	return fmt.Errorf("the standby does not follow")
}

// followed says whether commits wait for a standby that has all.
func (w *world) followed(ctx context.Context) bool {
	n, _ := w.query(ctx, `SELECT count(*)::text
		FROM pg_stat_replication
		WHERE sync_state = 'sync'
		AND state = 'streaming'`)
	return n == "1"
}

// stands says whether there is a standby that may take over, and makes one if the last fault left none: without one
// its primary would be killed for good.
func (w *world) stands(ctx context.Context) bool {
	if w.followed(ctx) {
		return true
	}
	_ = w.other.stop(ctx, "immediate") // it may be down already
	err := w.follow(ctx)
	w.note(err)
	return err == nil
}

// synchronous says which standbys commits of the primary wait for.
func (w *world) synchronous(ctx context.Context, names string) error {
	for _, sql := range []string{`ALTER SYSTEM SET synchronous_standby_names = '` + names + `'`, `SELECT pg_reload_conf()`} {
		if err := w.pg.execIn(ctx, "postgres", sql); err != nil {
			return err
		}
	}
	return nil
}

// failover kills the primary, promotes its standby, has the old primary come back as it was, and makes a standby of
// it at last. The old one takes writes, and no process may send it any.
func failover(ctx context.Context, w *world, r *rand.Rand) {
	if !w.stands(ctx) {
		w.missed("there is no standby")
		return
	}
	if err := w.pg.kill(); err != nil {
		w.must(err)
		return
	}
	w.promote(ctx, r)
}

// standbyAway stops the standby for a while, in which commits wait. An operator cancels what hangs: such a commit is on
// no standby, and may not be acknowledged. Then the primary dies.
func standbyAway(ctx context.Context, w *world, r *rand.Rand) {
	if !w.stands(ctx) {
		w.missed("there is no standby")
		return
	}
	w.must(w.other.stop(ctx, "immediate"))
	if w.cancelWaits(ctx) == 0 {
		w.missed("no commit waited for the standby")
	}
	err := w.pg.kill()
	w.must(err)
	w.must(w.other.start(ctx))
	if err == nil {
		w.promote(ctx, r)
	}
}

// cancelWaits cancels the commits that wait for a standby, for some seconds, and returns how many it has met.
func (w *world) cancelWaits(ctx context.Context) (met int) {
	for range 5 {
		wait(ctx, 500*time.Millisecond)
		n, err := w.query(ctx, `SELECT (count(*) FILTER (WHERE pg_cancel_backend(pid)))::text
			FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
		w.note(err)
		some, _ := strconv.Atoi(n)
		met += some
	}
	return met
}

// promote makes the standby the primary.
func (w *world) promote(ctx context.Context, r *rand.Rand) {
	old := w.pg
	if err := w.other.run(ctx, "pg_ctl", "-D", w.other.data(), "promote", "-w", "-t", "60"); err != nil {
		w.must(err)
		return
	}
	w.pg, w.other = w.other, old
	w.note(w.synchronous(ctx, ""))
	from := time.Now()
	for _, p := range w.processes {
		w.measure(ctx, "failover", from, w.answers(p))
	}
	wait(ctx, time.Duration(r.Int64N(2000))*time.Millisecond)
	os.Remove(filepath.Join(old.data(), "standby.signal"))
	if err := old.start(ctx); err == nil { // revived
		end := time.Now().Add(time.Duration(1000+r.Int64N(3000)) * time.Millisecond)
		for !w.checkOld(ctx, old) && time.Now().Before(end) && wait(ctx, 200*time.Millisecond) {
		}
		w.note(old.stop(ctx, "immediate"))
	}
	w.note(w.follow(ctx))
}

// checkOld: no process writes to a primary that came back as it was. It looks at the last statement of each session, and
// says whether one has written.
func (w *world) checkOld(ctx context.Context, old *postgres) bool {
	n, err := w.queryOf(ctx, old, `SELECT count(*)::text FROM pg_stat_activity
		WHERE usename = 'postern' AND (query ~* '^\s*(INSERT|UPDATE|DELETE|COMMIT)\M'
			OR query ~* '^\s*WITH\M.*\m(INSERT INTO|UPDATE postern|DELETE FROM)\M')`)
	if err != nil || n == "0" {
		return false
	}
	w.violate("the old primary gets nothing", "%s sessions of Postern write to it", n)
	return true
}
