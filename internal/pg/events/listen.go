package events

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// SourceLease is the right to ask a source for one page, and to store it.
type SourceLease struct {
	Source
	ContextID int32
	Fence     int64
	by        string // the node
}

// LeaseSources hands out sources that are to be read, and leases each for that long: for less, if its node dies. It
// never waits: a source whose row is locked is being leased or stored, and skipped. One in a context that is drained is
// not asked: its events stay where they are until the context is resumed. next is when there will be
// another, zero if that is unknown.
func (s *Store) LeaseSources(ctx context.Context, n pg.Node, max int, lease time.Duration) (list []*SourceLease, next time.Time, err error) {
	quarantine := s.QuarantineView()
	if quarantine.Whole() {
		return nil, time.Time{}, nil
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		list, next = nil, time.Time{}
		var now time.Time
		b := &pgx.Batch{}
		b.Queue(`SELECT `+sourceColumns+`, s.context_id, s.fence FROM postern.source s JOIN postern.channel c ON c.channel_id = s.channel_id
			LEFT JOIN postern.node n ON (n.node_id, n.epoch) = (s.node_id, s.node_epoch) AND n.dead_at IS NULL
			JOIN postern.context x ON x.context_id = s.context_id AND NOT x.paused AND NOT x.draining AND x.removed_at IS NULL AND x.context_id <> ALL ($3)
			WHERE s.removed_at IS NULL AND s.kind <> 'push' AND s.state = 'running' AND s.next_at <= coalesce($1::timestamptz, clock_timestamp())
				AND (n.node_id IS NULL OR s.lease_until < coalesce($1::timestamptz, clock_timestamp()))
			ORDER BY s.next_at LIMIT $2 FOR UPDATE OF s SKIP LOCKED`, s.Clock(), max, quarantine.Contexts()).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				l := &SourceLease{by: n.Name}
				if err := rows.Scan(append(l.fields(), &l.ContextID, &l.Fence)...); err != nil {
					return err
				}
				list = append(list, l)
			}
			return rows.Err()
		})
		b.Queue(`SELECT coalesce(min(next_at), 'epoch') FROM postern.source WHERE removed_at IS NULL AND kind <> 'push' AND state = 'running' AND node_id IS NULL
			AND next_at > coalesce($1::timestamptz, clock_timestamp())`, s.Clock()).QueryRow(func(row pgx.Row) error { return row.Scan(&next) })
		s.ReadNow(b, &now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(list) == 0 {
			return t.Rollback(ctx)
		}
		var c db.Columns
		for _, l := range list {
			l.Fence = s.Fence(l.Fence, now)
			c.Add(l.ID, l.Fence)
		}
		b = &pgx.Batch{}
		b.Queue(`UPDATE postern.source s SET fence = x.fence, node_id = $3, node_epoch = $4, lease_until = $5
			FROM ROWS FROM (unnest($1::int[]), unnest($2::bigint[])) x(source_id, fence) WHERE s.source_id = x.source_id`, c.Args(n.ID, n.Epoch, now.Add(lease))...)
		return t.Commit(ctx, b)
	})
	return list, next, err
}

// Stored is what became of a page.
type Stored struct {
	New     int
	Known   int  // were stored before
	Dead    int  // could not be read, and are stored as Dead
	Fenced  bool // nothing was stored: the source is somebody else's by now, or was changed
	More    bool // there is more, and it goes on at once
	Stopped string
}

