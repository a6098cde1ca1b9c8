package pg

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// Transaction is what a reader sees of one transaction, in whatever state.
type Transaction struct {
	ID          outbox.ID
	Context     string
	Queue       string
	UID         string
	Actor       string
	Type        string
	Data        json.RawMessage // only where asked for
	MaxRetries  *int
	Tags        json.RawMessage
	State       outbox.State
	QueueState  string // "" when terminal
	Retries     int
	Attempt     int
	Sender      string
	Fee         string
	Hash        string
	BlockHeight string
	ReceivedAt  time.Time
	NotBefore   *time.Time
	SubmittedAt *time.Time
	RetriedAt   *time.Time
	DoneAt      *time.Time
	NextAt      *time.Time
	Class       outbox.Class
	Code        string
	Error       string
	Result      json.RawMessage
	RedriveOf   string
	RedrivenBy  string
	Staged      bool     // submitted by SQL and not drained: it has no id
	DependsOn   []string // ids
}

const transactionSelect = `SELECT v.queue_id, v.seq, v.day - '1970-01-01', v.epoch, v.context, coalesce(v.queue, ''), v.uid, v.actor, v.type,
	v.max_retries, v.tags, v.state, coalesce(v.queue_state, ''), v.retries, v.attempt, coalesce(v.sender, ''), coalesce(v.fee, ''), coalesce(v.hash, ''),
	coalesce(v.block_height, ''), v.received_at, v.not_before, v.submitted_at, v.retried_at, v.done_at, v.next_at, coalesce(v.error_class, ''),
	coalesce(v.error_code, ''), coalesce(v.error, ''), coalesce(v.redrive_of::text, ''), coalesce(v.redriven_by::text, ''),
	ARRAY(SELECT postern.public_id(e.queue_id, e.seq, e.day, e.epoch)::text FROM postern.dependency d
		JOIN postern.task e ON (e.queue_id, e.seq, e.day) = (d.on_queue, d.on_seq, d.on_day) WHERE (d.queue_id, d.seq) = (v.queue_id, v.seq) ORDER BY d.on_queue, d.on_seq)`

// txOf joins the view tx, row by row, to the keys of an alias. Joined flat, it has more relations than the
// planner orders well, and it would read the whole view (seen).
func txOf(alias string) string {
	return strings.ReplaceAll("CROSS JOIN LATERAL (SELECT x.* FROM postern.tx x WHERE (x.queue_id, x.seq, x.day) = (@.queue_id, @.seq, @.day) OFFSET 0) v", "@", alias)
}

func scanTransaction(row pgx.Rows, bodies bool) (*Transaction, error) {
	t := &Transaction{}
	dest := []any{&t.ID.Queue, &t.ID.Seq, &t.ID.Day, &t.ID.Epoch, &t.Context, &t.Queue, &t.UID, &t.Actor, &t.Type,
		&t.MaxRetries, &t.Tags, &t.State, &t.QueueState, &t.Retries, &t.Attempt, &t.Sender, &t.Fee, &t.Hash, &t.BlockHeight, &t.ReceivedAt, &t.NotBefore,
		&t.SubmittedAt, &t.RetriedAt, &t.DoneAt, &t.NextAt, &t.Class, &t.Code, &t.Error, &t.RedriveOf, &t.RedrivenBy, &t.DependsOn}
	if bodies {
		dest = append(dest, &t.Data, &t.Result)
	}
	return t, row.Scan(dest...)
}

// Transactions reads several transactions of a context by id, with their bodies, in one statement. What
// does not exist is missing from the map.
func (s *Store) Transactions(ctx context.Context, contextID int32, ids []outbox.ID) (map[outbox.ID]*Transaction, error) {
	return transactions(ctx, s.db(ctx), contextID, ids)
}

func transactions(ctx context.Context, db querier, contextID int32, ids []outbox.ID) (map[outbox.ID]*Transaction, error) {
	var queues, seqs []int64
	var days []time.Time
	for _, id := range ids {
		queues, seqs, days = append(queues, id.Queue), append(seqs, id.Seq), append(days, id.Day.Time())
	}
	rows, err := db.Query(ctx, transactionSelect+`, v.data, v.result
		FROM ROWS FROM (unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::date[])) n(queue_id, seq, day)
		`+txOf("n")+` WHERE v.context_id = $1`, contextID, queues, seqs, days)
	if err != nil {
		return nil, known(err)
	}
	defer rows.Close()
	out := map[outbox.ID]*Transaction{}
	for rows.Next() {
		t, err := scanTransaction(rows, true)
		if err != nil {
			return nil, err
		}
		out[t.ID] = t
	}
	return out, known(rows.Err())
}

// Transaction returns one transaction with its body, or NotFound.
func (s *Store) Transaction(ctx context.Context, contextID int32, id outbox.ID) (*Transaction, error) {
	found, err := s.Transactions(ctx, contextID, []outbox.ID{id})
	if err != nil {
		return nil, err
	}
	if t := found[id]; t != nil {
		return t, nil
	}
	return nil, fault.New(fault.NotFound, "not_found", "no transaction %s", id)
}

