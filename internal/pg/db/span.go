package db

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
)

// Span is the days from First to Last whose rows lie in one partition of each table (migrations/00047). Its partitions
// are named after both days, so that a span that a process remembers names these partitions or, once they are gone,
// none.
type Span struct{ First, Last outbox.Day }

// Name returns what the names of its partitions have behind the table's: _20261001, or _20261001_20261231.
func (s Span) Name() string {
	first, last := s.First.Time().Format(dayLayout), s.Last.Time().Format(dayLayout)
	if first == last {
		return "_" + first
	}
	return fmt.Sprintf("_%s_%s", first, last)
}

// Has says whether days from the first to the last are of the span.
func (s Span) Has(first, last outbox.Day) bool { return s.First <= first && last <= s.Last }

const dayLayout = "20060102"

// Window is the days from First on and before Until that a page of a list reads; 0 is no bound. (Rows that survived of
// a span that was dropped lie in no span: only a window without First has these.)
type Window struct {
	First outbox.Day `json:"f,omitempty"`
	Until outbox.Day `json:"u,omitempty"`
}

// WindowSpans is how many spans a window has at most: a statement locks the partitions of them all, and plans them.
const WindowSpans = 60

// Fits says whether a page may read a window that a cursor names: both are days that an id can have, and it has no more
// spans than one that was made here, and those that were made since.
func (db *DB) Fits(w Window) bool {
	if min(w.First, w.Until) < 0 || max(w.First, w.Until) >= 1<<16 {
		return false
	}
	n := 0
	for _, s := range db.Spans() {
		if s.Last >= w.First && (w.Until == 0 || s.First < w.Until) {
			n++
		}
	}
	return n <= 2*WindowSpans
}

// Windows returns what says whether a page that is not full may go on with the window that follows: twenty times, and
// for two seconds.
func Windows() (more func() bool) {
	left, began := 20, time.Now()
	return func() bool {
		left--
		return left > 0 && time.Since(began) < 2*time.Second
	}
}

// Below returns the window of the newest spans that lie before a day, 0 for any, and whether there are days before it.
func (db *DB) Below(until outbox.Day) (w Window, more bool) {
	list := db.Spans()
	n := len(list)
	if until != 0 {
		n = sort.Search(n, func(i int) bool { return list[i].First >= until })
	}
	if w.Until = until; n > WindowSpans {
		w.First = list[n-WindowSpans].First
	}
	return w, w.First != 0
}

// Above returns the window of the oldest spans that have a day or a later one, and whether there are days after it.
func (db *DB) Above(first outbox.Day) (w Window, more bool) {
	list := db.Spans()
	i := sort.Search(len(list), func(i int) bool { return list[i].Last >= first })
	if w.First = first; len(list)-i > WindowSpans {
		w.Until = list[i+WindowSpans].First
	}
	return w, w.Until != 0
}

// spansSQL lists the spans that have a partition of every table, the oldest first. $1 is the number of tables.
const spansSQL = `SELECT s.first - '1970-01-01', s.last - '1970-01-01' FROM postern.spans s
	GROUP BY s.first, s.last
	HAVING count(*) = $1
	ORDER BY s.first`

// ReadSpans lists the spans of a database.
func ReadSpans(ctx context.Context, q Querier) ([]Span, error) {
	rows, err := q.Query(ctx, spansSQL, len(keys))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Span])
}

// Remember has SpanOf know these spans, which are in order.
func (db *DB) Remember(spans []Span) { db.spans.Store(&spans) }

// SpanOf returns the span of a day, as far as this process knows it. Others may have dropped it since.
func (db *DB) SpanOf(day outbox.Day) (Span, bool) {
	list := db.Spans()
	i := sort.Search(len(list), func(i int) bool { return list[i].Last >= day })
	if i == len(list) || list[i].First > day {
		return Span{}, false
	}
	return list[i], true
}

// Spans are those that this process knows, the oldest first.
func (db *DB) Spans() []Span {
	if list := db.spans.Load(); list != nil {
		return *list
	}
	return nil
}

// KeepSpans reads the spans anew where that of a day, or of the next, is not known: another process has made it.
func (db *DB) KeepSpans(ctx context.Context, day outbox.Day) error {
	_, known := db.SpanOf(day)
	_, next := db.SpanOf(day + 1)
	if known && next {
		return nil
	}
	return db.readSpans(ctx)
}

func (db *DB) readSpans(ctx context.Context) error {
	spans, err := ReadSpans(ctx, db.pool)
	if err != nil {
		return Known(err)
	}
	if !slices.Equal(spans, db.Spans()) {
		db.Remember(spans)
	}
	return nil
}

// EnsureDays makes the partitions of yesterday to three days ahead, where they are missing, and returns how many were.
func (db *DB) EnsureDays(ctx context.Context) (n int, err error) {
	err = db.pool.QueryRow(ctx, `SELECT postern.ensure_days((d AT TIME ZONE 'UTC')::date - 1,
		(d AT TIME ZONE 'UTC')::date + 3)
		FROM coalesce($1::timestamptz, clock_timestamp()) d`, db.Clock()).Scan(&n)
	if err != nil {
		return n, cmp.Or(Lacking(db.Role(), err), Known(err))
	}
	return n, db.readSpans(ctx)
}
