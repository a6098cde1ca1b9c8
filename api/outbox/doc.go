// Package outbox submits transactions to Postern inside the application's own SQL transaction: they exist
// if and when that commits, and go out afterwards, once and in order.
//
//	tx, err := pool.Begin(ctx)
//	...
//	_, err = tx.Exec(ctx, `INSERT INTO orders ...`)
//	uid, err := outbox.Submit(ctx, tx, outbox.Transaction{Queue: "claim-7f3", Type: "SEND_CLAIM_VOTE",
//		Data: vote, UID: "order-4711"})
//	err = tx.Commit(ctx)
//
// Feed and Ack fetch and acknowledge events there, so that an effect and its acknowledgement are one. The
// package calls the functions of the schema postern and needs nothing but pgx. docs/sql-outbox.md says what
// order is promised, and what a transaction that stays open costs.
package outbox
