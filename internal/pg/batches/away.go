package batches

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// unreached begins the reason for which an execution is taken back whose worker is away.
const unreached = "its worker is away"

// awaySQL says whether the execution of the batch x is to be taken back because its contract is away, so that the
// other batches of its domain go on: its transaction i waits at the head of its queue, nothing has gone out that may
// have had an effect, and nothing goes out now. Either its own call came to nothing and has a time for the next try,
// or the gate of its type is closed, or those of all its senders. When a probe may go out, it is left to be the probe.
const awaySQL = `x.deliver_as = '' AND EXISTS (
		SELECT FROM postern.queue q
		JOIN postern.lane l ON l.lane_id = q.lane
		JOIN postern.dispatcher d ON d.dispatcher_id = l.dispatcher_id
		WHERE q.queue_id = i.queue_id AND q.head_seq = i.seq AND q.cur_seq IS NULL
			AND CASE q.phase
				WHEN 'HELD' THEN q.blocked_since IS NOT NULL AND q.not_before > n.now
				WHEN 'READY' THEN ` + gateClosedSQL + `
				ELSE false END
		OFFSET 0)
	AND ` + nothingDoneSQL

// nothingDoneSQL says whether no call of the transaction i may have had an effect.
const nothingDoneSQL = `NOT EXISTS (SELECT FROM postern.attempt t
		WHERE (t.queue_id, t.seq, t.day) = (i.queue_id, i.seq, i.day)
			AND t.nothing_done IS NOT TRUE
			AND NOT (` + turnedAwaySQL + `)
		OFFSET 0)`

// turnedAwaySQL says whether the call of the attempt t was turned away by what stands before its worker, under a status
// that comes instead of the worker's answer, never after it. A 502, 503 or 504 may come after the worker acted.
const turnedAwaySQL = `t.class = 'blocked'
				AND coalesce(t.code, '') IN ('http_401', 'http_403', 'http_404', 'http_405', 'http_429', 'http_501')`

// gateClosedSQL says whether the gate of the dispatcher d is closed, or those of all its senders.
const gateClosedSQL = `(d.gate_failures > 0 AND d.gate_until > n.now OR ` + sendersAwaySQL + `)`

// sendersAwaySQL says whether the pool of the dispatcher d has senders, and the worker of each is away.
const sendersAwaySQL = `(
		SELECT coalesce(bool_and(s.block_reason = 'worker_unreachable' AND s.blocked_until > n.now), false)
		FROM postern.sender s
		WHERE s.pool_id = d.pool_id AND s.removed_at IS NULL)`

// stillLate looks once more at an execution that is to be taken back, since its domain has a limit, or its worker is
// away. It returns by with the reason, "" where that holds no more, and with the tag of the transaction as it is before
// that look. The cancel compares the tag behind the lock of the queue: one whose worker was called since has another,
// unless the call ended as the one before, which had no effect.
func (s *Store) stillLate(ctx context.Context, by db.By, id outbox.ID, limited bool) (db.By, error) {
	t, err := s.Transaction(ctx, by.Context, id)
	if err != nil {
		return by, err
	}
	var late bool
	var why string
	err = s.Db(ctx).QueryRow(ctx, `SELECT CASE WHEN $5 THEN NOT `+takenSQL+` AND `+nothingDoneSQL+`
			ELSE `+awaySQL+` END, coalesce(q.code, '')
		FROM (SELECT $1::bigint AS queue_id, $2::bigint AS seq, $3::date AS day) i
		CROSS JOIN (SELECT '' AS deliver_as) x
		CROSS JOIN (SELECT coalesce($4::timestamptz, clock_timestamp())) n(now)
		LEFT JOIN LATERAL (SELECT t.code FROM postern.attempt t
			WHERE (t.queue_id, t.seq, t.day) = (i.queue_id, i.seq, i.day) ORDER BY t.fence DESC LIMIT 1) q ON true`,
		id.Queue, id.Seq, id.Day.Time(), s.Clock(), limited).Scan(&late, &why)
	if err != nil || !late {
		by.Reason = ""
		return by, db.Known(err)
	}
	switch {
	case limited:
		by.Reason = undelivered
	case why != "":
		by.Reason = unreached + ": " + why
	default:
		by.Reason = unreached
	}
	tag := t.Tag()
	by.Match = func(now string) bool { return now == tag }
	return by, nil
}

// untilSQL is until when the gate of the dispatcher d is closed, or, if they are later, the first of those of its
// senders.
const untilSQL = `greatest(d.gate_until, CASE WHEN ` + sendersAwaySQL + `
		THEN (SELECT min(s.blocked_until) FROM postern.sender s
			WHERE s.pool_id = d.pool_id AND s.removed_at IS NULL) END)`

// leftAlone is until when the worker of a batch is left alone at least: until its gate opens for a probe, or, where its
// senders have gates of their own, the first of these. A proxy before a worker may turn away one batch after the other
// and close no gate: each try is a transaction, so that tries are as far apart as the probes of a gate would be.
func (h *heldProcessor) leftAlone(ctx context.Context, t *db.Txn, v *Batch) (until time.Time, err error) {
	typ := v.Actions.Functions()[v.Index].ContractAddress
	least := h.now.Add(backoff.Doubling(v.Runs-v.Index, time.Second, 30*time.Second))
	b := &pgx.Batch{}
	b.Queue(`SELECT greatest($4::timestamptz, `+untilSQL+`)
		FROM (SELECT $3::timestamptz) n(now)
		LEFT JOIN postern.dispatcher d ON (d.context_id, d.type) = ($1, $2)`, h.contextID, typ, h.now, least).
		QueryRow(func(row pgx.Row) error { return row.Scan(&until) })
	err = t.Send(ctx, b)
	return until, err
}
