package events

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg/db"
)

// DueTool is a tool that is to be asked something.
type DueTool struct {
	*Tool
	Check   bool // whether it is ready
	Refresh bool // what its /meta says
}

// failedAgain is how soon a /meta that could not be read is read again.
const failedAgain = 30 * time.Second

// ToolsDue takes up to limit tools whose probe is due, or whose /meta was believed for long enough. Each is handed to
// one caller: the statement that takes a tool moves its next time on, and skips tools that another one holds, so that a
// caller that dies loses one probe.
func (s *Store) ToolsDue(ctx context.Context, limit int) ([]*DueTool, error) {
	quarantine := s.QuarantineView()
	if quarantine.Whole() {
		return nil, nil
	}
	var list []*DueTool
	err := s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		b.Queue(toolsDueSQL, s.Clock(), limit, failedAgain,
			quarantine.Contexts()).Query(func(rows pgx.Rows) (err error) {
			list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*DueTool, error) {
				v := &DueTool{Tool: &Tool{}}
				return v, row.Scan(append(v.fields(), &v.Check, &v.Refresh)...)
			})
			return err
		})
		return t.Commit(ctx, b)
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// toolsDueSQL moves the next times of tools that are due, and returns them.
const toolsDueSQL = `WITH n AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
	due AS MATERIALIZED (
		SELECT t.tool_id, coalesce(t.check_at <= n.now, false) AS probe, coalesce(t.refresh_at <= n.now, false) AS again
		FROM postern.tool t, n
		WHERE t.removed_at IS NULL AND t.context_id <> ALL ($4) AND (t.check_at <= n.now OR t.refresh_at <= n.now)
		ORDER BY t.tool_id
		LIMIT $2
		FOR NO KEY UPDATE OF t SKIP LOCKED)
	UPDATE postern.tool t
	SET check_at = CASE WHEN d.probe THEN n.now + t.check_every ELSE t.check_at END,
		refresh_at = CASE WHEN d.again THEN n.now + least(t.ttl, $3) ELSE t.refresh_at END
	FROM due d, n
	WHERE t.tool_id = d.tool_id
	RETURNING ` + toolColumns + `, d.probe, d.again`

// ToolChecked stores what a probe brought: why the tool is not ready, "" if it is. One that began before the tool was
// registered anew changes nothing. Changed: it has become ready, or has ceased to be.
func (s *Store) ToolChecked(ctx context.Context, v *Tool, why string) (changed bool, err error) {
	health := "ready"
	if why != "" {
		health = "failing"
	}
	err = s.WriteRow(ctx, `WITH n AS (SELECT coalesce($5::timestamptz, clock_timestamp()) AS now),
		old AS MATERIALIZED (SELECT t.tool_id, t.health FROM postern.tool t WHERE t.tool_id = $1 AND t.version = $2 AND t.removed_at IS NULL FOR NO KEY UPDATE),
		made AS (UPDATE postern.tool t SET health = $3, health_error = $4, failures = CASE WHEN $3 = 'ready' THEN 0 ELSE t.failures + 1 END, checked_at = n.now,
				health_since = CASE WHEN t.health = $3 THEN t.health_since ELSE n.now END
			FROM old, n WHERE t.tool_id = old.tool_id)
		SELECT coalesce((SELECT old.health <> $3 FROM old), false)`, []any{v.ID, v.Version, health, why, s.Clock()}, &changed)
	return changed, err
}

// ToolRefreshed stores what a look at /meta brought: its definition, or why there is none; then the one that is known
// stays, and another look comes soon. A definition that has changed is a change of the configuration. Of two looks, or
// a look and a change, the row's version decides which counts: the later one finds another and changes nothing.
func (s *Store) ToolRefreshed(ctx context.Context, by db.By, v *Tool,
	d *leader.Definition, why string) (changed bool, err error) {
	if d == nil {
		_, err = s.Exec(ctx,
			`UPDATE postern.tool SET refresh_error = $3 WHERE tool_id = $1 AND version = $2 AND removed_at IS NULL`,
			v.ID, v.Version, why)
		return false, err
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		now, before, err := lockTool(ctx, t, v.ContextID, v.FQN)
		if err != nil {
			return err
		}
		if now == nil || now.ID != v.ID || now.Version != v.Version {
			return t.Rollback(ctx)
		}
		if err := by.Seen(now.Version); err != nil {
			return err
		}
		after := with(d, ToolSettings{now.TTL, now.CheckEvery, true}).record(d.Input.Raw(), d.Output.Raw())
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.tool t SET read_at = n.now, refresh_at = n.now + t.ttl, refresh_error = ''
			FROM (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now) n WHERE t.tool_id = $1`, v.ID, s.Clock())
		if changed = *before != *after; changed {
			b.Queue(`UPDATE postern.tool SET description = $2, timeout = $3, max_answer = $4, input_schema = $5::text::json, output_schema = $6::text::json, sign = $7,
				discovered = true, version = version + 1 WHERE tool_id = $1`,
				v.ID, d.Description, d.Timeout, d.MaxAnswer, string(d.Input.Raw()), string(d.Output.Raw()), d.Sign)
		}
		if changed || by.Actor != "" { // a refresh by a person is kept, also where it changed nothing
			s.AuditChange(b, by, "refresh", "/tools/"+v.FQN, before, after)
		}
		return t.Commit(ctx, b)
	})
	return changed, err
}

// SuspectTool has a tool probed, and its /meta read again, as soon as somebody can: it answered a call as if it had
// moved (HTTP 404, S1.7).
func (s *Store) SuspectTool(ctx context.Context, v *Tool) error {
	_, err := s.Exec(ctx, `UPDATE postern.tool t SET check_at = CASE WHEN t.check_every > '0' THEN n.now END, refresh_at = CASE WHEN t.discovered THEN n.now END
		FROM (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now) n WHERE t.tool_id = $1 AND t.version = $2 AND t.removed_at IS NULL`, v.ID, v.Version, s.Clock())
	return err
}
