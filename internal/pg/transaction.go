package pg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	pgdb "github.com/postern-dev/postern/internal/pg/db"
)

// Transaction is what a reader sees of one transaction, in whatever state.
type Transaction struct {
	ID           outbox.ID
	Context      string
	Queue        string
	UID          string
	Actor        string
	Type         string
	Data         json.RawMessage // only where asked for
	MaxRetries   *int
	Tags         json.RawMessage
	State        outbox.State
	QueueState   string // "" when terminal
	Retries      int
	Attempt      int
	Sender       string
	Fee          string
	Hash         string
	BlockHeight  string
	ReceivedAt   time.Time
	NotBefore    *time.Time
	SubmittedAt  *time.Time
	RetriedAt    *time.Time
	DoneAt       *time.Time
	NextAt       *time.Time
	Class        outbox.Class
	Code         string
	Error        string
	Result       json.RawMessage
	RedriveOf    string
	RedrivenBy   string
	MovedFrom    string   // its id in another queue, in which it was posted
	PlacedBefore int64    // the position that it was placed before; 0 = it was not, or at the end
	Suspended    bool     // it is not sent until somebody resumes it
	Held         bool     // it was sent, and an operator has to say what came of it
	Staged       bool     // submitted by SQL and not drained: it has no id
	DependsOn    []string // ids
	Callback     *outbox.Callback
}

// nextAt is when something happens by itself: the end of a delay as the view has it, or the next question
// about what was sent, which is a timer. The view does not read timers, since they have no context.
const nextAt = `coalesce(v.next_at, CASE WHEN v.state IN ('REVISION', 'DISPATCHING') THEN (SELECT w.due_at FROM postern.timer w WHERE w.queue_id = v.queue_id) END)`

// TransactionSelect reads transactions from the view tx, as v, for ScanTransaction without bodies.
const TransactionSelect = `SELECT v.queue_id, v.seq, v.day - '1970-01-01', v.context, coalesce(v.queue, ''), v.uid, v.actor, v.type,
	v.max_retries, v.tags, v.state, coalesce(v.queue_state, ''), v.retries, v.attempt, coalesce(v.sender, ''), coalesce(v.fee, ''), coalesce(v.hash, ''),
	coalesce(v.block_height, ''), v.received_at, v.not_before, v.submitted_at, v.retried_at, v.done_at, ` + nextAt + `, coalesce(v.error_class, ''),
	coalesce(v.error_code, ''), coalesce(v.error, ''), coalesce(v.redrive_of::text, ''), coalesce(v.redriven_by::text, ''), coalesce(v.moved_from::text, ''), v.callback,
	v.suspended, coalesce(v.placed_before, 0), v.held,
	ARRAY(SELECT postern.public_id(d.on_queue, d.on_seq, d.on_day, d.on_salt)::text FROM (SELECT * FROM postern.dependency d
		WHERE (d.queue_id, d.seq) = (v.queue_id, v.seq) OFFSET 0) d ORDER BY d.on_queue, d.on_seq)`

// TxOf joins the view tx, row by row, to the keys of an alias. Joined flat, it has more relations than the
// planner orders well, and it would read the whole view (seen).
func TxOf(alias string) string {
	return strings.ReplaceAll("CROSS JOIN LATERAL (SELECT x.* FROM postern.tx x WHERE (x.queue_id, x.seq, x.day) = (@.queue_id, @.seq, @.day) OFFSET 0) v", "@", alias)
}

// ScanTransaction reads a row of TransactionSelect; bodies: with data and result behind its columns.
func ScanTransaction(row pgx.Rows, bodies bool) (*Transaction, error) {
	t := &Transaction{}
	dest := []any{&t.ID.Queue, &t.ID.Seq, &t.ID.Day, &t.Context, &t.Queue, &t.UID, &t.Actor, &t.Type,
		&t.MaxRetries, &t.Tags, &t.State, &t.QueueState, &t.Retries, &t.Attempt, &t.Sender, &t.Fee, &t.Hash, &t.BlockHeight, &t.ReceivedAt, &t.NotBefore,
		&t.SubmittedAt, &t.RetriedAt, &t.DoneAt, &t.NextAt, &t.Class, &t.Code, &t.Error, &t.RedriveOf, &t.RedrivenBy, &t.MovedFrom, &t.Callback,
		&t.Suspended, &t.PlacedBefore, &t.Held, &t.DependsOn}
	if bodies {
		dest = append(dest, &t.Data, &t.Result)
	}
	err := row.Scan(dest...)
	t.ID.Salt = outbox.SaltOf(t.ReceivedAt, t.MovedFrom)
	return t, err
}

// TransactionsSQL reads transactions of a context ($1) with their bodies, by queues, positions and days ($2 to $4).
var TransactionsSQL = TransactionSelect + `, v.data, v.result
	FROM ROWS FROM (unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::date[])) n(queue_id, seq, day)
	` + TxOf("n") + ` WHERE v.context_id = $1`

// Transactions reads several transactions of a context by id, with their bodies, mostly in one statement (ofDays). An
// id without a transaction is missing from the map. A transaction that was moved to another queue is there under both
// of its ids.
func (s *Store) Transactions(ctx context.Context, contextID int32, ids []outbox.ID) (map[outbox.ID]*Transaction, error) {
	return s.transactions(ctx, s.Db(ctx), contextID, ids)
}

