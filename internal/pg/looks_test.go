package pg_test

import (
	"context"
	"testing"

	"github.com/postern-dev/postern/internal/pg"
)

// The queries of loops go through the few connections that are theirs: each is made while the other pool is closed.
func TestLooksGoThroughTheirOwnPool(t *testing.T) {
	w := newWorld(t)
	looks := w.Second(1)
	w.S.LookThrough(looks)
	w.S.Pool().Close()
	for name, look := range map[string]func(context.Context) error{
		"lines":         func(ctx context.Context) error { _, err := w.S.Deliveries.BusyTracks(ctx); return err },
		"callbacks":     func(ctx context.Context) error { _, err := w.S.Deliveries.ReleaseCallbacks(ctx); return err },
		"processors":    func(ctx context.Context) error { _, _, err := w.S.Batches.ProcessorsDue(ctx); return err },
		"staged":        func(ctx context.Context) error { _, err := pg.NewDrainer(w.S.Store).Once(ctx); return err },
		"configuration": w.S.Refresh,
	} {
		if err := look(w.Ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.S.Close()
	if _, err := looks.Acquire(w.Ctx); err == nil {
		t.Error("a store that is closed leaves the pool of looks open")
	}
}
