package events

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Event is one request to run a tool (S1.4).
type Event struct {
	ID             uuid.UUID
	Source         string
	Identity       string
	Checkpoint     string
	Digest         string
	JSON           json.RawMessage  // of one event only
	Map            leader.SourceMap // of its source, as it is now
	FQN            string
	Status         string
	Retried        int
	Outcome        string // of its result, "" before there is one
	Code           string
	Error          string
	NotBefore      *time.Time
	Tool           string // id of the last transaction that called its tool
	Result         string // id of the last one that tells the workflow
	ResultRedriven bool   // that is not the first one
	RedriveOf      *uuid.UUID
	RedrivenBy     *uuid.UUID
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// Tag rises with each step of an event.
func (e *Event) Tag() int64 { return e.UpdatedAt.UnixMicro() }

const eventColumns = `e.event_id::text, s.name, e.identity, e.checkpoint, e.digest, e.json, e.fqn, e.status, e.retried,
	e.outcome, e.code, e.error, e.not_before, e.tool_id, e.result_id, e.result_redriven, e.redrive_of::text, e.redriven_by::text, e.created_at, e.updated_at, s.map`

func scanEvent(row pgx.CollectableRow) (*Event, error) {
	v, id := &Event{}, ""
	var of, by *string
	if err := row.Scan(&id, &v.Source, &v.Identity, &v.Checkpoint, &v.Digest, &v.JSON, &v.FQN, &v.Status, &v.Retried,
		&v.Outcome, &v.Code, &v.Error, &v.NotBefore, &v.Tool, &v.Result, &v.ResultRedriven, &of, &by, &v.CreatedAt, &v.UpdatedAt, &v.Map); err != nil {
		return nil, err
	}
	for text, into := range map[*string]**uuid.UUID{of: &v.RedriveOf, by: &v.RedrivenBy} {
		if text != nil {
			other, err := uuid.Parse(*text)
			if err != nil {
				return nil, err
			}
			*into = &other
		}
	}
	var err error
	v.ID, err = uuid.Parse(id)
	return v, err
}

// EventFilter narrows a list of events. Empty fields do not narrow.
type EventFilter struct {
	Source, Status, Tool, Digest []string
	After, Before                time.Time // of their creation, half-open
	FromAt                       time.Time // the cursor: time and id of the last one
	FromID                       uuid.UUID
	NotRedriven                  bool
	Ascending                    bool
	Limit                        int
}

// Events lists events of a context by creation. Served by event_listed, along which it goes until the page is
// full; those of one status that few have, by event_by_status.
func (s *Store) Events(ctx context.Context, contextID int32, f EventFilter) ([]*Event, error) {
	way, order := `<`, `DESC`
	if f.Ascending {
		way, order = `>`, `ASC`
	}
	one := ``
	if len(f.Status) == 1 {
		one = db.InState("e.status", f.Status[0], leader.Event.States())
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT `+eventColumns+` FROM postern.event e JOIN postern.source s ON s.source_id = e.source_id
		WHERE e.context_id = $1`+one+` AND ($2::text[] IS NULL OR s.name = ANY ($2))
			AND ($3::text[] IS NULL OR e.status = ANY ($3))
			AND ($4::text[] IS NULL OR e.fqn = ANY ($4)) AND ($5::text[] IS NULL OR e.digest = ANY ($5))
			AND ($6::timestamptz IS NULL OR e.created_at >= $6) AND ($7::timestamptz IS NULL OR e.created_at < $7)
			AND ($8::timestamptz IS NULL OR (e.created_at, e.event_id) `+way+` ($8, $9::text::uuid))
			AND ($11 = false OR e.redriven_by IS NULL)
		ORDER BY e.created_at `+order+`, e.event_id `+order+` LIMIT $10`,
		contextID, f.Source, f.Status, f.Tool, f.Digest, db.Nullable(f.After), db.Nullable(f.Before), db.Nullable(f.FromAt), f.FromID.String(), f.Limit, f.NotRedriven)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanEvent)
	return list, db.Known(err)
}

// Event returns one event, or NotFound.
func (s *Store) Event(ctx context.Context, contextID int32, id uuid.UUID) (*Event, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT `+eventColumns+` FROM postern.event e JOIN postern.source s ON s.source_id = e.source_id
		WHERE e.event_id = $2::text::uuid AND e.context_id = $1`, contextID, id.String())
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanEvent)
	if err != nil {
		return nil, db.Known(err)
	}
	if len(list) == 0 {
		return nil, fault.New(fault.NotFound, "not_found", "no event %q", id)
	}
	return list[0], nil
}

