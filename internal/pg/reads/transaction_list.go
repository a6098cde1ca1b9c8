package reads

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// ListFilter narrows a list of transactions. Empty fields do not narrow.
type ListFilter struct {
	Queues, Types, States, Senders, Classes, Codes []string
	ReceivedAfter, ReceivedBefore                  time.Time // half-open
	DoneAfter, DoneBefore                          time.Time
	RedriveOf                                      string
	Suspended                                      *bool
	Held                                           *bool
	Ascending                                      bool
	From                                           *ListCursor // nil for the first page
	Limit                                          int
	Bodies                                         bool
	Examined                                       int // how many rows the page may look at, 0 for 50,000

	days db.Window // that are read
}

// reads is sql for the days of the list.
func (f ListFilter) reads(sql string) string { return pg.Within(sql, f.days) }

// behind is the row behind which the page begins, if it begins within its days.
func (f ListFilter) behind() *ListCursor {
	if f.From == nil || f.From.At.IsZero() {
		return nil
	}
	return f.From
}

// ListCursor is the last row that a page looked at, none for the first of its days, and the days in which the list
// goes on, none for all.
type ListCursor struct {
	At    time.Time  `json:"a,omitzero"`
	Queue int64      `json:"q,omitempty"`
	Seq   int64      `json:"s,omitempty"`
	Days  *db.Window `json:"d,omitempty"`
}

// ListTransactions returns a page of transactions by time of receipt, one queue's by position, and where the next one
// begins, nil at the end. A page looks at a bounded number of rows, so that it may be short, even empty,
// before the end.
//
// A statement reads the partitions of at most db.WindowSpans spans, the newest first, or the oldest. Where there are
// more, the page goes on with others once these have no more, for as long as db.Windows lets it, and then the next: so
// the order is that of receipt but for transactions whose day is later than that of their receipt by a whole window,
// after a clock was set back.
//
// The newest ones are looked for in the span of the newest alone, with those that are made ahead, and only a page that
// is not full then in the others: the cost of a page does not grow with the age of the database.
func (s *Store) ListTransactions(ctx context.Context,
	contextID int32, f ListFilter) (list []*pg.Transaction, next *ListCursor, err error) {
	limit := f.Limit
	if f.Examined == 0 {
		f.Examined = 50000
	}
	more := db.Windows()
	for {
		part, next, err := s.window(ctx, contextID, f)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, part...)
		if next == nil || !next.At.IsZero() || len(list) == limit || !more() {
			return list, next, nil
		}
		f.From, f.Limit = next, limit-len(list)
	}
}

// within notes in a cursor the days in which the list goes on.
func (f ListFilter) within(next *ListCursor) *ListCursor {
	if next != nil && f.days != (db.Window{}) {
		next.Days = &f.days
	}
	return next
}

// window is a page of transactions from the days of one window, and where the list goes on.
func (s *Store) window(ctx context.Context, contextID int32, f ListFilter) (list []*pg.Transaction, next *ListCursor,
	err error) {
	following, err := s.choose(ctx, contextID, &f)
	if err != nil {
		return nil, nil, err
	}
	if newest, all, ok := s.newest(f); ok {
		list, next, err = s.list(ctx, contextID, newest)
		if err != nil || next != nil || all {
			return list, f.within(next), err
		}
	}
	if list, next, err = s.list(ctx, contextID, f); err != nil {
		return nil, nil, err
	}
	if next == nil && following != nil {
		return list, &ListCursor{Days: following}, nil
	}
	return list, f.within(next), nil
}

// choose chooses the days of a page, and those that follow it; nil for none. Nothing is received after the day under
// which it is stored.
func (s *Store) choose(ctx context.Context, contextID int32, f *ListFilter) (following *db.Window, err error) {
	if f.Held != nil && *f.Held { // they are few, and known by their queues
		f.days.First, err = s.oldestHeld(ctx, contextID)
		return nil, err
	}
	known := f.From != nil && f.From.Days != nil
	if known && !s.Fits(*f.From.Days) {
		return nil, fault.New(fault.Invalid, "bad_cursor", "the cursor is none of ours: begin without one")
	}
	var received outbox.Day // the first day that can have any
	if !f.ReceivedAfter.IsZero() {
		received = outbox.DayOf(f.ReceivedAfter)
	}
	if f.Ascending {
		first := received
		if known {
			first = f.From.Days.First
		}
		if f.days, _ = s.Above(first); known && f.behind() != nil {
			f.days = *f.From.Days
		}
		if f.days.Until == 0 {
			return nil, nil
		}
		w, _ := s.Above(f.days.Until)
		return &w, nil
	}
	if f.days, _ = s.Below(0); known {
		f.days = *f.From.Days
	}
	if f.days.First <= received {
		return nil, nil
	}
	w, _ := s.Below(f.days.First)
	return &w, nil
}

