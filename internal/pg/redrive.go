package pg

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Redrive is what a redrive changes. An empty field stays as it was.
type Redrive struct {
	Queue *string // "" = unordered
	Data  json.RawMessage
	UID   string // of the new transaction
	Hash  []byte // of the request, compared when the uid is known already
	// Poster is who redrives, who must be one that may post to the type; what a system has posted is posted by it.
	Poster outbox.Poster

	DependsOn *[]string // ids or uids
}

// Redrive posts what ended badly once more, as a new transaction at the tail (S2.6). Outcomes: the new one;
// with the uid of an earlier redrive of the same transaction, that one again (Replay); Conflict
// "already_redriven" (names it) or "wrong_state" (only FAILED, UNRESOLVED and CANCELLED can be redriven,
// and what a system has posted only where its Maker allows it); Forbidden where a post would be.
// The link between both is written in the commit of the new one, and its key refuses a second.
func (s *Store) Redrive(ctx context.Context, by db.By, id outbox.ID, change Redrive) (Accepted, error) {
	if err := change.reserved(); err != nil {
		return Accepted{}, err
	}
	old, err := s.Transaction(ctx, by.Context, id)
	if err != nil {
		return Accepted{}, err
	}
	m := s.madeBy(old.Type, old.UID)
	if m == nil {
		return s.redrive(ctx, by, old, change, nil)
	}
	change.Poster = m.As
	return m.Redrive(ctx, by, old, change, func(ctx context.Context, may func(context.Context, *Transaction) error) (Accepted, error) {
		old, err := s.Transaction(ctx, by.Context, id) // as it is behind the locks of its maker
		if err != nil {
			return Accepted{}, err
		}
		return s.redrive(ctx, by, old, change, may)
	})
}

// reserved refuses names of systems, which nothing gets by a redrive.
func (change *Redrive) reserved() error {
	queue := ""
	if change.Queue != nil {
		queue = *change.Queue
	}
	return outbox.Reserved(outbox.Anyone, "", change.UID, queue)
}

// redrive is Redrive of a transaction that was read; may, nil for nothing, refuses what its maker refuses.
func (s *Store) redrive(ctx context.Context, by db.By, old *Transaction, change Redrive,
	may func(context.Context, *Transaction) error) (Accepted, error) {
	id := old.ID // it may have been moved
	if err := seenTag(by, old); err != nil {
		return Accepted{}, err
	}
	switch {
	case old.State == outbox.DONE || !old.State.Terminal():
		return Accepted{}, fault.New(fault.Conflict, "wrong_state", "transaction %s is %s: only FAILED, UNRESOLVED and CANCELLED ones can be redriven", id, old.State)
	case old.RedrivenBy != "":
		return s.redriven(ctx, by, old, change)
	}
	if may != nil {
		if err := may(ctx, old); err != nil {
			return Accepted{}, err
		}
	}
	sub := &Submission{ContextID: by.Context, Queue: old.Queue, UID: change.UID, Hash: change.Hash, Actor: by.Actor,
		Poster: change.Poster, Type: old.Type, Data: old.Data,
		MaxRetries: old.MaxRetries, Tags: old.Tags, RedriveOf: &id, redrive: &by}
	if change.Queue != nil {
		sub.Queue = *change.Queue
	}
	if len(change.Data) > 0 {
		sub.Data = change.Data
		s.Judge(sub)
	}
	err := s.Db(ctx).QueryRow(ctx, `SELECT coalesce(s.account, ''), coalesce(t.traceparent, ''), t.callback FROM postern.task t
		LEFT JOIN postern.sender s ON s.sender_id = t.sender_id AND s.removed_at IS NULL
		WHERE (t.queue_id, t.seq, t.day) = ($1, $2, $3)`, id.Queue, id.Seq, id.Day.Time()).Scan(&sub.Sender, &sub.Traceparent, &sub.Callback)
	if err != nil {
		return Accepted{}, db.Known(err)
	}
	if change.DependsOn != nil {
		sub.DependsOn = *change.DependsOn
	} else if sub.DependsOn, err = s.newest(ctx, old); err != nil {
		return Accepted{}, err
	}
	out, err := s.Ingest(ctx, []*Submission{sub}, false)
	if err != nil {
		if again, readErr := s.Transaction(ctx, by.Context, id); readErr == nil && again.RedrivenBy != "" { // another one was faster
			return s.redriven(ctx, by, again, change)
		}
		return Accepted{}, err
	}
	return out[0], out[0].Err
}

// newest lists the transactions that a transaction depends on, each as it was redriven last. So an operator who
// redrives a failed one and then its dependents need not name the new ones.
func (s *Store) newest(ctx context.Context, t *Transaction) (ids []string, err error) {
	for _, text := range t.DependsOn {
		for {
			id, err := outbox.ParseID(text)
			if err != nil {
				return nil, err
			}
			var next string
			err = s.Db(ctx).QueryRow(ctx, `SELECT new_id::text FROM postern.redrive WHERE (queue_id, seq) = ($1, $2)`, id.Queue, id.Seq).Scan(&next)
			if db.IsNoRows(err) {
				break
			}
			if err != nil {
				return nil, db.Known(err)
			}
			text = next
		}
		ids = append(ids, text)
	}
	return ids, nil
}

// redriven answers for a transaction that has been redriven.
func (s *Store) redriven(ctx context.Context, by db.By, old *Transaction, change Redrive) (Accepted, error) {
	if id, err := outbox.ParseID(old.RedrivenBy); err == nil && change.UID != "" {
		if t, err := s.Transaction(ctx, by.Context, id); err == nil && t.UID == change.UID {
			return Accepted{ID: id, Replay: true}, nil
		}
	}
	return Accepted{}, fault.New(fault.Conflict, "already_redriven", "transaction %s was redriven as %s: look at that one", old.ID, old.RedrivenBy).
		With("redriven_by", old.RedrivenBy)
}

// auditRedrives keeps who redrove what, in the commit of the new transaction (which links both, see place).
func (in *ingest) auditRedrives(b *pgx.Batch) {
	for i, sub := range in.subs {
		if sub.redrive != nil && in.out[i].Err == nil && !in.out[i].Replay {
			in.s.AuditIn(b, *sub.redrive, "redrive", "/transactions/"+sub.RedriveOf.String())
		}
	}
}
