package domains

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Event is something that happened to a domain, with what is stored beside it.
type Event struct {
	coord.Event
	Parts []Part // of an answer: what the service made
	Fence int64  // of an answer: that of the lease of its call
	Word  *Word  // what the core says, as the row of the activity keeps it
}

// Part is what the service of a domain made of a generation of an intent.
type Part struct {
	ID          string
	Generation  int64
	Part        string
	Name, Party string
	Data        json.RawMessage
}

// id is the intent that an event is about, "" for none.
func (e *Event) id() string {
	switch {
	case e.Core != nil:
		return e.Core.ID
	case e.Created != nil:
		return e.Created.ID
	}
	return e.ID
}

// Stepped is what a step did.
type Stepped struct {
	Domain  int32
	Taken   bool // false: another process has the seat, or there is no such domain
	Gone    bool // there is no such domain
	Still   bool
	Calls   int // that are new, or to be made now
	Posts   int
	Sent    int  // messages to other nodes
	More    bool // messages of others are left
	Moves   []coord.Move
	Ignored []coord.Ignored
	read    []int64 // the numbers of messages that it took

	left     []leaving
	receipts []coord.Receipt
	told     bool         // subscriptions may hear of it
	kinds    []coord.Kind // of the messages that it took
}

// Step takes a step of a domain with what happened to it, and looks at what is due. It takes nothing where another
// process holds the seat. What the step says goes out afterwards: calls by whichever process claims them, public
// transactions by PostActivities.
//
// A step that violates what the schema keeps runs again without its events, and then event by event. The event that
// fails is put aside: otherwise a single bad answer would stop its domain. One that fails without events pauses the
// domain, and puts none aside.
func (s *Store) Step(ctx context.Context, id int32, events []Event) (Stepped, error) {
	return s.stepOf(ctx, id, events, false)
}

// StepInLine is Step that waits for the seat. Requests wait for it, too, and where some always do it is never free: a
// process that takes none would hear of no other node.
func (s *Store) StepInLine(ctx context.Context, id int32, events []Event) (Stepped, error) {
	return s.stepOf(ctx, id, events, true)
}

func (s *Store) stepOf(ctx context.Context, id int32, events []Event, wait bool) (Stepped, error) {
	out, err := s.step(ctx, id, taking{wait: wait, events: events, most: mostPerStep})
	if err == nil || !violated(err) {
		return out, err
	}
	messages := out.read
	if len(events)+len(messages) > 0 {
		out, err = s.step(ctx, id, taking{wait: true})
	}
	if violated(err) {
		halted, unpaused := s.halt(ctx, id, err)
		if !halted && unpaused == nil { // it was paused: it takes what came once it goes on
			return Stepped{}, nil
		}
		return out, errors.Join(err, unpaused)
	}
	if err != nil {
		return out, err
	}
	for _, e := range events {
		one, err := s.step(ctx, id, taking{wait: true, events: []Event{e}})
		switch {
		case err == nil:
			out.merge(one)
		case violated(err):
			s.Log.Error("an event of a domain could not be taken, and is put aside", "domain", id, "intent",
				e.id(), "error", err)
			if err := s.setAside(ctx, id, e, err); err != nil {
				return out, err
			}
		default:
			return out, err
		}
	}
	for range messages {
		one, err := s.step(ctx, id, taking{wait: true, most: 1})
		switch {
		case err == nil:
			out.merge(one)
		case violated(err) && len(one.read) == 1:
			s.Log.Error("a message of another node could not be taken, and is put aside", "domain", id, "error", err)
			if err := s.setMessageAside(ctx, id, one.read[0], err); err != nil {
				return out, err
			}
		default:
			return out, err
		}
	}
	return out, nil
}

func (out *Stepped) merge(one Stepped) {
	out.Domain, out.Taken, out.Gone, out.Still = one.Domain, out.Taken || one.Taken, one.Gone, one.Still
	out.Calls, out.Posts, out.Sent = out.Calls+one.Calls, out.Posts+one.Posts, out.Sent+one.Sent
	out.Moves, out.Ignored = append(out.Moves, one.Moves...), append(out.Ignored, one.Ignored...)
}

