package pg_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// tables are those whose rows a statement of the hot path may change, and of each the columns that tell two runs of the
// same statements apart: times by the clock of the server and numbers that are drawn (unseen), and columns that say how
// often the owner changed and since when (unlike: compared only where nothing may change).
var tables = []struct{ name, unseen, unlike string }{
	{"queue_name", "created_at", "last_fence"}, {"queue", "era writes", "fence entered_at"}, {"ready", "", "since"}, {"timer", "", ""},
	{"node", "started_at", ""}, {"sender", "created_at", ""}, {"dispatcher", "created_at", ""}, {"task", "created_at", ""},
	{"outcome", "", "fence"}, {"attempt", "", "fence"}, {"delivery", "created_at at next_at", ""}, {"mark", "at", ""}, {"dependency", "", ""},
	{"ripple", "at", ""}, {"redrive", "at", ""}, {"idempotency", "", ""}, {"audit", "audit_id at", ""},
	{"outbox", "staged_at", ""}, // behind the others: each row is judged by them
	{"lane", "", ""},            // are not removed: stores remember their ids
}

// kept is a state of the database that can be brought again as often as it is wanted: the same ids, fences and times,
// and so the same leases.
type kept struct {
	pool    *pgxpool.Pool
	rows    map[string]string // of each table
	changed []string          // the tables that were not as kept when they were looked at last
}

// keep copies all rows. A function brings them again, so that its statements are planned once a session.
func keep(t *testing.T, ctx context.Context, pool *pgxpool.Pool) *kept {
	t.Helper()
	var copies, body strings.Builder
	k := &kept{pool: pool}
	for _, table := range tables {
		name := table.name
		k.changed = append(k.changed, name)
		copies.WriteString("CREATE TABLE public.base_" + name + " AS TABLE postern." + name + ";\n")
		body.WriteString("IF '" + name + "' = ANY (changed) THEN\n")
		if name == "lane" {
			body.WriteString("UPDATE postern.lane l SET holder = (SELECT b.holder FROM public.base_lane b WHERE b.lane_id = l.lane_id);\n")
		} else {
			columns := given(t, ctx, pool, name)
			body.WriteString("DELETE FROM postern." + name + ";\n" +
				"INSERT INTO postern." + name + " (" + columns + ") OVERRIDING SYSTEM VALUE\n" +
				"SELECT " + columns + " FROM public.base_" + name + ";\n")
		}
		body.WriteString("END IF;\n")
	}
	_, err := pool.Exec(ctx, copies.String()+"CREATE FUNCTION public.back(changed text[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN\n"+body.String()+"END $$")
	pgworld.OK(t, err)
	k.rows = see(t, ctx, pool).tables
	return k
}

// given lists the columns of a table that an INSERT may give: all but the generated ones.
func given(t *testing.T, ctx context.Context, pool *pgxpool.Pool, table string) (columns string) {
	t.Helper()
	pgworld.OK(t, pool.QueryRow(ctx, `SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum)
		FROM pg_catalog.pg_attribute
		WHERE attrelid = ('postern.' || $1)::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`,
		table).Scan(&columns))
	return columns
}

// back brings what was kept. Between a look and the next back nothing may change.
func (k *kept) back(t *testing.T, ctx context.Context) {
	t.Helper()
	_, err := k.pool.Exec(ctx, "SELECT public.back($1)", k.changed)
	pgworld.OK(t, err)
	k.changed = k.changed[:0]
	for _, table := range tables {
		k.changed = append(k.changed, table.name)
	}
}

// look sees all rows, and remembers what back will have to bring.
func (k *kept) look(t *testing.T, ctx context.Context) sight {
	t.Helper()
	s := see(t, ctx, k.pool)
	k.changed = k.changed[:0]
	for _, table := range tables {
		if s.tables[table.name] != k.rows[table.name] {
			k.changed = append(k.changed, table.name)
		}
	}
	return s
}

// oneDay drops the partitions of all days but today's, since each costs every statement some planning.
func oneDay(t *testing.T, w *world) {
	t.Helper()
	rows, err := w.S.Pool().Query(w.Ctx, `SELECT 'DROP TABLE postern.' || c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE c.relkind = 'r' AND c.relname !~ $1 AND c.relname ~ '_[0-9]{8}$'`, w.Now.Format("20060102")+"$")
	pgworld.OK(t, err)
	drops, err := pgx.CollectRows(rows, pgx.RowTo[string])
	pgworld.OK(t, err)
	for _, sql := range drops {
		_, err := w.S.Pool().Exec(w.Ctx, sql)
		pgworld.OK(t, err)
	}
}

// sight is everything that a reader or the next statement can see.
type sight struct {
	rows   string            // the columns that are compared, a line per row
	tables map[string]string // each table whole, with the columns that are not compared
}

func (s sight) whole() string {
	var b strings.Builder
	for _, table := range tables {
		b.WriteString(s.tables[table.name])
	}
	return b.String()
}

var seeing struct {
	sync.Once
	sql string
}

// see reads tables in one statement, which names their columns.
func see(t *testing.T, ctx context.Context, pool *pgxpool.Pool) sight {
	t.Helper()
	seeing.Do(func() {
		for i, table := range tables {
			var like, unlike string
			pgworld.OK(t, pool.QueryRow(ctx, `SELECT string_agg('t.' || attname, ', ') FILTER (WHERE attname <> ALL ($2)), coalesce(string_agg('t.' || attname, ', ') FILTER (WHERE attname = ANY ($2)), 'NULL')
				FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attname <> ALL ($3)`,
				"postern."+table.name, strings.Fields(table.unlike), strings.Fields(table.unseen)).Scan(&like, &unlike))
			if i > 0 {
				seeing.sql += "\nUNION ALL "
			}
			seeing.sql += fmt.Sprintf("SELECT %d, row_to_json(s)::text, concat_ws(' ', %s) FROM postern.%s t, LATERAL (SELECT %s) s", i, unlike, table.name, like)
			if table.name == "lane" {
				seeing.sql += " WHERE t.holder IS NOT NULL"
			}
		}
	})
	rows, err := pool.Query(ctx, seeing.sql)
	pgworld.OK(t, err)
	var lines []string
	all := map[string][]string{}
	var i int
	var line, unlike string
	_, err = pgx.ForEachRow(rows, []any{&i, &line, &unlike}, func() error {
		name := tables[i].name
		lines = append(lines, name+" "+line)
		all[name] = append(all[name], line+unlike+"\n")
		return nil
	})
	pgworld.OK(t, err)
	slices.Sort(lines)
	s := sight{rows: strings.Join(lines, "\n"), tables: map[string]string{}}
	for name, list := range all {
		slices.Sort(list)
		s.tables[name] = strings.Join(list, "")
	}
	return s
}

// difference shows the lines that two looks do not share.
func difference(want, got string) string {
	count := map[string]int{}
	for _, l := range strings.Split(want, "\n") {
		count[l]--
	}
	for _, l := range strings.Split(got, "\n") {
		count[l]++
	}
	var b strings.Builder
	for _, l := range strings.Split(want+"\n"+got, "\n") {
		switch n := count[l]; {
		case n < 0:
			b.WriteString("\n  - " + l)
		case n > 0:
			b.WriteString("\n  + " + l)
		}
		delete(count, l)
	}
	return b.String()
}
