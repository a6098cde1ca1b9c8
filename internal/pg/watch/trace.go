package watch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// acquireWithin is how long a wait for a connection of a pool takes at most, whatever the connections are in use for.
const acquireWithin = 10 * time.Second

// tracer hears of two things that pgx tells only a tracer: that a connection is being opened, on however many sockets,
// and that a caller waits for one of a pool. It bounds both, counts those that wait, and traces nothing.
type tracer struct {
	open  *opening
	waits *atomic.Int32
}

type acquireKey struct{}

// TraceAcquireStart returns the context of one wait, which TraceAcquireEnd ends.
func (t tracer) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool,
	_ pgxpool.TraceAcquireStartData) context.Context {
	patient := ctx.Value(patientKey{}) != nil
	ctx, cancel := context.WithTimeout(ctx, acquireWithin)
	if patient {
		return context.WithValue(ctx, acquireKey{}, cancel)
	}
	t.waits.Add(1)
	return context.WithValue(ctx, acquireKey{}, context.CancelFunc(func() { t.waits.Add(-1); cancel() }))
}

// TraceAcquireEnd ends the context of a wait.
func (tracer) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	if cancel, ok := ctx.Value(acquireKey{}).(context.CancelFunc); ok {
		cancel()
	}
}

type patientKey struct{}

// Patient is the context of a caller that wants connections that are made ready, however long that takes.
func Patient(ctx context.Context) context.Context { return context.WithValue(ctx, patientKey{}, true) }

// Wanted says whether a caller that is not patient waits for a connection of the pool that c belongs to.
func Wanted(c *pgx.Conn) func() bool {
	t, ok := c.Config().Tracer.(tracer)
	return func() bool { return ok && t.waits.Load() > 0 }
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
