package events

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Tool is one of the registry, with what is known of its health (S1.7).
type Tool struct {
	ID          int32
	ContextID   int32 // that of system for a shared one
	FQN         string
	URL         string
	Description string
	Timeout     time.Duration
	MaxAnswer   int
	Sign        string        // how calls are signed, "" for not at all
	TTL         time.Duration // for so long is believed what its /meta said
	CheckEvery  time.Duration // 0: it is not asked whether it is ready
	Discovered  bool          // its schemas are those of its /meta
	ReadAt      *time.Time    // when that was read last
	RefreshAt   *time.Time    // when it is read next
	RefreshWhy  string        // why it could not be read, "" if it could
	Health      string        // unknown, ready, failing
	HealthSince *time.Time
	HealthWhy   string // of the last probe, "" if the tool was ready
	Failures    int    // probes in a row
	CheckedAt   *time.Time
	CheckAt     *time.Time
	Version     int64
	CreatedAt   time.Time

	*leader.Definition // nil in lists
}

const toolColumns = `t.tool_id, t.context_id, t.fqn, t.url, t.description, t.timeout, t.max_answer, t.sign, t.ttl, t.check_every, t.discovered, t.read_at, t.refresh_at,
	t.refresh_error, t.health, t.health_since, t.health_error, t.failures, t.checked_at, t.check_at, t.version, t.created_at`

func (v *Tool) fields() []any {
	return []any{&v.ID, &v.ContextID, &v.FQN, &v.URL, &v.Description, &v.Timeout, &v.MaxAnswer, &v.Sign, &v.TTL, &v.CheckEvery, &v.Discovered, &v.ReadAt, &v.RefreshAt,
		&v.RefreshWhy, &v.Health, &v.HealthSince, &v.HealthWhy, &v.Failures, &v.CheckedAt, &v.CheckAt, &v.Version, &v.CreatedAt}
}

func scanTool(row pgx.CollectableRow) (*Tool, error) {
	v := &Tool{}
	return v, row.Scan(v.fields()...)
}

// A context sees its own tools and those of system; of two with one name its own.
const toolsSQL = `SELECT DISTINCT ON (t.fqn) ` + toolColumns + ` FROM postern.tool t
	WHERE t.context_id IN ($1, $2) AND t.removed_at IS NULL AND ($3 = '' OR t.fqn = $3) AND t.fqn > $4 ORDER BY t.fqn, t.context_id = $1 DESC LIMIT $5`

func (s *Store) tools(ctx context.Context, contextID int32, fqn, after string, limit int) ([]*Tool, error) {
	rows, err := s.Db(ctx).Query(ctx, toolsSQL, contextID, s.Context(pg.System).ID, fqn, after, limit)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanTool)
	return list, db.Known(err)
}

// Tools lists up to limit tools that a context may call by name, those after a given one, without their schemas.
func (s *Store) Tools(ctx context.Context, contextID int32, after string, limit int) ([]*Tool, error) {
	return s.tools(ctx, contextID, "", after, limit)
}

// Tool returns a tool that a context may call, its own or a shared one, with its schemas compiled: as it is registered
// now, by any process. NotFound for one that is unknown, or not registered any more (since unregistered_at).
func (s *Store) Tool(ctx context.Context, contextID int32, fqn string) (*Tool, error) {
	list, err := s.tools(ctx, contextID, fqn, "", 1)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || fqn == "" {
		return nil, s.unregistered(ctx, contextID, fqn)
	}
	v := list[0]
	for {
		if v.Definition, err = s.definition(ctx, v); err != nil || v.Definition != nil {
			return v, err
		}
		// replaced between the two statements
		if list, err = s.tools(ctx, contextID, fqn, "", 1); err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return nil, s.unregistered(ctx, contextID, fqn)
		}
		v = list[0]
	}
}

// ailing says what the probes of a tool have found wrong, to be put behind a sentence; "" for nothing.
func (s *Store) ailing(ctx context.Context, contextID int32, fqn string) (string, error) {
	list, err := s.tools(ctx, contextID, fqn, "", 1)
	if err != nil || len(list) == 0 || list[0].Health != "failing" {
		return "", err
	}
	return fmt.Sprintf("; it has not been ready since %s: %s", list[0].HealthSince.UTC().Format(time.RFC3339), list[0].HealthWhy), nil
}

func noTool(fqn string) error {
	return fault.New(fault.NotFound, "not_found", "no tool %q", fault.Clip(fqn))
}

