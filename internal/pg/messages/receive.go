package messages

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Receiving is what a receiver asks for.
type Receiving struct {
	Max   int
	Lease time.Duration
	Topic string // "": any
}

// maxTexts is how many bytes of texts one receive hands out, or one commit routes or settles, but for one message.
const maxTexts = 4 << 20

// inboxSQL finds the messages in the msg_in of a context $1 that a receiver $2 may be handed now: for everybody there,
// or for it alone; with the topic $3, if that is not empty; with no deadline that is over by the clock $4, and no lease
// by that of leases $5.
const inboxSQL = `FROM postern.message m
	WHERE m.target_id = $1
		AND m.status = 'dispatched'
		AND m.delivered_at IS NOT NULL
		AND m.type <> 'job'
		AND (m.to_actor IS NULL OR m.to_actor = $2)
		AND ($3 = '' OR m.topic = $3)
		AND (m.due_at IS NULL OR m.due_at > coalesce($4::timestamptz, clock_timestamp()))
		AND (m.lease_until IS NULL OR m.lease_until <= coalesce($5::timestamptz, clock_timestamp()))`

// receiveSQL locks such messages, the oldest $6, and reads as many of them as have bodies of $7 bytes together, and one
// at least.
const receiveSQL = `SELECT ` + bodyColumns + `
	FROM (
		SELECT m.*, row_number() OVER w AS n, sum(octet_length(m.body)) OVER w AS size
		FROM (SELECT m.* ` + inboxSQL + `
			ORDER BY m.delivered_at, m.message_id
			LIMIT $6
			FOR UPDATE SKIP LOCKED) m
		WINDOW w AS (ORDER BY m.delivered_at, m.message_id)) m
	WHERE m.n = 1 OR m.size <= $7
	ORDER BY m.delivered_at, m.message_id`

// Receive hands a receiver up to Max messages of the msg_in of its context, the oldest first, each under a fence and
// for a time: without an acknowledgement another one is handed it then.
//
// Two receivers skip what the other has locked. Behind the lock the row is read as it is now: a message that another
// one has been handed meanwhile is not in the answer, since its lease no longer fits the condition.
func (s *Store) Receive(ctx context.Context, by db.By, r Receiving) (list []*Message, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		var now, lease time.Time
		b := &pgx.Batch{}
		b.Queue(receiveSQL, by.Context, by.Actor, r.Topic, s.Clock(), s.LeaseNow(), r.Max, maxTexts).
			Query(collect(&list))
		b.Queue(`SELECT coalesce($1::timestamptz, clock_timestamp()), coalesce($2::timestamptz, clock_timestamp())`,
			s.Clock(), s.LeaseNow()).QueryRow(func(row pgx.Row) error { return row.Scan(&now, &lease) })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(list) == 0 {
			return t.Rollback(ctx)
		}
		had, err := s.hadBefore(ctx, t, list, by.Actor)
		if err != nil {
			return err
		}
		b = &pgx.Batch{}
		for _, m := range list {
			if err := s.Move(b, m, Change{On: message.OnReceived, By: by.Actor, Now: now, Lease: lease.Add(r.Lease),
				Again: had[m.ID]}); err != nil {
				return err
			}
		}
		return t.Commit(ctx, b)
	})
	return list, err
}

// hadBefore says which of some messages a receiver was handed before. The history has the first time of each receiver
// alone: with one that fails whenever it has a message it would grow for ever, and a peer would be told of each time.
//
// The messages are locked before this is read, and who is handed one writes that in the commit that holds its lock.
func (s *Store) hadBefore(ctx context.Context, t *db.Txn, found []*Message, actor string) (map[uuid.UUID]bool, error) {
	var ids []uuid.UUID
	for _, m := range found {
		if m.Fence > 0 {
			ids = append(ids, m.ID)
		}
	}
	had := map[uuid.UUID]bool{}
	if len(ids) == 0 {
		return had, nil
	}
	b := &pgx.Batch{}
	b.Queue(`SELECT s.message_id
		FROM postern.message_step s
		WHERE s.message_id = ANY ($1) AND s.event = $2 AND s.by = $3`, ids, string(message.OnReceived), actor).
		Query(func(rows pgx.Rows) error {
			var id uuid.UUID
			_, err := pgx.ForEachRow(rows, []any{&id}, func() error { had[id] = true; return nil })
			return err
		})
	return had, t.Send(ctx, b)
}

// Await waits until there is a message for a receiver, for a time or until end is closed. It looks once a second, and
// is woken by deliveries of this process.
func (s *Store) Await(ctx context.Context, by db.By, topic string, length time.Duration, end <-chan struct{}) error {
	return db.Await(ctx, db.Waiting{
		Length: length,
		Every:  time.Second,
		End:    end,
		Rung:   func() <-chan struct{} { return s.bells.of(by.Context) },
		There: func(ctx context.Context) (there bool, err error) {
			err = s.Db(ctx).QueryRow(ctx, `SELECT EXISTS (SELECT `+inboxSQL+`)`, by.Context, by.Actor, topic,
				s.Clock(), s.LeaseNow()).Scan(&there)
			return there, err
		},
	})
}
