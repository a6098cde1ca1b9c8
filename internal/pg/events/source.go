package events

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/channels"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Source is one with how far it was read.
type Source struct {
	leader.Source
	ID         int32
	Channel    int32           // over which its events go to the engine
	State      string          // running, paused, failed
	Cursor     json.RawMessage // null: from its start
	PolledAt   *time.Time      // the last look that was answered
	CaughtUpAt *time.Time      // the last one after which there was no more
	Lag        time.Duration   // for how long it has not been caught up
	LastError  string
	Failures   int // since the last answer
	NextAt     time.Time
	Version    int64
	CreatedAt  time.Time
}

const sourceColumns = `s.source_id, s.name, s.kind, s.url, s.filter, s.map, s.relation, s.start, s.poll_every, s.page_size, c.capacity, s.max_retries, s.stale_after, s.channel_id, s.on_undecodable, s.state, s.cursor,
	s.polled_at, s.caught_up_at, s.last_error, s.failures, s.next_at, s.version, s.created_at`

func (v *Source) fields() []any {
	return []any{&v.ID, &v.Name, &v.Kind, &v.URL, &v.Filter, &v.Map, &v.Table, &v.Start, &v.PollEvery, &v.PageSize, &v.Buffer, &v.MaxRetries, &v.StaleAfter, &v.Channel, &v.OnUndecodable, &v.State, &v.Cursor,
		&v.PolledAt, &v.CaughtUpAt, &v.LastError, &v.Failures, &v.NextAt, &v.Version, &v.CreatedAt}
}

const sourcesSQL = `SELECT ` + sourceColumns + `, coalesce($5::timestamptz, clock_timestamp()) FROM postern.source s JOIN postern.channel c ON c.channel_id = s.channel_id
	WHERE s.context_id = $1 AND s.removed_at IS NULL AND ($2 = '' OR s.name = $2) AND s.name > $3 ORDER BY s.name LIMIT $4`

func (s *Store) sources(ctx context.Context, contextID int32, name, after string, limit int) ([]*Source, error) {
	rows, err := s.Db(ctx).Query(ctx, sourcesSQL, contextID, name, after, limit, s.Clock())
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Source, error) {
		v := &Source{}
		var now time.Time
		err := row.Scan(append(v.fields(), &now)...)
		since := v.CreatedAt
		if v.CaughtUpAt != nil {
			since = *v.CaughtUpAt
		}
		if v.Kind != "push" && (v.CaughtUpAt == nil || v.PolledAt.After(since) || v.Failures > 0 || v.State != "running") {
			v.Lag = max(0, now.Sub(since))
		}
		return v, err
	})
	return list, db.Known(err)
}

// Sources lists up to limit sources of a context by name, those after a given one.
func (s *Store) Sources(ctx context.Context, contextID int32, after string, limit int) ([]*Source, error) {
	return s.sources(ctx, contextID, "", after, limit)
}

// Source returns one source, or NotFound.
func (s *Store) Source(ctx context.Context, contextID int32, name string) (*Source, error) {
	list, err := s.sources(ctx, contextID, name, "", 1)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || name == "" {
		return nil, noSource(name)
	}
	return list[0], nil
}

func noSource(name string) error {
	return fault.New(fault.NotFound, "not_found", "no source %q", fault.Clip(name))
}

const sourceVersion = `SELECT version, removed_at IS NOT NULL FROM postern.source WHERE context_id = $1 AND name = $2 FOR UPDATE`

