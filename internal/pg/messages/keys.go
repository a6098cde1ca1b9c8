package messages

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"time"

	"github.com/postern-dev/postern/internal/message"
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
	actor, err = s.ownerOf(ctx, key)
	if err != nil {
		return nil, nil, "", err
	}
	if actor == "" {
		return nil, nil, "", message.Unsigned("no actor here has the key that caller_key names")
	}
	return v, key, actor, nil
}

// ownerOf returns the actor that has a key, "" for none.
func (s *Store) ownerOf(ctx context.Context, key ed25519.PublicKey) (actor string, err error) {
	err = s.Db(ctx).QueryRow(ctx, `SELECT coalesce(max(actor_id), '') FROM postern.actor WHERE $1 = ANY (public_keys)`,
		base64.StdEncoding.EncodeToString(key)).Scan(&actor)
	return actor, db.Known(err)
}

// Here is for whom an envelope is meant that is for a context of this installation, and comes from it, too.
func (s *Store) Here(ctx context.Context, contextName string) (message.Audience, error) {
	a := message.Audience{Context: contextName}
	err := s.Db(ctx).QueryRow(ctx, `SELECT coalesce(to_jsonb(x)->>'installation', '') FROM postern.store x`).
		Scan(&a.Installation)
	return a, db.Known(err)
}
