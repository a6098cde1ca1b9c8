package bench

import (
	"context"
	"fmt"
	"time"
)

// trial is one run that was measured and checked.
type trial struct {
	n     int // transactions
	took  time.Duration
	cost  cost
	wrong []string
	bad   int // violations
	times map[string]*histogram
}

func (t *trial) rate() float64 {
	if t.took <= 0 {
		return 0
	}
	return float64(t.n) / t.took.Seconds()
}

// drain fills queues, lets work go, and measures from that moment to the last outcome.
func (b *Bench) drain(ctx context.Context, l load) (*trial, error) {
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	s, err := b.fill(ctx, l)
	if err != nil {
		return nil, err
	}
	if err := b.calm(ctx); err != nil {
		return nil, err
	}
	return b.work(ctx, s, l.total(), l.total(), 1)
}

// work lets sequencers work on what lies in the queues of s, n transactions, and measures until so many more
// of them have ended.
func (b *Bench) work(ctx context.Context, s span, n, until, processes int) (_ *trial, err error) {
	parts := map[string]*Process{}
	defer func() {
		for _, p := range parts {
			p.Stop()
		}
	}()
	for i := range processes {
		p, err := b.launch(ctx, RoleWork)
		if err != nil {
			return nil, err
		}
		parts[fmt.Sprint(RoleWork, i)] = p
	}
	var before int
	if err := b.pool.QueryRow(ctx, `SELECT count(*) FROM postern.outcome WHERE queue_id BETWEEN $1 AND $2`, s.first, s.last).Scan(&before); err != nil {
		return nil, err
	}
	m, err := b.meter(ctx, parts)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for _, p := range parts {
		if err := p.Go(); err != nil {
			return nil, err
		}
	}
	ended, at, err := b.await(ctx, s, before+until)
	if err != nil {
		return nil, err
	}
	t := &trial{n: ended - before, took: at.Sub(start)}
	if t.cost, err = m.stop(ctx); err != nil {
		return nil, err
	}
	w := want{stored: n, ended: ended, timed: b.local}
	if until < n {
		w.ended = -1
	}
	t.wrong, t.bad, err = b.check(ctx, s, w)
	return t, err
}

// await waits until so many transactions of s have ended. It returns how many have, and when that was seen. It looks
// rarely as long as it is far, since counting outcomes takes processors' time from the measured work. It looks by one
// connection, so that the time to open and to plan on another one is not taken for the cost of a look.
func (b *Bench) await(ctx context.Context, s span, until int) (ended int, at time.Time, err error) {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return 0, at, err
	}
	defer conn.Release()
	start, said := time.Now(), time.Now()
	moved, first := start, -1
	before, last := 0, start // of the look before
	for wait := 10 * time.Millisecond; ; {
		select {
		case <-ctx.Done():
			return ended, at, fmt.Errorf("%d of %d transactions ended: %w", ended, until, ctx.Err())
		case <-time.After(wait):
		}
		at = time.Now()
		if err := conn.QueryRow(ctx, `SELECT count(*) FROM postern.outcome WHERE queue_id BETWEEN $1 AND $2`, s.first, s.last).Scan(&ended); err != nil {
			return 0, at, err
		}
		if ended >= until {
			return ended, at, nil
		}
		looked := time.Since(at)
		if first < 0 {
			first, before, last = ended, ended, at
			continue // the first look took its time mostly for its plan
		}
		if ended > before {
			moved = at
		} else if at.Sub(moved) > stuck {
			return ended, at, fmt.Errorf("%d of %d transactions ended, and no other for %s", ended, until, stuck)
		}
		if time.Since(said) > 2*time.Second {
			said = time.Now()
			b.Progress(fmt.Sprintf("%s of %s ended, %.0f a second", count(ended), count(until), float64(ended-first)/at.Sub(start).Seconds()))
		}
		wait = 10 * time.Millisecond
		if ended > first {
			// It begins slowly, so the faster of what was seen is the better guess.
			each := min(at.Sub(start).Seconds()/float64(ended-first), at.Sub(last).Seconds()/max(float64(ended-before), 0.1))
			left := time.Duration(each * float64(until-ended) * float64(time.Second))
			wait = max(2*time.Millisecond, min(left/2, 20*time.Millisecond)) // an early look knows little of what is left
			wait = max(wait, min(50*looked, left/2, at.Sub(start)/2))        // nor does it say when all will have ended
		}
		before, last = ended, at
	}
}

// stuck is how long nothing may end before a run is given up.
const stuck = time.Minute

// count writes a number as people read it: 10k, 1M.
func count(n int) string {
	switch {
	case n >= 1000000 && n%100000 == 0:
		return fmt.Sprintf("%gM", float64(n)/1000000)
	case n >= 1000 && n%100 == 0:
		return fmt.Sprintf("%gk", float64(n)/1000)
	}
	return fmt.Sprint(n)
}
