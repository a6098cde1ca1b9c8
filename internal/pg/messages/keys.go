package messages

import (
	"context"
	"crypto/ed25519"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Verify opens an envelope that came at a moment, and returns what it says and the actor whose key signed it. Faults
// are those of message.Open and message.Signed.Meant; Forbidden "bad_actor_signature" for a key that no actor has.
func (s *Store) Verify(ctx context.Context, envelope []byte, us message.Audience, now time.Time) (v *message.Signed,
	key ed25519.PublicKey, actor string, err error) {
	v, key, err = message.Open(envelope)
	if err != nil {
		return nil, nil, "", err
	}
	if err := v.Meant(us, now); err != nil {
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

// Here is for whom an envelope is meant that is for a context of this installation, and comes from it, too.
func (s *Store) Here(ctx context.Context, contextName string) (message.Audience, error) {
	a := message.Audience{Context: contextName}
	err := s.Db(ctx).QueryRow(ctx, `SELECT installation::text FROM postern.store`).Scan(&a.Installation)
	return a, db.Known(err)
}
