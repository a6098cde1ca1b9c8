package pg_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// toys is a system of one table: each toy is built by a transaction, and knows which one that is.
type toys struct {
	s      *stores.Store
	forgot int
}

func newToys(w *world) *toys {
	w.Exec(`CREATE TABLE public.toy (name text PRIMARY KEY, tx text, queue_id bigint, seq bigint, day date, painted int NOT NULL DEFAULT 0)`)
	m := &toys{s: w.S}
	w.S.Make(pg.Made{
		Maker:  m,
		Owns:   func(_, uid string) bool { return strings.HasPrefix(uid, "toy:") },
		Awaits: `SELECT queue_id, seq, day FROM public.toy WHERE painted = 0`,
	})
	return m
}

func (m *toys) May(_ db.By, lever string, t *pg.Task) error {
	if lever == "suspend" {
		return fault.New(fault.Conflict, "wrong_state", "transaction %s builds a toy: pause the workshop instead", t.ID)
	}
	return nil
}

func (m *toys) Redrive(ctx context.Context, _ db.By, old *pg.Transaction, _ pg.Redrive, post pg.Repost) (pg.Accepted, error) {
	out, err := post(ctx, func(_ context.Context, t *pg.Transaction) error {
		if t.State != outbox.CANCELLED {
			return fault.New(fault.Conflict, "wrong_state", "the toy is broken: order another")
		}
		return nil
	})
	if err == nil && !out.Replay {
		_, err = m.s.Pool().Exec(ctx, `UPDATE public.toy SET tx = $2, queue_id = $3, seq = $4, day = $5 WHERE name = $1`,
			strings.TrimPrefix(old.UID, "toy:"), out.ID.String(), out.ID.Queue, out.ID.Seq, out.ID.Day.Time())
	}
	return out, err
}

func (m *toys) Moved(b *pgx.Batch, t *pg.Task) {
	b.Queue(`UPDATE public.toy SET tx = $2, queue_id = $3, seq = $4, day = $5 WHERE tx = $1`,
		t.MovedFrom, t.ID.String(), t.ID.Queue, t.ID.Seq, t.ID.Day.Time())
}

func (m *toys) Forget(context.Context, time.Time) error { m.forgot++; return nil }

func (m *toys) Ended(*pg.Transaction) string { return "it built a toy" }

// order posts the transaction of a toy, in any queue.
func (m *toys) order(w *world, queue, name string) outbox.ID {
	id := w.Post(queue, "T", "toy:"+name)[0]
	w.Exec(`INSERT INTO public.toy (name, tx, queue_id, seq, day) VALUES ($1, $2, $3, $4, $5)`, name, id.String(), id.Queue, id.Seq, id.Day.Time())
	return id
}

func (w *world) toy(name string) (tx string) {
	w.T.Helper()
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT tx FROM public.toy WHERE name = $1`, name).Scan(&tx))
	return tx
}

// A system that the core has never heard of posts transactions, refuses levers on them, hears of their moves and
// redrives, explains their ends, and keeps them from retention while it waits for them.
func TestASystemRegistersItselfWithTheCore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := newToys(w)
	w.Dispatcher("T", nil)
	duck, bear := m.order(w, "shelf", "duck"), m.order(w, "basket", "bear")
	plain := w.Post("table", "T", "plain")[0]

	if _, err := w.S.Suspend(w.Ctx, w.By, bear); fault.CodeOf(err) != "wrong_state" || !strings.Contains(err.Error(), "workshop") {
		t.Errorf("the suspension of a toy is answered %v", err)
	}
	if r, err := w.S.Suspend(w.Ctx, w.By, plain); err != nil || !r.Changed {
		t.Errorf("the suspension of another is answered %+v, %v", r, err)
	}

	moved, err := w.S.MoveTo(w.Ctx, w.By, bear, "crate", nil)
	w.Must(err)
	if w.toy("bear") != moved.Moved.String() || moved.Moved.Queue == bear.Queue {
		t.Errorf("the bear is built by %s, moved to %s", w.toy("bear"), moved.Moved)
	}

	_, err = w.S.Cancel(w.Ctx, w.By, *moved.Moved)
	w.Must(err)
	again, err := w.S.Redrive(w.Ctx, w.By, *moved.Moved, pg.Redrive{})
	w.Must(err)
	if w.toy("bear") != again.ID.String() {
		t.Errorf("the bear is built by %s, redriven as %s", w.toy("bear"), again.ID)
	}
	for _, l := range w.Claim(w.Node("n"), pgworld.Everything()) {
		if l.ID() == duck {
			w.Settle(w.Answer(l, outbox.Answer{Class: outbox.ClassRejected, Code: "broken"}))
		}
	}
	if _, err := w.S.Redrive(w.Ctx, w.By, duck, pg.Redrive{}); fault.CodeOf(err) != "wrong_state" || !strings.Contains(err.Error(), "order another") {
		t.Errorf("the redrive of a broken toy is answered %v", err)
	}
	if y, err := w.S.Reads.Why(w.Ctx, w.ID, duck); err != nil || !strings.Contains(y.Blockers[0].Detail, "it built a toy") {
		t.Errorf("why says %+v, %v", y, err)
	}

	w.Ahead(40 * 24 * time.Hour)
	w.Retain()
	if state := w.State(duck); !state.Terminal() || m.forgot == 0 {
		t.Errorf("the duck, for which its system waits, is %q; it forgot %d times", state, m.forgot)
	}
	w.Exec(`UPDATE public.toy SET painted = 1`)
	w.Retain()
	if _, err := w.S.Transaction(w.Ctx, w.ID, duck); fault.KindOf(err) != fault.NotFound {
		t.Errorf("the duck, for which nothing waits any more, is there: %v", err)
	}
}
