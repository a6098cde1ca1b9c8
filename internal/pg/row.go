package pg

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// QueueRow is a locked row of queue, as decisions see and change it. Zero stands for NULL in ids,
// positions and times.
type QueueRow struct {
	ID      int64
	Era     int32 // the lower bound of the era of its last write
	Context int32
	Named   bool
	Head    int64
	Cur     int64
	Next    int64 // goes out next, where that is not Head
	Tail    int64
	HeadDay outbox.Day
	TailDay outbox.Day
	Past    int64 // all behind Head up to here has ended: looks for what has not begin behind it
	Marks   int32
	Fence   int64
	Was     outbox.Phase
	Phase   outbox.Phase
	Attempt int
	Retries int
	Fee     string
	Lane    int32
	Prio    int16

	Paused, Draining           bool
	Pool, MaxDepth             int32
	DropOldest, PauseOnFailure bool

	Pin, Sender int32
	Node        int64
	NodeEpoch   int32
	EnteredAt   time.Time
	NotBefore   time.Time
	Blocked     time.Time // since when the calls of the head come to nothing

	before *QueueRow // as it is stored; nil of a new one
}

// queueColumn is one column of QueueRow: its name, its SQL type, how it reads and how it is stored.
type queueColumn struct {
	name, typ, read string
	dest            func(*QueueRow) any
	value           func(*QueueRow) any
}

// queueColumns is the row once, for reading and for writing.
var queueColumns = []queueColumn{
	{"queue_id", "bigint", "", func(q *QueueRow) any { return &q.ID }, func(q *QueueRow) any { return q.ID }},
	{"context_id", "int", "", func(q *QueueRow) any { return &q.Context }, nil},
	{"era", "int", "", func(q *QueueRow) any { return &q.Era }, nil},
	{"named", "boolean", "", func(q *QueueRow) any { return &q.Named }, nil},
	{"head_seq", "bigint", "", func(q *QueueRow) any { return &q.Head }, func(q *QueueRow) any { return q.Head }},
	{"cur_seq", "bigint", "coalesce(q.cur_seq, 0)", func(q *QueueRow) any { return &q.Cur }, func(q *QueueRow) any { return db.Nullable(q.Cur) }},
	{"next_seq", "bigint", "coalesce(q.next_seq, 0)", func(q *QueueRow) any { return &q.Next }, func(q *QueueRow) any { return db.Nullable(q.Next) }},
	{"tail_seq", "bigint", "", func(q *QueueRow) any { return &q.Tail }, func(q *QueueRow) any { return q.Tail }},
	{"head_day", "date", "q.head_day - '1970-01-01'", func(q *QueueRow) any { return &q.HeadDay }, func(q *QueueRow) any { return q.HeadDay.Time() }},
	{"tail_day", "date", "q.tail_day - '1970-01-01'", func(q *QueueRow) any { return &q.TailDay }, func(q *QueueRow) any { return q.TailDay.Time() }},
	{"past_seq", "bigint", "", func(q *QueueRow) any { return &q.Past }, func(q *QueueRow) any { return q.Past }},
	{"marks", "int", "", func(q *QueueRow) any { return &q.Marks }, func(q *QueueRow) any { return q.Marks }},
	{"fence", "bigint", "", func(q *QueueRow) any { return &q.Fence }, func(q *QueueRow) any { return q.Fence }},
	{"was", "text", "", func(q *QueueRow) any { return &q.Was }, func(q *QueueRow) any { return string(q.Was) }},
	{"phase", "text", "", func(q *QueueRow) any { return &q.Phase }, func(q *QueueRow) any { return string(q.Phase) }},
	{"attempt", "int", "", func(q *QueueRow) any { return &q.Attempt }, func(q *QueueRow) any { return q.Attempt }},
	{"retries", "int", "", func(q *QueueRow) any { return &q.Retries }, func(q *QueueRow) any { return q.Retries }},
	{"fee", "text", "coalesce(q.fee, '')", func(q *QueueRow) any { return &q.Fee }, func(q *QueueRow) any { return db.Nullable(q.Fee) }},
	{"lane", "int", "coalesce(q.lane, 0)", func(q *QueueRow) any { return &q.Lane }, func(q *QueueRow) any { return db.Nullable(q.Lane) }},
	{"prio", "smallint", "", func(q *QueueRow) any { return &q.Prio }, func(q *QueueRow) any { return q.Prio }},
	{"paused", "boolean", "", func(q *QueueRow) any { return &q.Paused }, func(q *QueueRow) any { return q.Paused }},
	{"draining", "boolean", "", func(q *QueueRow) any { return &q.Draining }, func(q *QueueRow) any { return q.Draining }},
	{"pool_id", "int", "coalesce(q.pool_id, 0)", func(q *QueueRow) any { return &q.Pool }, func(q *QueueRow) any { return db.Nullable(q.Pool) }},
	{"max_depth", "int", "coalesce(q.max_depth, 0)", func(q *QueueRow) any { return &q.MaxDepth }, func(q *QueueRow) any { return db.Nullable(q.MaxDepth) }},
	{"drop_oldest", "boolean", "", func(q *QueueRow) any { return &q.DropOldest }, func(q *QueueRow) any { return q.DropOldest }},
	{"pause_on_failure", "boolean", "", func(q *QueueRow) any { return &q.PauseOnFailure }, func(q *QueueRow) any { return q.PauseOnFailure }},
	{"pin_sender_id", "int", "coalesce(q.pin_sender_id, 0)", func(q *QueueRow) any { return &q.Pin }, func(q *QueueRow) any { return db.Nullable(q.Pin) }},
	{"sender_id", "int", "coalesce(q.sender_id, 0)", func(q *QueueRow) any { return &q.Sender }, func(q *QueueRow) any { return db.Nullable(q.Sender) }},
	{"node_id", "bigint", "coalesce(q.node_id, 0)", func(q *QueueRow) any { return &q.Node }, func(q *QueueRow) any { return db.Nullable(q.Node) }},
	{"node_epoch", "int", "coalesce(q.node_epoch, 0)", func(q *QueueRow) any { return &q.NodeEpoch }, func(q *QueueRow) any { return db.Nullable(q.NodeEpoch) }},
	{"entered_at", "timestamptz", "", func(q *QueueRow) any { return &q.EnteredAt }, func(q *QueueRow) any { return q.EnteredAt }},
	{"not_before", "timestamptz", "coalesce(q.not_before, '0001-01-01 00:00:00+00')", func(q *QueueRow) any { return &q.NotBefore }, func(q *QueueRow) any { return db.Nullable(q.NotBefore) }},
	{
		"blocked_since", "timestamptz", "coalesce(q.blocked_since, '0001-01-01 00:00:00+00')",
		func(q *QueueRow) any { return &q.Blocked }, func(q *QueueRow) any { return db.Nullable(q.Blocked) },
	},
}

