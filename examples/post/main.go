// Command post posts through both doors that a program in Go has: over HTTP with api/client, and inside a SQL
// transaction of its own with api/outbox.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/api/client"
	"github.com/postern-dev/postern/api/outbox"
)

func main() {
	ctx := context.Background()
	if err := overHTTP(ctx); err != nil {
		log.Fatal(err)
	}
	if err := insideSQL(ctx); err != nil {
		log.Fatal(err)
	}
}

// overHTTP posts and waits for the end. If no answer came, sending it again under the same key is the same transaction.
func overHTTP(ctx context.Context) error {
	c, queue := client.New(os.Getenv("POSTERN_URL")), "greetings"
	a, err := c.PostTransaction(ctx, &client.PostTransactionParams{IdempotencyKey: "hello-4", Wait: "10s"},
		&client.TransactionInput{Queue: &queue, Type: "HELLO", Data: json.RawMessage(`{"to": "go"}`)})
	if err != nil {
		return err // a refusal is a *client.Problem, with a code
	}
	fmt.Println(a.Body.UID, a.Body.State)
	return nil
}

// insideSQL submits where it could write tables of its own: all of it is committed, or nothing.
func insideSQL(ctx context.Context) error {
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		uid, err := outbox.Submit(ctx, tx, outbox.Transaction{Queue: "greetings", Type: "HELLO",
			Data: map[string]string{"to": "go and sql"}, UID: "hello-5"})
		if err == nil {
			fmt.Println(uid, "is submitted with this transaction")
		}
		return err // a refusal is an *outbox.Error, with a code
	})
}