// oldestHeld is the first day on which a transaction that is held can lie, and today if none is.
func (s *Store) oldestHeld(ctx context.Context, contextID int32) (day outbox.Day, err error) {
	today := outbox.DayOf(s.Moment(time.Now()))
	err = s.Pool().QueryRow(ctx, `SELECT coalesce(min(h.head_day) - '1970-01-01', $2) FROM postern.mark m
		JOIN postern.queue h ON h.queue_id = m.queue_id
		WHERE m.kind = 'unknown' AND h.context_id = $1`, contextID, today).Scan(&day)
	return day, db.Known(err)
}

// newest narrows a list that begins with the newest to the spans of days from that in which it begins, and says whether
// that is all of it. Transactions that were received on their days lie in them, since the day of a transaction is not
// before that of its receipt, and does not fall along its queue.
func (s *Store) newest(f ListFilter) (newest ListFilter, all, ok bool) {
	top := time.Now()
	if t := s.Clock(); t != nil {
		top = *t
	}
	if !f.ReceivedBefore.IsZero() && f.ReceivedBefore.Before(top) {
		top = f.ReceivedBefore
	}
	if from := f.behind(); from != nil && from.At.Before(top) {
		top = from.At
	}
	if f.days.Until != 0 && f.days.Until.Time().Before(top) {
		top = (f.days.Until - 1).Time()
	}
	span, known := s.SpanOf(outbox.DayOf(top))
	if !known || f.Ascending || span.First <= f.days.First {
		return f, false, false
	}
	first := span.First.Time()
	f.days.First, all = span.First, !f.ReceivedAfter.Before(first)
	if !all && len(f.Queues) != 1 {
		f.ReceivedAfter = first
	}
	return f, all, true
}

func (s *Store) list(
	ctx context.Context, contextID int32, f ListFilter,
) (list []*pg.Transaction, next *ListCursor, err error) {
	q, err := s.listQuery(ctx, contextID, f)
	if err != nil || q == nil {
		return nil, nil, err
	}
	sql, args := q.page(f)
	rows, err := s.Pool().Query(ctx, sql, args...)
	if err != nil {
		return nil, nil, db.Known(err)
	}
	defer rows.Close()
	for rows.Next() {
		t, err := pg.ScanTransaction(rows, f.Bodies)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, t)
	}
	if rows.Err() != nil {
		return nil, nil, db.Known(rows.Err())
	}
	if len(list) > f.Limit {
		list = list[:f.Limit]
		last := list[f.Limit-1]
		return list, &ListCursor{At: last.ReceivedAt, Queue: last.ID.Queue, Seq: last.ID.Seq}, nil
	}
	next = &ListCursor{}
	sql = fmt.Sprintf("SELECT created_at, queue_id, seq FROM (%s) k ORDER BY %s LIMIT 1 OFFSET %d",
		q.keys, q.order, f.Examined-1)
	err = s.Pool().QueryRow(ctx, f.reads(sql), q.keyArgs...).
		Scan(&next.At, &next.Queue, &next.Seq)
	if errors.Is(err, pgx.ErrNoRows) { // fewer than it may look at: that was all
		return list, nil, nil
	}
	return list, next, db.Known(err)
}

// listQuery is how a list is read: keys brings candidates in order from one index, thin says which stay.
type listQuery struct {
	keys    string // of task: queue_id, seq, day, created_at, type
	keyArgs []any
	order   string
	thin    []string
	args    []any // of thin; they follow those of keys
}

// arg adds a value to the arguments of keys.
func (q *listQuery) arg(v any) string {
	q.keyArgs = append(q.keyArgs, v)
	return fmt.Sprintf("$%d", len(q.keyArgs))
}

// by adds a condition that thins, with %s for its value.
func (q *listQuery) by(condition string, v any) {
	q.args = append(q.args, v)
	q.thin = append(q.thin, fmt.Sprintf(condition, fmt.Sprintf("$%d", len(q.keyArgs)+len(q.args))))
}

// listQuery chooses the index: one queue by its key; held transactions by their marks; transactions that ended badly,
// if they are few, by outcome_not_done; else the time of receipt. nil: there is no such queue, and so nothing to list.
func (s *Store) listQuery(ctx context.Context, contextID int32, f ListFilter) (*listQuery, error) {
	q := &listQuery{}
	switch bad, err := s.fewEndedBadly(ctx, contextID, f); {
	case err != nil:
		return nil, err
	case len(f.Queues) == 1:
		var id int64
		err := s.Pool().QueryRow(ctx, `SELECT queue_id FROM postern.queue_name WHERE context_id = $1 AND name = $2`,
			contextID, f.Queues[0]).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, nil
		}
		if err != nil {
			return nil, db.Known(err)
		}
		q.ofQueue(id, f)
	case f.Held != nil && *f.Held:
		q.held(contextID, f)
	case bad:
		q.endedBadly(contextID, f)
	default:
		q.byTime(contextID, f)
	}
	q.narrow(contextID, f)
	return q, nil
}