func (s *Store) transactions(ctx context.Context, db pgdb.Querier, contextID int32, ids []outbox.ID) (map[outbox.ID]*Transaction, error) {
	out, rest := make(map[outbox.ID]*Transaction, len(ids)), ids
	err := s.ofDays(db, TransactionsSQL, ids, func(sql string) (bool, error) {
		err := readTransactions(ctx, db, sql, contextID, rest, out)
		rest = slices.DeleteFunc(slices.Clone(ids), func(id outbox.ID) bool { return out[id] != nil })
		return len(rest) == 0, err
	})
	if err != nil || len(rest) == 0 {
		return out, pgdb.Known(err)
	}
	return out, follow(ctx, db, ids, out, func(ids []outbox.ID) (map[outbox.ID]*Transaction, error) {
		return s.transactions(ctx, db, contextID, ids)
	})
}

// readTransactions adds what sql finds of ids.
func readTransactions(ctx context.Context, db pgdb.Querier, sql string, contextID int32, ids []outbox.ID, found map[outbox.ID]*Transaction) error {
	var queues, seqs []int64
	var days []time.Time
	for _, id := range ids {
		queues, seqs, days = append(queues, id.Queue), append(seqs, id.Seq), append(days, id.Day.Time())
	}
	rows, err := db.Query(ctx, sql, contextID, queues, seqs, days)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		t, err := ScanTransaction(rows, true)
		if err != nil {
			return err
		}
		found[t.ID] = t
	}
	return rows.Err()
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
	return nil, s.missing(ctx, id)
}

// ByUID returns the id of the transaction that a client named uid, or NotFound.
func (s *Store) ByUID(ctx context.Context, contextID int32, uid string) (id outbox.ID, err error) {
	err = s.Db(ctx).QueryRow(ctx, `SELECT i.queue_id, i.seq, i.day - '1970-01-01', i.salt FROM postern.idempotency i
		WHERE i.context_id = $1 AND i.key = $2`, contextID, uid).Scan(&id.Queue, &id.Seq, &id.Day, &id.Salt)
	if errors.Is(err, pgx.ErrNoRows) {
		if id, err := outbox.ParseID(uid); err == nil { // without a uid of its own, its id is its uid
			return id, nil
		}
		return id, fault.New(fault.NotFound, "not_found", "no transaction with uid %q", fault.Clip(uid))
	}
	return id, pgdb.Known(err)
}

// TxPath is the path of a transaction in the API, by which audit rows name it.
func TxPath(id outbox.ID) string { return "/transactions/" + id.String() }

// PostedBy returns the actor that posted a transaction, or NotFound. It never changes.
func (s *Store) PostedBy(ctx context.Context, contextID int32, id outbox.ID) (actor string, err error) {
	err = s.Db(ctx).QueryRow(ctx, `SELECT actor FROM postern.task WHERE (queue_id, seq, day, postern.salt(created_at, moved_from), context_id) = ($1, $2, $3, $4, $5)`,
		id.Queue, id.Seq, id.Day.Time(), id.Salt, contextID).Scan(&actor)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", fault.New(fault.NotFound, "not_found", "no transaction %s", id)
	}
	return actor, pgdb.Known(err)
}

// seenTransaction is seen for a transaction whose queue t has locked.
func (s *Store) seenTransaction(ctx context.Context, t *pgdb.Txn, by pgdb.By, id outbox.ID) error {
	if by.Match == nil {
		return nil
	}
	found, err := s.transactions(ctx, t.Conn, by.Context, []outbox.ID{id})
	if err != nil {
		return err
	}
	return seenTag(by, found[id])
}

// seenTag compares what a client last saw of a transaction with what it is.
func seenTag(by pgdb.By, t *Transaction) error {
	if by.Match == nil || t == nil || by.Match(t.Tag()) {
		return nil
	}
	return fault.New(fault.Conflict, "precondition_failed", "transaction %s is %s by now: read it again", t.ID, t.State).With("version", t.Tag())
}

// Tag changes whenever anything that a reader sees of a transaction does, but for the next question about
// what was sent: each answer that says nothing new moves it.
func (t *Transaction) Tag() string {
	next := t.NextAt
	if t.State == outbox.REVISION || t.State == outbox.DISPATCHING {
		next = nil
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s %s %d %d %s %s %s %s %v %v %v %v %s %s %s %s %v %d", t.ID, t.State, t.QueueState, t.Retries, t.Attempt, t.Sender, t.Fee, t.Hash,
		t.BlockHeight, stamp(t.SubmittedAt), stamp(t.RetriedAt), stamp(t.DoneAt), stamp(next), t.Class, t.Code, t.Error, t.RedrivenBy, t.Suspended, t.PlacedBefore)
	return strconv.FormatUint(h.Sum64(), 36)
}

func stamp(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMicro()
}

// Staged returns what an application has staged under uid and that was not drained yet, without an id, or
// NotFound.
func (s *Store) Staged(ctx context.Context, contextID int32, uid string) (*Transaction, error) {
	t := &Transaction{Staged: true, State: outbox.WAITING, QueueState: string(outbox.FREE)}
	err := s.Pool().QueryRow(ctx, `SELECT c.name, coalesce(o.queue, ''), o.uid, o.actor, o.type, o.data, o.max_retries, o.tags, o.not_before, o.callback, o.staged_at
		FROM postern.outbox o JOIN postern.context c USING (context_id) WHERE o.context_id = $1 AND o.uid = $2`, contextID, uid).
		Scan(&t.Context, &t.Queue, &t.UID, &t.Actor, &t.Type, &t.Data, &t.MaxRetries, &t.Tags, &t.NotBefore, &t.Callback, &t.ReceivedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fault.New(fault.NotFound, "not_found", "no transaction with uid %q", fault.Clip(uid))
	}
	return t, db.Known(err)
}
