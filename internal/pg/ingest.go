package pg

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// Submission is one transaction that somebody wants to post. The caller has validated its form.
type Submission struct {
	ContextID   int32
	Queue       string // "" = unordered: alone in a queue without a name (S2.18)
	UID         string // "" = none: every post is a new transaction
	Hash        []byte // of the request, compared when the uid is known already
	Actor       string
	Poster      outbox.Poster // who posts it, for the types and names that are not for all; "": outbox.Anyone
	Type        string
	Data        json.RawMessage
	MaxRetries  *int
	NotBefore   time.Time
	Sender      string // only this account may sign it, "" for any
	Tags        json.RawMessage
	Traceparent string
	RedriveOf   *outbox.ID
	Callback    *outbox.Callback
	DependsOn   []string   // ids or uids: it goes out only after all of them are DONE (S2.15)
	Insertion   *Insertion // a place in its queue; SubmitBatch alone heeds it

	Held    bool   // made of what is held already: a drain lets it pass
	redrive *db.By // of a redrive: its actor and reason, for the audit row in the same commit

	judged bool   // its data must fit the schema of its type
	schema []byte // the schema that Judge compared data with
	misfit error  // the misfit that it found
	unread error  // why nothing can be made of what was staged
	reread bool   // the configuration was read again for a type or a sender that this process did not know
}

// Accepted is what became of a submission: a transaction (new or known), or a fault.
type Accepted struct {
	ID     outbox.ID
	At     time.Time // when it was received, for a new one
	Replay bool
	Err    error
}

// Ingest stores submissions in one commit, in their order. Each gets its own answer: a refused one does
// not touch its neighbours, unless atomic, where one refusal refuses all (the others then carry no id).
// The error is for what concerns all of them: nothing was stored, or that is unknown ("commit_unknown").
//
// Why positions are dense and in commit order: they are handed out under the queue row's lock, which is
// held until the commit. Why no wake-up is lost: "idle" is read from that same row, and settle decides
// it under the same lock. Why a key never names two transactions: its row is inserted in the same
// commit, and a violation of its key runs the whole decision again, which then sees the winner.
func (s *Store) Ingest(ctx context.Context, subs []*Submission, atomic bool) (out []Accepted, err error) {
	if err := s.EnsureQueues(ctx, subs); err != nil {
		return nil, err
	}
	deps, err := s.dependencies(ctx, subs)
	if err != nil {
		return nil, err
	}
	out, again, err := s.ingest(ctx, subs, deps, atomic)
	if err != nil || len(again) == 0 {
		return out, err
	}
	rest := make([]*Submission, len(again))
	for i, at := range again {
		rest[i] = subs[at]
	}
	more, err := s.Ingest(ctx, rest, false)
	for i, at := range again {
		if err != nil {
			out[at] = Accepted{Err: err}
		} else {
			out[at] = more[i]
		}
	}
	return out, nil
}

// ingest stores what it can in one commit, and returns the indexes of those that must wait for it.
func (s *Store) ingest(ctx context.Context, subs []*Submission, deps *dependencies, atomic bool) (out []Accepted, again []int, err error) {
	reread := slices.ContainsFunc(subs, func(sub *Submission) bool { return sub.reread })
	in := &ingest{}
	defer func() { in.taking.end(in.now(), err) }()
	err = s.Run(ctx, func(t *db.Txn) error {
		in.taking.end(in.now(), nil) // of a run that is repeated
		again = nil
		in = &ingest{deps: deps, atomic: atomic, reread: &reread, s: s, e: newEffects(s), subs: subs, out: make([]Accepted, len(subs))}
		out = in.out
		if deps == nil {
			in.taking = s.taking(ctx)
		}
		if err := in.load(ctx, t); err != nil {
			return err
		}
		if err := in.decide(ctx, t); err != nil {
			return err
		}
		if atomic && in.refused {
			in.nothing()
			return t.Rollback(ctx)
		}
		if in.fresh == 0 {
			return t.Rollback(ctx)
		}
		again = in.again
		if in.lateRefusal(); in.deps != nil && in.deps.changed {
			return in.deps
		}
		in.depend()
		b := &pgx.Batch{}
		in.write(b)
		err := in.e.commit(ctx, t, b)
		in.taking.done = err == nil
		return err
	})
	return out, again, err
}

