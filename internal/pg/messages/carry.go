package messages

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
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
	"github.com/postern-dev/postern/internal/twin"
)

// calledPeer reads a peer to which messages go. It refuses one that is not there, or is not called.
func (s *Store) calledPeer(ctx context.Context, contextID int32, peer string) (*peers.Peer, error) {
	p, err := s.installations.Peer(ctx, contextID, peer)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return nil, noPeer(peer)
	case err == nil && p.URL == "":
		return nil, fault.At("/to/peer", "to.peer %q: it has no url, so that nothing is sent to it", fault.Clip(peer))
	}
	return p, err
}

// uncarried is a message that was let go to a peer, and that no transaction carries.
type uncarried struct {
	ID      uuid.UUID
	Context int32
	Peer    string
	Actor   string
	Type    string
	Again   int // how often it was delivered again, since its peer had lost it
}

// uid names the transaction that carries a message.
func (u *uncarried) uid() string {
	if u.Again == 0 {
		return ":message:" + u.ID.String()
	}
	return fmt.Sprintf(":message:%s:%d", u.ID, u.Again+1)
}

// queue is that of what an actor writes to a peer. Jobs have none: they need no order.
func (u *uncarried) queue() string {
	if u.Type == message.Job || twin.Planted("letters_without_queue") {
		return ""
	}
	actor := u.Actor
	if len(actor) > 64 { // the name of a queue has an end
		sum := sha256.Sum256([]byte(actor))
		actor = hex.EncodeToString(sum[:16])
	}
	return outbox.PeerQueue(u.Peer, actor)
}

// carriedAtOnce is how many transactions one commit posts, and carriedMost how many one call.
const (
	carriedAtOnce = 100
	carriedMost   = 10 * carriedAtOnce
)

