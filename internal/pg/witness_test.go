package pg_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
)

// watched is a world whose store relies on a witness.
func watched(t *testing.T) *world {
	t.Helper()
	db := pgtest.New(t)
	witness := pg.NewWitness()
	pool, err := witness.Connect(t.Context(), db.URL, 4)
	ok(t, err)
	t.Cleanup(pool.Close)
	s, err := stores.Open(t.Context(), pool, quiet)
	ok(t, err)
	s.Rely(witness)
	return worldOver(t, s)
}

// reconnect closes all connections and opens one. It returns what was found missing.
func (w *world) reconnect() (*pg.Loss, error) {
	w.s.Pool().Reset()
	err := w.s.Pool().Ping(w.ctx)
	return w.s.Loss(), err
}

// TestACommitThatIsGoneIsMissed deletes what commits wrote, one kind at a time, as if the database had gone back to
// before them.
func TestACommitThatIsGoneIsMissed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ sql string }{
		"a post":                    {`DELETE FROM postern.task`},
		"an end":                    {`DELETE FROM postern.outcome`},
		"a lease":                   {`UPDATE postern.queue SET fence = fence - 1 WHERE node_id IS NOT NULL`},
		"a heartbeat":               {`UPDATE postern.node SET beats = beats - 1`},
		"a node":                    {`DELETE FROM postern.node`},
		"another post at its place": {`UPDATE postern.task SET created_at = created_at + interval '1 s'`},
		"another end":               {`UPDATE postern.outcome SET done_at = done_at + interval '1 s'`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watched(t)
			w.dispatcher("T", nil)
			n, err := w.s.Register(w.ctx, "n", "test", time.Minute)
			ok(t, err)
			w.post("q", "T", "a", "b", "c")
			leases, _, err := w.s.Claim(w.ctx, n, everything())
			ok(t, err)
			if len(leases) != 1 {
				t.Fatalf("%d leases", len(leases))
			}
			w.settle(w.answer(leases[0], done()))
			w.post("r", "T", "d")
			_, _, err = w.s.Claim(w.ctx, n, everything())
			ok(t, err)
			if loss, err := w.reconnect(); loss != nil || err != nil {
				t.Fatalf("nothing is gone, and %+v %v is missed", loss, err)
			}

			_, err = w.s.Pool().Exec(w.ctx, c.sql)
			ok(t, err)
			loss, err := w.reconnect()
			if loss == nil || fault.CodeOf(err) != "database_went_back" {
				t.Fatalf("it is not missed: %+v, %v", loss, err)
			}
			select {
			case <-w.s.Lost():
			default:
				t.Error("nobody is told")
			}
			ordered := !loss.Newest.IsZero() && !loss.Until.Before(loss.Newest) && !loss.From.After(loss.Newest)
			if !ordered || !strings.Contains(err.Error(), "went back") {
				t.Errorf("%+v: %v", loss, err)
			}
			if _, err := w.s.Now(w.ctx); err == nil {
				t.Error("a connection is opened after the loss")
			}
		})
	}
}

// TestWhatGoesAsThingsDoIsNotMissed lets go of what was remembered in the ways that lose nothing.
func TestWhatGoesAsThingsDoIsNotMissed(t *testing.T) {
	t.Parallel()
	w := watched(t)
	w.dispatcher("T", nil)
	n, err := w.s.Register(w.ctx, "n", "test", time.Minute)
	ok(t, err)
	w.post("q", "T", "a")
	leases, _, err := w.s.Claim(w.ctx, n, everything())
	ok(t, err)
	w.settle(w.answer(leases[0], done()))
	w.post("", "T", "b")
	for _, c := range []struct{ name, sql string }{ // in this order: a day's rows go after it was dropped
		{"the day was dropped", `UPDATE postern.retained SET since = '3000-01-01'`},
		{"its rows with it", `TRUNCATE postern.task, postern.outcome`},
		{"the queue is gone", `DELETE FROM postern.queue`},
		{"the clock of the node went back", `UPDATE postern.node SET heartbeat_at = heartbeat_at - interval '1 h'`},
	} {
		_, err := w.s.Pool().Exec(w.ctx, c.sql)
		ok(t, err)
		if loss, err := w.reconnect(); loss != nil || err != nil {
			t.Fatalf("%s: %+v %v", c.name, loss, err)
		}
	}
	if alive, err := w.s.Beat(w.ctx, n); !alive || err != nil {
		t.Errorf("the node goes on: %v %v", alive, err)
	}
	if loss, err := w.reconnect(); loss != nil || err != nil {
		t.Errorf("after a heartbeat: %+v %v", loss, err)
	}
}

