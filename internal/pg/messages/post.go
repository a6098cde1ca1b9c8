package messages

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Posted is a message that somebody sends. It was checked, and so were the rights of its sender.
type Posted struct {
	message.Spec
	Target    int32 // 0: it goes to a peer
	Jobs      json.RawMessage
	ReplyTo   *uuid.UUID
	Envelope  []byte
	CallerKey []byte
	Key       string // of the request
}

// content is what a second request under one name must have in common with the first.
func (p *Posted) content() []named {
	return []named{
		{"ref", p.Ref}, {"to", p.To}, {"message_type", p.Type}, {"message_format_type", p.Format}, {"message", p.Body},
		{"job", string(p.Jobs)}, {"timeout", p.Timeouts.Deliver}, {"timeout_ack", p.Timeouts.Ack},
		{"timeout_result", p.Timeouts.Result}, {"reply_to", p.ReplyTo},
	}
}

type named struct {
	Name  string
	Value any
}

// sums are the digests of the parts, four bytes each: enough to name what differs. The first 32 are of all of them.
func (p *Posted) sums() ([]byte, error) {
	parts := p.content()
	all := sha256.New()
	var tail []byte
	for _, c := range parts {
		text, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		one := sha256.Sum256(text)
		all.Write(one[:])
		tail = append(tail, one[:4]...)
	}
	return append(all.Sum(nil), tail...), nil
}

// Post stores a message in msg_out. The same key of the request, or the same ref, with the same content again is the
// same message. Conflict "idempotency_conflict", with what differs.
func (s *Store) Post(ctx context.Context, by db.By, p Posted) (*Message, error) {
	if p.To.Peer != "" {
		if _, err := s.calledPeer(ctx, by.Context, p.To.Peer); err != nil {
			return nil, err
		}
	}
	hash, err := p.sums()
	if err != nil {
		return nil, err
	}
	var m *Message
	err = s.Run(ctx, func(t *db.Txn) error {
		m = &Message{Context: by.Context, Target: p.Target, Peer: p.To.Peer, ToContext: p.To.Context,
			ToActor: p.To.Actor, Topic: p.To.Topic, Actor: by.Actor, CallerKey: p.CallerKey, Ref: p.Ref,
			ReplyTo: p.ReplyTo,
			Type:    p.Type, Format: p.Format, Body: p.Body, Jobs: p.Jobs, Timeouts: p.Timeouts, Envelope: p.Envelope,
			hash: hash, key: p.Key}
		there, now, at, err := s.same(ctx, t, by, p.Ref, p.Key)
		if err == nil && there == nil && len(p.Envelope) > 0 && p.To.Peer != "" {
			there, err = s.sameEnvelope(ctx, t, by.Context, &p)
		}
		if err != nil {
			return err
		}
		m.ID = idAt(at)
		if there != nil {
			if !bytes.Equal(there.hash, hash) {
				return p.differs(there, hash)
			}
			there.Replay, m = true, there
			return t.Rollback(ctx)
		}
		if err := s.accepts(m); err != nil {
			return err
		}
		b := &pgx.Batch{}
		if err := s.Insert(b, m, Change{On: message.OnCreated, By: by.Actor, Now: now}); err != nil {
			return err
		}
		s.AuditIn(b, by, "post", path(m.ID))
		return t.Commit(ctx, b)
	})
	if err != nil || m.Replay {
		return m, err
	}
	if !s.Has(Messages) && db.JointOf(ctx) == nil {
		err = s.Reconfigured(ctx)
	}
	s.ring()
	return m, err
}

// accepts refuses a message that is new where the context that it comes from, or goes to, is drained. A message that
// was posted before is delivered all the same: it is a part of the rest.
func (s *Store) accepts(m *Message) error {
	if err := s.Accepts(m.Context); err != nil {
		return err
	}
	return s.Accepts(m.Target)
}

func noPeer(name string) error {
	return fault.At("/to/peer", "to.peer %q: this context has no peer of that name", fault.Clip(name))
}

// idAt is an id of version 7 that says a time. Messages are routed in the order of their ids, and what one sender posts
// one after the other, through whichever processes, has times of one clock: that of the database.
func idAt(at time.Time) uuid.UUID {
	id := uuid.New()
	ms, rest := at.UnixMilli(), at.Nanosecond()%int(time.Millisecond)
	part := uint64(rest) << 12 / uint64(time.Millisecond)
	binary.BigEndian.PutUint64(id[:8], uint64(ms)<<16|7<<12|part)
	return id
}

var made = db.Made[Message]{
	Columns: messageColumns,
	From:    "postern.message m",
	As:      "m",
	Scan:    scanMessage,
}

// same finds the message that a request of an actor with a key has made, or to which it has given a ref; nil for none.
// at is the time of the database, which no debug clock moves.
func (s *Store) same(ctx context.Context, t *db.Txn, by db.By, ref *int64, key string) (there *Message,
	now, at time.Time, err error) {
	b := &pgx.Batch{}
	s.ReadNow(b, &now)
	b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&at) })
	made.Find(b, by, ref, key, &there)
	return there, now, at, t.Send(ctx, b)
}

// sameEnvelope finds the message to a peer that says the same under a signature: the peer would take both for one.
func (s *Store) sameEnvelope(ctx context.Context, t *db.Txn, contextID int32, p *Posted) (*Message, error) {
	var list []*Message
	b := &pgx.Batch{}
	b.Queue(`SELECT `+messageColumns+`
		FROM postern.message m
		WHERE m.context_id = $1
			AND m.peer = $2
			AND postern.signed_digest(m.envelope) = postern.signed_digest($3)
			AND m.envelope IS NOT NULL`, contextID, p.To.Peer, p.Envelope).Query(collect(&list))
	if err := t.Send(ctx, b); err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// differs refuses a key or a ref that names another message, and says in what that differs.
func (p *Posted) differs(there *Message, hash []byte) error {
	names := []string{}
	for i, c := range p.content() {
		if at := sha256.Size + 4*i; len(there.hash) < at+4 || !bytes.Equal(there.hash[at:at+4], hash[at:at+4]) {
			names = append(names, c.Name)
		}
	}
	name := fmt.Sprintf("Idempotency-Key %q", fault.Clip(p.Key))
	switch {
	case p.Key != "" && there.key == p.Key:
	case p.Ref != nil && there.Ref != nil && *p.Ref == *there.Ref:
		name = fmt.Sprintf("ref %d", *p.Ref)
	default:
		name = "envelope"
	}
	return fault.New(fault.Conflict, "idempotency_conflict",
		"%s names message %s, which differs: choose another one, or send the same content", name, there.ID).
		With("existing", map[string]string{"id": there.ID.String()}).With("differs", names)
}