// QueueSelect is the select list of a queue row of alias q.
var QueueSelect = func() string {
	var list []string
	for _, c := range queueColumns {
		if c.read != "" {
			list = append(list, c.read)
		} else {
			list = append(list, "q."+c.name)
		}
	}
	return strings.Join(list, ", ")
}()

// dests returns where the columns of QueueSelect are scanned to, followed by more.
func (q *QueueRow) dests(more ...any) []any {
	list := make([]any, 0, len(queueColumns)+len(more))
	for _, c := range queueColumns {
		list = append(list, c.dest(q))
	}
	return append(list, more...)
}

// stored are the columns that can be written; the first is the key.
var stored = slices.DeleteFunc(slices.Clone(queueColumns), func(c queueColumn) bool { return c.value == nil })

// queueInsert stores new rows: all that can be written, and what never changes.
var queueInsert = func() *db.Insertion {
	var cols []string
	for _, c := range stored {
		cols = append(cols, c.name+" "+c.typ)
	}
	return db.InsertMany("queue", "", append(cols, "context_id int =", "named boolean =")...)
}()

func insertQueues(b *pgx.Batch, rows []*QueueRow) {
	c := db.Columns{N: len(rows)}
	for _, q := range rows {
		values := make([]any, 0, len(queueColumns))
		for _, col := range stored {
			values = append(values, col.value(q))
		}
		c.Add(append(values, q.Context, q.Named)...)
	}
	queueInsert.Queue(b, c)
}

// updates are the texts of queueUpdate by the columns that they write, as bits, and AllSame or OneRow.
var updates sync.Map

// likelySame are the columns of a queue that a batch is likely to set to one value, as bits.
var likelySame = func() (bits uint64) {
	for i, c := range stored {
		if slices.Contains([]string{"was", "phase", "lane", "node_id", "node_epoch", "entered_at", "attempt", "retries"}, c.name) {
			bits |= 1 << i
		}
	}
	return bits
}()

