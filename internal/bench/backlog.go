package bench

import (
	"context"
	"fmt"
)

// level is a database that holds more than what is measured.
type level struct {
	name   string
	b      *Bench
	span   span // of what waits, if that is what it is full of
	total  int
	trials []*trial
}

// backlog measures the same work in databases that are full of other things: nothing, what has ended, what
// waits. Each has a database of its own, and their runs alternate.
func backlog(ctx context.Context, b *Bench) (all []*Result, err error) {
	var levels []*level
	var drops []func()
	defer func() {
		for _, drop := range drops {
			drop()
		}
	}()
	add := func(name string, l load) error {
		other, drop, err := b.fork(ctx, fmt.Sprint(len(levels)))
		if err != nil {
			return err
		}
		lv := &level{name: name, b: other}
		levels = append(levels, lv)
		drops = append(drops, drop)
		return lv.fill(ctx, l)
	}
	if err := add("backlog-empty", load{}); err != nil {
		return nil, err
	}
	for _, n := range b.Finished {
		if err := add("backlog-finished-"+count(n), load{keys: max(n/10, 1), depth: 10, finished: true}); err != nil {
			return nil, err
		}
	}
	if b.Behind > 0 {
		if err := add("backlog-waiting-"+count(b.Behind), load{keys: max(b.Behind/10, 1), depth: 10}); err != nil {
			return nil, err
		}
	}
	queues := 60 * b.Queues // so that a run is seconds long, and its beginning a small part of it
	for i := range b.Runs {
		for j := range levels {
			lv := levels[(i+j)%len(levels)]
			t, err := lv.run(ctx, load{keys: queues, depth: b.Depth}, lv == levels[0])
			if err != nil {
				return nil, err
			}
			b.told(lv.name, i, t)
			lv.trials = append(lv.trials, t)
		}
	}
	for _, lv := range levels {
		r := lv.b.summary(lv.name, "postern", lv.trials)
		r.Settings["queues"], r.Settings["depth"] = queues, b.Depth
		if lv != levels[0] {
			r.compare("to_empty", lv.trials, levels[0].trials, (*trial).rate)
		}
		all = append(all, r)
	}
	return all, nil
}

// fill fills the database of a level, in pieces, so that each fits into memory.
func (lv *level) fill(ctx context.Context, l load) error {
	for left := l.keys; left > 0; {
		part := l
		part.keys = min(left, 100000)
		left -= part.keys
		s, err := lv.b.fill(ctx, part)
		if err != nil {
			return err
		}
		if lv.span.first == 0 {
			lv.span.first = s.first
		}
		lv.span.last = s.last
		lv.total += part.total()
	}
	if l.finished {
		lv.total = 0
	}
	return lv.b.calm(ctx)
}

// run measures once the work on so much: on a part of what waits there, or on l, which is filled then. A level that
// stays empty is emptied before.
func (lv *level) run(ctx context.Context, l load, empty bool) (*trial, error) {
	s, total := lv.span, lv.total
	if empty {
		if err := lv.b.reset(ctx); err != nil {
			return nil, err
		}
	}
	if total == 0 {
		var err error
		if s, err = lv.b.fill(ctx, l); err != nil {
			return nil, err
		}
		total = l.total()
	}
	if err := lv.b.calm(ctx); err != nil {
		return nil, err
	}
	t, err := lv.b.work(ctx, s, total, min(l.total(), total), 1)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", lv.name, err)
	}
	return t, nil
}

// replicas measures 1, 2 and 4 sequencers on the same queues, in turns.
func replicas(ctx context.Context, b *Bench) (all []*Result, err error) {
	many := []int{1, 2, 4}
	trials := map[int][]*trial{}
	l := load{keys: 10 * b.Queues, depth: b.Depth}
	for i := range b.Runs {
		for j := range many {
			k := many[(i+j)%len(many)]
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
			t, err := b.work(ctx, s, l.total(), l.total(), k)
			if err != nil {
				return nil, err
			}
			b.told(fmt.Sprintf("replicas-%d", k), i, t)
			trials[k] = append(trials[k], t)
		}
	}
	for _, k := range many {
		r := b.summary(fmt.Sprintf("replicas-%d", k), "postern", trials[k])
		r.Settings["queues"], r.Settings["depth"], r.Settings["processes"] = l.keys, l.depth, k
		if k > 1 {
			r.compare("to_one", trials[k], trials[1], (*trial).rate)
		}
		all = append(all, r)
	}
	return all, nil
}
