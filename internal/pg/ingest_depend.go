package pg

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// fate is what dependencies mean for a transaction that is being posted.
type fate int

const (
	free   fate = iota // it has none, or all are DONE
	held               // one is open: it keeps its place and does not go out
	doomed             // one ended otherwise: it is FAILED at once
)

// dependencies are those of the submissions of one commit. A reference is to what was posted before, or to
// another submission of the same commit, also to a later one.
//
// Why none is missed: the queues of what is depended on are locked together with those that are posted to,
// so that its end either is seen here or sees our mark.
//
// A transaction that was moved to another queue is read there. A move holds the locks of both queues until its commit,
// so that behind ours each place is the last one, or says where the next one is: then all begins again, with the locks
// of the queue that it is in by then.
type dependencies struct {
	s       *Store
	subs    []*Submission
	refs    map[int][]*reference
	uids    map[taskKey]int // of this commit
	refused map[int]error
	placed  map[int]outbox.ID
	later   map[int]bool // put off to a later commit, with what they depend on
	changed bool         // something was refused after somebody who depends on it was placed: decide again
	moved   bool         // some of refs were not where they were looked for

	fates    map[int]fate // found so far: a diamond is walked once
	refusals map[int]error
}

type reference struct {
	text    string
	id      outbox.ID
	sub     int // of this commit, -1 = posted before
	state   outbox.State
	found   bool
	watched bool
}

func (d *dependencies) Error() string { return "what a transaction depends on was refused" }

// Mend follows what was moved, through all queues that it was in.
func (d *dependencies) Mend(ctx context.Context) error {
	for d.moved {
		b := &pgx.Batch{}
		d.load(b)
		if err := d.s.Db(ctx).SendBatch(ctx, b).Close(); err != nil {
			return db.Known(err)
		}
	}
	return nil
}

// Elsewhere is false: nothing is left to do.
func (d *dependencies) Elsewhere() bool { return false }

// dependencies finds what submissions depend on, before anything is locked, and refuses cycles: only
// submissions of one commit can make one, as nothing posted before depends on what is new.
func (s *Store) dependencies(ctx context.Context, subs []*Submission) (*dependencies, error) {
	if !slices.ContainsFunc(subs, func(sub *Submission) bool { return len(sub.DependsOn) > 0 }) {
		return nil, nil
	}
	d := &dependencies{s: s, subs: subs, refs: map[int][]*reference{}, uids: map[taskKey]int{}, refused: map[int]error{}, placed: map[int]outbox.ID{},
		later: map[int]bool{}, fates: map[int]fate{}, refusals: map[int]error{}}
	for i, sub := range subs {
		if _, twice := d.uids[taskKey{sub.ContextID, sub.UID}]; sub.UID != "" && !twice {
			d.uids[taskKey{sub.ContextID, sub.UID}] = i
		}
	}
	b := &pgx.Batch{}
	for i, sub := range subs {
		for _, text := range sub.DependsOn {
			r := &reference{text: text, sub: -1}
			d.refs[i] = append(d.refs[i], r)
			if id, err := outbox.ParseID(text); err == nil {
				r.id, r.found = id, true
				continue
			}
			if j, ok := d.uids[taskKey{sub.ContextID, text}]; ok {
				r.sub = j
			}
			b.Queue(`SELECT i.queue_id, i.seq, i.day - '1970-01-01', i.salt FROM postern.idempotency i
				WHERE (i.context_id, i.key) = ($1, $2)`, sub.ContextID, text).Query(func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&r.id.Queue, &r.id.Seq, &r.id.Day, &r.id.Salt}, func() error {
					r.found, r.sub = true, -1
					return nil
				})
				return err
			})
		}
	}
	if b.Len() > 0 {
		if err := s.Db(ctx).SendBatch(ctx, b).Close(); err != nil {
			return nil, db.Known(err)
		}
	}
	d.cycles()
	return d, nil
}

// on says whether something of this commit depends on what was posted before, and whether the i-th submission does.
func (d *dependencies) on(id outbox.ID, i int) (some, this bool) {
	if d == nil {
		return false, false
	}
	for j, refs := range d.refs {
		if slices.ContainsFunc(refs, func(r *reference) bool { return r.id.Queue == id.Queue && r.id.Seq == id.Seq }) {
			some, this = true, this || i == j
		}
	}
	return some, this
}

