package batches

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

// PutPeer lets another installation send batches to a processor, in messages signed with secret; one of that name is
// replaced, and what it sent stays its own.
func (s *Store) PutPeer(ctx context.Context, by db.By, name, peer string, secret []byte) error {
	return s.onProcessor(ctx, by.Context, name, func(t *db.Txn, h *heldProcessor) error {
		if err := by.Admin(ctx, t, by.Context); err != nil {
			return err
		}
		if err := by.Seen(h.Version); err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO postern.processor_peer (processor_id, name, secret) VALUES ($1, $2, $3)
			ON CONFLICT (processor_id, name) DO UPDATE SET secret = excluded.secret`, h.ID, peer, secret)
		h.repeer(b)
		s.AuditIn(b, by, "put", "/processors/"+name+"/peers/"+peer)
		return t.Commit(ctx, b)
	})
}

// RemovePeer takes nothing more from an installation, and answers it no more. Batches that it has sent are executed.
// NotFound.
func (s *Store) RemovePeer(ctx context.Context, by db.By, name, peer string) error {
	return s.onProcessor(ctx, by.Context, name, func(t *db.Txn, h *heldProcessor) error {
		if err := by.Seen(h.Version); err != nil {
			return err
		}
		found := false
		b := &pgx.Batch{}
		b.Queue(`DELETE FROM postern.processor_peer WHERE processor_id = $1 AND name = $2 RETURNING true`, h.ID, peer).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&found}, func() error { return nil })
			return err
		})
		h.repeer(b)
		s.AuditIn(b, by, "delete", "/processors/"+name+"/peers/"+peer)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if !found {
			return noPeer(name, peer)
		}
		return t.Commit(ctx, &pgx.Batch{})
	})
}

func (h *heldProcessor) repeer(b *pgx.Batch) {
	b.Queue(`UPDATE postern.processor SET version = version + 1 WHERE processor_id = $1`, h.ID)
}

func noPeer(name, peer string) error {
	return fault.New(fault.NotFound, "not_found", "processor %q has no peer %q", fault.Clip(name), fault.Clip(peer))
}

// Peer returns the secrets of a peer in a context: of this processor or, where it has no such peer, those of others,
// with which it proves who it is and may do nothing here. NotFound for a processor or a name that is not there.
func (s *Store) Peer(ctx context.Context, contextID int32, name, peer string) (secrets [][]byte, may bool, err error) {
	if _, err := s.Processor(ctx, contextID, name); err != nil {
		return nil, false, err
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT r.secret, p.name = $2 FROM postern.processor_peer r JOIN postern.processor p ON p.processor_id = r.processor_id
		WHERE p.context_id = $1 AND p.removed_at IS NULL AND r.name = $3 ORDER BY p.name = $2 DESC`, contextID, name, peer)
	if err != nil {
		return nil, false, db.Known(err)
	}
	var secret []byte
	var here bool
	if _, err = pgx.ForEachRow(rows, []any{&secret, &here}, func() error {
		if may = may || here; here == may {
			secrets = append(secrets, append([]byte(nil), secret...))
		}
		return nil
	}); err != nil {
		return nil, false, db.Known(err)
	}
	if len(secrets) == 0 {
		return nil, false, noPeer(name, peer)
	}
	return secrets, may, nil
}

// mayPut refuses an actor that may not put a batch into a line as its owner does. The row that admits a peer is read
// behind the processor's lock, which the statement that removes it holds too.
func (h *heldProcessor) mayPut(ctx context.Context, t *db.Txn, by db.By, peer string) (err error) {
	if peer == "" {
		return h.owned(by)
	}
	there := false
	b := &pgx.Batch{}
	b.Queue(`SELECT EXISTS (SELECT FROM postern.processor_peer WHERE processor_id = $1 AND name = $2)`, h.ID, peer).
		QueryRow(func(row pgx.Row) error { return row.Scan(&there) })
	if err = t.Send(ctx, b); err == nil && !there {
		err = noPeer(h.Name, peer)
	}
	return err
}

// actorOf returns the name under which a peer acts, as initiator of what it sent.
func actorOf(peer string) string { return "peer:" + peer }

// Arrival is a message with a batch of another installation.
type Arrival struct {
	processor.Envelope
	Peer   string
	Origin string    // the transaction there that brings it
	Posted time.Time // when that was posted: the peer has not sent it before
}

// Receive takes the batch of another installation into its line, once: however often it is sent, in whichever
// transaction there, it is the batch that the first message made (Replay). The peer has the right of an owner, and the
// batch is stored in one SQL transaction, as any other. Conflict "idempotency_conflict" for the same name with another
// content; and the errors of Enqueue. Of two calls at once for one processor the second waits for its lock, and finds
// the batch of the first.
func (s *Store) Receive(ctx context.Context, by db.By, name string, a Arrival) (*Batch, error) {
	p, err := s.Processor(ctx, by.Context, name)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(a.Envelope)
	if err != nil {
		return nil, fault.At("/txData/data", "the batch is not understood: %s", err)
	}
	sum := sha256.Sum256(text)
	once := db.Once{Key: fmt.Sprintf(":peer:%d:%s:%s", p.ID, a.Peer, a.Name()), Hash: sum[:]}
	by.Actor = actorOf(a.Peer)
	v, err := s.received(ctx, by.Context, once)
	if err != nil || v != nil {
		return v, err // also what would be refused by now
	}
	if err := s.neverForgotten(ctx, a.Posted); err != nil {
		return nil, err
	}
	a.To(name)
	return s.Enqueue(ctx, by, name, NewBatch{Actions: a.Actions, Messages: a.Messages, Priority: a.Priority, Expiration: a.Expiration, Once: once, Peer: a.Peer, Origin: a.Origin})
}

func (s *Store) received(ctx context.Context, contextID int32, once db.Once) (v *Batch, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		if v, err = requested(ctx, t, contextID, once); err != nil || v != nil {
			return err
		}
		return t.Rollback(ctx)
	})
	return v, err
}

// neverForgotten refuses a batch that may have been executed here, and forgotten by retention, before it is sent again.
func (s *Store) neverForgotten(ctx context.Context, since time.Time) error {
	var kept time.Time
	if err := s.Db(ctx).QueryRow(ctx, `SELECT greatest(r.since, r.before + 1) FROM postern.retained r`).Scan(&kept); err != nil {
		return db.Known(err)
	}
	if since.Before(kept) {
		return fault.New(fault.Conflict, "wrong_state", "the message is of %s, and what was received before %s is forgotten here: it may have been executed",
			since.UTC().Format(time.RFC3339), kept.UTC().Format(time.RFC3339))
	}
	return nil
}

// Sent returns the batch of a processor that a peer sent, by its id here or else by the transaction there that brought
// it; nil for none.
func (s *Store) Sent(ctx context.Context, contextID int32, name, peer string, id int64, origin string) (*Batch, error) {
	where, key := `b.batch_id = $4`, any(id)
	if origin != "" {
		where, key = `b.origin = $4`, origin
	}
	list, err := s.batches(ctx, ` WHERE p.context_id = $1 AND p.name = $2 AND b.initiator = $3 AND `+where+` LIMIT 1`, contextID, name, actorOf(peer), key)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}
