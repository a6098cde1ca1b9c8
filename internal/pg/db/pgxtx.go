package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// asTx shows a txn to a library that joins the caller's transaction. It can do everything inside it, and
// cannot end it.
type asTx struct{ t *Txn }

// Begin shows t to a caller that needs it, begun.
func (t *Txn) Begin(ctx context.Context) (pgx.Tx, error) {
	if t.began {
		return asTx{t}, nil
	}
	return asTx{t}, t.Send(ctx, &pgx.Batch{})
}

var errNotYours = errors.New("the transaction is ended by the caller that began it")

func (a asTx) Begin(context.Context) (pgx.Tx, error) { return nil, errNotYours }
func (a asTx) Commit(context.Context) error          { return errNotYours }
func (a asTx) Rollback(context.Context) error        { return errNotYours }
func (a asTx) LargeObjects() pgx.LargeObjects        { return pgx.LargeObjects{} }
func (a asTx) Conn() *pgx.Conn                       { return a.t.Conn.Conn() }

func (a asTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	src pgx.CopyFromSource) (int64, error) {
	return a.t.Conn.CopyFrom(ctx, table, columns, src)
}

func (a asTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return a.t.Conn.SendBatch(ctx, b)
}

func (a asTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return a.t.Conn.Conn().Prepare(ctx, name, sql)
}

func (a asTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return a.t.Conn.Exec(ctx, sql, args...)
}

func (a asTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return a.t.Conn.Query(ctx, sql, args...)
}

func (a asTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return a.t.Conn.QueryRow(ctx, sql, args...)
}
