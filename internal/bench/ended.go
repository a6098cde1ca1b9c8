package bench

import (
	"context"
	"fmt"
	"time"
)

// untilEnded measures a work process from its first claim until all n of a noun have ended. The statement left counts
// those that have not ended. tables are vacuumed before.
func (b *Bench) untilEnded(ctx context.Context, n int, noun, tables, left string) (*trial, error) {
	if _, err := b.pool.Exec(ctx, "VACUUM (ANALYZE) "+tables); err != nil {
		return nil, err
	}
	if err := b.calm(ctx); err != nil {
		return nil, err
	}
	p, err := b.launch(ctx, RoleWork)
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	m, err := b.meter(ctx, map[string]*Process{RoleWork: p})
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := p.Go(); err != nil {
		return nil, err
	}
	t := &trial{n: n}
	moved, before, said := start, -1, start
	for open := n; open > 0; {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d %s have not ended: %w", open, n, noun, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
		if err := b.pool.QueryRow(ctx, left).Scan(&open); err != nil {
			return nil, err
		}
		switch now := time.Now(); {
		case open != before:
			before, moved = open, now
		case now.Sub(moved) > stuck:
			return nil, fmt.Errorf("%d of %d %s have not ended, and no other has for %s", open, n, noun, stuck)
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			b.Progress(fmt.Sprintf("%s of %s %s ended, %.0f a second", count(n-open), count(n), noun,
				float64(n-open)/time.Since(start).Seconds()))
		}
	}
	t.took = time.Since(start)
	t.cost, err = m.stop(ctx)
	return t, err
}

// amiss is how many of something are wrong, more or fewer than there should be, and the words for it.
type amiss struct {
	bad  int
	text string
}

// judge adds what is wrong to the run.
func (t *trial) judge(list ...amiss) {
	for _, c := range list {
		if c.bad != 0 {
			t.wrong, t.bad = append(t.wrong, fmt.Sprintf(c.text, c.bad)), t.bad+max(c.bad, -c.bad)
		}
	}
}
