package events

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/channels"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// ResultBody is what the workflow is told of an event (S1.14).
type ResultBody struct {
	Event   uuid.UUID       `json:"event"`
	Digest  string          `json:"digest"`
	Outcome string          `json:"outcome"`
	Variant *string         `json:"variant"`
	Output  json.RawMessage `json:"output"`
	Error   *ResultError    `json:"error"`
}

// ResultError is why an event failed.
type ResultError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// ToolOutput is what a tool call that succeeded leaves in the outcome of its transaction.
type ToolOutput struct {
	Variant string          `json:"variant"`
	Output  json.RawMessage `json:"output"`
}

// SendResults posts the transactions that tell workflows the results of events: an ordinary one of type leader.result
// through a pool of senders, which are the channels, under a uid that the event makes up, so that there is one
// (S1.14). It goes as TakeEvents does: held, posted, acknowledged. In a context without that dispatcher the results
// wait, and none is lost.
func (s *Store) SendResults(ctx context.Context, w LeaderWork, n pg.Node) (total int, err error) {
	for _, l := range w.results {
		d := s.DispatcherOf(l.Context, leader.TypeResult)
		if d == nil || d.Removed {
			continue
		}
		held, err := channels.ConduitOf[EventRef](s.Channels, l.Channel).Receive(ctx, n, takeMost)
		if err == nil {
			err = s.refill(ctx, l)
		}
		if err != nil {
			return total, s.giveBack(ctx, l, held, err)
		}
		if len(held) == 0 {
			continue
		}
		if err := s.giveBack(ctx, l, held, s.result(ctx, l, held)); err != nil {
			return total, err
		}
		total += len(held)
	}
	return total, nil
}

func (s *Store) result(ctx context.Context, l leaderChannel, held []channels.Held[EventRef]) error {
	subs, of, err := s.resultsOf(ctx, l, held)
	if err != nil {
		return err
	}
	posted, refused, err := s.postAll(ctx, l, subs)
	if err != nil {
		return err
	}
	var ids db.Columns
	for i, a := range posted {
		if a.Err == nil {
			ids.Add(of[i].ID, a.ID.Queue, a.ID.Seq, a.ID.Day.Time(), a.ID.String())
		}
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		if len(ids.Cols) > 0 {
			b.Queue(`UPDATE postern.event e SET result_queue = n.queue_id, result_seq = n.seq, result_day = n.day, result_id = n.id
				FROM ROWS FROM (unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::date[]), unnest($5::text[])) n(event_id, queue_id, seq, day, id)
				WHERE e.event_id = n.event_id AND e.status = 'Active' AND e.result_id = ''`, ids.Args()...)
		}
		if err := channels.ConduitOf[EventRef](s.Channels, l.Channel).AckIn(ctx, t, b, without(held, refused, of)); err != nil {
			return err
		}
		return t.Commit(ctx, b)
	})
	if err != nil {
		return err
	}
	return s.nackAll(ctx, l, held, refused, of)
}

// resultsOf are the results of events whose messages are held. Of an event that has told its workflow there is none. A
// drain lets them pass (Held), as it does the calls of tools.
func (s *Store) resultsOf(ctx context.Context, l leaderChannel, held []channels.Held[EventRef]) (subs []*pg.Submission, of []*eventRow, err error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT e.event_id::text, e.digest, e.outcome, e.code, e.error, e.created_at, o.result -> 'done'
		FROM postern.event e LEFT JOIN LATERAL (SELECT o.result FROM postern.outcome o
			WHERE (o.queue_id, o.seq, o.day) = (e.tool_queue, e.tool_seq, e.tool_day) AND e.outcome = 'successful') o ON true
		WHERE e.event_id = ANY ($1::text[]::uuid[]) AND e.status = 'Active' AND e.outcome <> ''`, idsOf(held))
	if err != nil {
		return nil, nil, db.Known(err)
	}
	var v eventRow
	var at time.Time
	var done json.RawMessage
	_, err = pgx.ForEachRow(rows, []any{&v.ID, &v.Digest, &v.Outcome, &v.Code, &v.Error, &at, &done}, func() error {
		id, err := uuid.Parse(v.ID)
		if err != nil {
			return err
		}
		body := ResultBody{Event: id, Digest: v.Digest, Outcome: v.Outcome}
		if v.Outcome == leader.OutcomeSuccessful {
			var out ToolOutput
			if err := json.Unmarshal(done, &out); err != nil {
				return err
			}
			body.Variant, body.Output = &out.Variant, out.Output
		} else {
			body.Error = &ResultError{v.Code, v.Error}
		}
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		hash := sha256.Sum256(append([]byte(leader.TypeResult+"\x00"), data...))
		subs = append(subs, &pg.Submission{Held: true, ContextID: l.Context, UID: "event:" + v.ID + ":result",
			Hash: hash[:], Poster: outbox.ByLeader, Type: leader.TypeResult, Data: data})
		one := v
		of = append(of, &one)
		if twin.Planted("result_told_twice") {
			again := *subs[len(subs)-1]
			again.UID += ":2"
			subs, of = append(subs, &again), append(of, &one)
		}
		return nil
	})
	return subs, of, db.Known(err)
}
