package pg

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/sequencer"
	"github.com/postern-dev/postern/internal/twin"
)

type settlement struct {
	s          *Store
	e          *effects
	answers    []*Answer
	out        []Settled
	queues     map[int64]*QueueRow
	read       bodies
	next       map[position]*Task // behind what ends
	watched    map[position]bool  // others depend on it
	deps       *reach             // whom its end gets to, if it is settled by itself, since others depend on it
	cancelling map[position]bool  // somebody asked to cancel what ends, perhaps after the lease was read
	suspended  map[position]bool  // it may not go out
	ended      map[position]bool  // has an outcome already
}

// position names a transaction by its queue and its place there. A group may hold two answers of one queue, a late one
// beside the one that counts, and what comes next differs.
type position struct{ queue, seq int64 }

func positionOf(id outbox.ID) position { return position{id.Queue, id.Seq} }

func (st *settlement) load(ctx context.Context, t *db.Txn) error {
	st.read, st.ended = bodies{}, map[position]bool{}
	st.cancelling, st.suspended, st.watched = map[position]bool{}, map[position]bool{}, map[position]bool{}
	var ids, on, onSeqs []int64
	var onDays []time.Time
	var behind []stretch
	var to outbox.Day
	for _, a := range st.answers {
		l, id := a.Lease, a.Lease.ID()
		ids = append(ids, id.Queue)
		switch {
		case a.Step.Then == sequencer.ThenEnd && len(l.ahead) > 0:
			st.next[positionOf(id)] = l.ahead[0]
		case a.Step.Then == sequencer.ThenEnd && l.tail > id.Seq:
			// Our clock bounds the day. lookAgain finds a transaction that this misses.
			behind, to = append(behind, stretch{id.Queue, id.Seq + 1, min(l.tail, id.Seq+readAhead), id.Day}), max(to, outbox.DayOf(l.Now()))
		case a.Step.Then == sequencer.ThenEnd: // the last, as far as it is known
		default:
			on, onSeqs, onDays = append(on, id.Queue), append(onSeqs, id.Seq), append(onDays, id.Day.Time())
		}
	}
	b := &pgx.Batch{}
	if st.deps != nil {
		ids = st.deps.queues(ids...)
	}
	lockAll(b, ids, st.queues)
	st.s.nextTasks(b, behind, to, st.read.add)
	if len(on) > 0 { // in a lazy run the row cannot tell that a position has ended; an end is refused by its key
		b.Queue(`SELECT o.queue_id, o.seq FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::date[])) n(queue_id, seq, day)
			JOIN postern.outcome o USING (queue_id, seq, day)`, on, onSeqs, onDays).Query(func(rows pgx.Rows) error {
			var p position
			_, err := pgx.ForEachRow(rows, []any{&p.queue, &p.seq}, func() error { st.ended[p] = true; return nil })
			return err
		})
	}
	st.s.ReadNow(b, &st.e.now)
	if err := t.Send(ctx, b); err != nil {
		return err
	}
	if st.deps != nil {
		if err := st.deps.behind(ctx, st.s, t, st.queues); err != nil {
			return err
		}
	}
	b = &pgx.Batch{}
	if st.lookAgain(b); b.Len() > 0 {
		if err := t.Send(ctx, b); err != nil {
			return err
		}
	}
	if err := st.loadMarked(ctx, t); err != nil {
		return err
	}
	for _, a := range st.answers {
		if a.found != nil {
			st.adopt(a)
		}
	}
	return nil
}

// lookAgain finds what comes after the ends whose lease did not know: their queues have grown since, which their
// rows say under the lock.
func (st *settlement) lookAgain(b *pgx.Batch) {
	var behind []stretch
	var to outbox.Day
	for _, a := range st.answers {
		id := a.Lease.ID()
		q := st.queues[id.Queue]
		if a.Step.Then != sequencer.ThenEnd || st.next[positionOf(id)] != nil || q == nil || q.Marks > 0 ||
			q.Tail <= id.Seq || twin.Planted("idle_by_not_exists") {
			continue
		}
		if st.next[positionOf(id)] = st.read[position{id.Queue, id.Seq + 1}]; st.next[positionOf(id)] == nil {
			behind, to = append(behind, stretch{id.Queue, id.Seq + 1, min(q.Tail, id.Seq+readAhead), id.Day}), max(to, q.TailDay)
		}
	}
	st.s.nextTasks(b, behind, to, func(t *Task) {
		st.read.add(t)
		st.next[position{t.ID.Queue, t.ID.Seq - 1}] = t
	})
}

