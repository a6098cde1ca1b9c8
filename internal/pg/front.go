package pg

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// front is from when on the ready rows of a lane are read, by their prio.
type front [2]time.Time

// args are the two as PostgreSQL has them: no time is the beginning of all.
func (f front) args() (high, low pgtype.Timestamptz) {
	at := func(t time.Time) pgtype.Timestamptz {
		if t.IsZero() {
			return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
		}
		return pgtype.Timestamptz{Time: t, Valid: true}
	}
	return at(f[0]), at(f[1])
}

// fronts remembers where the first ready row of each lane stood when this process last looked. While some session
// holds an old snapshot, no ready row that was taken since can be removed, and a read of a lane from its beginning
// meets them all. As soon as that takes long, a claim begins where the one before found the first row.
//
// Rows before that are not lost. Rows become ready in the order of since, but for the time from a decision to its
// commit, for which slack is left; and a row that another claim has deleted and not committed still counts. A row
// with a time of long ago (of a slow commit, or a queue that changes its lane) is found by a read from the beginning,
// for which claims take a bounded share of the time. Where it takes so long that each would be felt, LookBack reads
// beside them instead. The lane resume is always read from its beginning, since its queues keep their time.
type fronts struct {
	mu     sync.Mutex
	of     map[int32]front
	behind int32     // the lane behind which the next walk begins
	next   time.Time // when a look from the beginning is due
	aside  bool      // claims leave it to LookBack
	nearby time.Time // when it looks at a minute before the fronts
	all    time.Time // when it looks from the beginning
	turned int       // how often it has moved one back
}

const (
	frontsKept   = 16 // lanes
	frontsSlack  = 250 * time.Millisecond
	frontsCheap  = 5 * time.Millisecond   // a reading from the beginning that takes no longer is taken always
	frontsShare  = 30                     // of the time, one part in so many
	frontsFelt   = 100 * time.Millisecond // a reading that takes longer is left to LookBack
	frontsNearby = time.Minute            // LookBack looks so far back more often
	frontsAside  = 60                     // one part in so many of the time for each of its two readings
)

// laneView says from where on one claim reads the lanes of ready that are known. It reads others from the beginning.
type laneView struct {
	began  time.Time
	whole  bool // all lanes are read from the beginning
	from   map[int32]front
	behind int32
	turned int
}

func (l laneView) of(lane int32) front { return l.from[lane] }

// view returns where a claim begins to read. Where the deciding clock is moved by hand, times say nothing about order,
// and the claim reads all lanes whole.
func (f *fronts) view(moved bool) laneView {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := laneView{began: time.Now(), from: make(map[int32]front, len(f.of)), behind: f.behind, turned: f.turned}
	l.whole = moved || !f.aside && !l.began.Before(f.next)
	for lane, at := range f.of {
		if l.whole {
			at = front{}
		}
		l.from[lane] = at
	}
	return l
}

// seen says where the first rows of the lanes stood, and behind which lane the next claim walks on; 0 is the beginning.
// A lane that is not among them is closed or empty, and its front stays. So do all where one was moved back meanwhile:
// this claim has not seen what lies there.
func (f *fronts) seen(l laneView, lanes []*openLane, cut int32, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behind = cut
	if took := time.Since(l.began); l.whole && took > frontsCheap {
		f.next = time.Now().Add(frontsShare * took)
		if took > frontsFelt && !f.aside {
			f.aside, f.nearby, f.all = true, time.Now(), time.Now().Add(frontsAside*took)
		}
	}
	if l.turned != f.turned {
		return
	}
	recent := now.Add(-frontsSlack)
	of := map[int32]front{}
	for _, n := range lanes {
		if n.kind == "resume" || len(of) == frontsKept {
			continue
		}
		at := n.front
		for prio, first := range at {
			if first.IsZero() || first.After(recent) {
				at[prio] = recent
			}
		}
		of[n.id] = at
	}
	for lane, at := range f.of {
		if _, has := of[lane]; !has && len(of) < frontsKept {
			of[lane] = at
		}
	}
	f.of = of
}

// LookBack looks for ready rows before where claims begin to read, where claims do not do so themselves. Call it about
// once a second, beside them: it takes a bounded share of the time, however long a look takes, and returns at once when
// none is due. First what became ready in the minute before: that costs the same however old the snapshot is that is
// held.
func (s *Store) LookBack(ctx context.Context) error {
	f := &s.fronts
	f.mu.Lock()
	began := time.Now()
	whole := !began.Before(f.all)
	if !f.aside || !whole && began.Before(f.nearby) {
		f.mu.Unlock()
		return nil
	}
	var lanes []int32
	var from, to [2][]pgtype.Timestamptz
	for lane, at := range f.of {
		lanes = append(lanes, lane)
		for prio, t := range at {
			first := front{t.Add(-frontsNearby)}
			if whole || t.IsZero() {
				first = front{}
			}
			begin, _ := first.args()
			end, _ := front{t}.args()
			from[prio], to[prio] = append(from[prio], begin), append(to[prio], end)
		}
	}
	f.mu.Unlock()

	back := map[int32]front{}
	err := pgx.BeginFunc(ctx, s.Pool(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', '0', true)`); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, lookBackSQL, lanes, from[0], to[0], from[1], to[1])
		if err != nil {
			return err
		}
		var lane int32
		var high, low *time.Time
		_, err = pgx.ForEachRow(rows, []any{&lane, &high, &low}, func() error {
			back[lane] = front{*cmp.Or(high, &time.Time{}), *cmp.Or(low, &time.Time{})}
			return nil
		})
		return err
	})
	f.back(whole, time.Since(began), back, err)
	if len(back) > 0 && s.Ring != nil {
		s.Ring()
	}
	return err
}

// lookBackSQL is led by the key of ready from one time to another, in each lane and prio.
const lookBackSQL = `SELECT b.* FROM (SELECT k.lane,
		(SELECT r.since FROM postern.ready r WHERE r.lane = k.lane AND r.prio = 0 AND r.since >= k.from0 AND r.since < k.to0 ORDER BY r.since LIMIT 1) AS high,
		(SELECT r.since FROM postern.ready r WHERE r.lane = k.lane AND r.prio = 1 AND r.since >= k.from1 AND r.since < k.to1 ORDER BY r.since LIMIT 1) AS low
	FROM ROWS FROM (unnest($1::int[]), unnest($2::timestamptz[]), unnest($3::timestamptz[]), unnest($4::timestamptz[]), unnest($5::timestamptz[])) k(lane, from0, to0, from1, to1)
	) b WHERE high IS NOT NULL OR low IS NOT NULL`

// back notes what a LookBack found, and how long it took. The next claim of each lane begins at the queue that was
// found, and takes it if it is free.
func (f *fronts) back(whole bool, took time.Duration, found map[int32]front, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next := time.Now().Add(frontsAside * took); whole {
		f.all, f.aside = next, err != nil || took > frontsFelt
	} else {
		f.nearby = next
	}
	for lane, first := range found {
		at, known := f.of[lane]
		for prio, t := range first {
			if known && !t.IsZero() && t.Before(at[prio]) {
				at[prio] = t
				f.of[lane] = at
				f.turned++
			}
		}
	}
}