func direction(f ListFilter) (cmp, dir string) {
	if f.Ascending {
		return ">", "ASC"
	}
	return "<", "DESC"
}

// days prunes partitions: a transaction's day is never before that of its receipt.
func (q *listQuery) days(f ListFilter) string {
	if f.ReceivedAfter.IsZero() {
		return ""
	}
	return " AND k.day >= " + q.arg(outbox.DayOf(f.ReceivedAfter).Time())
}

func (q *listQuery) ofQueue(id int64, f ListFilter) {
	cmp, dir := direction(f)
	q.keys = "SELECT k.queue_id, k.seq, k.day, k.created_at, k.type FROM postern.task k WHERE k.queue_id = " +
		q.arg(id) + q.days(f)
	if from := f.behind(); from != nil {
		q.keys += fmt.Sprintf(" AND k.seq %s %s", cmp, q.arg(from.Seq))
	}
	q.keys += " ORDER BY k.seq " + dir + fmt.Sprintf(" LIMIT %d", f.Examined)
	q.order = "k.seq " + dir
}

func (q *listQuery) byTime(contextID int32, f ListFilter) {
	q.keys = "SELECT k.queue_id, k.seq, k.day, k.created_at, k.type FROM postern.task k WHERE k.created_at > '-infinity' AND k.context_id = " + q.arg(contextID) + q.days(f) + q.times(f)
	q.order = byReceipt(f)
	q.keys += " ORDER BY " + q.order + fmt.Sprintf(" LIMIT %d", f.Examined)
}

// times bounds the scan by the time of receipt and by the cursor.
func (q *listQuery) times(f ListFilter) (sql string) {
	cmp, _ := direction(f)
	if !f.ReceivedAfter.IsZero() {
		sql += " AND k.created_at >= " + q.arg(f.ReceivedAfter)
	}
	if !f.ReceivedBefore.IsZero() {
		sql += " AND k.created_at < " + q.arg(f.ReceivedBefore)
	}
	if from := f.behind(); from != nil {
		sql += fmt.Sprintf(" AND (k.created_at, k.queue_id, k.seq) %s (%s, %s, %s)",
			cmp, q.arg(from.At), q.arg(from.Queue), q.arg(from.Seq))
	}
	return sql
}

func byReceipt(f ListFilter) string {
	_, dir := direction(f)
	return fmt.Sprintf("k.created_at %[1]s, k.queue_id %[1]s, k.seq %[1]s", dir)
}

// endedSince is what bounds a scan of outcome_not_done: nothing ends before it is received.
func endedSince(f ListFilter) time.Time {
	if f.DoneAfter.After(f.ReceivedAfter) {
		return f.DoneAfter
	}
	return f.ReceivedAfter
}

// fewEndedBadly says whether the list shows nothing but what ended other than DONE, and that since the time
// that it covers no more did than a page may look at. Then that is all that is read.
func (s *Store) fewEndedBadly(ctx context.Context, contextID int32, f ListFilter) (bool, error) {
	if len(f.States) == 0 || len(f.Queues) == 1 {
		return false, nil
	}
	for _, state := range f.States {
		if st := outbox.State(state); st == outbox.DONE || !st.Terminal() {
			return false, nil
		}
	}
	var n int
	err := s.Pool().QueryRow(ctx, f.reads(`SELECT count(*) FROM (SELECT FROM postern.outcome o
		WHERE o.context_id = $1 AND o.state <> 'DONE' AND o.done_at >= $2 LIMIT $3) n`),
		contextID, endedSince(f), f.Examined).Scan(&n)
	return n < f.Examined, db.Known(err)
}

func (q *listQuery) endedBadly(contextID int32, f ListFilter) {
	q.keys = `SELECT k.queue_id, k.seq, k.day, k.created_at, k.type FROM postern.outcome o JOIN postern.task k ON (k.queue_id, k.seq, k.day) = (o.queue_id, o.seq, o.day)
		WHERE o.context_id = ` + q.arg(contextID) + ` AND o.state <> 'DONE' AND o.done_at >= ` + q.arg(endedSince(f)) + " AND o.state = ANY (" + q.arg(f.States) + ")" + q.times(f)
	q.order = byReceipt(f)
	q.keys += " ORDER BY " + q.order
}