// queueUpdate writes the columns that have changed in any of rows. The caller holds their locks, so it cannot wait
// and cannot overwrite another's change. Each queue occurs once, since a join with a doubled key updates once,
// silently.
func queueUpdate(b *pgx.Batch, rows []*QueueRow) {
	changed := uint64(1)
	for i, c := range stored {
		for _, q := range rows {
			if q.before == nil || c.value(q) != c.value(q.before) {
				changed |= 1 << i
				break
			}
		}
	}
	if changed > 1 {
		args := queueArgs(rows, changed)
		values := changed & likelySame
		if len(rows) == 1 {
			values = changed
		}
		n := 0
		for i := range stored {
			if changed&(1<<i) == 0 {
				continue
			}
			if col := args[n].([]any); values&(1<<i) != 0 && slices.ContainsFunc(col, func(v any) bool { return v != col[0] }) {
				values = 0 // all of them or none, so that there are few texts
			}
			n++
		}
		n = 0
		for i := range stored {
			if changed&(1<<i) == 0 {
				continue
			}
			if values&(1<<i) != 0 {
				args[n] = args[n].([]any)[0]
			}
			n++
		}
		key := changed
		if len(rows) == 1 {
			key |= db.OneRow
		} else if values != 0 {
			key |= db.AllSame
		}
		text, ok := updates.Load(key)
		if !ok {
			text, _ = updates.LoadOrStore(key, updateText(changed, values))
		}
		eras := make([]int32, len(rows))
		for i, q := range rows {
			eras[i] = q.Era
		}
		b.Queue(text.(string), append(args, db.Argument(eras))...)
	}
	for _, q := range rows {
		if q.before != nil {
			*q.before = *q
		}
	}
}

// updateText is the UPDATE of the columns in changed; those in values have one value for all rows: for a single row
// also its key. The last argument is the era of each row as it was read. Eras only rise, so the key leads to the
// versions since then alone.
//
// An array of one stands for its element. Where columns are equal, PostgreSQL could read the whole table in their
// order and compare each row with each of n; it does so where a table had nothing in it when it was last analyzed.
// With an array it can only look for one after the other. Two comparisons, of at least and at most, would do the
// same, but behind them the era is no part of the way: each version of the row in a page of the key would be compared
// with it.
func updateText(changed, values uint64) string {
	var sets, args, names []string
	n := 0
	for i, c := range stored {
		if changed&(1<<i) == 0 {
			continue
		}
		n++
		if values&(1<<i) != 0 {
			if i > 0 {
				sets = append(sets, fmt.Sprintf("%s = $%d::%s", c.name, n, c.typ))
			}
			continue
		}
		args, names = append(args, fmt.Sprintf("unnest($%d::%s[])", n, c.typ)), append(names, c.name)
		if i > 0 {
			sets = append(sets, c.name+" = n."+c.name)
		}
	}
	set := "UPDATE postern.queue q SET era = q.era + (q.writes + 1) / 16, writes = (q.writes + 1) % 16, " + strings.Join(sets, ", ")
	if len(args) == 0 {
		return fmt.Sprintf("%s WHERE q.queue_id = $1::bigint AND q.era >= $%d::int", set, n+1)
	}
	return fmt.Sprintf("%s FROM ROWS FROM (%s, unnest($%d::int[])) n(%s, era) WHERE q.queue_id = ANY (ARRAY[n.queue_id]) AND q.era >= n.era",
		set, strings.Join(args, ", "), n+1, strings.Join(names, ", "))
}

// queueArgs turns columns of rows into arrays.
func queueArgs(rows []*QueueRow, which uint64) []any {
	args := make([]any, 0, len(stored))
	for i, c := range stored {
		if which&(1<<i) == 0 {
			continue
		}
		column := make([]any, len(rows))
		for i, q := range rows {
			column[i] = c.value(q)
		}
		args = append(args, column)
	}
	return args
}

// Queues are locked in the order of their ids. A statement waits for a row that another session has locked, or leaves
// it out.
var (
	lockWaiting  = lockingQueues(QueueSelect, "")
	lockSkipping = lockingQueues(QueueSelect, "SKIP LOCKED")
)

func lockingQueues(list, skip string) db.Rowwise {
	return db.ForRows(func(one bool) string {
		return "SELECT " + list + " FROM " + newestQueue(one, db.Given(one, 1, "queue_id bigint", "era int"), "", skip)
	})
}

// newestQueue locks the row q of the queue n.queue_id, one of rows after the other; its era is n.era, or a later one.
// While some session holds an old snapshot, the key leads to every version of the row that does not share a page with
// the one before, and each costs a read of its page; PostgreSQL keeps them in the order of their eras and pages, and
// new versions go to new pages. So the key is read from its end, and the read stops at the only version that can be
// seen. The result does not depend on the order: the order only says how soon it is found. A page of the key yields
// all that the condition allows, some three hundred versions, before the first of them is looked at: hence the era.
func newestQueue(one bool, rows, and, skip string) string {
	newest := `postern.queue q WHERE q.queue_id = n.queue_id AND q.era >= n.era` + and + `
		ORDER BY q.era DESC LIMIT 1 FOR UPDATE OF q ` + skip
	if one {
		return rows + ` CROSS JOIN ` + newest
	}
	return rows + ` CROSS JOIN LATERAL (SELECT * FROM ` + newest + `) q`
}

