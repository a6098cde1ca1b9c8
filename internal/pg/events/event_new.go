package events

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/channels"
	"github.com/postern-dev/postern/internal/pg/db"
)

// EventRef is the payload of such a message.
type EventRef struct {
	Tool string `json:"tool,omitempty"`
}

func leaderChannelSettings(name string) channels.ChannelSettings {
	c := channels.DefaultChannel()
	c.Name, c.RetryEvery = name, time.Second
	// The receiver of a message is about to post a transaction; if another receiver posts it too, there is still only
	// one.
	c.StaleAfter, c.SweepEvery = 30*time.Second, 5*time.Second
	return c
}

func putLeaderChannel(b *pgx.Batch, contextID int32, c channels.ChannelSettings, now *time.Time) {
	b.Queue(`INSERT INTO postern.channel AS c (context_id, name, capacity, max_retries, retry_every, stale_after, sweep_every, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8::timestamptz, clock_timestamp()))
		ON CONFLICT (context_id, name) DO UPDATE SET capacity = excluded.capacity, version = c.version + 1 WHERE c.capacity <> excluded.capacity`,
		contextID, c.Name, c.Capacity, c.MaxRetries, c.RetryEvery, c.StaleAfter, c.SweepEvery, now)
}

// equip gives a context what its first source needs: the built-in dispatcher of tool calls, the pool of the channels
// to its workflow, and the channel to them. Settings that are there stay as they are.
func (s *Store) equip(b *pgx.Batch, contextID int32) {
	d := ToolDispatcher()
	settings, _ := json.Marshal(d)
	b.Queue(`INSERT INTO postern.dispatcher (context_id, type, settings) VALUES ($1, $2, $3::text::jsonb)
		ON CONFLICT (context_id, type) DO UPDATE SET removed_at = NULL WHERE postern.dispatcher.removed_at IS NOT NULL`, contextID, d.Type, string(settings))
	s.MakePool(b, contextID, leader.PoolOfResults)
	c := leaderChannelSettings(channels.ChannelOfResults)
	c.Capacity = 1000
	b.Queue(`INSERT INTO postern.channel (context_id, name, capacity, max_retries, retry_every, stale_after, sweep_every, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8::timestamptz, clock_timestamp())) ON CONFLICT (context_id, name) DO NOTHING`,
		contextID, c.Name, c.Capacity, c.MaxRetries, c.RetryEvery, c.StaleAfter, c.SweepEvery, s.Clock())
}

// ToolDispatcher is that of the calls of tools, as it is built in (S1.5).
func ToolDispatcher() outbox.Dispatcher {
	d, none := outbox.DefaultDispatcher(), 0
	d.Type, d.WorkerURL, d.Idempotent, d.Retry.MaxRetries = leader.TypeTool, leader.ToolURL, true, &none
	d.PostedBy = outbox.ByLeader
	d.Unknown = outbox.UnknownUnresolved                    // the event has an end of its own for it
	d.Timeouts.Dispatch = outbox.Duration(15 * time.Minute) // each tool has its own, and the fetch of its input comes before
	return d
}

// newEvent is an event that is to be stored.
type newEvent struct {
	leader.Item
	ID      uuid.UUID
	Context int32
	Source  int32
	why     string // it cannot be read
	note    string // for its history
	by      string
	of      *uuid.UUID // it redrives that one
	stored  bool       // it was not there
}

var newEventInsert = db.InsertMany("event", "ON CONFLICT ON CONSTRAINT one_event_per_identity DO NOTHING RETURNING event_id::text", "event_id uuid", "context_id int =",
	"source_id int =", "identity text", "checkpoint text", "digest text", "json jsonb", "fqn text", "status text", "error text", "redrive_of uuid",
	"created_at timestamptz =", "updated_at timestamptz =", "entered_at timestamptz =")

// storeEvents stores in t those of list that are not there yet, each with its first move, and offers those that can be
// read to the engine over the channel of their source; b is the last batch of t. A commit has both the event and the
// message about it, or neither.
func (s *Store) storeEvents(ctx context.Context, t *db.Txn, b *pgx.Batch, channel int32, list []*newEvent, now time.Time) error {
	if len(list) == 0 {
		return nil
	}
	var rows db.Columns
	byID := map[string]*newEvent{}
	steps := map[string]leader.EventStep{}
	for _, e := range list {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		if e.ID, e.stored = id, false; !json.Valid(e.JSON) {
			return fault.New(fault.Internal, "internal", "event %q is no JSON", fault.Clip(e.Identity))
		}
		step, err := leader.NextEvent(machine.Start, leader.EventSaved, leader.EventFacts{Undecodable: e.why != "", Error: e.why})
		if err != nil {
			return err
		}
		byID[id.String()], steps[id.String()] = e, step
		var of any
		if e.of != nil {
			of = e.of.String()
		}
		rows.Add(id.String(), e.Context, e.Source, e.Identity, e.Checkpoint, e.Digest, string(e.JSON), e.FQN, step.To, step.Error, of, now, now, now)
	}
	insert := &pgx.Batch{}
	newEventInsert.Queue(insert, rows)
	insert.QueuedQueries[0].Query(func(r pgx.Rows) error {
		var id string
		_, err := pgx.ForEachRow(r, []any{&id}, func() error { byID[id].stored = true; return nil })
		return err
	})
	if err := t.Send(ctx, insert); err != nil {
		return err
	}
	var moves db.Columns
	var out []channels.Outgoing[EventRef]
	for _, e := range list {
		if !e.stored {
			continue
		}
		step := steps[e.ID.String()]
		moves.Add(e.ID.String(), 1, now, machine.Start, leader.EventSaved, step.To, int64(0), e.by, step.Error+e.note)
		if step.Offer {
			out = append(out, channels.Outgoing[EventRef]{ID: e.ID.String(), Payload: EventRef{e.FQN}})
		}
	}
	if len(moves.Cols) > 0 {
		moveInsert.Queue(b, moves)
	}
	if len(out) == 0 {
		return nil
	}
	_, err := channels.ConduitOf[EventRef](s.Channels, channel).SendIn(ctx, t, b, out)
	return err
}

var moveInsert = db.InsertMany("event_move", "", "event_id uuid", "n int", "at timestamptz =", "was text =", "event text =", "status text =", "fence bigint", "by text =", "detail text")