// unregistered is noTool, and says since when of one that was registered once (S1.7).
func (s *Store) unregistered(ctx context.Context, contextID int32, fqn string) error {
	var at *time.Time
	if err := s.Db(ctx).QueryRow(ctx, `SELECT max(t.removed_at) FROM postern.tool t WHERE t.context_id IN ($1, $2) AND t.fqn = $3`, contextID, s.Context(pg.System).ID, fqn).Scan(&at); err != nil {
		return db.Known(err)
	}
	if at == nil {
		return noTool(fqn)
	}
	since := at.UTC().Format(time.RFC3339)
	return fault.New(fault.NotFound, "not_found", "no tool %q: it was unregistered at %s", fault.Clip(fqn), since).With("unregistered_at", since)
}

// compiled keeps the definitions of tools. A tool's version rises with whatever its definition is made of, so that what
// is kept here is never stale; it is forgotten after its TTL.
type compiled struct {
	mu    sync.Mutex
	tools map[int32]compiledTool
}

type compiledTool struct {
	version int64
	until   time.Time
	*leader.Definition
}

// mostCompiled is how many tools are kept compiled.
const mostCompiled = 1000

func (c *compiled) get(v *Tool) *leader.Definition {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tools[v.ID]; t.version == v.Version && time.Now().Before(t.until) {
		return t.Definition
	}
	return nil
}

func (c *compiled) put(v *Tool, d *leader.Definition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tools == nil || len(c.tools) >= mostCompiled {
		c.tools = map[int32]compiledTool{}
	}
	c.tools[v.ID] = compiledTool{v.Version, time.Now().Add(v.TTL), d}
}

// definition compiles what a tool is registered with, or finds it compiled; nil if it has another version by now.
func (s *Store) definition(ctx context.Context, v *Tool) (*leader.Definition, error) {
	if d := s.compiled.get(v); d != nil {
		return d, nil
	}
	m := leader.Meta{FQN: v.FQN, URL: v.URL, Description: v.Description, Timeout: v.Timeout.String(), MaxAnswer: v.MaxAnswer, Sign: v.Sign}
	err := s.Db(ctx).QueryRow(ctx, `SELECT input_schema::text, output_schema::text FROM postern.tool WHERE tool_id = $1 AND version = $2`, v.ID, v.Version).
		Scan((*[]byte)(&m.InputSchema), (*[]byte)(&m.OutputSchema))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, db.Known(err)
	}
	d, err := m.Definition()
	if err != nil {
		return nil, fault.New(fault.Internal, "internal", "tool %q is registered with what does not hold any more", fault.Clip(v.FQN)).Because(err)
	}
	s.compiled.put(v, d)
	return d, nil
}

// ToolSettings is what a tool is registered with besides its definition.
type ToolSettings struct {
	TTL        time.Duration
	CheckEvery time.Duration
	Discovered bool
}

// registered is what the audit row keeps of a tool: of its schemas their digests.
type registered struct {
	URL          string `json:"url"`
	Description  string `json:"description,omitempty"`
	Timeout      string `json:"timeout"`
	MaxAnswer    int    `json:"max_answer"`
	Sign         string `json:"sign,omitempty"`
	TTL          string `json:"ttl"`
	CheckEvery   string `json:"check_every"`
	Discovered   bool   `json:"discovered"`
	InputSchema  string `json:"input_schema"`
	OutputSchema string `json:"output_schema"`
}

// record is what the audit row keeps of a tool that is registered with these schemas.
func (v *Tool) record(input, output json.RawMessage) *registered {
	digest := func(raw json.RawMessage) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(raw)) }
	return &registered{v.URL, v.Description, v.Timeout.String(), v.MaxAnswer, v.Sign, v.TTL.String(), v.CheckEvery.String(), v.Discovered, digest(input), digest(output)}
}

// with is a tool as a definition and its settings make it.
func with(d *leader.Definition, set ToolSettings) *Tool {
	return &Tool{FQN: d.FQN.String(), URL: d.URL, Description: d.Description, Timeout: d.Timeout, MaxAnswer: d.MaxAnswer, Sign: d.Sign,
		TTL: set.TTL, CheckEvery: set.CheckEvery, Discovered: set.Discovered, Definition: d}
}

