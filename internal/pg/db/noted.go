package db

import (
	"context"
	"sync/atomic"
)

type notedKey struct{}

// Noting returns a context under which it is noted whether anything was committed: an error that comes behind a commit
// must not say that nothing was done.
func Noting(ctx context.Context) (_ context.Context, committed func() bool) {
	var noted atomic.Bool
	return context.WithValue(ctx, notedKey{}, &noted), noted.Load
}

// note notes that something was committed.
func note(ctx context.Context) {
	if noted, ok := ctx.Value(notedKey{}).(*atomic.Bool); ok {
		noted.Store(true)
	}
}
