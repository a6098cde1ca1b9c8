package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/session"
)

// window is how long a stretch is whose rate snapshot tells.
const window = 10 * time.Second

// snapshot measures what becomes of the rate while some session of an application has written and does not end its SQL
// transaction: no row version that has died since can be removed. The same queues are filled and drained in rounds,
// first without such a session.
func snapshot(ctx context.Context, b *Bench) (all []*Result, _ error) {
	for _, shape := range b.Shapes {
		l, err := parseShape(shape)
		if err != nil {
			return all, err
		}
		under := b.underSenders
		if shape != bySenders {
			under = func(ctx context.Context) (*Result, error) { return b.underRounds(ctx, shape, l.keys, l.depth) }
		}
		r, err := under(ctx)
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	return all, nil
}

// bySenders is the shape that needs senders; of the others 1xn stands for rounds of 1,000 in one queue. The
// transactions of one queue in a round are posted together, or with inTurns one by one behind one of each other queue,
// so that its row changes with every transaction.
const (
	bySenders = "senders"
	inTurns   = "-turns"
)

func parseShape(shape string) (l load, err error) {
	m := fifoName.FindStringSubmatch("fifo-" + strings.Replace(strings.TrimSuffix(shape, inTurns), "xn", "x1000", 1))
	if m == nil || m[3] != "" {
		if shape != bySenders {
			err = fmt.Errorf("shape %q: want KEYSxDEPTH, KEYSxDEPTH%s, 1xn or %s", shape, inTurns, bySenders)
		}
		return l, err
	}
	l.keys, _ = strconv.Atoi(m[1])
	l.depth, _ = strconv.Atoi(m[2])
	return l, nil
}

// hold begins an SQL transaction that writes and stays; end it with the function. As a control it does nothing: a
// database that has just been made is faster than it is a minute later with a snapshot or without.
func (b *Bench) hold(ctx context.Context) (func(), error) {
	if b.Control {
		return func() {}, nil
	}
	c, err := session.Connect(ctx, b.url)
	if err != nil {
		return nil, err
	}
	tx, err := c.Begin(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, `INSERT INTO postern_bench.plain (queue, type, data) VALUES ('held', 'held', '{}')`)
	}
	if err != nil {
		c.Close(ctx)
		return nil, err
	}
	return func() {
		ctx := context.WithoutCancel(ctx)
		tx.Rollback(ctx)
		c.Close(ctx)
	}, nil
}

// stretch is a piece of a run: n transactions in a time, ending so long after the transaction began that is held;
// below zero it ended before.
type stretch struct {
	end  time.Duration
	n    int
	took time.Duration
}

// tell says how some stretches went.
func (b *Bench) tell(shape string, list []stretch) {
	n, took, end := 0, time.Duration(0), time.Duration(0)
	for _, s := range list {
		n, took, end = n+s.n, took+s.took, s.end
	}
	when := "nothing held yet"
	if end > 0 {
		when = fmt.Sprintf("held for %s of %s", end.Round(time.Second), b.Hold)
		if b.Control {
			when = fmt.Sprintf("%s of %s, nothing held", end.Round(time.Second), b.Hold)
		}
	}
	b.Progress(fmt.Sprintf("snapshot-%s: %.0f a second, %s", shape, float64(n)/took.Seconds(), when))
}

// windows puts stretches together by when their middle was, from zero on. free is the rate of one window, the last one
// before zero. Stretches before that are left out, since their process has just begun.
func windows(list []stretch) (free float64, points []Point) {
	var n, took []float64
	var freeN, freeTook float64
	for _, s := range list {
		if s.end <= 0 {
			if s.end-s.took/2 < -window {
				continue
			}
			freeN, freeTook = freeN+float64(s.n), freeTook+s.took.Seconds()
			continue
		}
		at := int(max(0, s.end-s.took/2) / window)
		for at >= len(n) {
			n, took = append(n, 0), append(took, 0)
		}
		n[at] += float64(s.n)
		took[at] += s.took.Seconds()
	}
	for i := range n {
		if took[i] > 0 {
			points = append(points, Point{float64(i+1) * window.Seconds(), round(n[i] / took[i])})
		}
	}
	if freeTook > 0 {
		free = round(freeN / freeTook)
	}
	return free, points
}