// violated says whether the schema has refused what a step was to write (integrity, class 23; values, class 22).
func violated(err error) bool {
	state := db.SQLState(err)
	return strings.HasPrefix(state, "23") || strings.HasPrefix(state, "22") || errors.Is(err, errEndless)
}

// taking is what a step is to take.
type taking struct {
	wait   bool // for a seat that another process has
	events []Event
	most   int // messages of other nodes
	// more looks at the seat before the decision, adds events, and adds statements to the commit; it is called again
	// where the SQL transaction is.
	more func(context.Context, *db.Txn, *seat, *pgx.Batch) ([]Event, error)
}

// line has the requests of this process wait for a seat one at a time, so that a step that looks after the domain has
// few of them before it, and none of them a connection meanwhile. free leaves it.
func (s *Store) line(ctx context.Context, id int32) (free func(), err error) {
	made, _ := s.lines.LoadOrStore(id, make(chan struct{}, 1))
	line, _ := made.(chan struct{})
	select {
	case line <- struct{}{}:
		return func() { <-line }, nil
	case <-ctx.Done():
		return nil, fault.New(fault.Retry, "unavailable", "others change domain %d: nothing of this was done", id).
			Because(ctx.Err())
	}
}

func (s *Store) step(ctx context.Context, id int32, take taking) (Stepped, error) {
	if take.more == nil || db.JointOf(ctx) != nil { // one that others commit may have the seat already
		return s.stepNow(ctx, id, take)
	}
	free, err := s.line(ctx, id)
	if err != nil {
		return Stepped{}, err
	}
	defer free()
	return s.stepNow(ctx, id, take)
}

// named lists the intents that events are about.
func named(events []Event) (ids []string) {
	for _, e := range events {
		if one, ok := idOf(e.id()); ok {
			ids = append(ids, one.String())
		}
		if e.Created != nil {
			ids = append(ids, e.Created.DependsOn...)
		}
	}
	return ids
}

// stepNow is step without the line.
func (s *Store) stepNow(ctx context.Context, id int32, take taking) (out Stepped, err error) {
	var h *seat
	events, more := take.events, take.more
	err = s.Run(ctx, func(t *db.Txn) error {
		out = Stepped{Domain: id}
		var err error
		h, err = s.lock(ctx, t, id, take.wait, named(events))
		out.Gone = errors.Is(err, errGone)
		switch {
		case out.Gone, err == nil && h == nil:
			return t.Rollback(ctx)
		case err != nil:
			return err
		}
		out.Taken = true
		b := &pgx.Batch{}
		all := events
		if more != nil {
			added, err := more(ctx, t, h, b)
			if err != nil {
				return err
			}
			all = slices.Concat(all, added)
		}
		if h.paused { // it takes what others have sent once it goes on
			take.most = 0
		}
		brought, numbers, err := s.read(ctx, t, h, b, take.most)
		if err != nil {
			return err
		}
		for _, e := range brought {
			out.kinds = append(out.kinds, e.Message.Kind)
		}
		all, out.read, out.More = slices.Concat(all, brought), numbers, take.most > 0 && len(numbers) == take.most
		if all, err = s.fenced(ctx, t, h, all); err != nil {
			return err
		}
		if all, err = s.unposted(ctx, t, h, all); err != nil {
			return err
		}
		return s.decide(ctx, t, h, b, all, &out)
	})
	if err != nil || db.JointOf(ctx) != nil { // others commit it, or it is a trial
		if h != nil { // one that never had the seat has changed nothing of the image that is kept
			s.seats.Delete(id)
		}
		return out, err
	}
	if out.Taken {
		s.keep(h)
		s.heard(h, &out)
	}
	return out, nil
}