// now is when it was decided.
func (in *ingest) now() (now time.Time) {
	if in.e != nil {
		now = in.e.now
	}
	return now
}

type nameKey struct {
	context int32
	name    string
}

type taskKey struct {
	context int32
	uid     string
}

// ingest is one run of the decision.
type ingest struct {
	s       *Store
	e       *effects
	subs    []*Submission
	out     []Accepted
	names   map[nameKey]int64 // of the queues that this run has locked; others may change those of the process
	queues  map[int64]*QueueRow
	keys    map[taskKey]keyRow
	ids     []int64 // fresh ids for queues without a name
	tasks   []*Task
	hashes  map[taskKey]keyRow // keys to insert
	touched map[int64]bool
	fresh   int
	refused bool
	atomic  bool
	staged  bool             // what depends on the oldest of its full queue stays where it is staged
	stays   bool             // it does
	again   []int            // those that wait for this commit, which makes room in their queue by dropping from it
	waits   map[nameKey]bool // the queues of these
	open    map[int64]int64  // how many of a queue had not ended, less its tail
	ended   map[int64]int64  // how many this commit stores behind others that have ended, since they depend on failures
	dropped map[int64]int64  // the last position of a queue that was dropped to make room
	reread  *bool
	deps    *dependencies // nil if nothing depends on anything
	taking  taking
}

type keyRow struct {
	id   outbox.ID
	hash []byte
}

// knownSQL reads what the keys name already. The salt lies beside the key: the task would be looked for in a day that
// is known only when the statement runs, for which PostgreSQL locks the partitions of all days.
var knownSQL = db.ForRows(func(one bool) string {
	return `SELECT i.context_id, i.key, i.queue_id, i.seq, i.day - '1970-01-01', i.body_hash, i.salt
		FROM ` + db.Given(one, 1, "context_id int", "key text") + `
		CROSS JOIN LATERAL (SELECT * FROM postern.idempotency i WHERE (i.context_id, i.key) = (n.context_id, n.key)
			LIMIT 1) i`
})

