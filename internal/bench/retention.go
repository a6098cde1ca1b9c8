package bench

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// retentions are the ways of a turn: a day is made and one dropped, as a process does once a day, or none is, with API
// and sequencer in processes of their own, or in one. Each is compared with the one behind it where none is.
var retentions = []struct {
	name  string
	day   bool
	roles []string
}{
	{"retention", true, []string{RoleWork, RoleServe}}, {"retention-at-rest", false, []string{RoleWork, RoleServe}},
	{"retention-one-process", true, []string{RoleBoth}}, {"retention-one-process-at-rest", false, []string{RoleBoth}},
}

// standstills are the times in which nothing was answered, nothing ended, and none of those watched was seen to have
// ended.
var standstills = map[string]string{"between_answers": "post", "between_ends": "post_to_done",
	"between_seen": "post_to_visible"}

// Days that lie there before a run of retention, how many transactions a second it wants at most, how many of them a
// post has, and how long a run is: what a day has is gone through at leisure before it is dropped.
const (
	oldDays      = 5
	retainRate   = 5000
	retainBatch  = 10
	retainSeen   = 7 // of so many posts one is watched
	retainLength = 4 // times that of other runs
)

// rowsPerDay is how full an old day is: over all of them it is the first level of a backlog.
func (b *Bench) rowsPerDay() int { return max(b.Finished[0]/oldDays, 10) }

// retention measures what transactions wait for while a day is made and one is dropped beside them, and while none are,
// in turns. They are posted at 5,000 a second, or at half of what two processes can carry (measured first) if that is
// less, in batches of ten. One in retainSeen is watched until it is DONE.
func retention(ctx context.Context, b *Bench) (all []*Result, err error) {
	queues := max(b.Queues/b.Connections/retainBatch, 1) * b.Connections * retainBatch
	like := func(o *schedule) *schedule {
		o.connections, o.queues, o.batch, o.local, o.gaps = b.Connections, queues, retainBatch, true, standstills
		o.n = max(o.n/retainBatch, 1) * retainBatch
		return o
	}
	full, err := b.latency(ctx, like(&schedule{rate: 1e6, n: b.Queues * b.Depth}), retentions[0].roles...)
	if err != nil {
		return nil, fmt.Errorf("the capacity: %w", err)
	}
	b.told("retention (capacity)", 0, full)
	rate := min(retainRate, full.rate()/2)
	trials := make([][]*trial, len(retentions))
	for i := range b.Runs {
		for k := range retentions {
			j := (i + k) % len(retentions)
			name := retentions[j].name
			other, drop, err := b.fork(ctx, "retention") // a day that is dropped does not come again
			if err != nil {
				return nil, err
			}
			o := like(&schedule{rate: rate, n: int(rate * retainLength * b.Length.Seconds()),
				visible: retainSeen, before: other.oldDays})
			if retentions[j].day {
				o.beside = other.changeDays
			}
			t, err := other.latency(ctx, o, retentions[j].roles...)
			drop()
			if err != nil {
				return nil, fmt.Errorf("%s, run %d of %d: %w", name, i+1, b.Runs, err)
			}
			b.toldTimes(name, i, t)
			trials[j] = append(trials[j], t)
		}
	}
	longest := func(t *trial) float64 { return t.times["post_to_visible"].max.Seconds() }
	for j, way := range retentions {
		r := b.summary(way.name, "postern", trials[j])
		r.timed(trials[j], "post_to_visible", "post", "between_answers", "between_ends", "between_seen")
		r.Settings["transactions_per_s"], r.Settings["rows_per_day"] = round(rate), b.rowsPerDay()
		if way.day {
			r.compare("longest_to_at_rest", trials[j], trials[j+1], longest)
		}
		all = append(all, r)
	}
	return all, nil
}

// oldDays fills the days before today with what has ended.
func (b *Bench) oldDays(ctx context.Context) error {
	today := time.Now().UTC()
	_, err := b.pool.Exec(ctx, `SELECT postern.ensure_days($1::date, $2::date, 'day')`,
		today.AddDate(0, 0, -oldDays), today)
	if err != nil {
		return err
	}
	for ago := oldDays; ago > 0; ago-- {
		if _, err := b.fill(ctx, load{keys: b.rowsPerDay() / 10, depth: 10, finished: true, ago: ago}); err != nil {
			return err
		}
	}
	return nil
}

// changeDays makes a day ahead a while after a run has begun, and drops one that has ended a while after that: a
// process leaves an hour between them.
func (b *Bench) changeDays(ctx context.Context) error {
	wait := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	if wait(b.Length / 2); ctx.Err() != nil {
		return nil
	}
	pool, err := pg.Connect(ctx, b.url, 2) // with the settings of a process
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := stores.Open(ctx, pool, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	today := time.Now().UTC().Truncate(24 * time.Hour)
	_, err = pool.Exec(ctx, `SELECT postern.ensure_days($1::date, $1::date, 'day')`, today.AddDate(0, 0, 4))
	if err != nil {
		return err
	}
	if wait(b.Length); ctx.Err() != nil {
		return nil
	}
	dropped, err := store.Retain(ctx, time.Since(today.AddDate(0, 0, 1-oldDays)))
	if err == nil && dropped != 1 { // it gave way to clients that write
		b.Progress("a day was not dropped at its first try")
	}
	return err
}
