package pg

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Sender is a scarce account, its settings and what it is doing.
type Sender struct {
	Account      string
	Pool         string
	WorkerURL    string
	Attributes   json.RawMessage
	Paused       bool
	Draining     bool   // it takes only what names it
	State        string // FREE or the state of its queue (S2.3)
	Queue        string
	BoundSince   *time.Time
	BlockedUntil *time.Time // far in the future: until somebody unblocks it
	BlockReason  string
	LastNonce    string
	LastUsedAt   *time.Time
	Version      int64
	CreatedAt    time.Time
}

// Forever is the blocked_until of a sender that only a person unblocks; the API shows null.
var Forever = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// SenderSQL reads the senders of a context ($1), all or the one of an account ($2), as of a time ($3, NULL for now).
const SenderSQL = `SELECT s.account, p.name, s.worker_url, s.attributes, s.paused, s.draining,
		CASE q.phase WHEN 'DISPATCHING' THEN 'BLOCKED' ELSE coalesce(q.phase, 'FREE') END, coalesce(n.name, ''), s.bound_since,
		CASE WHEN s.blocked_until = 'infinity' THEN '9999-12-31 23:59:59+00' WHEN s.blocked_until > coalesce($3::timestamptz, clock_timestamp()) THEN s.blocked_until END,
		CASE WHEN s.blocked_until > coalesce($3::timestamptz, clock_timestamp()) THEN s.block_reason ELSE '' END,
		coalesce(s.last_nonce, ''), s.last_used_at, s.version, s.created_at
	FROM postern.sender s JOIN postern.pool p ON p.pool_id = s.pool_id
	LEFT JOIN postern.queue q ON q.queue_id = s.queue_id
	LEFT JOIN postern.queue_name n ON n.queue_id = s.queue_id
	WHERE s.context_id = $1 AND s.removed_at IS NULL AND ($2 = '' OR s.account = $2)`

// ScanSender reads a row of SenderSQL.
func ScanSender(row pgx.CollectableRow) (*Sender, error) {
	v := &Sender{}
	return v, row.Scan(&v.Account, &v.Pool, &v.WorkerURL, &v.Attributes, &v.Paused, &v.Draining, &v.State, &v.Queue, &v.BoundSince, &v.BlockedUntil,
		&v.BlockReason, &v.LastNonce, &v.LastUsedAt, &v.Version, &v.CreatedAt)
}

const sendersSQL = SenderSQL + ` AND s.account > $4 ORDER BY s.account LIMIT $5`

// Senders lists up to limit senders of a context by account, those after a given one.
func (s *Store) Senders(ctx context.Context, contextID int32, after string, limit int) ([]*Sender, error) {
	rows, err := s.Db(ctx).Query(ctx, sendersSQL, contextID, "", s.Clock(), after, limit)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, ScanSender)
	return list, db.Known(err)
}

// Sender returns one sender, or NotFound.
func (s *Store) Sender(ctx context.Context, contextID int32, account string) (*Sender, error) {
	rows, err := s.Db(ctx).Query(ctx, SenderSQL, contextID, account, s.Clock())
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, ScanSender)
	if err == nil && len(list) == 0 || account == "" {
		return nil, fault.New(fault.NotFound, "not_found", "no sender %q", fault.Clip(account))
	}
	if err != nil {
		return nil, db.Known(err)
	}
	return list[0], nil
}

// PutSender creates or replaces a sender. A pool comes into being with its first sender. The gate of one that is
// replaced opens, as that of a type does.
func (s *Store) PutSender(ctx context.Context, by db.By, v Sender, version int64) (created bool, err error) {
	if len(v.Attributes) == 0 {
		v.Attributes = json.RawMessage("{}")
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		created, err = t.LockVersion(ctx, version, `SELECT version, removed_at IS NOT NULL FROM postern.sender
			WHERE context_id = $1 AND account = $2 FOR UPDATE`, by.Context, v.Account)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		s.MakePool(b, by.Context, v.Pool)
		b.Queue(`INSERT INTO postern.sender (context_id, account, pool_id, worker_url, attributes)
			VALUES ($1, $2, (SELECT pool_id FROM postern.pool WHERE context_id = $1 AND name = $3), $4, $5::text::jsonb)
			ON CONFLICT (context_id, account) DO UPDATE SET pool_id = excluded.pool_id, worker_url = excluded.worker_url,
				attributes = excluded.attributes, removed_at = NULL, version = sender.version + 1,
				gate_failures = 0, gate_reason = '', gate_since = NULL, gate_node = '',
				blocked_until = CASE WHEN sender.block_reason <> 'worker_unreachable' THEN sender.blocked_until END,
				block_reason = CASE WHEN sender.block_reason <> 'worker_unreachable'
					THEN sender.block_reason ELSE '' END`,
			by.Context, v.Account, v.Pool, v.WorkerURL, string(v.Attributes))
		s.AuditIn(b, by, "put", "/senders/"+v.Account)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return false, err
	}
	return created, s.Reconfigured(ctx)
}

// RemoveSender takes a sender out of use. A transaction in flight keeps it (S2.13); then the queue goes on with another
// one.
func (s *Store) RemoveSender(ctx context.Context, by db.By, account string) error {
	_, err := s.SetFlag(ctx, by, "delete", "/senders/"+account,
		`UPDATE postern.sender SET removed_at = $3, paused = false, draining = false, version = version + 1 WHERE context_id = $1 AND account = $2 AND removed_at IS NULL`,
		senderExists, account, time.Now())
	return err
}

const senderExists = `SELECT version, removed_at IS NOT NULL FROM postern.sender WHERE context_id = $1 AND account = $2 FOR UPDATE`

// PauseSender keeps a sender from further transactions, or lets it take them again and ends a drain. A transaction in
// flight keeps its sender; then the queue goes on with another one.
func (s *Store) PauseSender(ctx context.Context, by db.By, account string, paused bool) (LeverResult, error) {
	return s.SetFlag(ctx, by, Verb(paused), "/senders/"+account, `UPDATE postern.sender SET paused = $3, draining = draining AND $3, version = version + 1
		WHERE context_id = $1 AND account = $2 AND removed_at IS NULL AND (paused <> $3 OR draining AND NOT $3)`, senderExists, account, paused)
}

// BlockSender keeps a sender from further transactions until a moment, Forever included, as PauseSender does.
func (s *Store) BlockSender(ctx context.Context, by db.By, account string, until time.Time) (LeverResult, error) {
	when := "infinity"
	if until.Before(Forever) {
		when = until.UTC().Format(time.RFC3339Nano)
	}
	return s.SetFlag(ctx, by, "block", "/senders/"+account, `UPDATE postern.sender SET blocked_until = ($3::text[])[1]::timestamptz,
			block_reason = ($3::text[])[2], version = version + 1
		WHERE context_id = $1 AND account = $2 AND removed_at IS NULL`, senderExists, account, []string{when, Because("blocked", by.Reason)})
}

// UnblockSender lets a blocked sender work again at once.
func (s *Store) UnblockSender(ctx context.Context, by db.By, account string) (LeverResult, error) {
	return s.SetFlag(ctx, by, "unblock", "/senders/"+account, `UPDATE postern.sender SET blocked_until = NULL, block_reason = $3, gate_failures = 0,
			gate_reason = '', gate_since = NULL, gate_node = '', version = version + 1
		WHERE context_id = $1 AND account = $2 AND removed_at IS NULL AND blocked_until IS NOT NULL`, senderExists, account, "")
}
