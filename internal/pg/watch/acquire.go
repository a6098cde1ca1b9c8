package watch

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// acquireWithin is how long a wait for a connection of a pool takes, whatever those wait for who have them.
const acquireWithin = 10 * time.Second

// acquiring bounds waits for a connection of a pool. pgx lets nothing but a tracer do that.
type acquiring struct{}

type acquireKey struct{}

// TraceAcquireStart returns the context of one wait, which TraceAcquireEnd ends.
func (acquiring) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	ctx, cancel := context.WithTimeout(ctx, acquireWithin)
	return context.WithValue(ctx, acquireKey{}, cancel)
}

// TraceAcquireEnd ends the context of a wait.
func (acquiring) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	if cancel, ok := ctx.Value(acquireKey{}).(context.CancelFunc); ok {
		cancel()
	}
}

// TraceQueryStart and TraceQueryEnd make a tracer of it, and trace nothing.
func (acquiring) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (acquiring) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