// Pushed is an event that was pushed: its id, and whether it was stored before.
type Pushed struct {
	ID    uuid.UUID
	Known bool
}

// PushEvents stores events that somebody brings to a source of kind push, with the cursor of the one who brings
// them (nil: as it is), in one SQL transaction, all or none. One that is there with the same content is known;
// Conflict "idempotency_conflict": with another. The source's row is locked, so that what is read of its events
// is what the last one who pushed has committed.
func (s *Store) PushEvents(ctx context.Context, by db.By, source string, items []leader.Item, cursor json.RawMessage) (out []Pushed, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		var id, channel int32
		var kind string
		var now time.Time
		b := &pgx.Batch{}
		b.Queue(`SELECT source_id, channel_id, kind FROM postern.source WHERE context_id = $1 AND name = $2 AND removed_at IS NULL FOR UPDATE`, by.Context, source).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&id, &channel, &kind}, func() error { return nil })
			return err
		})
		var identities []string
		for _, it := range items {
			identities = append(identities, it.Identity)
		}
		s.ReadNow(b, &now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		switch {
		case id == 0:
			return noSource(source)
		case kind != "push":
			return fault.New(fault.Conflict, "wrong_state", "source %q is of kind %s: only into one of kind push can events be brought", fault.Clip(source), kind)
		}
		there, err := alreadyThere(ctx, t, id, source, items)
		if err != nil {
			return err
		}
		out = make([]Pushed, len(items))
		var list []*newEvent
		for i, it := range items {
			if out[i] = there[it.Identity]; !out[i].Known {
				list = append(list, &newEvent{Item: it, Context: by.Context, Source: id, by: by.Actor})
			}
		}
		if len(list) > 0 {
			if err := s.Accepts(by.Context, leader.TypeTool); err != nil {
				return err
			}
		}
		b = &pgx.Batch{}
		if err := s.storeEvents(ctx, t, b, channel, list, now); err != nil {
			return err
		}
		for i := range out {
			if !out[i].Known {
				out[i].ID, list = list[0].ID, list[1:]
			}
		}
		b.Queue(`UPDATE postern.source SET cursor = coalesce($2::text::jsonb, cursor), polled_at = $3, caught_up_at = $3,
				kept_from = coalesce((SELECT min(e.created_at) FROM postern.event e WHERE e.source_id = $1 AND e.identity = ANY ($4)), kept_from)
			WHERE source_id = $1`, id, jsonText(cursor), now, identities)
		return t.Commit(ctx, b)
	})
	return out, err
}

// alreadyThere returns the events of a source that have the identities of items. Conflict "idempotency_conflict": one
// of them is stored with another content.
func alreadyThere(ctx context.Context, t *db.Txn, id int32, source string, items []leader.Item) (map[string]Pushed, error) {
	var identities, bodies []string
	for _, it := range items {
		identities, bodies = append(identities, it.Identity), append(bodies, string(it.JSON))
	}
	there := map[string]Pushed{}
	other := ""
	b := &pgx.Batch{}
	b.Queue(`SELECT e.event_id::text, e.identity, e.json = n.json::jsonb
		FROM ROWS FROM (unnest($2::text[]), unnest($3::text[])) n(identity, json)
		CROSS JOIN LATERAL (SELECT * FROM postern.event WHERE (source_id, identity) = ($1, n.identity) LIMIT 1) e`,
		id, identities, bodies).Query(func(rows pgx.Rows) error {
		var text, identity string
		var same bool
		_, err := pgx.ForEachRow(rows, []any{&text, &identity, &same}, func() error {
			was, err := uuid.Parse(text)
			if there[identity] = (Pushed{was, true}); !same {
				other = identity
			}
			return err
		})
		return err
	})
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	if other != "" {
		return nil, fault.New(fault.Conflict, "idempotency_conflict", "event %q of source %q is stored with another content",
			fault.Clip(other), fault.Clip(source)).With("existing", map[string]string{"id": there[other].ID.String()})
	}
	return there, nil
}