// StorePage stores the events of a page and moves the cursor, in one SQL transaction (S1.2): a process that dies
// before its commit has stored nothing, and the same page is asked for again; after it, the next. An event that is
// there already, as the last of a page is where cursors are inclusive, is not stored again.
//
// The source's row is locked and its fence compared first, so that of two readers only the one that still has the
// lease stores anything. A pause, a rewind and a new definition of the source raise the fence.
func (s *Store) StorePage(ctx context.Context, l *SourceLease, page leader.Page) (out Stored, err error) {
	err = s.underLease(ctx, l, &out, func(t *db.Txn, b *pgx.Batch, now time.Time) error {
		var list []*newEvent
		for _, it := range page.Items {
			e := &newEvent{Item: it, Context: l.ContextID, Source: l.ID, by: l.by}
			if it.Undecoded != "" {
				e.why = fmt.Sprintf("event %q cannot be read: %s", fault.Clip(it.Identity), it.Undecoded)
				if l.OnUndecodable == "halt" {
					out.Stopped = e.why
					break
				}
			}
			list = append(list, e)
		}
		if err := s.storeEvents(ctx, t, b, l.Channel, list, now); err != nil {
			return err
		}
		out.New, out.Known, out.Dead = 0, 0, 0
		for _, e := range list {
			switch {
			case !e.stored:
				out.Known++
			case e.why != "":
				out.Dead++
				out.New++
			default:
				out.New++
			}
		}
		cursor := page.Cursor
		if cursor == nil {
			cursor = l.Cursor
		}
		moved := out.Stopped == "" && !sameJSON(cursor, l.Cursor)
		out.More = page.More && moved
		next, state := now.Add(l.PollEvery), "running"
		switch {
		case out.Stopped != "":
			cursor, state = l.Cursor, "failed"
		case out.More:
			next = now
		}
		var identities []string
		if moved {
			for _, e := range list {
				identities = append(identities, e.Identity)
			}
		}
		// Retention keeps what this page has, known or new, until another moves the cursor; and all, from a rewind
		// until there is no more, since what comes next is known and may be older than what this page stored anew.
		b.Queue(`UPDATE postern.source SET cursor = $2::text::jsonb, next_at = $3, polled_at = $4, caught_up_at = CASE WHEN $5 THEN $4 ELSE caught_up_at END,
				kept_from = CASE WHEN $5 OR kept_from IS NOT NULL THEN coalesce((SELECT min(e.created_at) FROM postern.event e
					WHERE e.source_id = $1 AND e.identity = ANY ($8)), kept_from) END,
				failures = 0, last_error = $6, state = $7, node_id = NULL, node_epoch = NULL, lease_until = NULL,
				version = CASE WHEN state = $7 THEN version ELSE version + 1 END WHERE source_id = $1`,
			l.ID, jsonText(cursor), next, now, !out.More && out.Stopped == "", out.Stopped, state, identities)
		return nil
	})
	return out, err
}

// sameJSON compares what a source said with what the database gave back of it, which spaces it in its own way.
func sameJSON(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	if len(a) == 0 || len(b) == 0 || json.Compact(&x, a) != nil || json.Compact(&y, b) != nil {
		return len(a) == len(b)
	}
	var v, w any
	return x.String() == y.String() || json.Unmarshal(a, &v) == nil && json.Unmarshal(b, &w) == nil && reflect.DeepEqual(v, w)
}

// FailPage writes down that there was no page: the source is asked again after wait, or, where asking again cannot
// help, is failed.
func (s *Store) FailPage(ctx context.Context, l *SourceLease, trouble *leader.Trouble, wait time.Duration) (out Stored, err error) {
	err = s.underLease(ctx, l, &out, func(_ *db.Txn, b *pgx.Batch, now time.Time) error {
		state, text := "running", leader.Printable(trouble.Text) // a source may say what cannot be stored
		if !trouble.Retryable {
			state, out.Stopped = "failed", text
		}
		b.Queue(`UPDATE postern.source SET next_at = $2, failures = failures + 1, last_error = $3, state = $4, node_id = NULL, node_epoch = NULL,
			lease_until = NULL, version = CASE WHEN state = $4 THEN version ELSE version + 1 END WHERE source_id = $1`, l.ID, now.Add(wait), text, state)
		return nil
	})
	return out, err
}

// LeavePage ends a lease whose page was not asked for, since the node may not call the source: another may.
func (s *Store) LeavePage(ctx context.Context, l *SourceLease, wait time.Duration) error {
	return s.underLease(ctx, l, &Stored{}, func(_ *db.Txn, b *pgx.Batch, now time.Time) error {
		b.Queue(`
			UPDATE postern.source
			SET next_at = $2, node_id = NULL, node_epoch = NULL, lease_until = NULL
			WHERE source_id = $1`, l.ID, now.Add(wait))
		return nil
	})
}

// underLease runs write with the source locked, if the lease is still good.
func (s *Store) underLease(ctx context.Context, l *SourceLease, out *Stored, write func(*db.Txn, *pgx.Batch, time.Time) error) error {
	return s.Run(ctx, func(t *db.Txn) error {
		*out = Stored{Fenced: true}
		var fence int64
		var now time.Time
		b := &pgx.Batch{}
		b.Queue(`SELECT fence FROM postern.source WHERE source_id = $1 AND state = 'running' AND removed_at IS NULL FOR UPDATE`, l.ID).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&fence}, func() error { return nil })
			return err
		})
		s.ReadNow(b, &now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if fence != l.Fence {
			return t.Rollback(ctx)
		}
		out.Fenced = false
		b = &pgx.Batch{}
		if err := write(t, b, now); err != nil {
			return err
		}
		return t.Commit(ctx, b)
	})
}
