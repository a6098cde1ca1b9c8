package watch

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// acquireWithin is how long a wait for a connection of a pool takes at most, whatever the connections are in use for.
const acquireWithin = 10 * time.Second

// tracer hears of two things that pgx tells only a tracer: that a connection is being opened, on however many sockets,
// and that a caller waits for one of a pool. It bounds both, and traces nothing.
type tracer struct{ open *opening }

type acquireKey struct{}

// TraceAcquireStart returns the context of one wait, which TraceAcquireEnd ends.
func (tracer) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	ctx, cancel := context.WithTimeout(ctx, acquireWithin)
	return context.WithValue(ctx, acquireKey{}, cancel)
}

// TraceAcquireEnd ends the context of a wait.
func (tracer) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	if cancel, ok := ctx.Value(acquireKey{}).(context.CancelFunc); ok {
		cancel()
	}
}

type attemptKey struct{}

// TraceConnectStart returns the context of one opening, by which its sockets know that they belong together.
func (t tracer) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return context.WithValue(ctx, attemptKey{}, &attempt{open: t.open})
}

// TraceConnectEnd notes what came of an opening.
func (tracer) TraceConnectEnd(ctx context.Context, d pgx.TraceConnectEndData) {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		a.end(d.Err)
	}
}

// TraceQueryStart and TraceQueryEnd make a tracer of it.
func (tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