// cycles refuses the submissions that wait for themselves, over dependencies and over places in a queue.
func (d *dependencies) cycles() {
	last := map[nameKey]int{}
	before := map[int]int{} // the one in front of it in its queue, of this commit
	for i, sub := range d.subs {
		if sub.Queue == "" {
			continue
		}
		if j, ok := last[nameKey{sub.ContextID, sub.Queue}]; ok {
			before[i] = j
		}
		last[nameKey{sub.ContextID, sub.Queue}] = i
	}
	state := map[int]int{} // 1 = on the path, 2 = done
	var path []int
	var walk func(i int)
	walk = func(i int) {
		switch state[i] {
		case 1:
			d.cycle(path[slices.Index(path, i):])
			return
		case 2:
			return
		}
		state[i] = 1
		path = append(path, i)
		for _, r := range d.refs[i] {
			if r.sub >= 0 {
				walk(r.sub)
			}
		}
		if j, ok := before[i]; ok {
			walk(j)
		}
		path = path[:len(path)-1]
		state[i] = 2
	}
	for i := range d.subs {
		walk(i)
	}
}

func (d *dependencies) cycle(path []int) {
	var names []string
	for _, i := range append(path, path[0]) {
		names = append(names, d.name(i))
	}
	for at, i := range path {
		if d.refused[i] != nil || !slices.ContainsFunc(d.refs[i], func(r *reference) bool { return r.sub == path[(at+1)%len(path)] }) {
			continue // it only stands behind the next one
		}
		d.refused[i] = fault.New(fault.Invalid, "dependency_cycle", "depends_on makes a cycle, so that none of these could ever go out: %s", fault.Clip(strings.Join(names, " -> "))).
			About("/depends_on").With("cycle", names)
	}
}

// name is what a client calls a submission.
func (d *dependencies) name(i int) string {
	if uid := d.subs[i].UID; uid != "" {
		return uid
	}
	return fmt.Sprintf("item %d", i)
}

// queues adds those of what is depended on.
func (d *dependencies) queues(ids []int64) []int64 {
	for _, list := range d.refs {
		for _, r := range list {
			if r.found && !slices.Contains(ids, r.id.Queue) {
				ids = append(ids, r.id.Queue)
			}
		}
	}
	return ids
}

// load reads, behind the locks, how it stands with what is depended on, and takes one step after what was moved.
func (d *dependencies) load(b *pgx.Batch) {
	d.changed, d.moved = false, false
	clear(d.placed)
	clear(d.fates)
	clear(d.refusals)
	for i, list := range d.refs {
		for _, r := range list {
			if !r.found {
				continue
			}
			r.state = "" // no such transaction
			// lateral: as a condition, a plan that was made while there were few marks reads all of them
			b.Queue(`SELECT coalesce(o.state, 'WAITING'), m.seq IS NOT NULL,
					CASE WHEN o.error_code = '`+codeMoved+`' THEN o.result->>'moved_to' END
				FROM postern.task t LEFT JOIN postern.outcome o ON (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day)
				LEFT JOIN LATERAL (SELECT seq FROM postern.mark WHERE (queue_id, seq, kind) = (t.queue_id, t.seq, 'watched') LIMIT 1) m ON true
				WHERE (t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from), t.context_id) = ($1, $2, $3, $4, $5)`, r.id.Queue, r.id.Seq, r.id.Day.Time(), r.id.Salt, d.subs[i].ContextID).
				Query(func(rows pgx.Rows) error {
					var to *string
					_, err := pgx.ForEachRow(rows, []any{&r.state, &r.watched, &to}, func() (err error) {
						if to != nil {
							d.moved = true
							r.id, err = outbox.ParseID(*to)
						}
						return err
					})
					return err
				})
		}
	}
}