// ByUID returns the id of the transaction that a client named uid, or NotFound.
func (s *Store) ByUID(ctx context.Context, contextID int32, uid string) (id outbox.ID, err error) {
	err = s.pool.QueryRow(ctx, `SELECT i.queue_id, i.seq, i.day - '1970-01-01', t.epoch FROM postern.idempotency i
		JOIN postern.task t USING (queue_id, seq, day) WHERE i.context_id = $1 AND i.key = $2`, contextID, uid).Scan(&id.Queue, &id.Seq, &id.Day, &id.Epoch)
	if err == pgx.ErrNoRows {
		if id, err := outbox.ParseID(uid); err == nil { // without a uid of its own, its id is its uid
			return id, nil
		}
		return id, fault.New(fault.NotFound, "not_found", "no transaction with uid %q", fault.Clip(uid))
	}
	return id, known(err)
}

// ListFilter narrows a list of transactions. Empty fields do not narrow.
type ListFilter struct {
	Queues, Types, States, Senders, Classes, Codes []string
	ReceivedAfter, ReceivedBefore                  time.Time // half-open
	DoneAfter, DoneBefore                          time.Time
	RedriveOf                                      string
	Ascending                                      bool
	AfterAt                                        time.Time // the cursor: received_at, queue and position of the last one
	AfterQueue, AfterSeq                           int64
	Limit                                          int
	Bodies                                         bool
	Examined                                       int // how many rows the page may look at, 0 for 50,000
}

// List returns a page of transactions by time of receipt, and where the next one begins, nil at the end.
// Filters only thin what the index by time brings: a page examines a bounded number of rows, so that it
// may be short, even empty, before the end; next then has no more than its id and time of receipt.
func (s *Store) List(ctx context.Context, contextID int32, f ListFilter) (list []*Transaction, next *Transaction, err error) {
	args := []any{contextID}
	arg := func(v any) string { args = append(args, v); return fmt.Sprintf("$%d", len(args)) }
	inner := []string{"k.context_id = $1"}
	cmp, dir := "<", "DESC"
	if f.Ascending {
		cmp, dir = ">", "ASC"
	}
	if !f.ReceivedAfter.IsZero() {
		inner = append(inner, "k.created_at >= "+arg(f.ReceivedAfter))
	}
	if !f.ReceivedBefore.IsZero() {
		inner = append(inner, "k.created_at < "+arg(f.ReceivedBefore))
	}
	if !f.AfterAt.IsZero() {
		inner = append(inner, fmt.Sprintf("(k.created_at, k.queue_id, k.seq) %s (%s, %s, %s)", cmp, arg(f.AfterAt), arg(f.AfterQueue), arg(f.AfterSeq)))
	}
	if len(f.Queues) > 0 { // by its key, not by time
		inner = append(inner, "k.queue_id IN (SELECT queue_id FROM postern.queue_name WHERE context_id = $1 AND name = ANY ("+arg(f.Queues)+"))")
	}
	if len(f.Types) > 0 {
		inner = append(inner, "k.type = ANY ("+arg(f.Types)+")")
	}
	if f.Examined == 0 {
		f.Examined = 50000
	}
	last := fmt.Sprintf(`SELECT k.queue_id, k.seq, k.created_at FROM postern.task k WHERE %s
		ORDER BY k.created_at %[2]s, k.queue_id %[2]s, k.seq %[2]s LIMIT 1 OFFSET %[3]d`, strings.Join(inner, " AND "), dir, f.Examined-1)
	innerArgs := len(args)
	var outer []string
	for column, values := range map[string][]string{"state": f.States, "sender": f.Senders, "error_class": f.Classes, "error_code": f.Codes} {
		if len(values) > 0 {
			outer = append(outer, "v."+column+" = ANY ("+arg(values)+")")
		}
	}
	if !f.DoneAfter.IsZero() {
		outer = append(outer, "v.done_at >= "+arg(f.DoneAfter))
	}
	if !f.DoneBefore.IsZero() {
		outer = append(outer, "v.done_at < "+arg(f.DoneBefore))
	}
	if f.RedriveOf != "" {
		outer = append(outer, "v.redrive_of = "+arg(f.RedriveOf)+"::text::uuid")
	}
	if len(outer) == 0 {
		outer = []string{"true"}
	}
	sql := fmt.Sprintf(`WITH k AS MATERIALIZED (SELECT k.queue_id, k.seq, k.day, k.created_at FROM postern.task k WHERE %s
			ORDER BY k.created_at %[2]s, k.queue_id %[2]s, k.seq %[2]s LIMIT %[3]s)
		%[4]s%[5]s FROM k %[8]s
		WHERE %[6]s ORDER BY k.created_at %[2]s, k.queue_id %[2]s, k.seq %[2]s LIMIT %[7]s`,
		strings.Join(inner, " AND "), dir, arg(f.Examined), transactionSelect, bodyColumns(f.Bodies), strings.Join(outer, " AND "), arg(f.Limit+1), txOf("k"))
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, nil, known(err)
	}
	defer rows.Close()
	for rows.Next() {
		t, err := scanTransaction(rows, f.Bodies)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, t)
	}
	if rows.Err() != nil {
		return nil, nil, known(rows.Err())
	}
	if len(list) > f.Limit {
		list = list[:f.Limit]
		return list, list[len(list)-1], nil
	}
	next = &Transaction{}
	err = s.pool.QueryRow(ctx, last, args[:innerArgs]...).Scan(&next.ID.Queue, &next.ID.Seq, &next.ReceivedAt)
	if err == pgx.ErrNoRows { // fewer than it may examine: that was all
		return list, nil, nil
	}
	return list, next, known(err)
}

func bodyColumns(bodies bool) string {
	if bodies {
		return ", v.data, v.result"
	}
	return ""
}
