package messages

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Get returns one message of a box of a context, or NotFound.
func (s *Store) Get(ctx context.Context, contextID int32, id uuid.UUID) (*Message, error) {
	list, err := s.query(ctx, `WHERE m.message_id = $1
		AND (m.context_id = $2 OR m.target_id = $2 AND m.delivered_at IS NOT NULL)`, id, contextID)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, none(id.String())
	}
	return list[0], nil
}

// ResultOf returns the message that answers another one, nil if none does.
func (s *Store) ResultOf(ctx context.Context, id uuid.UUID) (*Message, error) {
	list, err := s.query(ctx, `WHERE m.reply_to = $1 AND m.type = 'result'`, id)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

func (s *Store) query(ctx context.Context, where string, args ...any) ([]*Message, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT `+messageColumns+` FROM postern.message m `+where, args...)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanMessage)
	return list, db.Known(err)
}

// Boxes of a context.
const (
	Out = "out"
	In  = "in"
)

// Filter narrows a list of messages. Empty fields do not narrow.
type Filter struct {
	Box, Status, Type, Actor, Peer string
	Ref                            *int64
	ReplyTo                        *uuid.UUID
	After                          *Place // list what was made before it
	Limit                          int
	Examined                       int // how many messages the page may look at; 0: db.Examined
}

// Place is where a message stands in a list.
type Place struct {
	At time.Time `json:"at"`
	ID uuid.UUID `json:"id"`
}

// List lists messages of a box of a context without their texts, the newest first, and says where the list goes on if
// it has looked at as many as it may before it has found as many as it should: no index serves each filter.
func (s *Store) List(ctx context.Context, contextID int32, f Filter) (list []*Message, next *Place, err error) {
	after := f.After
	if after == nil {
		after = &Place{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	}
	box := `m.context_id = $1`
	if f.Box == In {
		box = `m.target_id = $1 AND m.delivered_at IS NOT NULL`
	}
	seen := `FROM postern.message m
		WHERE ` + box + ` AND (m.created_at, m.message_id) < ($2, $3)` +
		db.InState("m.status", f.Status, message.Message.States())
	order := ` ORDER BY m.created_at DESC, m.message_id DESC `
	if f.Examined == 0 {
		f.Examined = db.Examined
	}
	rows, err := s.Db(ctx).Query(ctx, fmt.Sprintf(`SELECT %s
		FROM (SELECT m.* %s%sLIMIT %d) m
		WHERE ($4 = '' OR m.status = $4)
			AND ($5 = '' OR m.type = $5)
			AND ($6 = '' OR m.actor = $6)
			AND ($7 = '' OR m.peer = $7)
			AND ($8::bigint IS NULL OR m.ref = $8)
			AND ($9::uuid IS NULL OR m.reply_to = $9)%s
		LIMIT $10`, briefColumns, seen, order, f.Examined, order), contextID, after.At, after.ID, f.Status, f.Type,
		f.Actor, f.Peer, f.Ref, f.ReplyTo, f.Limit)
	if err != nil {
		return nil, nil, db.Known(err)
	}
	if list, err = pgx.CollectRows(rows, scanMessage); err != nil || len(list) == f.Limit {
		return list, nil, db.Known(err)
	}
	at, last := Place{}, `SELECT m.created_at, m.message_id %s%sOFFSET %d LIMIT 1`
	next, err = db.Further(s.Db(ctx).QueryRow(ctx, fmt.Sprintf(last, seen, order, f.Examined-1), contextID, after.At,
		after.ID), &at, &at.At, &at.ID)
	return list, next, err
}

// Step is what happened to a message. One that came too late has no status.
type Step struct {
	At                           time.Time
	Was, Event, Status, By, Text string
}

// History lists what happened to a message, the first first, and what came too late.
func (s *Store) History(ctx context.Context, contextID int32, id uuid.UUID) (steps []Step, late []Late, err error) {
	if _, err := s.Get(ctx, contextID, id); err != nil {
		return nil, nil, err
	}
	b := &pgx.Batch{}
	b.Queue(`SELECT at, was, event, status, by, detail FROM postern.message_step WHERE message_id = $1 ORDER BY n`, id).
		Query(func(rows pgx.Rows) (err error) {
			steps, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Step])
			return err
		})
	b.Queue(`SELECT at, event, fence, by, body FROM postern.message_late WHERE message_id = $1 ORDER BY at, event,
		fence`,
		id).Query(func(rows pgx.Rows) (err error) {
		late, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Late, err error) {
			return l, row.Scan(&l.At, &l.Event, &l.Fence, &l.By, (*[]byte)(&l.Body))
		})
		return err
	})
	return steps, late, db.Known(s.Db(ctx).SendBatch(ctx, b).Close())
}

// Late is what came too late to change a message.
type Late struct {
	At        time.Time
	Event, By string
	Fence     int64
	Body      json.RawMessage
}

// Line is a piece of the output of the jobs of a message.
type Line struct {
	At                time.Time
	Job, Stream, Text string
}

// Logs lists the last lines that the jobs of a message have written, here or at a peer, in their order.
func (s *Store) Logs(ctx context.Context, contextID int32, id uuid.UUID, limit int) ([]Line, error) {
	if _, err := s.Get(ctx, contextID, id); err != nil {
		return nil, err
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT x.at, x.job, x.stream, x.text
		FROM (
			SELECT l.at, coalesce(j.ref::text, j.job_id::text) AS job, l.stream, l.text, l.n::bigint AS n
			FROM postern.job j
			JOIN postern.job_try t ON t.job_id = j.job_id
			JOIN postern.try_log l ON l.try_id = t.try_id
			WHERE j.message_id = $1
			UNION ALL
			SELECT l.at, '', l.stream, l.text, l.n
			FROM postern.message_log l
			WHERE l.message_id = $1
			UNION ALL
			SELECT l.at, '', l.stream, l.text, l.n::bigint
			FROM postern.try_log l
			WHERE l.try_id = $1
			ORDER BY at DESC, job DESC, n DESC
			LIMIT $2) x
		ORDER BY x.at, x.job, x.n`, id, limit)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Line])
	return list, db.Known(err)
}
