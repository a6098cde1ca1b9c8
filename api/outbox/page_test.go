package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/api/outbox"
	vocabulary "github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

func placeOrder(ctx context.Context, db *pgxpool.Pool, id int, amount string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id, amount) VALUES ($1, $2)`, id, amount); err != nil {
			return err
		}
		_, err := outbox.Submit(ctx, tx, outbox.Transaction{
			Queue: "claim-7f3", Type: "HELLO", Data: map[string]string{"amount": amount}, UID: fmt.Sprint("order-", id),
		})
		var refused *outbox.Error
		if errors.As(err, &refused) && refused.Code == "queue_full" {
			return fmt.Errorf("come back later: %w", err)
		}
		return err
	})
}

func TestTheGoOfThePageIsTheOneThatRuns(t *testing.T) {
	page, err := os.ReadFile("../../docs/sql-outbox.md")
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.ReadFile("page_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```go\n")
	code, _, ok := strings.Cut(rest, "```")
	if !ok || !strings.Contains(string(here), code) {
		t.Errorf("docs/sql-outbox.md shows Go that is not placeOrder of this file:\n%s", code)
	}
	app, s := shop(t)
	by := db.By{Context: s.Context("default").ID}
	d := vocabulary.DefaultDispatcher()
	d.Type, d.WorkerURL = "HELLO", "noop:"
	if _, err := s.PutDispatcher(t.Context(), by, d, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := app.Exec(t.Context(), `ALTER TABLE orders ADD amount numeric`); err != nil {
		t.Fatal(err)
	}
	if err := placeOrder(t.Context(), app, 1, "5"); err != nil {
		t.Fatal(err)
	}
	if got := drained(t, s, "order-1"); got.Queue != "claim-7f3" {
		t.Errorf("%+v", got)
	}
	if _, err := s.PutQueue(t.Context(), by,
		pg.Queue{Name: "claim-7f3", MaxDepth: 1, Priority: "Med", WhenFull: "refuse",
			OnFailure: "continue"}, 0); err != nil {
		t.Fatal(err)
	}
	if err := placeOrder(t.Context(), app, 2, "6"); err == nil || !strings.Contains(err.Error(), "come back later") {
		t.Errorf("a full queue: %v", err)
	}
}