// loadMarked reads, in queues with marks, which transaction comes next, and what marks say of the one that ends.
func (st *settlement) loadMarked(ctx context.Context, t *db.Txn) error {
	b := &pgx.Batch{}
	for _, a := range st.answers {
		id := a.Lease.ID()
		if q := st.queues[id.Queue]; q != nil && q.Marks > 0 && a.Step.Then != sequencer.ThenWait && a.Step.Then != sequencer.ThenAsk &&
			a.Step.Then != sequencer.ThenHold {
			if a.Step.Then == sequencer.ThenEnd {
				delete(st.next, positionOf(id))
				nextUnsettled(b, q, append(st.deps.except(id.Queue), id.Seq), func(t *Task) { st.next[positionOf(id)] = t })
			}
			b.Queue(`SELECT kind FROM postern.mark WHERE (queue_id, seq) = ($1, $2)`, id.Queue, id.Seq).Query(func(rows pgx.Rows) error {
				var kind string
				_, err := pgx.ForEachRow(rows, []any{&kind}, func() error {
					st.cancelling[positionOf(id)] = st.cancelling[positionOf(id)] || kind == "cancelling"
					st.suspended[positionOf(id)] = st.suspended[positionOf(id)] || kind == "suspended"
					st.watched[positionOf(id)] = st.watched[positionOf(id)] || kind == "watched"
					return nil
				})
				return err
			})
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return t.Send(ctx, b)
}

// holds says whether the lease is still the queue's: its owner has not changed, and its position has not moved on.
func (q *QueueRow) holds(l *Lease) bool {
	return q != nil && (q.Fence == l.Fence || twin.Planted("no_fence")) && q.Phase == l.Phase && q.Cur != 0 && q.Cur <= l.Task.ID.Seq &&
		q.Attempt == l.Attempt && q.Head <= l.Task.ID.Seq
}

// holds says whether an answer still counts.
func (st *settlement) holds(a *Answer) bool {
	id := a.Lease.ID()
	return st.queues[id.Queue].holds(a.Lease) && !st.ended[positionOf(id)]
}

// gap says that an answer ends what has something behind it whose body is not there: its queue must not look empty.
func (st *settlement) gap(a *Answer) *bodyMissing {
	id := a.Lease.ID()
	if twin.Planted("idle_by_not_exists") {
		return nil
	}
	if q := st.queues[id.Queue]; a.Step.Then == sequencer.ThenEnd && q.holds(a.Lease) && q.Marks == 0 && q.Tail > id.Seq && st.next[positionOf(id)] == nil {
		return &bodyMissing{s: st.s, queue: id.Queue, seq: id.Seq + 1}
	}
	return nil
}

// answer puts one answer into the commit: as late, where its lease holds the queue no longer, else as its step says.
func (st *settlement) answer(i int, a *Answer) error {
	q, l, step := st.queues[a.Lease.ID().Queue], a.Lease, a.Step
	if !st.holds(a) {
		st.out[i].Fenced = true
		if step.Answered || step.KeepHash || step.State.Terminal() {
			st.e.attempts = append(st.e.attempts, st.attempt(a, "late"))
		}
		return nil
	}
	before := *q
	st.gate(q, a)
	q.heard(a, st.e.now)
	if a.Unclear != nil {
		st.e.attempts = append(st.e.attempts, st.unclear(a))
	}
	// Answered and kept: an attempt that does not end the transaction has its row (I7).
	if step.KeepHash || step.Answered && !step.State.Terminal() {
		name := "dispatch"
		if l.Phase != outbox.PhaseDispatching {
			name = "inclusion"
		}
		st.e.attempts = append(st.e.attempts, st.attempt(a, name))
	}
	var err error
	switch step.Then {
	case sequencer.ThenEnd:
		err = st.end(i, q, a)
	case sequencer.ThenCall:
		if st.cancelling[positionOf(l.ID())] && !l.Cancelling && l.Phase != outbox.PhaseDispatching {
			st.reconsider(q) // a cancel was accepted while its worker was asked
		} else if st.suspended[positionOf(l.ID())] {
			st.park(q)
		} else if st.s.Quarantined(q.Context, l.Task.Type) {
			q.at(l.Task)
			st.reconsider(q)
		} else {
			st.call(i, q, a)
		}
	case sequencer.ThenWait, sequencer.ThenAsk:
		st.wait(q, a)
	case sequencer.ThenHold:
		st.hold(q, a)
	case sequencer.ThenBack:
		err = st.back(q, a)
	}
	if err == nil && *q != before {
		st.e.keep(q)
	}
	return err
}

// unclear is the row of a call whose answer did not say what was done, so that its token was asked about.
func (st *settlement) unclear(a *Answer) *attemptRow {
	u, row := a.Unclear, st.attempt(a, "unknown")
	row.Hash, row.Nonce, row.Data, row.Members, row.StartedAt = "", "", nil, nil, u.StartedAt
	row.Class, row.Code, row.Error = string(outbox.ClassAmbiguous), u.Code, u.Message
	row.NothingDone, row.Doubted = false, u.Told
	if row.At = u.StartedAt.Add(u.Elapsed); !row.At.Before(st.e.now) { // before what the question brought
		row.At = st.e.now.Add(-time.Microsecond)
	}
	return row
}

// end records the outcome and goes on with the queue.
func (st *settlement) end(i int, q *QueueRow, a *Answer) error {
	l, step := a.Lease, a.Step
	o := st.outcome(q, a)
	if l.Dispatcher.HasHooks() {
		o.Hook = step.Hook
	}
	st.e.outcomes = append(st.e.outcomes, o)
	if q.PauseOnFailure && (step.State == outbox.FAILED || step.State == outbox.UNRESOLVED) {
		q.Paused = true
	}
	next := st.next[positionOf(l.ID())]
	// The row must be true of the next transaction, too, but for the position.
	lazy := q.Marks == 0 && l.Attempt == 1 && l.Retries == 0 && q.Fee == "" && q.Blocked.IsZero() && !a.Yield
	st.blame(q, a)
	if d := st.follows(q, a, next); d != nil {
		lazy = lazy && (q.Pin == 0 || q.Pin == next.SenderID)
		if !lazy {
			q.turn(next)
			q.Cur, q.Next = next.ID.Seq, 0
			q.Attempt, q.Retries, q.Fee, q.Blocked = 1, 0, "", zeroTime
			q.EnteredAt = later(st.e.now, q.EnteredAt)
			q.Pin = next.SenderID
		}
		n := *l
		n.Dispatcher, n.Blames = d, st.e.view.blames(q.Sender)
		n.Task, n.Attempt, n.Retries, n.Fee, n.Since = next, 1, 0, d.Fee.Initial, st.e.now
		n.ReadAt, n.got = st.e.now, time.Now()
		n.Resume, n.Resent, n.Probe, n.ProbeSender, n.Cancelling, n.Earlier = false, false, false, false, false, nil
		n.Blocked = zeroTime
		n.tail, n.ahead = q.Tail, nil
		if len(l.ahead) > 1 && l.ahead[0] == next {
			n.ahead = l.ahead[1:]
		} else if q.Marks == 0 {
			n.ahead = st.read.run(next.ID)
		}
		row := *q
		n.row = &row
		st.out[i].Next = &n
		return nil
	}
	st.e.leave(q)
	st.e.free(q, a.Result.Nonce, step.BlockSender)
	return st.e.rest(q, next, true)
}

// follows returns the dispatcher by which the next of the queue goes out under the same lease, as its settings are now;
// nil if it does not: it needs other things, or something holds it. A sender whose settings have changed since the
// lease read them is read anew by the next claim.
func (st *settlement) follows(q *QueueRow, a *Answer, next *Task) *Dispatcher {
	if next == nil || !a.Continue {
		return nil
	}
	l, d := a.Lease, st.e.view.dispatcherOf(q.Context, next.Type)
	if d != nil && d.ID == l.Dispatcher.ID && !d.Paused && !d.Removed && !st.s.Quarantined(q.Context, next.Type) &&
		(d.Exclusive == "" || d.Exclusive == "none") && st.e.view.versions[q.Sender] <= l.senderVersion &&
		!q.Paused && !next.Held && st.e.view.maySend(q, d, next) && l.Phase == outbox.PhaseDispatching && q.Node != 0 &&
		(next.SenderID == 0 || next.SenderID == q.Sender) && !next.NotBefore.After(st.e.now) {
		return d
	}
	return nil
}

// at writes into the row which position of a lazy run is in flight; with marks it is there.
func (q *QueueRow) at(t *Task) {
	if q.Marks == 0 {
		q.Head, q.HeadDay, q.Cur = t.ID.Seq, t.ID.Day, t.ID.Seq
	}
}

// call goes on with the same transaction under the same owner: a resend, or the next attempt. It goes by the settings
// that its type has now.
func (st *settlement) call(i int, q *QueueRow, a *Answer) {
	l, step := a.Lease, a.Step
	if step.Phase != q.Phase {
		st.e.leave(q)
		st.e.enter(q, step.Phase)
	} else { // sent again: the call that begins now has the whole of its time
		q.EnteredAt = later(st.e.now, q.EnteredAt)
	}
	q.at(l.Task)
	q.pin(l.Task, step, q.Sender)
	q.Attempt, q.Retries, q.Fee, q.NotBefore = step.Attempt, step.Retries, step.Fee, zeroTime
	n := *l
	if d := st.e.view.dispatcherOf(q.Context, l.Task.Type); d != nil {
		n.Dispatcher = d
	}
	n.Resent, n.Blocked = step.Attempt == l.Attempt, q.Blocked
	n.row = nil
	n.Phase, n.Attempt, n.Retries, n.Fee, n.Resume, n.Since = q.Phase, q.Attempt, q.Retries, q.Fee, false, q.EnteredAt
	n.ReadAt, n.got = st.e.now, time.Now()
	st.out[i].Next = &n
}

// reconsider gives the queue to the next process that takes its timer, which is due: the decision did not know of a
// cancel that has been accepted since, or of the quarantine.
func (st *settlement) reconsider(q *QueueRow) {
	q.Node, q.NodeEpoch = 0, 0
	st.e.timerSet[q.ID] = st.e.now
}

// wait gives the queue up until its timer is due. Its sender stays bound.
func (st *settlement) wait(q *QueueRow, a *Answer) {
	l, step := a.Lease, a.Step
	st.e.leave(q)
	st.blame(q, a)
	q.Node, q.NodeEpoch = 0, 0
	q.at(l.Task)
	q.Attempt, q.Retries = step.Attempt, step.Retries
	if step.Fee != "" {
		q.Fee = step.Fee
	}
	switch {
	case step.Phase != q.Phase && step.Phase == outbox.PhaseWaitingInclusion && q.Phase == outbox.PhaseDispatching:
		st.e.enter(q, outbox.PhaseInclusion)
		st.e.enter(q, step.Phase)
	case step.Phase != q.Phase && step.Phase == outbox.PhaseDelay:
		st.e.enter(q, outbox.PhaseRetry)
		st.e.enter(q, step.Phase)
	case step.Phase != q.Phase:
		st.e.enter(q, step.Phase)
	}
	q.NotBefore = st.e.now.Add(step.Delay)
	if step.Phase == outbox.PhaseDispatching || a.Lease.Cancelling && step.Phase == outbox.PhaseDelay {
		q.NotBefore = zeroTime
	}
	st.e.timerSet[q.ID] = st.e.now.Add(step.Delay)
	if len(step.Events) > 0 && slices.Contains(asking, step.Events[0]) {
		st.e.timerSaid[q.ID] = step.Message
	}
}

// asking are the events after which a worker is asked again, since it did not tell what is to be known.
var asking = []sequencer.Event{sequencer.StatusUnreachable, sequencer.DelayElapsed, sequencer.Cancel}

// back makes the transaction wait in its lane again (rows 5 and 17). A queue that is blocked alone is HELD until its
// next try, so that its lane stays open for others. Where the answer closes the gate, that keeps the lane shut, and the
// queue stands in it: it is free to go as soon as a probe of another has got through.
func (st *settlement) back(q *QueueRow, a *Answer) error {
	l, step := a.Lease, a.Step
	st.e.leave(q)
	sender := q.Sender
	st.e.free(q, a.Result.Nonce, step.BlockSender)
	if step.Attempt != q.Attempt { // row 17: the next attempt has a fee of its own
		q.Fee = step.Fee
	}
	q.pin(l.Task, step, sender)
	q.Attempt, q.Retries = step.Attempt, step.Retries
	task := *l.Task
	task.Held = st.suspended[positionOf(l.ID())]
	if step.Blocks != "" && a.Gate != sequencer.MoveClose { // the others go on: this one waits by itself
		for _, at := range []time.Time{st.e.now.Add(step.Delay), step.Until} {
			if at.After(task.NotBefore) {
				task.NotBefore = at
			}
		}
	}
	return st.e.rest(q, &task, false)
}

// pin keeps who alone may send the transaction (S2.9). The pin is there for a token: the next attempt has another one.
func (q *QueueRow) pin(t *Task, step sequencer.Step, sender int32) {
	if step.Attempt != q.Attempt {
		q.Pin = t.SenderID
	}
	if step.PinSender {
		q.Pin = sender
	}
}

func (st *settlement) attempt(a *Answer, step string) *attemptRow {
	l := a.Lease
	row := &attemptRow{ID: l.ID(), Attempt: l.Attempt, Fence: l.Fence, Step: step, Sender: l.SenderID, Fee: l.Fee, Nonce: a.Result.Nonce,
		Hash: a.Result.Hash, Data: a.Result.Data, Members: a.Result.Members,
		Class: string(a.Step.Class), Code: a.Step.Code, Error: a.Step.Message,
		NothingDone: a.Step.NothingDone, Doubted: a.Step.Doubted, StartedAt: a.StartedAt}
	if q := st.queues[l.ID().Queue]; q != nil && step != "late" {
		row.Node = q.Node
	}
	if a.found != nil && step == "late" {
		row.Fence = a.found.Fence // the one that its question began under: no row has had a later one of it
	}
	if row.Fee == "" {
		row.Fee = a.Result.Fee
	}
	return row
}

func (st *settlement) outcome(q *QueueRow, a *Answer) *outcomeRow {
	l, step := a.Lease, a.Step
	o := &outcomeRow{ID: l.ID(), Callback: l.Task.Callback, Type: l.Task.Type, Context: q.Context, Was: l.Phase.Transaction(), State: step.State, Class: string(step.Class), Code: step.Code,
		Error: step.Message, Attempt: l.Attempt, Retries: step.Retries, Fence: l.Fence, Sender: q.Sender, Node: q.Node, Fee: l.Fee,
		Nonce: a.Result.Nonce, Hash: a.Result.Hash, Height: a.BlockHeight, StartedAt: a.StartedAt, Result: resultJSON(a)}
	o.Members = lastMembers(a)
	if o.Fee == "" {
		o.Fee = a.Result.Fee
	}
	if l.Phase == outbox.PhaseDispatching && step.State == outbox.DONE {
		o.SubmittedAt = st.e.now // submitted and done in one answer
	}
	for _, p := range l.Earlier { // newest first
		if p.Hash != "" {
			o.SubmittedAt = p.AnsweredAt
			if o.Hash == "" {
				o.Hash, o.Nonce = p.Hash, p.Nonce
			} else if o.Nonce == "" && o.Hash == p.Hash { // the answer about a hash need not repeat it
				o.Nonce = p.Nonce
			}
		}
		if p.Class != "" && o.RetriedAt.IsZero() && p.Step != "late" && p.Step != "unknown" {
			o.RetriedAt = p.AnsweredAt
		}
		if o.Fee == "" {
			o.Fee = p.Fee
		}
		if o.StartedAt.IsZero() && p.StartedAt != nil {
			o.StartedAt = *p.StartedAt
		}
	}
	if twin.Planted("nonce_without_row") {
		o.Nonce = ""
	}
	if o.State == outbox.FAILED && twin.Planted("failure_is_done") {
		o.State = outbox.DONE
	}
	return o
}

// lastMembers is what the worker answered beside hash, done and data: in this answer, else in the newest one before it,
// whose error is not that of this end.
func lastMembers(a *Answer) json.RawMessage {
	if len(a.Result.Members) > 0 {
		return a.Result.Members
	}
	for _, p := range a.Lease.Earlier {
		if len(p.Members) == 0 {
			continue
		}
		var all map[string]json.RawMessage
		if json.Unmarshal(p.Members, &all) != nil {
			return nil
		}
		if delete(all, "error"); len(all) == 0 {
			return nil
		}
		kept, err := json.Marshal(all)
		if err != nil {
			return nil
		}
		return kept
	}
	return nil
}

// resultJSON is what a reader of the transaction sees as its result: the worker's done and data, with
// the hash under which it was submitted.
func resultJSON(a *Answer) json.RawMessage {
	r := a.Result
	if r.Hash == "" {
		if hashes := a.Lease.Hashes(); len(hashes) > 0 {
			r.Hash = hashes[0]
		}
	}
	if len(r.Data) == 0 {
		for _, p := range a.Lease.Earlier {
			if len(p.Data) > 0 {
				r.Data = p.Data
				break
			}
		}
	}
	if r.Hash == "" && len(r.Done) == 0 && len(r.Data) == 0 {
		return nil
	}
	b, err := json.Marshal(struct {
		Hash string          `json:"hash,omitempty"`
		Done json.RawMessage `json:"done,omitempty"`
		Data json.RawMessage `json:"data,omitempty"`
	}{r.Hash, r.Done, r.Data})
	if err != nil {
		return nil
	}
	return b
}
