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

// Most reads are of today. They read today's partitions by their names: a statement that names the tables that are
// divided by days takes a lock on each day that is kept whenever it runs, and its plan has all of them, which each
// connection makes anew when a day is made or dropped.
//
// Other days are asked of the tables: the rows that have survived of a day that retention has dropped lie elsewhere.

// dated are the texts of today.
var dated struct {
	sync.Mutex
	day   outbox.Day
	texts map[string]string
}

// byDay finds the names of the tables that are divided by days, as far as statements of today read them.
var byDay = regexp.MustCompile(`\bpostern\.(task|outcome|attempt)\b`)

// today says whether all of what is asked for is of this day. A clock that is wrong by less than what is kept does no harm, since
// partitions are made ahead.
func (s *Store) today(from, to outbox.Day) bool {
	now := time.Now()
	if t := s.Clock(); t != nil {
		now = *t
	}
	return from == to && from == outbox.DayOf(now)
}

// ofDays reads ids with sql: first from the partitions of today where all are of it, which may be enough, as read
// says. A client may make up an id of a day that has no partitions yet, as no process has run for long: then the
// tables say that it is not there.
func (s *Store) ofDays(sql string, ids []outbox.ID, read func(sql string) (enough bool, err error)) error {
	var from, to outbox.Day
	for i, id := range ids {
		if i == 0 {
			from = id.Day
		}
		from, to = min(from, id.Day), max(to, id.Day)
	}
	if s.today(from, to) {
		if enough, err := read(OfDay(sql, to)); err == nil && enough || err != nil && db.SQLState(err) != "42P01" {
			return err
		}
	}
	_, err := read(sql)
	return err
}

// OfDay returns sql with the partitions of a day that is today.
func OfDay(sql string, day outbox.Day) string {
	dated.Lock()
	defer dated.Unlock()
	if dated.day != day {
		dated.day, dated.texts = day, map[string]string{}
	}
	text, known := dated.texts[sql]
	if !known {
		text = strings.Replace(sql, "FROM postern.tx x", "FROM ("+txOfDay()+") x", 1)
		text = byDay.ReplaceAllString(text, "postern.${1}_"+day.Time().Format("20060102"))
		dated.texts[sql] = text
	}
	return text
}

// txOfDay is the view tx for reads of single rows of one day. It leaves out queues that began to be worked on before
// that day and have not ended, since an end of the day before may say whether such a transaction is in flight. Names
// are looked for row by row: for a single row PostgreSQL would rather read all of them, where statistics say that
// they are few.
var txOfDay = sync.OnceValue(func() string {
	const names = `LEFT JOIN postern.queue_name n ON n.queue_id = t.queue_id AND n.context_id = t.context_id`
	text, err := viewText("tx")
	if err == nil && !strings.Contains(text, names) {
		err = errors.New("the view tx finds names in another way")
	}
	if err != nil {
		panic(err) // before anything is served
	}
	return strings.Replace(text, names, "LEFT JOIN LATERAL (SELECT x.name FROM postern.queue_name x WHERE x.queue_id = t.queue_id OFFSET 0) n ON true", 1) +
		" AND (q.head_day = t.day) IS NOT FALSE"
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