// load locks the queues, then reads what is known of the keys, then the time.
func (in *ingest) load(ctx context.Context, t *db.Txn) error {
	in.queues, in.keys, in.hashes, in.touched = map[int64]*QueueRow{}, map[taskKey]keyRow{}, map[taskKey]keyRow{}, map[int64]bool{}
	in.waits, in.names = map[nameKey]bool{}, map[nameKey]int64{}
	in.open, in.ended, in.dropped = map[int64]int64{}, map[int64]int64{}, map[int64]int64{}
	var ids []int64
	var contexts []int32
	var uids []string
	unnamed := 0
	seen := map[int64]bool{}
	for _, sub := range in.subs {
		if sub.Queue == "" {
			unnamed++
		} else if id := in.id(sub); !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
		if sub.UID != "" {
			contexts, uids = append(contexts, sub.ContextID), append(uids, sub.UID)
		}
	}
	own := len(ids)
	if in.deps != nil {
		ids = in.deps.queues(ids)
	}
	b := &pgx.Batch{}
	lockQueues(b, lockWaiting, ids, in.s.names.eras(ids[:own]), in.queues)
	if in.deps != nil {
		in.deps.load(b)
	}
	if len(uids) > 0 {
		b.Queue(knownSQL.Of(len(uids)), db.Argument(contexts), db.Argument(uids)).Query(in.scanKeys)
	}
	in.taking.readOpen(b, in.e.view, in.subs)
	if unnamed > 0 {
		b.Queue(`SELECT nextval('postern.queue_id') FROM generate_series(1, $1::int)`, unnamed).Query(func(rows pgx.Rows) (err error) {
			in.ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
	}
	in.s.ReadNow(b, &in.e.now)
	if err := t.Send(ctx, b); err != nil {
		return err
	}
	in.s.names.saw(in.queues)
	var gone error
	for _, id := range ids[:own] {
		if in.queues[id] == nil { // reaped meanwhile
			in.s.forgetQueue(id)
			gone = &queueMissing{in.s, in.subs}
		}
	}
	if gone != nil || in.deps == nil {
		return gone
	}
	if in.deps.moved {
		return in.deps
	}
	return exact(ctx, t, slices.Collect(maps.Values(in.queues))) // they may get marks, which count from the head on
}

// scanKeys reads rows of knownSQL: which keys have been given, and to what.
func (in *ingest) scanKeys(rows pgx.Rows) error {
	for rows.Next() {
		var k taskKey
		var v keyRow
		if err := rows.Scan(&k.context, &k.uid, &v.id.Queue, &v.id.Seq, &v.id.Day, &v.hash, &v.id.Salt); err != nil {
			return err
		}
		in.keys[k] = v
	}
	return rows.Err()
}

// id is the queue of a named submission: the one that the process knew when it was asked first in this run, and that
// load has locked. To ask the process again could bring another answer, or none, since others of its posts find queues
// reaped and forget them.
func (in *ingest) id(sub *Submission) int64 {
	k := nameKey{sub.ContextID, sub.Queue}
	id, asked := in.names[k]
	if !asked || twin.Planted("cache_asked_twice") {
		id = in.s.QueueID(k.context, k.name)
		in.names[k] = id
	}
	return id
}

// row is the locked row of a named submission's queue.
func (in *ingest) row(sub *Submission) *QueueRow { return in.queues[in.id(sub)] }

// decide hands out positions, submission by submission.
func (in *ingest) decide(ctx context.Context, t *db.Txn) error {
	var lacks missing
	for i, sub := range in.subs {
		if err := outbox.Reserved(sub.Poster, sub.Type, sub.UID, sub.Queue); err != nil {
			in.out[i], in.refused = Accepted{Err: err}, true
			continue
		}
		key := taskKey{sub.ContextID, sub.UID}
		if known, ok := in.keys[key]; ok && sub.UID != "" {
			in.out[i] = replay(sub, known)
			in.refused = in.refused || in.out[i].Err != nil
			continue
		}
		if err := cmp.Or(sub.unread, in.deps.refusal(i)); err != nil {
			in.out[i], in.refused = Accepted{Err: err}, true
			continue
		}
		if sub.Queue != "" && in.waits[nameKey{sub.ContextID, sub.Queue}] || in.deps != nil && in.deps.later[i] {
			in.again = append(in.again, i)
			in.waits[nameKey{sub.ContextID, sub.Queue}] = sub.Queue != ""
			continue
		}
		if twin.Planted("data_of_neighbour") && i > 0 {
			sub.Data = in.subs[i-1].Data
		}
		id, err := in.admit(ctx, t, sub, in.deps.fateOf(i))
		if err == nil && in.deps != nil {
			in.deps.placed[i] = id
		}
		if errors.Is(err, errAgain) {
			in.again = append(in.again, i)
			in.waits[nameKey{sub.ContextID, sub.Queue}] = true
			continue
		}
		if err != nil {
			if err = lacks.add(err); err == nil {
				continue
			}
			if fault.KindOf(err) == fault.Internal {
				return err
			}
			in.out[i], in.refused = Accepted{Err: err}, true
			continue
		}
		in.out[i] = Accepted{ID: id, At: in.e.now}
		in.fresh++
		if sub.UID != "" {
			in.keys[key] = keyRow{id, sub.Hash}
			in.hashes[key] = in.keys[key]
		}
	}
	return lacks.err()
}

// nothing takes back the ids that were handed out, since another item refused them all.
func (in *ingest) nothing() {
	for i, sub := range in.subs {
		if _, made := in.hashes[taskKey{sub.ContextID, sub.UID}]; in.out[i].Err == nil && (!in.out[i].Replay || made) {
			in.out[i] = Accepted{}
		}
	}
}

func replay(sub *Submission, known keyRow) Accepted {
	if !bytes.Equal(sub.Hash, known.hash) && !twin.Planted("key_takes_any_body") ||
		twin.Planted("key_known_is_conflict") {
		return Accepted{ID: known.id, Err: fault.New(fault.Conflict, "idempotency_conflict",
			"uid %q names a transaction with another body: use a new uid, or send the same body", fault.Clip(sub.UID)).
			With("existing", map[string]any{"id": known.id.String(), "uid": sub.UID})}
	}
	return Accepted{ID: known.id, Replay: true}
}

// admit gives one submission its position, or says why it gets none.
func (in *ingest) admit(ctx context.Context, t *db.Txn, sub *Submission, f fate) (outbox.ID, error) {
	d, senderID, err := in.wanted(sub)
	if err != nil {
		return outbox.ID{}, err
	}
	q, err := in.queue(sub)
	if err != nil {
		return outbox.ID{}, err
	}
	if q.Named {
		if err := in.room(ctx, t, q, sub); err != nil {
			return outbox.ID{}, err
		}
	}
	day := max(outbox.DayOf(in.e.now), q.TailDay)
	task := &Task{
		ID:        outbox.ID{Queue: q.ID, Seq: nextPosition(q, in.e.now), Day: day, Salt: outbox.SaltOf(in.e.now, "")},
		ContextID: sub.ContextID, UID: sub.UID, Actor: sub.Actor, Type: sub.Type, Data: sub.Data, MaxRetries: sub.MaxRetries,
		NotBefore: sub.NotBefore, SenderID: senderID, Tags: sub.Tags, Traceparent: sub.Traceparent, Callback: sub.Callback, CreatedAt: in.e.now,
	}
	if sub.RedriveOf != nil {
		task.RedriveOf = sub.RedriveOf.String()
		in.e.redrives = append(in.e.redrives, redriveRow{*sub.RedriveOf, task.ID})
	}
	idle := q.Phase == outbox.PhaseIdle
	before := *q
	q.Tail, q.TailDay = task.ID.Seq, day
	if f != free {
		in.hold(q, task, f, idle)
	}
	if f == doomed && !idle {
		in.ended[q.ID]++
	}
	if idle && f != doomed {
		if err := in.e.rest(q, task, true); err != nil {
			*q = before
			return outbox.ID{}, err
		}
		in.taking.take(in.e, q, d)
	}
	in.tasks = append(in.tasks, task)
	if q.Named && !in.touched[q.ID] {
		in.touched[q.ID] = true
		in.e.saved = append(in.e.saved, q)
	}
	return task.ID, nil
}

// nextPosition is the next position of a queue: positions are dense.
func nextPosition(q *QueueRow, now time.Time) int64 {
	if twin.Planted("position_from_sequence") && now.UnixMicro()%20 == 0 {
		return q.Tail + 2
	}
	return q.Tail + 1
}

// wanted returns the dispatcher of a submission and the sender that it names, 0 for none, or why it cannot be taken. A
// type or a sender that the configuration of this process does not know is looked for in the database once.
func (in *ingest) wanted(sub *Submission) (d *Dispatcher, senderID int32, err error) {
	view := in.e.view
	d = view.dispatcherOf(sub.ContextID, sub.Type)
	unknown := d == nil || d.Removed || sub.Sender != "" && view.accounts[sub.ContextID][sub.Sender] == 0
	if unknown && !*in.reread {
		*in.reread = true
		for _, other := range in.subs { // also where a joint transaction runs all of it again
			other.reread = true
		}
		return nil, 0, &dispatcherMissing{in.s, sub.Type}
	}
	if d == nil || d.Removed {
		return nil, 0, fault.New(fault.Invalid, "unknown_type", "type %q has no dispatcher: PUT /dispatchers/%s first",
			fault.Clip(sub.Type), fault.Clip(sub.Type))
	}
	if err := cmp.Or(d.MayPost(sub.Poster), view.closed(sub, d)); err != nil {
		return nil, 0, err
	}
	if sub.judged && !bytes.Equal(sub.schema, d.Schema) {
		return nil, 0, &unjudged{in.s, in.subs}
	}
	if sub.misfit != nil {
		return nil, 0, sub.misfit
	}
	if sub.Sender != "" {
		if senderID = view.accounts[sub.ContextID][sub.Sender]; senderID == 0 || d.PoolID == 0 {
			return nil, 0, fault.At("/sender",
				"sender %q is not a sender of type %s: leave it out, or name an account of its pool",
				fault.Clip(sub.Sender), sub.Type)
		}
	}
	return d, senderID, nil
}

// queue returns the locked row of a named queue, or a new row for an unordered transaction.
func (in *ingest) queue(sub *Submission) (*QueueRow, error) {
	if sub.Queue != "" {
		q := in.row(sub)
		if q.Draining && !sub.Held {
			return nil, fault.New(fault.Conflict, "queue_draining", "queue %q accepts nothing more until it is resumed", fault.Clip(sub.Queue))
		}
		return q, nil
	}
	q := &QueueRow{ID: in.ids[0], Context: sub.ContextID, Head: 1, Fence: in.s.Fence(0, in.e.now), Was: outbox.PhaseIdle, Phase: outbox.PhaseIdle,
		Attempt: 1, Prio: 1, EnteredAt: in.e.now}
	in.ids = in.ids[1:]
	in.e.inserted = append(in.e.inserted, q)
	return q, nil
}

// room refuses what does not fit into its queue, or makes room by dropping the oldest that waits.
func (in *ingest) room(ctx context.Context, t *db.Txn, q *QueueRow, sub *Submission) error {
	limit := int64(q.MaxDepth)
	if limit == 0 {
		limit = int64(in.e.view.maxDepth(sub.ContextID))
	}
	if q.Tail-q.Head+1 < limit {
		return nil
	}
	if _, counted := in.open[q.ID]; !counted { // under the lock of the queue nothing else changes it
		n, err := depth(ctx, t, q)
		if err != nil {
			return err
		}
		in.open[q.ID] = n - q.Tail
	}
	depth := q.Tail + in.open[q.ID] - in.ended[q.ID]
	switch {
	case depth < limit:
		return nil
	case q.DropOldest:
		return in.dropOldest(ctx, t, q, sub)
	}
	return fault.New(fault.Retry, "queue_full", "queue %q holds %d of at most %d transactions: wait, or raise max_depth", fault.Clip(sub.Queue), depth, limit).
		With("queue_depth", depth).After(2 * time.Second)
}

// countedAgain is how many ends behind Past may be counted with each look at the depth.
const countedAgain = 1000

// depth is exact: positions from head on without an outcome. The row alone counts what a node has
// settled since it last wrote it, and what was cancelled. Where much has ended behind Past, that moves up to the next
// that has not, so that each end is counted few times.
func depth(ctx context.Context, t *db.Txn, q *QueueRow) (n int64, err error) {
	var head, behind int64
	past := max(q.Head, q.Past)
	b := &pgx.Batch{}
	b.Queue(depthSQL, q.ID, q.Head, q.HeadDay.Time(), past).
		QueryRow(func(row pgx.Row) error { return row.Scan(&head, &behind) })
	if err = t.Send(ctx, b); err == nil && behind >= countedAgain {
		b = &pgx.Batch{}
		oldestUnsettled(b, q, past+1, nil, func(t *Task) { q.Past = t.ID.Seq - 1 })
		err = t.Send(ctx, b)
	}
	return q.Tail - past - behind + 1 - head, err
}

// depthSQL says whether the head has ended, and counts what has ended behind Past.
const depthSQL = `
	SELECT (SELECT count(*) FROM postern.outcome WHERE queue_id = $1 AND seq = $2 AND day >= $3), count(*)
	FROM postern.outcome WHERE queue_id = $1 AND seq > $4 AND day >= $3`

// write stores bodies and keys behind the queue rows.
func (in *ingest) write(b *pgx.Batch) {
	insertTasks(b, in.tasks)
	in.taking.read(b, in.s)
	in.e.accepted = in.tasks
	in.auditRedrives(b)
	if len(in.hashes) > 0 {
		k := db.Columns{N: len(in.hashes)}
		for _, key := range sortedKeys(in.hashes) {
			v := in.hashes[key]
			k.Add(key.context, key.uid, v.id.Queue, v.id.Seq, v.id.Day.Time(), v.hash, v.id.Salt)
		}
		keyInsert.Queue(b, k)
	}
}

func (k taskKey) String() string { return fmt.Sprintf("%d %s", k.context, k.uid) }

// errAgain puts a submission, and those behind it in its queue, off to a commit of their own.
var errAgain = errors.New("this one has to wait for a commit")