// TestARowThatWasPutBackUnderOpenConnectionsIsMissed restores the node's row, as the restore of a dump into a running
// server does: no connection breaks.
func TestARowThatWasPutBackUnderOpenConnectionsIsMissed(t *testing.T) {
	t.Parallel()
	w := watched(t)
	n, err := w.s.Register(w.ctx, "n", "test", time.Minute)
	ok(t, err)
	for range 3 {
		_, err = w.s.Beat(w.ctx, n)
		ok(t, err)
	}
	_, err = w.s.Pool().Exec(w.ctx, `UPDATE postern.node SET beats = 1`)
	ok(t, err)
	if _, err = w.s.Beat(w.ctx, n); fault.CodeOf(err) != "database_went_back" || w.s.Loss() == nil {
		t.Errorf("the heartbeat says %v", err)
	}
}

// TestAnIdOfANodeIsNotGivenTwice restores what gave it, and finds that a process of before can do nothing with what
// the next one holds.
func TestAnIdOfANodeIsNotGivenTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	stale, err := w.s.Register(w.ctx, "stale", "test", time.Minute)
	ok(t, err)
	// The database goes back to before the node was registered: its row is not there, and sequences are what they were.
	_, err = w.s.Pool().Exec(w.ctx, `DELETE FROM postern.node`)
	ok(t, err)
	_, err = w.s.Pool().Exec(w.ctx, `SELECT setval(seqrelid::regclass, 1, false) FROM pg_sequence
		WHERE seqrelid::regclass::text LIKE 'postern.node%'`)
	ok(t, err)
	fresh, err := w.s.Register(w.ctx, "fresh", "test", time.Minute)
	ok(t, err)
	if fresh.ID == stale.ID {
		t.Fatalf("both are node %d", fresh.ID)
	}
	w.post("q", "T", "a", "b")
	leases, _, err := w.s.Claim(w.ctx, fresh, everything())
	ok(t, err)
	if len(leases) != 1 {
		t.Fatalf("%d leases", len(leases))
	}
	w.post("r", "T", "d")
	if l, _, err := w.s.Claim(w.ctx, stale, everything()); len(l) != 0 || err != nil {
		t.Errorf("the stale node claims %d: %v", len(l), err)
	}
	if alive, err := w.s.Beat(w.ctx, stale); alive || err != nil {
		t.Errorf("the stale node beats: %v %v", alive, err)
	}
	if n, err := w.s.GiveUpAll(w.ctx, stale); n != 0 || err != nil {
		t.Errorf("the stale node gives up %d: %v", n, err)
	}
	if err := w.s.Leave(w.ctx, stale); err != nil {
		t.Error(err)
	}
	if _, err := w.s.Reincarnate(w.ctx, stale); fault.CodeOf(err) != "node_gone" {
		t.Errorf("the stale node comes back: %v", err)
	}
	if alive, err := w.s.Beat(w.ctx, fresh); !alive || err != nil {
		t.Errorf("the fresh node was touched: %v %v", alive, err)
	}
}

// TestManyCommitsAreRememberedAsLongAsTheyMatter loses the newest of commits that came side by side, more than there
// are connections.
func TestManyCommitsAreRememberedAsLongAsTheyMatter(t *testing.T) {
	t.Parallel()
	w := watched(t)
	w.dispatcher("T", nil)
	var ids []outbox.ID
	for i := range 100 {
		ids = append(ids, w.post("q", "T", fmt.Sprint(i))...)
	}
	_, err := w.s.Pool().Exec(w.ctx, `DELETE FROM postern.task WHERE seq >= 98`)
	ok(t, err)
	if loss, _ := w.reconnect(); loss == nil {
		t.Errorf("%d were posted, the last three are gone, and nothing is missed", len(ids))
	}
}