// Carry posts the transactions of messages that were let go to peers and have none, the oldest first; it returns how
// many.
//
// It reads all such messages, not those alone that this process has let go: of one queue an older one is committed
// before, or in the same commit, whichever process lets go of the younger one, and whichever dies. Two processes that
// post the same ones do it under the same uids: the second finds those of the first. Where the core cannot take one
// now, those behind it in its queue are left to the next look, too.
func (s *Store) Carry(ctx context.Context) (n int, err error) {
	waits := map[string]bool{} // queues that have no room for one
	full := []string{}         // and whose they are: very many may wait for one
	for after, more := (uuid.UUID{}), true; more && n < carriedMost; {
		var list []uncarried
		rows, err := s.Db(ctx).Query(ctx, `SELECT m.message_id, m.context_id, m.peer, m.actor, m.type, m.redelivered
			FROM postern.message m
			WHERE m.peer_tx IS NULL
				AND m.peer IS NOT NULL
				AND m.context_id IS NOT NULL
				AND m.routed_at IS NOT NULL
				AND m.ended_at IS NULL
				AND m.message_id > $1
				AND (m.type = 'job' OR NOT (m.context_id || ' ' || m.peer || ' ' || m.actor) = ANY ($3))
			ORDER BY m.message_id
			LIMIT $2`, after, carriedAtOnce, full)
		if err != nil {
			return n, db.Known(err)
		}
		if list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[uncarried]); err != nil {
			return n, db.Known(err)
		}
		if more = len(list) == carriedAtOnce; more {
			after = list[len(list)-1].ID
		}
		list = slices.DeleteFunc(list, func(u uncarried) bool {
			if waits[u.in()] && u.Type != message.Job {
				full = append(full, fmt.Sprint(u.Context, " ", u.Peer, " ", u.Actor))
			}
			return waits[u.in()]
		})
		slices.Sort(full)
		full = slices.Compact(full)
		if len(list) == 0 {
			continue
		}
		posted, err := s.carry(ctx, list, waits)
		n += posted
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// in names the queue of a message over all contexts.
func (u *uncarried) in() string { return fmt.Sprint(u.Context, " ", u.queue()) }

// carry posts the transactions of messages in one commit, and returns how many. A refusal by the core ends its message;
// what it cannot take now goes into waits.
func (s *Store) carry(ctx context.Context, list []uncarried, waits map[string]bool) (n int, err error) {
	subs := make([]*pg.Submission, 0, len(list))
	for _, u := range list {
		data, err := json.Marshal(map[string]string{"message": u.ID.String()})
		if err != nil {
			return 0, err
		}
		sum := sha256.Sum256(append([]byte("message\x00"), data...))
		subs = append(subs, &pg.Submission{
			Held:      true,
			ContextID: u.Context,
			Queue:     u.queue(),
			UID:       u.uid(),
			Hash:      sum[:],
			Actor:     u.Actor,
			Poster:    outbox.ByPeers,
			Type:      outbox.PeerType(u.Peer),
			Data:      data,
		})
	}
	out, err := s.Ingest(ctx, subs, false)
	if err != nil {
		s.Log.Warn("post the transactions of messages: the next look does", "messages", len(list), "error", err)
		for _, u := range list {
			waits[u.in()] = true
		}
		return 0, nil
	}
	var posted []uncarried
	var carriers []string
	for i, u := range list {
		switch err := out[i].Err; fault.KindOf(err) {
		case "":
			posted, carriers = append(posted, u), append(carriers, out[i].ID.String())
		case fault.Retry, fault.Internal:
			s.Log.Warn("post the transaction of a message: the next look does", "message", u.ID, "error", err)
			if u.queue() != "" {
				waits[u.in()] = true
			}
		default:
			why, err := s.uncarriable(ctx, u, fault.As(err))
			if err == nil {
				err = s.AtPeer(ctx, u.ID, why)
			}
			if err != nil {
				return n, err
			}
			n++
		}
	}
	if len(posted) == 0 {
		return n, nil
	}
	s.RingHere()
	return n + len(posted), s.carriedBy(ctx, posted, carriers)
}

// uncarriable is why the core takes no transaction of a message. A peer and its dispatcher are removed in one commit,
// so that behind a type that is unknown for that reason the peer is not found.
func (s *Store) uncarriable(ctx context.Context, u uncarried, f *fault.Error) (*Refusal, error) {
	if f.Code == "unknown_type" {
		switch _, err := s.installations.Peer(ctx, u.Context, u.Peer); {
		case fault.KindOf(err) == fault.NotFound:
			return &Refusal{Code: CodePeerRemoved, Text: removedText(u.Peer)}, nil
		case err != nil:
			return nil, err
		}
	}
	return &Refusal{Code: f.Code, Text: f.Detail}, nil
}

// carriedBy notes by which transactions messages are carried.
//
// A process that was frozen since it read a message may find that its peer has lost it meanwhile: it is delivered again
// then, by another transaction, which is the one to be noted. The one that was found here has ended.
func (s *Store) carriedBy(ctx context.Context, list []uncarried, carriers []string) error {
	ids, again := make([]uuid.UUID, len(list)), make([]int, len(list))
	for i, u := range list {
		ids[i], again[i] = u.ID, u.Again
	}
	_, err := s.Exec(ctx, `UPDATE postern.message m
		SET peer_tx = n.tx
		FROM ROWS FROM (unnest($1::uuid[]), unnest($2::text[]), unnest($3::int[])) n(message_id, tx, redelivered)
		WHERE m.message_id = n.message_id AND m.redelivered = n.redelivered`, ids, carriers, again)
	return err
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

// AnswersAt is what a message to a peer answers, as the peer names it; nil: it answers none of the peer. What its actor
// has signed names it as it is called here.
func (s *Store) AnswersAt(ctx context.Context, m *Message) (*uuid.UUID, error) {
	if m.ReplyTo == nil {
		return nil, nil
	}
	list, err := s.query(ctx, `WHERE m.message_id = $1 AND m.context_id IS NULL AND m.target_id = $2 AND m.peer = $3`,
		m.ReplyTo, m.Context, m.Peer)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0].PeerMessage, nil
}

// Refusal is why a message is not taken.
type Refusal struct {
	Code, Text string
	Unclear    bool // what came of a call before is not known: that may have stored it
}

// of is the refusal of a message that may have been stored before. Its peer knows one that it remembers, so that it has
// forgotten this one, or lost it, and what its jobs or its receivers have done may stand: the words of the refusal
// alone would have its sender send it anew. What an unclear call has brought is remembered for message.MaxAge at least;
// behind that the peer refuses it by its age (Signed.Meant).
func (r Refusal) of(m *Message, now time.Time) Refusal {
	again := "and could not be delivered again (" + r.Code + ": " + r.Text + "): it may have been done there. Look " +
		"there before you send it anew"
	switch {
	case r.Code == CodePeerRemoved:
	case m.DeliveredAt != nil:
		return Refusal{Code: CodeLost, Text: "it was delivered at " + m.DeliveredAt.UTC().Format(time.RFC3339) +
			", is not known at its peer any more, " + again}
	case r.Unclear && r.Code == string(fault.Invalid) && now.Sub(m.CreatedAt) > message.MaxAge:
		return Refusal{Code: CodeLost, Text: "its peer may have had it before, " + again}
	}
	return r
}

// AtPeer notes that a peer has stored a message, or has refused it. What the peer says behind an end here, or behind a
// deadline that is over, is kept as late, and changes nothing.
func (s *Store) AtPeer(ctx context.Context, id uuid.UUID, refusal *Refusal) error {
	return s.Run(ctx, func(t *db.Txn) error {
		m, now, err := s.lock(ctx, t, id)
		if err != nil {
			return err
		}
		if m == nil {
			return t.Rollback(ctx)
		}
		b := &pgx.Batch{}
		if err := s.overdue(b, m, now); err != nil {
			return err
		}
		c := Change{On: message.OnDelivered, By: "peer", Now: now}
		if refusal != nil {
			why := refusal.of(m, now)
			c.On, c.Code, c.Text = message.OnRefused, why.Code, why.Text
		}
		switch known := m.DeliveredAt != nil && refusal == nil; {
		case m.Status.Ended() && !known:
			s.Late(b, m, c.On, 0, "peer:"+m.Peer, said{Reason: c.Text}, now)
			fallthrough
		case known:
			b.Queue(`UPDATE postern.message SET redelivering = false WHERE message_id = $1 AND redelivering`, id)
		default:
			err = s.Move(b, m, c)
		}
		if err != nil {
			return err
		}
		return s.commit(ctx, t, b, m)
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

// May leads cancel and abandon to the message, and has a full queue drop none: a message is not lost.
func (peersMaker) May(_ db.By, lever string, t *pg.Task) error {
	if lever != "cancel" && lever != "abandon" && lever != "drop" {
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
