package pg

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/migrations"
)

// Most reads are of a few days. They read the partitions of the span of these days by their names: a statement that
// names the tables that are divided by days takes a lock on each partition that is kept whenever it runs, and its
// plan has all of them, which each connection makes anew when one is made or dropped.
//
// The tables are asked for the rest: the rows that have survived of a span that retention has dropped lie elsewhere.

// spanned are the texts of spans. There are a few for each; once spannedMost are kept, they are made anew.
var spanned struct {
	sync.Mutex
	texts map[spannedText]string
}

type spannedText struct {
	sql  string
	span db.Span
}

const spannedMost = 1000

// byDay finds the names of the tables that are divided by days, as far as statements of a span read them.
var byDay = regexp.MustCompile(`\bpostern\.(task|outcome|attempt)\b`)

// today returns the span that holds today, where all of what is asked for is of it: its partitions are there, since
// they are made ahead, and are not dropped before they are old.
func (s *Store) today(from, to outbox.Day) (db.Span, bool) {
	span, known := s.SpanOf(s.dayNow())
	return span, known && span.Has(from, to)
}

// dayNow is today by the clock of this process.
func (s *Store) dayNow() outbox.Day {
	if t := s.Clock(); t != nil {
		return outbox.DayOf(*t)
	}
	return outbox.DayOf(time.Now())
}

// ofDays reads ids with sql: first from the partitions of one span where all are of it, which may be enough, as read
// says. The span may have been dropped since this process has read of it: then the tables say where the rows are. In an
// SQL transaction, which such an error ends, only the span of today is read by itself.
func (s *Store) ofDays(
	q db.Querier, sql string, ids []outbox.ID, read func(sql string) (enough bool, err error),
) error {
	var from, to outbox.Day
	for i, id := range ids {
		if i == 0 {
			from = id.Day
		}
		from, to = min(from, id.Day), max(to, id.Day)
	}
	span, known := s.SpanOf(from)
	if known = known && span.Has(from, to); q != db.Querier(s.Pool()) {
		span, known = s.today(from, to)
	}
	if known {
		if enough, err := read(OfSpan(sql, span)); err == nil && enough || err != nil && db.SQLState(err) != "42P01" {
			return err
		}
	}
	_, err := read(sql)
	return err
}

// OfSpan returns sql with the partitions of a span.
func OfSpan(sql string, span db.Span) string {
	spanned.Lock()
	defer spanned.Unlock()
	if len(spanned.texts) >= spannedMost || spanned.texts == nil {
		spanned.texts = map[spannedText]string{}
	}
	text, known := spanned.texts[spannedText{sql, span}]
	if !known {
		tx := fmt.Sprintf(txOfSpan(), span.First.Time().Format(time.DateOnly))
		text = strings.Replace(sql, "FROM postern.tx x", "FROM ("+tx+") x", 1)
		text = byDay.ReplaceAllString(text, "postern.${1}"+span.Name())
		spanned.texts[spannedText{sql, span}] = text
	}
	return text
}

// txOfSpan is the view tx for reads of single rows of one span, whose first day %s is. It leaves out queues that
// began to be worked on before that day and have not ended, since an end of the span before may say whether such a
// transaction is in flight. Names are looked for row by row: for a single row PostgreSQL would rather read all of
// them, where statistics say that they are few.
var txOfSpan = sync.OnceValue(func() string {
	const names = `LEFT JOIN postern.queue_name n ON n.queue_id = t.queue_id AND n.context_id = t.context_id`
	text, err := viewText("tx")
	if err == nil && (!strings.Contains(text, names) || strings.Contains(text, "%")) {
		err = errors.New("the view tx finds names in another way, or has a %")
	}
	if err != nil {
		panic(err) // before anything is served
	}
	return strings.Replace(text, names, "LEFT JOIN LATERAL (SELECT x.name FROM postern.queue_name x WHERE x.queue_id = t.queue_id OFFSET 0) n ON true", 1) +
		" AND (q.head_day >= '%s'::date) IS NOT FALSE"
})

// Within returns sql for rows of the days of a window: it reads no partition of other days, and locks none. It answers
// the same about these rows as sql itself.
func Within(sql string, w db.Window) string {
	if w == (db.Window{}) {
		return sql
	}
	first := "-infinity"
	if w.First != 0 {
		first = w.First.Time().Format(time.DateOnly)
	}
	days := "day >= '" + first + "'::date"
	if w.Until != 0 {
		days += " AND day < '" + w.Until.Time().Format(time.DateOnly) + "'::date"
	}
	sql = strings.Replace(sql, "FROM postern.tx x", "FROM ("+strings.ReplaceAll(txSince(), "%s", first)+") x", 1)
	return divided.ReplaceAllString(sql, "(SELECT * FROM postern.${1} WHERE "+days+")")
}

// divided finds the names of all tables that are divided by days.
var divided = regexp.MustCompile(`\bpostern\.(task|outcome|attempt|delivery)\b`)

// txSince is the view tx for single rows of the days from %s on. Of a queue that began to be worked on before, an end
// of the days before may say whether a transaction is in flight: it is looked for by a function, whose statement
// locks partitions only where it runs.
var txSince = sync.OnceValue(func() string {
	const flying = `EXISTS (
        SELECT FROM postern.outcome p WHERE p.queue_id = t.queue_id AND p.seq = t.seq - 1 ` +
		`AND p.day BETWEEN q.head_day AND t.day OFFSET 0)`
	text, err := viewText("tx")
	if err == nil && (!strings.Contains(text, flying) || strings.Contains(text, "%")) {
		err = errors.New("the view tx finds in another way what is in flight, or has a %")
	}
	if err != nil {
		panic(err) // before anything is served
	}
	return strings.Replace(text, flying, "CASE WHEN q.head_day >= '%s'::date THEN "+flying+
		" ELSE postern.has_ended(t.queue_id, t.seq - 1, q.head_day, t.day) END", 1)
})

// viewText is the view's query in the newest migration that defines it.
func viewText(view string) (text string, err error) {
	files, err := fs.Glob(migrations.FS, "*.sql")
	for _, f := range files { // in the order of their names
		sql, err := fs.ReadFile(migrations.FS, f)
		if err != nil {
			return "", err
		}
		if _, query, has := strings.Cut(string(sql), "CREATE VIEW postern."+view+" AS\n"); has {
			text, _, _ = strings.Cut(query, ";")
		}
	}
	if text == "" && err == nil {
		err = fmt.Errorf("no migration makes a view postern.%s", view)
	}
	return text, err
}
