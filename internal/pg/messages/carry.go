package messages

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/peers"
)

// carrier carries messages to peers. Each goes out as a transaction of the type of its peer, which names the message
// alone.
type carrier struct {
	s     *Store
	peers *peers.Store
}

// Knows refuses a peer that is not there, or is not called.
func (c carrier) Knows(ctx context.Context, contextID int32, peer string) error {
	p, err := c.peers.Peer(ctx, contextID, peer)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return noPeer(peer)
	case err == nil && p.URL == "":
		return fault.At("/to/peer", "to.peer %q: it has no url, so that nothing is sent to it", fault.Clip(peer))
	}
	return err
}

// Route posts the transaction of a message.
func (c carrier) Route(ctx context.Context, m *Message) error { return c.s.carry(ctx, m, 0) }

// carriedUID names the transaction that carries a message; again counts those before it.
func carriedUID(id uuid.UUID, again int) string {
	if again == 0 {
		return ":message:" + id.String()
	}
	return fmt.Sprintf(":message:%s:%d", id, again+1)
}

// carriedQueue is the queue of what an actor writes to a peer. Jobs have none: they need no order.
func carriedQueue(m *Message) string {
	if m.Type == message.Job {
		return ""
	}
	actor := m.Actor
	if len(actor) > 64 { // the name of a queue has an end
		sum := sha256.Sum256([]byte(actor))
		actor = hex.EncodeToString(sum[:16])
	}
	return "peer:" + m.Peer + ":" + actor
}

// carry posts the transaction of a message that was let go to a peer. A process that dies before it leaves a message
// without one, which Recarry posts under the same uid. A refusal by the core ends the message.
func (s *Store) carry(ctx context.Context, m *Message, again int) error {
	data, err := json.Marshal(map[string]string{"message": m.ID.String()})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(append([]byte("message\x00"), data...))
	out, err := s.Ingest(ctx, []*pg.Submission{{
		Held:      true,
		ContextID: m.Context,
		Queue:     carriedQueue(m),
		UID:       carriedUID(m.ID, again),
		Hash:      sum[:],
		Actor:     m.Actor,
		Poster:    outbox.ByPeers,
		Type:      outbox.PeerType(m.Peer),
		Data:      data,
	}}, true)
	if err == nil {
		err = out[0].Err
	}
	switch fault.KindOf(err) {
	case "":
		s.RingHere()
		_, err := s.Exec(ctx, `UPDATE postern.message SET peer_tx = $2 WHERE message_id = $1`, m.ID, out[0].ID.String())
		return err
	case fault.Retry, fault.Internal:
		s.Log.Warn("post the transaction of a message: the next look does", "message", m.ID, "error", err)
		return nil
	}
	f := fault.As(err)
	return s.AtPeer(ctx, m.ID, &Refusal{f.Code, f.Detail})
}

// carriedAfter is how old a message without a transaction is before another process posts it.
const carriedAfter = 2 * time.Second

// Recarry posts the transactions of messages whose process died before it did.
func (s *Store) Recarry(ctx context.Context) (n int, err error) {
	list, err := s.query(ctx, `WHERE m.peer IS NOT NULL AND m.context_id IS NOT NULL AND m.peer_tx IS NULL
			AND m.routed_at < coalesce($1::timestamptz, clock_timestamp()) - $2::interval AND m.ended_at IS NULL
		ORDER BY m.message_id
		LIMIT $3`, s.Clock(), carriedAfter, routedAtOnce)
	if err != nil {
		return 0, err
	}
	for _, m := range list {
		again, err := s.carriedBefore(ctx, m.ID)
		if err == nil {
			err = s.carry(ctx, m, again)
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// carriedBefore is how often a message was delivered again, since its peer had lost it.
func (s *Store) carriedBefore(ctx context.Context, id uuid.UUID) (n int, err error) {
	err = s.Db(ctx).QueryRow(ctx, `SELECT redelivered FROM postern.message WHERE message_id = $1`, id).Scan(&n)
	return n, db.Known(err)
}

// Carried is the message that the data of a transaction names; nil where it is not here any more.
func (s *Store) Carried(ctx context.Context, contextID int32, data json.RawMessage) (*Message, error) {
	var named struct{ Message uuid.UUID }
	if err := json.Unmarshal(data, &named); err != nil {
		return nil, nil //nolint:nilerr // no message is named so
	}
	list, err := s.query(ctx, `WHERE m.message_id = $1 AND m.context_id = $2`, named.Message, contextID)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// Refusal is why a message is not taken.
type Refusal struct{ Code, Text string }

// AtPeer notes that a peer has stored a message, or has refused it. What the peer says behind an end here changes
// nothing.
func (s *Store) AtPeer(ctx context.Context, id uuid.UUID, refusal *Refusal) error {
	return s.Run(ctx, func(t *db.Txn) error {
		m, now, err := s.lock(ctx, t, id)
		if err != nil {
			return err
		}
		if m == nil || m.Status.Ended() || m.DeliveredAt != nil && refusal == nil {
			b := &pgx.Batch{}
			b.Queue(`UPDATE postern.message SET redelivering = false WHERE message_id = $1 AND redelivering`, id)
			return t.Commit(ctx, b)
		}
		c := Change{On: message.OnDelivered, By: "peer", Now: now}
		if refusal != nil {
			c.On, c.Code, c.Text = message.OnRefused, refusal.Code, refusal.Text
		}
		b := &pgx.Batch{}
		if err := s.Move(b, m, c); err != nil {
			return err
		}
		return t.Commit(ctx, b)
	})
}

// peersMade describes the maker of the transactions that carry messages.
func peersMade() pg.Made {
	return pg.Made{
		Maker: peersMaker{},
		As:    outbox.ByPeers,
		Owns: func(typ, _ string) bool {
			_, ok := outbox.PeerOf(typ)
			return ok
		},
	}
}

// peersMaker is the Maker of the transactions that carry messages. They have no row here but their message.
type peersMaker struct{}

// May leads cancel and abandon to the message.
func (peersMaker) May(_ db.By, lever string, t *pg.Task) error {
	if lever != "cancel" && lever != "abandon" {
		return nil
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(t.UID, ":message:"), ":")
	return fault.New(fault.Conflict, "wrong_state", "transaction %s carries message %s: cancel that", t.ID, id).
		With("lever", "POST /messages/"+id+"/cancel")
}

// Redrive refuses: a message that was refused is sent anew.
func (peersMaker) Redrive(context.Context, db.By, *pg.Transaction, pg.Redrive, pg.Repost) (pg.Accepted, error) {
	return pg.Accepted{}, fault.New(fault.Conflict, "wrong_state",
		"a transaction that carries a message is not redriven: send the message anew").With("lever", "POST /messages")
}

// Moved has nothing to note.
func (peersMaker) Moved(*pgx.Batch, *pg.Task) {}

// Forget has nothing of its own to remove.
func (peersMaker) Forget(context.Context, time.Time) error { return nil }

// Ended names the message.
func (peersMaker) Ended(t *pg.Transaction) string {
	return "it carried a message (" + strings.TrimPrefix(t.UID, ":") + ")"
}