// held makes the line of a shape. Its runs are the windows while the transaction was held.
func (b *Bench) held(shape string, t *trial, list []stretch) *Result {
	r := b.summary("snapshot-"+shape, "postern", []*trial{t})
	if r.Violations > 0 {
		return r
	}
	free, points := windows(list)
	r.Series, r.Settings["held"], r.Settings["free_rate"] = points, b.Hold.String(), free
	if b.Control {
		r.Settings["held"] = "nothing, for " + b.Hold.String()
	}
	var rates []float64
	for _, p := range points {
		rates = append(rates, p.Rate)
	}
	// at is the rate of the first window that ends then or later: a long round may have left one out
	at := func(second float64) float64 {
		for _, p := range points {
			if p.Second >= second {
				return p.Rate
			}
		}
		return 0
	}
	if len(rates) == 0 {
		return r
	}
	r.Rate, r.RateMin, r.RateMax, r.Runs = round(median(rates)), rates[0], rates[0], len(rates)
	for _, v := range rates {
		r.RateMin, r.RateMax = min(r.RateMin, v), max(r.RateMax, v)
	}
	last := points[len(points)-1]
	for name, q := range map[string][2]float64{"after_60_to_free": {at(60), free}, "after_120_to_after_60": {at(120), at(60)}, "last_to_free": {last.Rate, free}} {
		if q[0] > 0 && q[1] > 0 {
			r.ratio(name, q[0]/q[1])
		}
	}
	b.Progress(fmt.Sprintf("snapshot-%s: %.0f a second before, %.0f in the last %s", shape, free, last.Rate, window))
	return r
}

// underRounds fills the same queues and drains them, again and again, by posts of batches to a process that
// is API and sequencer.
func (b *Bench) underRounds(ctx context.Context, shape string, keys, depth int) (*Result, error) {
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	if err := b.makePlain(ctx); err != nil {
		return nil, err
	}
	p, err := b.launchBoth(ctx)
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	w, err := dial(p.URL, "/transactions:batch")
	if err != nil {
		return nil, err
	}
	defer w.conn.Close()
	looks, err := pg.Connect(ctx, b.url, 1) // by the index, whatever the tables were like when they were analyzed
	if err != nil {
		return nil, err
	}
	defer looks.Close()
	d := &rounds{
		b:     b,
		w:     w,
		looks: looks,
		shape: shape,
		keys:  keys,
		depth: depth,
		name:  b.name(),
		turns: strings.HasSuffix(shape, inTurns),
	}
	defer d.let()
	if err := d.once(ctx); err != nil { // makes the queues
		return nil, err
	}
	m, err := b.meter(ctx, map[string]*Process{RoleBoth: p})
	if err != nil {
		return nil, err
	}
	start := time.Now()
	list, err := d.all(ctx)
	if err != nil {
		return nil, err
	}
	t := &trial{n: keys * (d.posted - depth), took: time.Since(start)}
	if t.cost, err = m.stop(ctx); err != nil {
		return nil, err
	}
	s, err := b.spanOf(ctx, d.name)
	if err != nil {
		return nil, err
	}
	if t.wrong, t.bad, err = b.check(ctx, s, want{stored: keys * d.posted, ended: keys * d.posted, queues: keys, timed: b.local}); err != nil {
		return nil, err
	}
	r := b.held(shape, t, list)
	r.Settings["queues"], r.Settings["depth"] = keys, depth
	return r, nil
}

