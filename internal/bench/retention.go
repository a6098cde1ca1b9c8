package bench

import (
	"context"
	"fmt"
	"time"
)

// Days that a run of retention drops, and how many posts a second it wants at most.
const (
	oldDays    = 5
	retainRate = 5000
)

// rowsPerDay is how full an old day is: over all of them it is the first level of a backlog.
func (b *Bench) rowsPerDay() int { return max(b.Finished[0]/oldDays, 10) }

// retention measures what transactions wait for while days are made and dropped beside them, and while they
// are not, in turns: at half of what the same processes can carry, which is measured first.
func retention(ctx context.Context, b *Bench) (all []*Result, err error) {
	roles := []string{RoleWork, RoleServe}
	queues := max(b.Queues/b.Connections, 1) * b.Connections
	full, err := b.latency(ctx, &schedule{rate: 1e6, n: b.Queues * b.Depth, connections: b.Connections, queues: queues}, roles...)
	if err != nil {
		return nil, fmt.Errorf("the capacity: %w", err)
	}
	b.told("retention (capacity)", 0, full)
	rate := min(retainRate, full.rate()/2)
	names := []string{"retention", "retention-at-rest"}
	trials := make([][]*trial, len(names))
	for i := range b.Runs {
		for k := range names {
			j := (i + k) % len(names)
			other, drop, err := b.fork(ctx, "retention") // what is dropped does not come again
			if err != nil {
				return nil, err
			}
			o := &schedule{rate: rate, n: max(int(rate*b.Length.Seconds()), 1), connections: b.Connections, queues: queues, before: other.oldDays}
			if j == 0 {
				o.beside = other.days
			}
			t, err := other.latency(ctx, o, roles...)
			drop()
			if err != nil {
				return nil, fmt.Errorf("%s, run %d of %d: %w", names[j], i+1, b.Runs, err)
			}
			b.toldTimes(names[j], i, t)
			trials[j] = append(trials[j], t)
		}
	}
	longest := func(t *trial) float64 { return t.times["post_to_call"].max.Seconds() }
	for j, name := range names {
		r := b.summary(name, "postern", trials[j])
		r.timed(trials[j], "post_to_call", "post")
		r.Settings["posts_per_s"], r.Settings["days"], r.Settings["rows_per_day"] = round(rate), oldDays, b.rowsPerDay()
		if j == 0 {
			r.compare("longest_to_at_rest", trials[0], trials[1], longest)
		}
		all = append(all, r)
	}
	return all, nil
}

// oldDays fills the days before today with what has ended.
func (b *Bench) oldDays(ctx context.Context) error {
	if _, err := b.pool.Exec(ctx, `SELECT postern.ensure_days($1::date, $2::date)`, time.Now().UTC().AddDate(0, 0, -oldDays), time.Now().UTC()); err != nil {
		return err
	}
	for ago := oldDays; ago > 0; ago-- {
		if _, err := b.fill(ctx, load{keys: b.rowsPerDay() / 10, depth: 10, finished: true, ago: ago}); err != nil {
			return err
		}
	}
	return nil
}

// days makes a day ahead and drops one that has ended, again and again over the length of a run.
func (b *Bench) days(ctx context.Context) error {
	today := time.Now().UTC().Truncate(24 * time.Hour)
	for k := range oldDays {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(b.Length / (oldDays + 1)):
		}
		if _, err := b.pool.Exec(ctx, `SELECT postern.ensure_days($1::date, $1::date)`, today.AddDate(0, 0, 4+k)); err != nil {
			return err
		}
		dropped, err := b.store.Retain(ctx, time.Since(today.AddDate(0, 0, k+1-oldDays)))
		if err != nil {
			return err
		}
		if dropped != 1 { // it gave way to those who write
			b.Progress("a day was not dropped at its first try")
		}
	}
	return nil
}
