package outbox_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/api/outbox"
	vocabulary "github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

func TestEffectAndAcknowledgementCommitTogether(t *testing.T) {
	app, s := shop(t)
	ctx := t.Context()
	by := db.By{Context: s.Context("default").ID}
	if _, err := s.Deliveries.PutSubscription(ctx, by, vocabulary.Subscription{Name: "mine", Kind: "pull", OnError: "skip"}, nil, 0); err != nil {
		t.Fatal(err)
	}
	sub, err := s.Deliveries.Subscription(ctx, by.Context, "mine")
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(pgx.BeginFunc(ctx, app, func(tx pgx.Tx) error {
		_, err := outbox.SubmitMany(ctx, tx, []outbox.Transaction{{Queue: "ada", Type: "PAY", UID: "a"}, {Queue: "ada", Type: "PAY", UID: "b", DependsOn: []string{"a"},
			Callback: &outbox.Callback{URL: "https://example.com/told", On: []string{"FAILED"}}}})
		return err
	}))
	if b := drained(t, s, "b"); b.ID.Seq != 2 || len(b.DependsOn) != 1 || b.Callback == nil || b.Callback.URL != "https://example.com/told" || len(b.Callback.On) != 1 {
		t.Errorf("%+v", b)
	}
	if _, err := s.Deliveries.Deliver(ctx, sub.ID, nil, 0); err != nil { // gives the events their positions
		t.Fatal(err)
	}
	consume := func(end error) (n int) {
		t.Helper()
		err := pgx.BeginFunc(ctx, app, func(tx pgx.Tx) error {
			events, err := outbox.Feed(ctx, tx, "mine", "", 10)
			if n = len(events); err != nil || n == 0 {
				return err
			}
			if e := events[0]; e.UID != "a" || e.Type != "transaction.accepted" || e.At.IsZero() || e.Transaction == "" || len(e.Body) == 0 {
				t.Errorf("%+v", e)
			}
			if _, err := tx.Exec(ctx, `INSERT INTO orders VALUES (1)`); err != nil {
				return err
			}
			if changed, err := outbox.Ack(ctx, tx, "mine", "", events[n-1].Cursor); err != nil || !changed {
				t.Errorf("%v, %v", changed, err)
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Error(err)
		}
		return n
	}
	if n := consume(pgx.ErrTxCommitRollback); n != 2 {
		t.Errorf("fetched %d", n)
	}
	if n := consume(nil); n != 2 {
		t.Errorf("after a rollback %d come again", n)
	}
	if n := consume(nil); n != 0 {
		t.Errorf("%d come twice", n)
	}
	var refusal *outbox.Error
	err = pgx.BeginFunc(ctx, app, func(tx pgx.Tx) error {
		_, err := outbox.Ack(ctx, tx, "mine", "default", "x")
		return err
	})
	if !errors.As(err, &refusal) || refusal.Code != "bad_cursor" {
		t.Errorf("%v", err)
	}
	err = pgx.BeginFunc(ctx, app, func(tx pgx.Tx) error {
		_, err := outbox.Feed(ctx, tx, "none", "", 1)
		return err
	})
	if !errors.As(err, &refusal) || refusal.Code != "not_found" {
		t.Errorf("%v", err)
	}
}
