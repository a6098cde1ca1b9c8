package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/api/outbox"
	vocabulary "github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	pgdb "github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// shop is an application's pool, and the service beside it.
func shop(t *testing.T) (*pgxpool.Pool, *stores.Store) {
	t.Helper()
	t.Parallel()
	db := pgtest.New(t)
	s := db.Store(t, 4)
	d := vocabulary.DefaultDispatcher()
	d.Type, d.WorkerURL = "PAY", "noop:"
	if _, err := s.PutDispatcher(t.Context(), pgdb.By{Context: s.Context("default").ID}, d, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Pool.Exec(t.Context(), `CREATE TABLE orders (id int PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	return db.Pool, s
}

func drained(t *testing.T, s *stores.Store, uid string) *pg.Transaction {
	t.Helper()
	if _, err := pg.NewDrainer(s.Store).Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := s.Context("default").ID
	id, err := s.ByUID(t.Context(), c, uid)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := s.Transaction(t.Context(), c, id)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func TestSubmitJoinsTheCallersTransaction(t *testing.T) {
	app, s := shop(t)
	ctx := t.Context()
	three, at := 3, time.Date(2031, 2, 3, 4, 5, 6, 7000, time.UTC)
	order := func(id int, end func(pgx.Tx, context.Context) error) {
		t.Helper()
		tx, err := app.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, `INSERT INTO orders VALUES ($1)`, id); err != nil {
			t.Fatal(err)
		}
		uid, err := outbox.Submit(ctx, tx, outbox.Transaction{Queue: "ada", Type: "PAY", Data: map[string]any{"amount": json.Number("12345678901234567890.10")},
			UID: fmt.Sprint("order-", id), NotBefore: at, MaxRetries: &three, Tags: map[string]string{"shop": "x"}})
		if err != nil || uid != fmt.Sprint("order-", id) {
			t.Fatal(uid, err)
		}
		if err := end(tx, ctx); err != nil {
			t.Fatal(err)
		}
	}
	order(1, pgx.Tx.Rollback)
	order(2, pgx.Tx.Commit)
	got := drained(t, s, "order-2")
	if got.ID.Seq != 1 || got.Queue != "ada" || *got.MaxRetries != 3 || !got.NotBefore.Equal(at) || string(got.Tags) != `{"shop": "x"}` ||
		string(got.Data) != `{"amount": 12345678901234567890.10}` {
		t.Errorf("%+v, data %s, tags %s", got, got.Data, got.Tags)
	}
	if _, err := s.ByUID(ctx, s.Context("default").ID, "order-1"); err == nil {
		t.Error("what was rolled back exists")
	}
}

func TestSubmitManyTakesAllOrNone(t *testing.T) {
	app, s := shop(t)
	ctx := t.Context()
	err := pgx.BeginFunc(ctx, app, func(tx pgx.Tx) error {
		at := time.Now().Add(time.Hour)
		uids, err := outbox.SubmitMany(ctx, tx, []outbox.Transaction{
			{Queue: "ada", Type: "PAY", UID: "a"}, {Type: "PAY", Data: json.RawMessage(`[1]`)}, {Queue: "ada", Type: "PAY", UID: "b", NotBefore: at}})
		if err != nil || len(uids) != 3 || uids[0] != "a" || uids[1] == "" || uids[2] != "b" {
			t.Errorf("%v, %v", uids, err)
		}
		again, err := outbox.SubmitMany(ctx, tx, []outbox.Transaction{{Queue: "ada", Type: "PAY", UID: "b", NotBefore: at}})
		if err != nil || len(again) != 1 {
			t.Errorf("%v, %v", again, err)
		}
		sub, err := tx.Begin(ctx) // a savepoint: the refusal does not end the outer transaction
		if err != nil {
			return err
		}
		_, err = outbox.SubmitMany(ctx, sub, []outbox.Transaction{{Queue: "ada", Type: "PAY", UID: "c"}, {Queue: "no good", Type: "PAY"}})
		var refusal *outbox.Error
		if !errors.As(err, &refusal) || refusal.Code != "invalid" || refusal.SQLState != "ZP422" || len(refusal.Errors) != 1 || refusal.Errors[0].Pointer != "/items/1/queue" {
			t.Errorf("%+v", err)
		}
		return sub.Rollback(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	if b := drained(t, s, "b"); b.ID.Seq != 2 {
		t.Errorf("%+v", b)
	}
	if _, err := s.ByUID(ctx, s.Context("default").ID, "c"); err == nil {
		t.Error("one of a refused batch exists")
	}
}

func TestRefusalsAreTyped(t *testing.T) {
	app, s := shop(t)
	ctx := t.Context()
	if _, err := s.DrainQueue(ctx, pgdb.By{Context: s.Context("default").ID}, "shut"); err != nil {
		if _, err := s.PutQueue(ctx, pgdb.By{Context: s.Context("default").ID}, pg.Queue{Name: "shut", Priority: "Med", WhenFull: "refuse", OnFailure: "continue"}, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.DrainQueue(ctx, pgdb.By{Context: s.Context("default").ID}, "shut"); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		tx        outbox.Transaction
		code      string
		state     string
		retryable bool
	}{
		{outbox.Transaction{Queue: "q", Type: "NONE"}, "unknown_type", "ZP422", false},
		{outbox.Transaction{Queue: "q", Type: "PAY", UID: "-"}, "invalid", "ZP422", false},
		{outbox.Transaction{Queue: "shut", Type: "PAY"}, "queue_draining", "ZP409", true},
		{outbox.Transaction{Queue: "q", Type: "PAY", Context: "elsewhere"}, "not_found", "ZP404", false},
		{outbox.Transaction{Queue: "other", Type: "PAY", UID: "known"}, "idempotency_conflict", "ZP409", false},
	} {
		err := pgx.BeginFunc(ctx, app, func(tx pgx.Tx) error {
			if _, err := outbox.Submit(ctx, tx, outbox.Transaction{Queue: "q", Type: "PAY", UID: "known"}); err != nil {
				return err
			}
			_, err := outbox.Submit(ctx, tx, c.tx)
			return err
		})
		var e *outbox.Error
		if !errors.As(err, &e) || e.Code != c.code || e.SQLState != c.state || e.Retryable != c.retryable || e.Status == 0 || e.Title == "" || e.Error() != e.Detail {
			t.Errorf("%+v is refused with %+v", c.tx, err)
		} else if c.code == "idempotency_conflict" && (e.Existing.UID != "known" || fmt.Sprint(e.Differs) != "[queue]") {
			t.Errorf("%+v", e)
		}
	}
	if _, err := outbox.Submit(ctx, nil, outbox.Transaction{Type: "PAY", Data: func() {}}); err == nil {
		t.Error("a function is no data")
	}
}
