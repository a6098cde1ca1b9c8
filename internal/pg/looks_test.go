package pg_test

import (
	"context"
	"testing"

	"github.com/postern-dev/postern/internal/pg"
)

// What loops look for goes through the few connections that are theirs: each look is made while the other pool is closed.
func TestLooksGoThroughTheirOwnPool(t *testing.T) {
	w := newWorld(t)
	looks := w.second(1)
	w.s.LookThrough(looks)
	w.s.Pool().Close()
	for name, look := range map[string]func(context.Context) error{
		"lines":         func(ctx context.Context) error { _, err := w.s.Busy(ctx); return err },
		"callbacks":     func(ctx context.Context) error { _, err := w.s.ReleaseCallbacks(ctx); return err },
		"processors":    func(ctx context.Context) error { _, _, err := w.s.ProcessorsDue(ctx); return err },
		"staged":        func(ctx context.Context) error { _, err := pg.NewDrainer(w.s.Store).Once(ctx); return err },
		"configuration": w.s.Refresh,
	} {
		if err := look(w.ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.s.Close()
	if _, err := looks.Acquire(w.ctx); err == nil {
		t.Error("a store that is closed leaves the pool of looks open")
	}
}
