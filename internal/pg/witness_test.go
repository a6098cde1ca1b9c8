package pg_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	pgdb "github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// watched is a world whose store relies on a witness.
func watched(t *testing.T) *world {
	t.Helper()
	db := pgtest.New(t)
	witness := pgdb.NewWitness()
	pool, err := witness.Connect(t.Context(), db.URL, 4, nil)
	pgworld.OK(t, err)
	t.Cleanup(pool.Close)
	s, err := stores.Open(t.Context(), pool, pgworld.Quiet)
	pgworld.OK(t, err)
	s.Rely(witness)
	return worldOver(t, s)
}

// reconnect closes all connections and opens one. It returns what was found missing.
func (w *world) reconnect() (*pgdb.Loss, error) {
	w.S.Pool().Reset()
	err := w.S.Pool().Ping(w.Ctx)
	return w.S.Loss(), err
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
			w.Dispatcher("T", nil)
			n, err := w.S.Register(w.Ctx, "n", "test", time.Minute)
			pgworld.OK(t, err)
			w.Post("q", "T", "a", "b", "c")
			leases, _, err := w.S.Claim(w.Ctx, n, pgworld.Everything())
			pgworld.OK(t, err)
			if len(leases) != 1 {
				t.Fatalf("%d leases", len(leases))
			}
			w.Settle(w.Answer(leases[0], pgworld.Done()))
			w.Post("r", "T", "d")
			_, _, err = w.S.Claim(w.Ctx, n, pgworld.Everything())
			pgworld.OK(t, err)
			if loss, err := w.reconnect(); loss != nil || err != nil {
				t.Fatalf("nothing is gone, and %+v %v is missed", loss, err)
			}

			_, err = w.S.Pool().Exec(w.Ctx, c.sql)
			pgworld.OK(t, err)
			loss, err := w.reconnect()
			if loss == nil || fault.CodeOf(err) != "database_went_back" {
				t.Fatalf("it is not missed: %+v, %v", loss, err)
			}
			select {
			case <-w.S.Lost():
			default:
				t.Error("nobody is told")
			}
			ordered := !loss.Newest.IsZero() && !loss.Until.Before(loss.Newest) && !loss.From.After(loss.Newest)
			if !ordered || !strings.Contains(err.Error(), "went back") {
				t.Errorf("%+v: %v", loss, err)
			}
			if _, err := w.S.Now(w.Ctx); err == nil {
				t.Error("a connection is opened after the loss")
			}
		})
	}
}

