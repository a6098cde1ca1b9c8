package messages

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/twin"
)

// Arrival is a message that a peer brings.
type Arrival struct {
	Context  *pg.Context // that it is for
	Peer     string
	ID       uuid.UUID // which the peer gave it
	Envelope json.RawMessage
	Inputs   json.RawMessage // of its jobs: results of those that they need there, by their refs; nil: they need none
	ReplyTo  *uuid.UUID      // the message of this context that it answers; nil: none, or the one that is signed
}

// Arrive stores a message of a peer in msg_in, once however often it is brought, and makes the jobs that it has. known:
// it was there. Faults: those of Verify; Invalid; Forbidden where its actor has no role here that lets it send this;
// Conflict "idempotency_conflict" where its actor has used the ref for another message, and "wrong_state" where the
// peer has had it stopped before, and "queue_draining" where the context is drained: the peer keeps the message, and
// brings it again.
//
// Of two calls that bring one message at the same time, the second waits for the lock of the first, and finds its row;
// two that bring one envelope under two names violate a unique index, and the second runs again. The role of the actor
// is read in the SQL transaction that stores the message.
func (s *Store) Arrive(ctx context.Context, a Arrival) (m *Message, known bool, err error) {
	if twin.Planted("message_new_each_time") {
		a.ID = uuid.New()
	}
	if m, err = s.arrived(ctx, a); err != nil || m != nil {
		return m, true, err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return nil, false, err
	}
	us := message.Audience{Installation: s.Installation(), Context: a.Context.Name, Peer: a.Peer}
	since, err := s.remembered(ctx, now)
	if err != nil {
		return nil, false, err
	}
	signed, key, actor, err := s.Verify(ctx, a.Envelope, us, now, since)
	if err != nil {
		return nil, false, err
	}
	var specs []flow.Spec
	if len(signed.Jobs) > 0 {
		if specs, err = flow.SpecsIn("/job", signed.Jobs); err != nil {
			return nil, false, err
		}
	}
	spec := signed.Spec(len(specs))
	if err := spec.Validate(); err != nil {
		return nil, false, err
	}
	m = &Message{Target: a.Context.ID, Peer: a.Peer, PeerMessage: &a.ID, ToContext: a.Context.Name,
		ToActor: spec.To.Actor, Topic: spec.To.Topic, Actor: actor, CallerKey: key, Ref: spec.Ref, Type: spec.Type,
		Format: spec.Format, Body: spec.Body, Jobs: signed.Jobs, Timeouts: spec.Timeouts,
		Envelope: bytes.Clone(a.Envelope)}
	if m.ReplyTo, err = s.answered(ctx, a, spec.ReplyTo); err != nil {
		return nil, false, err
	}
	m.hash = message.Digest(a.Envelope)
	if twin.Planted("message_new_each_time") {
		m.Ref, m.hash = nil, a.ID[:]
	}
	return s.arrive(ctx, m, specs, a.Inputs)
}

// answered is the message that an arrival answers, as it is called here, where it is one that went to the peer from the
// context: the actor has signed the name that the peer has for it.
func (s *Store) answered(ctx context.Context, a Arrival, signed string) (*uuid.UUID, error) {
	id, err := uuid.Parse(signed)
	switch {
	case err != nil:
		return nil, nil //nolint:nilerr // it answers none that has an id
	case a.ReplyTo == nil:
		return &id, nil
	}
	list, err := s.query(ctx, `WHERE m.message_id = $1 AND m.context_id = $2 AND m.peer = $3`, a.ReplyTo, a.Context.ID,
		a.Peer)
	if err != nil || len(list) == 0 {
		return &id, err
	}
	return a.ReplyTo, nil
}

// arrived finds a message that a peer has brought before; nil for none. Compared is what its actor signed, however the
// envelope around it is written, and whenever it was signed.
func (s *Store) arrived(ctx context.Context, a Arrival) (*Message, error) {
	list, err := s.query(ctx, `WHERE m.context_id IS NULL AND (m.target_id, m.peer, m.peer_message) = ($1, $2, $3)`,
		a.Context.ID, a.Peer, a.ID)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	if bytes.Equal(message.Digest(list[0].Envelope), message.Digest(a.Envelope)) {
		return list[0], nil
	}
	if said := message.Content(a.Envelope); said != nil {
		answers, err := s.answered(ctx, a, said.ReplyTo)
		if err != nil || saysSame(list[0], a.Envelope, answers) {
			return list[0], err
		}
	}
	return nil, fault.New(fault.Conflict, message.CodeConflict, "message %s is another one here", a.ID)
}

// saysSame says that an envelope has the content of a message that is there. A peer that was restored may have signed
// it anew, and may call the message that it answers by another name.
func saysSame(there *Message, envelope []byte, answers *uuid.UUID) bool {
	was, is := message.Content(there.Envelope), message.Content(envelope)
	if was == nil || is == nil {
		return false
	}
	if there.ReplyTo != nil && answers != nil && *there.ReplyTo == *answers {
		is.ReplyTo = was.ReplyTo
	}
	return reflect.DeepEqual(was, is)
}

