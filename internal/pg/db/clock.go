package db

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/twin"
)

// clock is how the time by which this store decides differs from the database's. Without one it does not.
type clock struct {
	fixed    *time.Time // it stands still here: tests
	at, read time.Time  // or it was at when this process's clock showed read, and goes on from there
}

// aheadMost is how far the debug clock may be moved in all, in years: everything that is stored, ids among it, has room
// for that.
const aheadMost = 100

// SetNow makes t the time by which everything is decided, until the next call, leases too; nil is the
// database's clock. Only tests call it (S0.3).
func (db *DB) SetNow(t *time.Time) {
	if t == nil {
		db.clock.Store(nil)
		return
	}
	db.clock.Store(&clock{fixed: t})
}

// SetClock moves the time by which this process decides to a moment, from which it goes on, and returns
// it. It never falls: a moment that is over is refused, and so is one a century ahead. It holds for this
// process until it ends; leases and heartbeats stay on the database's clock, which others share.
func (db *DB) SetClock(ctx context.Context, to time.Time) (time.Time, error) {
	return db.moveClock(ctx, func(now time.Time) (time.Time, error) {
		if to.Before(now) {
			return to, fault.At("/set", "set %q is over: it is %s already, and time never falls",
				to.Format(time.RFC3339Nano), now.Format(time.RFC3339Nano))
		}
		return to, tooFar("/set", to)
	})
}

// AdvanceClock moves the time by which this process decides ahead, like SetClock.
func (db *DB) AdvanceClock(ctx context.Context, d time.Duration) (time.Time, error) {
	return db.moveClock(ctx, func(now time.Time) (time.Time, error) {
		if d < 0 {
			return now, fault.At("/advance", "advance %q: time never falls: want zero or more", d)
		}
		return now.Add(d), tooFar("/advance", now.Add(d))
	})
}

func tooFar(pointer string, t time.Time) error {
	if t.After(time.Now().AddDate(aheadMost, 0, 0)) {
		return fault.At(pointer, "%s leads to %s: want at most %d years ahead", pointer[1:],
			t.Format(time.RFC3339), aheadMost)
	}
	return nil
}

// moveClock reads our own clock first: from there the new time goes on, so that what the question took is
// in it and it cannot fall behind what somebody was told meanwhile.
func (db *DB) moveClock(ctx context.Context, move func(now time.Time) (time.Time, error)) (time.Time, error) {
	db.moving.Lock()
	defer db.moving.Unlock()
	read := time.Now()
	now, err := db.Now(ctx)
	if err != nil {
		return now, err
	}
	to, err := move(now)
	if err != nil {
		return now, err
	}
	db.clock.Store(&clock{at: to.UTC(), read: read})
	_, err = db.EnsureDays(ctx)
	return to.UTC(), err
}

// Clock is the argument for coalesce($n, clock_timestamp()) wherever time decides about work.
func (db *DB) Clock() *time.Time {
	c := db.clock.Load()
	if c == nil || c.fixed != nil {
		return db.LeaseNow()
	}
	t := c.at.Add(time.Since(c.read))
	return &t
}

// LeaseNow is that argument for heartbeats and what is decided by them: other processes do not know of a
// clock that was moved in this one, and are not to be buried by it.
func (db *DB) LeaseNow() *time.Time {
	if c := db.clock.Load(); c != nil {
		return c.fixed
	}
	return nil
}

// Fence returns the fence after before: a hybrid clock, the greater of one more and the milliseconds of a reading of
// now. So it rises with each owner, and never falls, not even where the store goes back to an earlier time by a
// restore, a failover or a rollback to a point in time: a fence that is given afterwards is of a later moment than
// all those that were lost, unless owners changed more than a thousand times a second for as long as was lost. A
// worker compares a fence with no other clock. The servers that take over from one another must agree about the time
// to within the length of a failover (docs/numbers.md).
//
// A clock that was moved for this process alone does not count, as it does not for leases: other processes, and this
// database when the process has ended, go by a time that is behind it.
func (db *DB) Fence(before int64, now time.Time) int64 {
	if twin.Planted("fence_counts") {
		return before + 1
	}
	return max(before+1, db.unmoved(now).UnixMilli())
}

// Position returns the position of an event in a subscription after before: such a clock too, in microseconds. So a
// reader of events that are lost since gets all that happened instead, and none under a cursor that it knows.
func (db *DB) Position(before int64, now time.Time) int64 {
	return max(before+1, db.unmoved(now).UnixMicro())
}

// unmoved is a reading of now without what somebody moved this process's clock by.
func (db *DB) unmoved(now time.Time) time.Time {
	if c := db.clock.Load(); c != nil && c.fixed == nil {
		return c.read.Add(now.Sub(c.at))
	}
	return now
}

// Now reads the time by which everything is decided.
func (db *DB) Now(ctx context.Context) (t time.Time, err error) {
	err = db.Db(ctx).QueryRow(ctx, `SELECT coalesce($1::timestamptz, clock_timestamp())`, db.Clock()).Scan(&t)
	return t, Known(err)
}

// Moment turns a moment of this process's clock into one of the clock by which is decided. They are the same
// unless that was moved.
func (db *DB) Moment(t time.Time) time.Time {
	if c := db.clock.Load(); c != nil && c.fixed == nil && !t.IsZero() {
		return c.at.Add(t.Sub(c.read))
	}
	return t
}