// refusal says why a submission is refused for what it depends on.
func (d *dependencies) refusal(i int) error {
	if d == nil {
		return nil
	}
	if err := d.refused[i]; err != nil {
		return err
	}
	if err, known := d.refusals[i]; known {
		return err
	}
	err := d.refuse(i)
	d.refusals[i] = err
	return err
}

func (d *dependencies) refuse(i int) error {
	for _, r := range d.refs[i] {
		switch {
		case r.found && r.state == "", !r.found && r.sub < 0:
			return fault.New(fault.Invalid, "unknown_dependency", "depends_on names %q, which is neither the id nor the uid of a transaction here: post that one first", fault.Clip(r.text)).
				About("/depends_on")
		case r.sub >= 0:
			if err := d.refusal(r.sub); err != nil {
				return fault.New(fault.Invalid, "unknown_dependency", "depends_on names %q, which was refused itself: %v", fault.Clip(r.text), err).About("/depends_on")
			}
		}
	}
	return nil
}

// fateOf says what the dependencies of a submission mean for it. Those of this commit are open, unless they
// fail at once themselves.
func (d *dependencies) fateOf(i int) fate {
	if d == nil {
		return free
	}
	f, known := d.fates[i]
	if known {
		return f
	}
	for _, r := range d.refs[i] {
		switch {
		case r.sub >= 0:
			f = max(f, held, d.fateOf(r.sub))
		case r.state == outbox.DONE:
		case r.state.Terminal():
			f = doomed
		case twin.Planted("start_on_any"):
		default:
			f = max(f, held)
		}
	}
	d.fates[i] = f
	return f
}

// hold gives what cannot go out its mark, or its outcome.
func (in *ingest) hold(q *QueueRow, t *Task, f fate, idle bool) {
	t.Held = true
	if f == doomed {
		in.e.failed(t, "it depends on a transaction that did not end DONE")
		in.e.pauseAfterFailure(q)
		if idle {
			q.Head, q.HeadDay = q.Tail+1, q.TailDay
			if !q.Named {
				in.e.inserted = slices.DeleteFunc(in.e.inserted, func(x *QueueRow) bool { return x == q })
			}
			return
		}
	}
	in.e.marks = append(in.e.marks, markRow{Queue: q.ID, Seq: t.ID.Seq, Kind: "held"})
	q.Marks++
}

// depend links the dependents that were placed to what they depend on, and marks that as watched.
func (in *ingest) depend() {
	d := in.deps
	if d == nil {
		return
	}
	watched := map[position]bool{}
	for i := range d.subs {
		who, ok := d.placed[i]
		if !ok {
			continue
		}
		for _, r := range d.refs[i] {
			on := r.id
			if r.sub >= 0 {
				on = d.placed[r.sub]
			}
			in.e.depends = append(in.e.depends, dependencyRow{who, on})
			if p := positionOf(on); !r.state.Terminal() && !r.watched && !watched[p] && (r.sub < 0 || d.fateOf(r.sub) != doomed) {
				watched[p] = true
				in.watch(on)
			}
		}
	}
}

func (in *ingest) watch(id outbox.ID) {
	q := in.queues[id.Queue]
	if i := slices.IndexFunc(in.e.inserted, func(q *QueueRow) bool { return q.ID == id.Queue }); i >= 0 {
		q = in.e.inserted[i]
	} else {
		in.e.save(q)
	}
	in.e.marks = append(in.e.marks, markRow{Queue: id.Queue, Seq: id.Seq, Kind: "watched"})
	q.Marks++
}

// lateRefusal looks whether somebody was placed who depends on what was refused or put off after it; then
// everything is decided again, with that known.
func (in *ingest) lateRefusal() {
	d := in.deps
	if d == nil {
		return
	}
	for i := range d.placed {
		for _, r := range d.refs[i] {
			if r.sub < 0 {
				continue
			}
			if _, ok := d.placed[r.sub]; ok {
				continue
			}
			switch out := in.out[r.sub]; {
			case out.Err != nil:
				d.refused[r.sub], d.changed = out.Err, true
			case out.Replay: // it came into being between our look and our locks
				d.changed, r.sub, r.id, r.found = true, -1, out.ID, true
			default: // it waits for room in a later commit
				d.later[i], d.changed = true, true
			}
		}
	}
}