// lockTool locks a tool's row, if there is one, and reads it behind the lock; t.version is then that of a removed one,
// too.
func lockTool(ctx context.Context, t *db.Txn, contextID int32, fqn string) (v *Tool, before *registered, err error) {
	var removed bool
	var in, out []byte
	b := &pgx.Batch{}
	b.Queue(`SELECT `+toolColumns+`, t.removed_at IS NOT NULL, t.input_schema::text, t.output_schema::text FROM postern.tool t
		WHERE t.context_id = $1 AND t.fqn = $2 FOR UPDATE`, contextID, fqn).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			v = &Tool{}
			if err := rows.Scan(append(v.fields(), &removed, &in, &out)...); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	if err := t.Send(ctx, b); err != nil {
		return nil, nil, err
	}
	if v == nil || removed {
		return nil, nil, nil
	}
	t.Version = v.Version
	return v, v.record(in, out), nil
}

// PutTool registers a tool, or replaces what it is registered with; version as in MatchVersion. It is probed at once,
// and what was known of its health is kept if it stays where it is.
//
// Two calls that register one tool at a time both insert: the upsert of the second waits for the first, and then
// replaces its registration. A probe or a look at /meta that began before compares the version behind the lock, and
// changes nothing.
func (s *Store) PutTool(ctx context.Context, by db.By, d *leader.Definition, set ToolSettings, version int64) (created bool, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		v, before, err := lockTool(ctx, t, by.Context, d.FQN.String())
		if err != nil {
			return err
		}
		created = v == nil
		if err := db.MatchVersion(version, t.Version, created); err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO postern.tool AS t (context_id, fqn, url, description, timeout, max_answer, ttl, check_every, discovered, input_schema, output_schema,
				read_at, refresh_at, check_at, created_at, sign)
			SELECT $1, $2, $3, $4, $5, $6, $7::interval, $8::interval, $9::bool, $10::text::json, $11::text::json,
				CASE WHEN $9 THEN n.now END, CASE WHEN $9 THEN n.now + $7 END, CASE WHEN $8 > '0' THEN n.now END, n.now, $13
			FROM (SELECT coalesce($12::timestamptz, clock_timestamp()) AS now) n
			ON CONFLICT (context_id, fqn) DO UPDATE SET url = excluded.url, description = excluded.description, timeout = excluded.timeout,
				max_answer = excluded.max_answer, sign = excluded.sign, ttl = excluded.ttl, check_every = excluded.check_every, discovered = excluded.discovered,
				input_schema = excluded.input_schema, output_schema = excluded.output_schema, read_at = excluded.read_at, refresh_at = excluded.refresh_at,
				refresh_error = '', check_at = excluded.check_at, removed_at = NULL, version = t.version + 1,
				health = CASE WHEN t.url = excluded.url AND t.removed_at IS NULL THEN t.health ELSE 'unknown' END,
				health_since = CASE WHEN t.url = excluded.url AND t.removed_at IS NULL THEN t.health_since END,
				health_error = CASE WHEN t.url = excluded.url AND t.removed_at IS NULL THEN t.health_error ELSE '' END,
				failures = CASE WHEN t.url = excluded.url AND t.removed_at IS NULL THEN t.failures ELSE 0 END,
				checked_at = CASE WHEN t.url = excluded.url AND t.removed_at IS NULL THEN t.checked_at END`,
			by.Context, d.FQN.String(), d.URL, d.Description, d.Timeout, d.MaxAnswer, set.TTL, set.CheckEvery, set.Discovered,
			string(d.Input.Raw()), string(d.Output.Raw()), s.Clock(), d.Sign)
		s.AuditChange(b, by, "put", "/tools/"+d.FQN.String(), before, with(d, set).record(d.Input.Raw(), d.Output.Raw()))
		return t.Commit(ctx, b)
	})
	if err != nil {
		return false, err
	}
	return created, s.Appeared(ctx, created)
}

// RemoveTool takes a tool out of the registry: an event that names it is refused from then on (S1.7).
func (s *Store) RemoveTool(ctx context.Context, by db.By, fqn string) error {
	return s.Run(ctx, func(t *db.Txn) error {
		v, before, err := lockTool(ctx, t, by.Context, fqn)
		switch {
		case err != nil:
			return err
		case v == nil:
			return noTool(fqn)
		}
		if err := by.Seen(v.Version); err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.tool SET removed_at = coalesce($2::timestamptz, clock_timestamp()), version = version + 1 WHERE tool_id = $1`, v.ID, s.Clock())
		s.AuditChange(b, by, "delete", "/tools/"+fqn, before, nil)
		return t.Commit(ctx, b)
	})
}