// held brings the transactions that wait for an operator's word, which are few, by mark_unknown. The day of each lies
// between those of its queue.
func (q *listQuery) held(contextID int32, f ListFilter) {
	q.keys = `SELECT k.queue_id, k.seq, k.day, k.created_at, k.type FROM postern.mark m
		JOIN postern.queue h ON h.queue_id = m.queue_id AND h.cur_seq = m.seq
		JOIN postern.task k ON (k.queue_id, k.seq) = (m.queue_id, m.seq) AND k.day BETWEEN h.head_day AND h.tail_day
		WHERE m.kind = 'unknown' AND k.context_id = ` + q.arg(contextID) + q.times(f)
	q.order = byReceipt(f)
	q.keys += " ORDER BY " + q.order + fmt.Sprintf(" LIMIT %d", f.Examined)
}

// narrow thins what the index brings: by the keys first, then by what the view shows.
func (q *listQuery) narrow(contextID int32, f ListFilter) {
	if len(f.Types) > 0 {
		q.by("k.type = ANY (%s)", f.Types)
	}
	if len(f.Queues) > 1 {
		q.by("k.queue_id IN (SELECT queue_id FROM postern.queue_name WHERE name = ANY (%s) AND context_id = "+fmt.Sprint(contextID)+")", f.Queues)
	}
	if len(f.Queues) == 1 {
		if !f.ReceivedAfter.IsZero() {
			q.by("k.created_at >= %s", f.ReceivedAfter)
		}
		if !f.ReceivedBefore.IsZero() {
			q.by("k.created_at < %s", f.ReceivedBefore)
		}
	}
	ended, live := len(f.States) > 0, len(f.States) > 0
	for _, s := range f.States {
		ended, live = ended && outbox.State(s).Terminal(), live && !outbox.State(s).Terminal()
	}
	const outcome = "EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (k.queue_id, k.seq, k.day)"
	switch { // one look at an index, before the view is asked
	case ended:
		q.by(outcome+" AND o.state = ANY (%s))", f.States)
	case live:
		q.thin = append(q.thin, "NOT "+outcome+")")
	}
	for _, c := range []struct {
		column string
		values []string
	}{{"state", f.States}, {"sender", f.Senders}, {"error_class", f.Classes}, {"error_code", f.Codes}} {
		if len(c.values) > 0 {
			q.by("v."+c.column+" = ANY (%s)", c.values)
		}
	}
	if f.Suspended != nil {
		if *f.Suspended { // sparse, and found by its key
			q.thin = append(q.thin, "EXISTS (SELECT FROM postern.mark m WHERE (m.queue_id, m.seq, m.kind) = (k.queue_id, k.seq, 'suspended'))")
		}
		q.by("v.suspended = %s", *f.Suspended)
	}
	if f.Held != nil {
		q.by("v.held = %s", *f.Held)
	}
	if !f.DoneAfter.IsZero() {
		q.by("v.done_at >= %s", f.DoneAfter)
	}
	if !f.DoneBefore.IsZero() {
		q.by("v.done_at < %s", f.DoneBefore)
	}
	if f.RedriveOf != "" {
		q.by("v.redrive_of = %s::text::uuid", f.RedriveOf)
	}
}

// page is the statement of a page, one row longer than it. The keys are a subquery and no CTE, whose order the
// planner would not know: it would read all that a page may look at, and sort it.
func (q *listQuery) page(f ListFilter) (string, []any) {
	where := ""
	if len(q.thin) > 0 {
		where = "WHERE " + strings.Join(q.thin, " AND ")
	}
	sql := fmt.Sprintf("%s%s FROM (%s) k %s %s ORDER BY %s LIMIT %d", pg.TransactionSelect, bodyColumns(f.Bodies),
		q.keys, pg.TxOf("k"), where, q.order, f.Limit+1)
	return f.reads(sql), append(q.keyArgs, q.args...)
}

func bodyColumns(bodies bool) string {
	if bodies {
		return ", v.data, v.result"
	}
	return ""
}

// ListSQL returns the statement with which a list is read, and its arguments. It is for tests of plans.
func (s *Store) ListSQL(ctx context.Context, contextID int32, f ListFilter) (string, []any, error) {
	if f.Examined == 0 {
		f.Examined = 50000
	}
	if _, err := s.choose(ctx, contextID, &f); err != nil {
		return "", nil, err
	}
	return s.pageSQL(ctx, contextID, f)
}

func (s *Store) pageSQL(ctx context.Context, contextID int32, f ListFilter) (string, []any, error) {
	q, err := s.listQuery(ctx, contextID, f)
	if err != nil {
		return "", nil, err
	}
	sql, args := q.page(f)
	return sql, args, nil
}

// NewestSQL returns the statement with which a list looks for the newest first, and its arguments. It is for tests of
// what it locks.
func (s *Store) NewestSQL(ctx context.Context, contextID int32, f ListFilter) (string, []any, error) {
	newest, _, ok := s.newest(f)
	if !ok {
		return "", nil, errors.New("the span of today is not known")
	}
	newest.Examined = 50000
	return s.pageSQL(ctx, contextID, newest)
}