// arrive is Arrive for a message that was verified.
func (s *Store) arrive(ctx context.Context, m *Message, specs []flow.Spec, inputs json.RawMessage) (_ *Message,
	known bool, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, false, err
	}
	fresh := *m
	var jobs flows.MessageJobs
	var there *Message
	err = s.Run(ctx, func(t *db.Txn) error {
		*m, there, jobs = fresh, nil, flows.MessageJobs{}
		m.ID = id
		if there, err = s.sameArrival(ctx, t, m); err != nil {
			return err
		}
		if there != nil {
			return knows(ctx, t, there, *m.PeerMessage)
		}
		refusals, now, err := s.allowed(ctx, t, []*Message{m})
		if err != nil {
			return err
		}
		if refusals[0] != nil {
			return refusals[0]
		}
		if err := s.accepts(m); err != nil {
			return err
		}
		b := &pgx.Batch{}
		list, err := s.materialise(ctx, t, b, m, specs, inputs, &jobs, now)
		if err != nil {
			return err
		}
		if err := s.Insert(b, m, list...); err != nil {
			return err
		}
		return t.Commit(ctx, b)
	})
	switch {
	case err != nil:
		return nil, false, err
	case there != nil:
		return there, true, nil
	}
	if !s.Has(Messages) {
		if err := s.Reconfigured(ctx); err != nil {
			return nil, false, err
		}
	}
	s.bells.ring(m.Target)
	s.heardOf()
	if m.Type != message.Job {
		return m, false, nil
	}
	return m, false, s.flows.Taken(ctx, jobs)
}

// materialise adds to b the jobs of a message that arrives, and returns what happens to it.
func (s *Store) materialise(ctx context.Context, t *db.Txn, b *pgx.Batch, m *Message, specs []flow.Spec,
	inputs json.RawMessage, jobs *flows.MessageJobs, now time.Time) (list []Change, err error) {
	list = []Change{
		{On: message.OnCreated, By: m.Actor, Now: now},
		{On: message.OnDelivered, By: "peer:" + m.Peer, Now: now},
	}
	if m.Type != message.Job {
		return list, nil
	}
	who := db.By{Context: m.Target, Actor: m.Actor, Via: "message"}
	if *jobs, err = s.flows.TakeIn(ctx, t, b, who, m.ID, specs, inputs); err != nil {
		return nil, err
	}
	m.JobsOpen = &jobs.Open
	return append(list, Change{On: message.OnAcknowledged, By: m.Actor, Now: now}), nil
}

// knows ends the SQL transaction of a message that is there. One that has another id was brought before by a peer that
// has gone back in time since: it is asked about under its new id from then on, and makes no jobs again.
func knows(ctx context.Context, t *db.Txn, there *Message, id uuid.UUID) error {
	if *there.PeerMessage == id {
		return t.Rollback(ctx)
	}
	b := &pgx.Batch{}
	b.Queue(`UPDATE postern.message SET peer_message = $2 WHERE message_id = $1`, there.ID, id)
	return t.Commit(ctx, b)
}

// sameArrival finds the message of a peer that has this id there, this envelope, or this ref of its actor with the same
// content, nil for none.
func (s *Store) sameArrival(ctx context.Context, t *db.Txn, m *Message) (*Message, error) {
	var list []*Message
	var stopped bool
	b := &pgx.Batch{}
	lockArrival(b, m.Target, m.Peer, *m.PeerMessage)
	b.Queue(`SELECT EXISTS (SELECT FROM postern.message_stopped x
		WHERE (x.target_id, x.peer, x.peer_message) = ($1, $2, $3))`, m.Target, m.Peer, m.PeerMessage).
		QueryRow(func(row pgx.Row) error { return row.Scan(&stopped) })
	b.Queue(`SELECT `+messageColumns+`
		FROM postern.message m
		WHERE m.context_id IS NULL AND (m.target_id, m.peer, m.peer_message) = ($1, $2, $3)
		UNION ALL
		SELECT `+messageColumns+`
		FROM postern.message m
		WHERE m.context_id IS NULL AND (m.target_id, m.peer, m.body_hash) = ($1, $2, $6)
		UNION ALL
		SELECT `+messageColumns+`
		FROM postern.message m
		WHERE m.context_id IS NULL AND (m.target_id, m.peer, m.caller_key, m.ref) = ($1, $2, $4, $5)`,
		m.Target, m.Peer, m.PeerMessage, m.CallerKey, m.Ref, m.hash).Query(collect(&list))
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	if stopped {
		return nil, fault.New(fault.Conflict, "wrong_state", "message %s was ended by the installation that it comes "+
			"from (cancelled, or by a deadline), as that has told this one: it is not stored here. If it is open "+
			"there now, that store was restored from a backup of a time before its end: send it anew if it is still "+
			"wanted",
			m.PeerMessage)
	}
	if len(list) == 0 {
		return nil, nil
	}
	if !bytes.Equal(list[0].hash, m.hash) && !saysSame(list[0], m.Envelope, m.ReplyTo) {
		return nil, fault.New(fault.Conflict, message.CodeConflict, "ref %d of its actor names message %s here, which "+
			"differs: choose another ref", deref(m.Ref), list[0].ID).About("/ref")
	}
	return list[0], nil
}

func deref(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
