package messages

import (
	"context"
	"crypto/ed25519"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/peers"
)

// Verify opens an envelope that came at a moment, and returns what it says and the actor whose key signed it. Faults
// are those of message.Open and message.Signed.Meant; Forbidden "bad_actor_signature" for a key that no actor has.
func (s *Store) Verify(ctx context.Context, envelope []byte, us message.Audience, now, since time.Time) (
	v *message.Signed, key ed25519.PublicKey, actor string, err error) {
	v, key, err = message.Open(envelope)
	if err != nil {
		return nil, nil, "", err
	}
	if err := v.Meant(us, now, since); err != nil {
		return nil, nil, "", err
	}
	owners, err := actors.OwnersOf(ctx, s.Db(ctx), key)
	if err != nil {
		return nil, nil, "", err
	}
	if len(owners) == 0 {
		return nil, nil, "", message.Unsigned("no actor here has the key that caller_key names")
	}
	if err := owners[0].Believes(v.CreatedAt, now); err != nil {
		return nil, nil, "", message.Unsigned("%s", fault.As(err).Detail)
	}
	return v, key, owners[0].Actor, nil
}

// remembered is since when each envelope that a peer has brought is known again. A message that waited for its peer for
// days is as good as new where that holds; earlier ones might be brought twice.
func (s *Store) remembered(ctx context.Context, now time.Time) (time.Time, error) {
	var forgotten *time.Time
	err := s.Db(ctx).QueryRow(ctx, `SELECT messages_before FROM postern.retained`).Scan(&forgotten)
	if err != nil || forgotten == nil {
		return time.Time{}, db.Known(err)
	}
	since := forgotten.Add(message.MaxAhead) // by the clock of its actor
	if fresh := now.Add(-message.MaxAge); fresh.Before(since) {
		since = fresh
	}
	return since, nil
}

// There is for whom an envelope is meant that goes to a peer.
func (s *Store) There(ctx context.Context, contextID int32, peer string, signed *message.Signed) (message.Audience,
	error) {
	p, err := s.calledPeer(ctx, contextID, peer)
	if err != nil {
		return message.Audience{}, err
	}
	return atPeer(p, signed), nil
}

// atPeer is There for a peer that was read. One that was not met yet looks itself which installation it is.
func atPeer(p *peers.Peer, signed *message.Signed) message.Audience {
	door, _ := outbox.DoorOf(p.URL)
	us := message.Audience{Installation: p.Installation, Context: door.Context, Peer: door.Peer}
	if us.Installation == "" {
		us.Installation = signed.Audience.Installation
	}
	return us
}

// Here is for whom an envelope is meant that is for a context of this installation, and comes from it, too.
func (s *Store) Here(ctx context.Context, contextName string) (message.Audience, error) {
	a := message.Audience{Context: contextName}
	err := s.Db(ctx).QueryRow(ctx, `SELECT installation::text FROM postern.store`).Scan(&a.Installation)
	return a, db.Known(err)
}