// decide runs what happened, and writes what that leads to.
func (s *Store) decide(ctx context.Context, t *db.Txn, h *seat, b *pgx.Batch, events []Event, out *Stepped) error {
	begun, alone, err := s.begins(ctx, t, h)
	if err != nil {
		return err
	}
	var list []coord.Event
	if h.life != h.newLife { // an operator has let a store go on that may have lost something
		list = append(list, coord.Event{Lever: coord.Quarantine}, coord.Event{Lever: coord.LeaveIt})
	}
	if begun {
		list = append(list, coord.Event{Started: true})
	}
	if h.paused || alone {
		list = append(list, coord.Event{Hushed: true})
	}
	for _, e := range events {
		if e.Event != (coord.Event{}) {
			list = append(list, e.Event)
		}
	}
	if begun || h.d.Still() { // read again once it goes on: a domain that is still decides nothing
		list = slices.DeleteFunc(list, func(e coord.Event) bool { return e.Core != nil })
		events = slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return e.Core != nil })
	}
	st, err := coord.Handle(h.d, list, h.now, h.height)
	if err != nil {
		return fault.New(fault.Internal, "internal", "%s", err).Because(errEndless)
	}
	if s.Left != nil {
		out.left = leavings(h.d, st.Moves)
	}
	for _, e := range events {
		writeParts(b, h, e)
	}
	wasStill := h.d.Still()
	if err := h.write(b, &st); err != nil {
		return err
	}
	again := h.callAgain(b, events)
	if wasStill && !h.d.Still() {
		again = len(h.d.Calls)
	}
	s.tell(b, h, &st, out)
	out.Calls, out.Posts = len(st.Calls)+again, len(st.Posts)+len(st.Recalls)
	out.Moves, out.Ignored, out.Still = st.Moves, st.Ignored, st.Domain.Still()
	out.Sent, out.receipts = len(st.Messages), st.Receipts
	return t.Commit(ctx, b)
}

// callAgain ends the leases of calls whose answers the domain has not taken, since it was still when they came: others
// may have gone on in a life that is lost. It returns how many these are.
func (h *seat) callAgain(b *pgx.Batch, events []Event) int {
	var keys []string
	for _, c := range h.d.Calls {
		if slices.ContainsFunc(events, func(e Event) bool { return e.Answer != nil && e.Answer.Key == c.Key }) {
			keys = append(keys, c.Key)
		}
	}
	if len(keys) > 0 { // fenced holds their rows
		b.Queue(`UPDATE postern.coord_call
			SET leased_by = NULL, leased_until = NULL
			WHERE domain_id = $1 AND key = ANY ($2)`, h.id, keys)
	}
	return len(keys)
}

var errEndless = errors.New("a step does not come to its rest")

// begins says whether this step is the first of its installation since all its processes were down. Each process is
// noted in the row of the seat, once in its life; one that has no node takes no calls, and is no part of a life.
//
// Where such a one steps alone, while all others are down, the wait for the greetings begins as well: else the step
// would use a beat, and the process that begins a life would ask the others from that on, behind all that they may have
// heard. The wait does not end while it is alone, since no hello goes out, and the process that begins keeps its start.
func (s *Store) begins(ctx context.Context, t *db.Txn, h *seat) (begun, alone bool, err error) {
	node := int64(0)
	if s.Self != nil {
		node = s.Self()
	}
	if slices.Contains(h.lives, node) {
		return false, false, nil
	}
	alive, err := s.alive(ctx, t, h)
	if alone = err == nil && len(alive) == 0; node == 0 {
		return alone && h.d.Seat.HelloAt.IsZero(), alone, err
	}
	h.lives = append(alive, node)
	return alone, false, err
}

// begun says whether a process in the row of the seat is alive: this one, or another.
func (s *Store) begun(ctx context.Context, t *db.Txn, h *seat) (bool, error) {
	if s.Self != nil && slices.Contains(h.lives, s.Self()) {
		return true, nil
	}
	alive, err := s.alive(ctx, t, h)
	return len(alive) > 0, err
}