// launchBoth starts a process that is API and sequencer, and waits until it answers.
func (b *Bench) launchBoth(ctx context.Context) (*Process, error) {
	p, err := b.launch(ctx, RoleBoth)
	if err != nil {
		return nil, err
	}
	if err = p.Go(); err == nil {
		err = ready(ctx, p.URL)
	}
	if err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// rounds are posts that fill the same queues, each round until its transactions have ended.
type rounds struct {
	b           *Bench
	w           *wire
	looks       *pgxpool.Pool
	shape       string
	keys, depth int
	name        string // with which the names of the queues begin
	turns       bool   // one transaction to each queue, then the next to each
	posted      int    // to each queue so far
	queues      []int64
	release     func() // ends the transaction that is held, nil if none is
}

// let ends the transaction that is held, if one is.
func (d *rounds) let() {
	if d.release != nil {
		d.release()
	}
}

// once posts one round, and waits until all of it has ended.
func (d *rounds) once(ctx context.Context) error {
	for left := d.keys * d.depth; left > 0; {
		size := min(left, 1000)
		items := make([]string, size)
		for i := range items {
			k := d.keys*d.depth - left + i
			queue, n := k/d.depth, k%d.depth
			if d.turns {
				queue, n = k%d.keys, k/d.keys
			}
			items[i] = body1(fmt.Sprintf("%s-%d", d.name, queue), d.posted+n)
		}
		left -= size
		if err := d.w.post(`{"items": [` + strings.Join(items, ",") + `]}`); err != nil {
			return err
		}
	}
	if d.queues == nil {
		const all = `SELECT array_agg(queue_id) FROM postern.queue_name WHERE name LIKE $1 || '-%'`
		if err := d.b.pool.QueryRow(ctx, all, d.name).Scan(&d.queues); err != nil {
			return err
		}
	}
	d.posted += d.depth
	return settled(ctx, d.looks, d.queues, d.posted-d.depth, d.keys*d.depth)
}

// all makes rounds, first with nothing held and then while a transaction is held, and says how each went.
func (d *rounds) all(ctx context.Context) (list []stretch, err error) {
	since := 0 // the first that was not told
	told := time.Now()
	begin := told.Add(d.b.Free)
	for held := false; time.Since(begin) < d.b.Hold; {
		if !held && time.Now().After(begin) {
			if d.release, err = d.b.hold(ctx); err != nil {
				return nil, err
			}
			held, begin = true, time.Now()
		}
		began := time.Now()
		if err := d.once(ctx); err != nil {
			return nil, err
		}
		end := time.Since(begin)
		if !held {
			end = min(end, 0)
		}
		list = append(list, stretch{end, d.keys * d.depth, time.Since(began)})
		if time.Since(told) > window {
			d.b.tell(d.shape, list[since:])
			told, since = time.Now(), len(list)
		}
	}
	return list, nil
}

// settled waits until n transactions behind a position have ended. It looks at outcomes alone, which are
// never changed, so that looking costs the same however long the transaction is held; and at all of many queues
// only when a part of them has ended, so that looking is not what is measured.
func settled(ctx context.Context, looks *pgxpool.Pool, queues []int64, after, n int) error {
	if part := (len(queues) + 99) / 100; part > 10 {
		var few []int64
		for i := 0; i < len(queues); i += part {
			few = append(few, queues[i])
		}
		if err := settled(ctx, looks, few, after, n/len(queues)*len(few)); err != nil {
			return err
		}
	}
	for start, wait := time.Now(), 2*time.Millisecond; ; {
		began := time.Now()
		var ended int
		if err := looks.QueryRow(ctx, `SELECT coalesce(sum(n), 0)::bigint FROM unnest($1::bigint[]) q,
				LATERAL (SELECT count(*) AS n FROM postern.outcome o WHERE o.queue_id = q AND o.seq > $2
					AND o.day BETWEEN (now() AT TIME ZONE 'UTC')::date - 1 AND (now() AT TIME ZONE 'UTC')::date) o`, queues, after).Scan(&ended); err != nil {
			return err
		}
		switch {
		case ended >= n:
			return nil
		case time.Since(start) > stuck:
			return fmt.Errorf("%d of %d of a round ended within %s", ended, n, stuck)
		}
		wait = min(max(wait, 10*time.Since(began), 5*time.Millisecond), window/20)
		if ended > 0 {
			wait = min(wait, max(5*time.Millisecond, time.Duration(float64(time.Since(start))/float64(ended)*float64(n-ended)/2)))
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), fmt.Errorf("%d of %d of a round ended", ended, n))
		case <-time.After(wait):
		}
	}
}

// underSenders lets eight senders work on many queues, and counts what ends in each window.
func (b *Bench) underSenders(ctx context.Context) (r *Result, err error) {
	worker := &Nothing{Inclusion: inclusion}
	url, stop, err := serveNothing(worker)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	if err := b.makePlain(ctx); err != nil {
		return nil, err
	}
	err = b.called(ctx, url, 8, func() error {
		s, err := b.fill(ctx, load{keys: b.Waiting, depth: 1})
		if err != nil {
			return err
		}
		p, err := b.launch(ctx, RoleWork)
		if err != nil {
			return err
		}
		defer p.Stop()
		m, err := b.meter(ctx, map[string]*Process{RoleWork: p})
		if err != nil {
			return err
		}
		start := time.Now()
		if err := p.Go(); err != nil {
			return err
		}
		if _, _, err := b.await(ctx, s, 1); err != nil {
			return err
		}
		d := &endings{b: b, s: s}
		if err := d.look(ctx, b.Free, false); err != nil {
			return err
		}
		release, err := b.hold(ctx)
		if err != nil {
			return err
		}
		defer release()
		if err := d.look(ctx, b.Hold, true); err != nil {
			return err
		}
		t := &trial{n: d.before, took: time.Since(start)}
		if t.cost, err = m.stop(ctx); err != nil {
			return err
		}
		if t.wrong, t.bad, err = b.check(ctx, s, want{stored: b.Waiting, ended: -1, timed: b.local}); err != nil {
			return err
		}
		r = b.held(bySenders, t, d.list)
		r.Settings["queues"], r.Settings["senders"], r.Settings["inclusion"] = b.Waiting, 8, inclusion.String()
		return nil
	})
	return r, err
}

// endings are the transactions of some queues that end, counted in windows.
type endings struct {
	b      *Bench
	s      span
	before int // had ended by the last look
	list   []stretch
}

// look counts for a length of time, while a transaction is held or before that.
func (d *endings) look(ctx context.Context, length time.Duration, held bool) error {
	const ended = `SELECT count(*) FROM postern.outcome WHERE queue_id BETWEEN $1 AND $2`
	from := time.Now()
	for began := from; time.Since(from) < length; began = time.Now() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(window, length-time.Since(from))):
		}
		var n int
		if err := d.b.pool.QueryRow(ctx, ended, d.s.first, d.s.last).Scan(&n); err != nil {
			return err
		}
		end := time.Since(from)
		if !held {
			end = min(end-length, 0)
		}
		d.list = append(d.list, stretch{end, n - d.before, time.Since(began)})
		d.b.tell(bySenders, d.list[len(d.list)-1:])
		d.before = n
	}
	return nil
}