// TestWhatGoesAsThingsDoIsNotMissed lets go of what was remembered in the ways that lose nothing.
func TestWhatGoesAsThingsDoIsNotMissed(t *testing.T) {
	t.Parallel()
	w := watched(t)
	w.Dispatcher("T", nil)
	n, err := w.S.Register(w.Ctx, "n", "test", time.Minute)
	pgworld.OK(t, err)
	w.Post("q", "T", "a")
	leases, _, err := w.S.Claim(w.Ctx, n, pgworld.Everything())
	pgworld.OK(t, err)
	w.Settle(w.Answer(leases[0], pgworld.Done()))
	w.Post("", "T", "b")
	for _, c := range []struct{ name, sql string }{ // in this order: a day's rows go after it was dropped
		{"the day was dropped", `UPDATE postern.retained SET since = '3000-01-01'`},
		{"its rows with it", `TRUNCATE postern.task, postern.outcome`},
		{"the queue is gone", `DELETE FROM postern.queue`},
		{"the clock of the node went back", `UPDATE postern.node SET heartbeat_at = heartbeat_at - interval '1 h'`},
	} {
		_, err := w.S.Pool().Exec(w.Ctx, c.sql)
		pgworld.OK(t, err)
		if loss, err := w.reconnect(); loss != nil || err != nil {
			t.Fatalf("%s: %+v %v", c.name, loss, err)
		}
	}
	if alive, err := w.S.Beat(w.Ctx, n, pg.NodeLoad{}); !alive || err != nil {
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
	n, err := w.S.Register(w.Ctx, "n", "test", time.Minute)
	pgworld.OK(t, err)
	for range 3 {
		_, err = w.S.Beat(w.Ctx, n, pg.NodeLoad{})
		pgworld.OK(t, err)
	}
	_, err = w.S.Pool().Exec(w.Ctx, `UPDATE postern.node SET beats = 1`)
	pgworld.OK(t, err)
	if _, err = w.S.Beat(w.Ctx, n, pg.NodeLoad{}); fault.CodeOf(err) != "database_went_back" || w.S.Loss() == nil {
		t.Errorf("the heartbeat says %v", err)
	}
}

// TestAnIdOfANodeIsNotGivenTwice restores what gave it, and finds that a process of before can do nothing with what
// the next one holds.
func TestAnIdOfANodeIsNotGivenTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	stale, err := w.S.Register(w.Ctx, "stale", "test", time.Minute)
	pgworld.OK(t, err)
	// The database goes back to before the node was registered: its row is not there, and sequences are what they were.
	_, err = w.S.Pool().Exec(w.Ctx, `DELETE FROM postern.node`)
	pgworld.OK(t, err)
	_, err = w.S.Pool().Exec(w.Ctx, `SELECT setval(seqrelid::regclass, 1, false) FROM pg_sequence
		WHERE seqrelid::regclass::text LIKE 'postern.node%'`)
	pgworld.OK(t, err)
	fresh, err := w.S.Register(w.Ctx, "fresh", "test", time.Minute)
	pgworld.OK(t, err)
	if fresh.ID == stale.ID {
		t.Fatalf("both are node %d", fresh.ID)
	}
	w.Post("q", "T", "a", "b")
	leases, _, err := w.S.Claim(w.Ctx, fresh, pgworld.Everything())
	pgworld.OK(t, err)
	if len(leases) != 1 {
		t.Fatalf("%d leases", len(leases))
	}
	w.Post("r", "T", "d")
	if l, _, err := w.S.Claim(w.Ctx, stale, pgworld.Everything()); len(l) != 0 || err != nil {
		t.Errorf("the stale node claims %d: %v", len(l), err)
	}
	if alive, err := w.S.Beat(w.Ctx, stale, pg.NodeLoad{}); alive || err != nil {
		t.Errorf("the stale node beats: %v %v", alive, err)
	}
	if n, err := w.S.GiveUpAll(w.Ctx, stale); n != 0 || err != nil {
		t.Errorf("the stale node gives up %d: %v", n, err)
	}
	if err := w.S.Leave(w.Ctx, stale); err != nil {
		t.Error(err)
	}
	if _, err := w.S.Reincarnate(w.Ctx, stale); fault.CodeOf(err) != "node_gone" {
		t.Errorf("the stale node comes back: %v", err)
	}
	if alive, err := w.S.Beat(w.Ctx, fresh, pg.NodeLoad{}); !alive || err != nil {
		t.Errorf("the fresh node was touched: %v %v", alive, err)
	}
}

// TestManyCommitsAreRememberedAsLongAsTheyMatter loses the newest of commits that came side by side, more than there
// are connections.
func TestManyCommitsAreRememberedAsLongAsTheyMatter(t *testing.T) {
	t.Parallel()
	w := watched(t)
	w.Dispatcher("T", nil)
	var ids []outbox.ID
	for i := range 100 {
		ids = append(ids, w.Post("q", "T", fmt.Sprint(i))...)
	}
	_, err := w.S.Pool().Exec(w.Ctx, `DELETE FROM postern.task WHERE seq >= 98`)
	pgworld.OK(t, err)
	if loss, _ := w.reconnect(); loss == nil {
		t.Errorf("%d were posted, the last three are gone, and nothing is missed", len(ids))
	}
}