// alive are the processes in the row of the seat that are.
func (s *Store) alive(ctx context.Context, t *db.Txn, h *seat) (alive []int64, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT n.node_id
		FROM postern.node n
		WHERE n.node_id = ANY ($1) AND n.dead_at IS NULL
			AND n.heartbeat_at + n.ttl > coalesce($2::timestamptz, clock_timestamp())`, h.lives, s.LeaseNow()).
		Query(func(rows pgx.Rows) (err error) {
			alive, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
	return alive, t.Send(ctx, b)
}

// fenced leaves out answers whose call has been leased to another since, or has gone.
//
// Why a late answer changes nothing: a claim raises the fence of the call's row in its own commit, this statement locks
// the row, and so either sees that fence or is before the claim, which then skips the row or finds it gone.
func (s *Store) fenced(ctx context.Context, t *db.Txn, h *seat, events []Event) ([]Event, error) {
	var keys []string
	for _, e := range events {
		if e.Answer != nil {
			keys = append(keys, e.Answer.Key)
		}
	}
	if len(keys) == 0 {
		return events, nil
	}
	fences := map[string]int64{}
	b := &pgx.Batch{}
	b.Queue(`SELECT c.key, c.fence
		FROM postern.coord_call c
		WHERE c.domain_id = $1 AND c.key = ANY ($2)
		ORDER BY c.key
		FOR UPDATE`, h.id, keys).Query(func(rows pgx.Rows) error {
		var key string
		var fence int64
		_, err := pgx.ForEachRow(rows, []any{&key, &fence}, func() error { fences[key] = fence; return nil })
		return err
	})
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool {
		if e.Answer == nil {
			return false
		}
		fence, there := fences[e.Answer.Key]
		return !there || fence != e.Fence
	}), nil
}

// unposted leaves out refusals of public transactions that were posted since, or have ended.
//
// Why none that is refused is posted behind its refusal: this statement locks the row that put locks. Either put has
// posted it before, or it waits, and finds the end that this step writes.
func (s *Store) unposted(ctx context.Context, t *db.Txn, h *seat, events []Event) ([]Event, error) {
	refused := func(e Event) bool { return e.Word != nil && e.Word.refused }
	uids := []string{}
	for _, e := range events {
		if refused(e) {
			uids = append(uids, e.Word.UID)
		}
	}
	if len(uids) == 0 {
		return events, nil
	}
	open := []string{}
	b := &pgx.Batch{}
	b.Queue(`SELECT a.work_uid
		FROM postern.coord_activity a
		WHERE a.domain_id = $1 AND a.work_uid = ANY ($2) AND a.ended_at IS NULL AND a.posted_at IS NULL
		ORDER BY a.n
		FOR UPDATE`, h.id, uids).Query(func(rows pgx.Rows) (err error) {
		open, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool {
		return refused(e) && !slices.Contains(open, e.Word.UID)
	}), nil
}

// halt pauses a domain whose step fails without anything from outside, since it would fail for ever. It says whether
// the domain was not paused before: one that is paused takes steps for answers that come.
func (s *Store) halt(ctx context.Context, id int32, why error) (halted bool, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		d, err := s.byID(ctx, t, id)
		if err != nil {
			return err
		}
		halted = false
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.domain SET paused = true, version = version + 1
			WHERE domain_id = $1 AND NOT paused
			RETURNING true`, id).Query(func(rows pgx.Rows) error { halted = rows.Next(); return nil })
		if err := t.Send(ctx, b); err != nil || !halted {
			return err
		}
		b = &pgx.Batch{}
		s.AuditIn(b, db.By{Context: d.context, Via: "domains", Reason: fault.Clip(why.Error())}, "pause",
			"/domains/"+d.name)
		return t.Commit(ctx, b)
	})
	return halted, err
}

// setAside keeps an event from being brought again: the call is not made any more, or the word is not read again.
func (s *Store) setAside(ctx context.Context, id int32, e Event, why error) error {
	return s.Run(ctx, func(t *db.Txn) error {
		d, err := s.byID(ctx, t, id)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		switch {
		case e.Answer != nil:
			b.Queue(`UPDATE postern.coord_call SET aside = true, error = $3 WHERE domain_id = $1 AND key = $2`, id,
				e.Answer.Key, why.Error())
		case e.Core != nil:
			b.Queue(`UPDATE postern.coord_activity SET error = $3 WHERE domain_id = $1 AND work_uid = $2`, id,
				e.Core.UID,
				why.Error())
		}
		s.AuditIn(b, db.By{Context: d.context, Via: "domains", Reason: fault.Clip(why.Error())}, "set_aside",
			"/domains/"+d.name+"/intents/"+e.id())
		return t.Commit(ctx, b)
	})
}

type namedDomain struct {
	context int32
	name    string
}

func (s *Store) byID(ctx context.Context, t *db.Txn, id int32) (d namedDomain, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT context_id, name FROM postern.domain WHERE domain_id = $1`, id).
		QueryRow(func(row pgx.Row) error { return row.Scan(&d.context, &d.name) })
	return d, t.Send(ctx, b)
}