// lockAll locks the queues of ids and returns those that exist. It waits for a session that holds one.
func lockAll(b *pgx.Batch, ids []int64, into map[int64]*QueueRow) {
	lockQueues(b, lockWaiting, ids, nil, into)
}

// lockQueues does so however: waiting or not. Of a queue that stands in eras, the row is known to be of that one or of
// a later one.
func lockQueues(b *pgx.Batch, how db.Rowwise, ids []int64, eras map[int64]int32, into map[int64]*QueueRow) {
	if len(ids) == 0 {
		return
	}
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	from := make([]int32, len(ids))
	for i, id := range ids {
		from[i] = eras[id]
	}
	b.Queue(how.Of(len(ids)), db.Argument(ids), db.Argument(from)).Query(func(rows pgx.Rows) error { return ScanQueues(rows, into) })
}

// ScanQueues reads rows of QueueSelect into a map by their ids.
func ScanQueues(rows pgx.Rows, into map[int64]*QueueRow) error {
	var list []*QueueRow
	err := collectQueues(rows, &list)
	for _, q := range list {
		into[q.ID] = q
	}
	return err
}

func collectQueues(rows pgx.Rows, into *[]*QueueRow) error {
	for rows.Next() {
		q := &QueueRow{}
		if err := rows.Scan(q.dests()...); err != nil {
			return err
		}
		q.tidy()
		*into = append(*into, q.read())
	}
	return rows.Err()
}

// stretch asks for the task at a position and, if it is the only one to go out, for those behind it.
func (q *QueueRow) stretch(seq int64) stretch {
	n := stretch{q.ID, seq, seq, q.HeadDay}
	if q.Marks == 0 && q.Attempt == 1 && q.Phase == outbox.PhaseDispatching {
		n.last = min(q.Tail, seq+readAhead)
	}
	return n
}

// read makes q a row that has just been read.
func (q *QueueRow) read() *QueueRow {
	was := *q
	q.before = &was
	return q
}

// tidy makes what stands for NULL zero again.
func (q *QueueRow) tidy() {
	if q.Blocked.Year() <= 1 {
		q.Blocked = time.Time{}
	}
	if q.NotBefore.Year() <= 1 {
		q.NotBefore = time.Time{}
	}
}

// Together runs fn under a context in which all that the store does is one commit. The queues of ids are locked first,
// in the order of their ids, as every SQL transaction locks them. Locks that fn takes besides may make it a victim of a
// deadlock. A Retry fault "broken": nothing was done.
func (s *Store) Together(ctx context.Context, ids []outbox.ID, fn func(context.Context) error) error {
	queues := make([]int64, len(ids))
	for i, id := range ids {
		queues[i] = id.Queue
	}
	lock := func(t *db.Txn, b *pgx.Batch) { lockAll(b, queues, map[int64]*QueueRow{}) }
	if err := s.DB.Together(ctx, lock, fn); err != nil {
		return err
	}
	s.RingHere() // a ring before the commit found nothing to claim
	return nil
}

// ReadNow adds the reading of the deciding clock to b. Behind a lock it is not older than the lock.
func (s *Store) ReadNow(b *pgx.Batch, now *time.Time) {
	b.Queue(`SELECT coalesce($1::timestamptz, clock_timestamp())`, s.Clock()).QueryRow(func(row pgx.Row) error {
		return row.Scan(now)
	})
}

// lockOne locks one queue in t and returns it, or nil if there is none.
func (s *Store) lockOne(ctx context.Context, t *db.Txn, id int64) (*QueueRow, time.Time, error) {
	var now time.Time
	rows := map[int64]*QueueRow{}
	b := &pgx.Batch{}
	lockAll(b, []int64{id}, rows)
	s.ReadNow(b, &now)
	err := t.Send(ctx, b)
	return rows[id], now, err
}

// later returns now, or a microsecond after before: a queue's entered_at rises, as the key of its ready
// row must never be one that it had earlier.
func later(now, before time.Time) time.Time {
	now = now.Truncate(time.Microsecond)
	if !now.After(before) {
		return before.Add(time.Microsecond)
	}
	return now
}