// PutSource creates a source or replaces its settings; version as in MatchVersion. Its cursor and state stay, and so
// does what it has brought, also where one of that name was removed. A look that is under way stores nothing. A table
// of this database has to lie in one of SourceSchemas.
func (s *Store) PutSource(ctx context.Context, by db.By, v leader.Source, version int64) (created bool, err error) {
	if err := v.Validate(); err != nil {
		return false, err
	}
	if v.Table != nil && v.URL == "" {
		if err := v.Table.AllowedBy(s.SourceSchemas); err != nil {
			return false, err
		}
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		if created, err = t.LockVersion(ctx, version, sourceVersion, by.Context, v.Name); err != nil {
			return err
		}
		b := &pgx.Batch{}
		s.equip(b, by.Context)
		lane := leaderChannelSettings(channels.ChannelOfSource + v.Name)
		lane.Capacity = v.Buffer
		putLeaderChannel(b, by.Context, lane, s.Clock())
		b.Queue(`INSERT INTO postern.source AS s (context_id, name, kind, url, filter, map, start, poll_every, page_size, on_undecodable, max_retries, stale_after, channel_id,
				next_at, created_at, relation)
			SELECT $1, $2, $3, $4, $5::text::jsonb, $6, $7, $8, $9, $10, $12, $13, (SELECT channel_id FROM postern.channel WHERE context_id = $1 AND name = $14),
				d.now, d.now, $15 FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS now) d
			ON CONFLICT (context_id, name) DO UPDATE SET kind = excluded.kind, url = excluded.url, filter = excluded.filter, map = excluded.map, relation = excluded.relation,
				start = excluded.start, poll_every = excluded.poll_every, page_size = excluded.page_size, on_undecodable = excluded.on_undecodable,
				max_retries = excluded.max_retries, stale_after = excluded.stale_after, channel_id = excluded.channel_id,
				state = CASE WHEN s.removed_at IS NULL THEN s.state ELSE 'running' END, next_at = excluded.next_at, fence = postern.next_fence(s.fence),
				node_id = NULL, node_epoch = NULL, lease_until = NULL, removed_at = NULL, version = s.version + 1`,
			by.Context, v.Name, v.Kind, v.URL, jsonText(v.Filter), v.Map, v.Start, v.PollEvery, v.PageSize, v.OnUndecodable, s.Clock(),
			v.MaxRetries, v.StaleAfter, lane.Name, v.Table)
		s.AuditIn(b, by, "put", "/sources/"+v.Name)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return created, err
	}
	return created, s.Reconfigured(ctx)
}

// jsonText is JSON as an argument that is cast, NULL for nothing.
func jsonText(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	return string(raw)
}

// changeSource changes what a look goes by: one that is under way finds another fence, and stores nothing.
func (s *Store) changeSource(ctx context.Context, by db.By, name, action, set string, args ...any) (r pg.LeverResult, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		missing, err := t.LockVersion(ctx, 0, sourceVersion, by.Context, name)
		switch {
		case err != nil:
			return err
		case missing:
			return noSource(name)
		}
		if err := by.Seen(t.Version); err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.source SET fence = postern.next_fence(fence), node_id = NULL, node_epoch = NULL, lease_until = NULL, version = version + 1,
				next_at = coalesce($3::timestamptz, clock_timestamp()), `+set+` WHERE context_id = $1 AND name = $2 AND removed_at IS NULL`+changed[action],
			append([]any{by.Context, name, s.Clock()}, args...)...).Query(func(rows pgx.Rows) error {
			for rows.Next() {
			}
			r.Changed = rows.CommandTag().RowsAffected() > 0
			return rows.Err()
		})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		b = &pgx.Batch{}
		s.AuditIn(b, by, action, "/sources/"+name)
		return t.Commit(ctx, b)
	})
	return r, err
}

// changed says when an action changes anything.
var changed = map[string]string{"pause": ` AND state <> 'paused'`, "resume": ` AND state <> 'running'`}

// PauseSource stops reading a source, or goes on where it stopped, also after a failure.
func (s *Store) PauseSource(ctx context.Context, by db.By, name string, paused bool) (pg.LeverResult, error) {
	if paused {
		return s.changeSource(ctx, by, name, "pause", `state = 'paused'`)
	}
	return s.changeSource(ctx, by, name, "resume", `state = 'running', failures = 0, last_error = ''`)
}

// RewindSource reads a source again from a cursor of its own, nil for its start. An event that is stored already is not
// stored twice.
func (s *Store) RewindSource(ctx context.Context, by db.By, name string, cursor json.RawMessage) (pg.LeverResult, error) {
	return s.changeSource(ctx, by, name, "rewind", `cursor = $4::text::jsonb, caught_up_at = NULL, kept_from = NULL`, jsonText(cursor))
}

// RemoveSource ends a source. Its events stay.
func (s *Store) RemoveSource(ctx context.Context, by db.By, name string) error {
	_, err := s.changeSource(ctx, by, name, "delete", `removed_at = coalesce($3::timestamptz, clock_timestamp())`)
	return err
}
