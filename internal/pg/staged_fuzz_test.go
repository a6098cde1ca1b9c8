package pg_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/pg"
	pgreads "github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// fuzzed are values for each column of a staged row, as SQL: right ones, and what has broken something somewhere.
var fuzzed = map[string][]string{
	"context_id": {"1", "2", "3", "4", "0", "-1", "NULL", "2147483647"},
	"queue": {"NULL", "'q'", "'r'", "'s'", "''", "'a/b'", "' q'", "E'q\\n'", "'ü'", "repeat('q', 200)",
		"repeat('q', 201)",
		"repeat('q', 100000)", "'..'"},
	"uid": {"'v' || random()", "NULL", "'u' || (random() * 50)::int", "''", "'x y'", "E'u\\n'", "repeat('u', 256)",
		"'u-other'",
		"'event:00000000-0000-0000-0000-000000000000:result'"},
	"type": {"'T'", "'T'", "'T'", "NULL", "''", "'T U'", "'leader.tool'", "'leader.result'", "'NONE'",
		"repeat('T', 300)"},
	"data": {"'{}'", "'{\"n\": 1}'", "NULL", "'null'", "'[]'", "'1e400'",
		"(repeat('[', 3000) || repeat(']', 3000))::jsonb",
		"jsonb_build_object('a', repeat('x', 300000))", "'\"\\ud800\\udc00\"'"},
	"not_before": {"NULL", "now()", "now() + interval '50 ms'", "'infinity'", "'-infinity'", "'20000-01-01'",
		"'0001-01-01 BC'",
		"'294276-01-01'", "now() + interval '200 years'"},
	"max_retries": {"NULL", "0", "-1", "10001", "2147483647"},
	"depends_on": {"NULL", "'{}'", "'{NULL}'", "'{u1}'", "'{u1,u2,u3}'", "'{{a,b},{c,d}}'", "'[5:6]={a,b}'",
		"'{u-other}'", "'{\"\"}'",
		"array_fill('u1'::text, '{70}')", "'{u-shop}'"},
	"tags": {"NULL", "'{}'", "'{\"a\": \"b\"}'", "'{\"a\": 1}'", "'[]'", "'null'", "'{\"\": \"b\"}'", "'[\"a\"]'"},
	"callback": {"NULL", "'{\"url\": \"http://127.0.0.1:1/\"}'", "'[]'", "'null'", "'{}'", "'{\"url\": null}'",
		"'{\"url\": []}'",
		"'{\"url\": \"http://h/\", \"on\": [\"LATER\"]}'", "'\"x\"'"},
	"stage_id":  {"1", "-9223372036854775808", "9223372036854775807"},
	"actor":     {"'ada'", "''"},
	"staged_at": {"'infinity'", "now()"},
}

// attack makes one statement of a role that may submit.
func attack(r *rand.Rand) string {
	pick := func(column string) string {
		if list := fuzzed[column]; r.IntN(8) > 0 {
			return list[0]
		} else {
			return list[r.IntN(len(list))]
		}
	}
	common := []string{"context_id", "queue", "uid", "type", "data", "not_before", "max_retries", "depends_on",
		"tags", "callback"}
	var columns, values []string
	for _, c := range common {
		if c == "context_id" && r.IntN(4) > 0 {
			columns, values = append(columns, c), append(values, shop)
		} else if r.IntN(5) > 0 {
			columns, values = append(columns, c), append(values, pick(c))
		}
	}
	if r.IntN(12) == 0 {
		c := []string{"stage_id", "actor", "staged_at"}[r.IntN(3)]
		columns, values = append(columns, c), append(values, pick(c))
	}
	switch r.IntN(14) {
	case 0:
		return `DELETE FROM postern.outbox`
	case 1:
		return fmt.Sprintf(`UPDATE postern.outbox SET %s = %s`, columns[0], values[0])
	case 2:
		return `DO 'BEGIN LOCK TABLE postern.outbox; PERFORM pg_sleep(1); END'`
	case 3:
		return `SELECT FROM postern.outbox FOR UPDATE`
	case 4:
		return fmt.Sprintf(`SELECT postern.submit(%s, %s, %s, %s, 'shop', %s::timestamptz, %s::text[], %s::int,
			%s::jsonb, %s::jsonb)`,
			pick("queue"), pick("type"), pick("data"), pick("uid"), pick("not_before"), pick("depends_on"),
			pick("max_retries"),
			pick("tags"), pick("callback"))
	case 5:
		return `SELECT postern.stage(NULL, 'other', (1, 4, 'x', 'q', 'T', '{}', NULL, NULL, NULL, NULL, NULL, 'ada',
			now()))`
	case 6:
		return `SET search_path = ` + []string{"pg_temp", "public", "''"}[r.IntN(3)]
	}
	overriding := []string{"", "", "", "OVERRIDING SYSTEM VALUE "}[r.IntN(4)]
	return fmt.Sprintf(`INSERT INTO postern.outbox (%s) %sVALUES (%s)`, strings.Join(columns, ", "), overriding,
		strings.Join(values, ", "))
}

// valid makes one statement of a role that does what it should.
func valid(*rand.Rand) string {
	return `INSERT INTO postern.outbox (context_id, queue, type, data) VALUES (` + shop + `, 'q', 'T', '{}')`
}

// beside says how submits fared beside the statements of others.
type beside struct {
	statements, rows int64 // of the others
	submits          []time.Duration
	drains           []time.Duration // from the submit until the transaction has its place
}

func (b *beside) add(o beside) {
	b.statements, b.rows = b.statements+o.statements, b.rows+o.rows
	b.submits, b.drains = append(b.submits, o.submits...), append(b.drains, o.drains...)
}

// middle is the middle one of some times.
func middle(list []time.Duration) time.Duration {
	slices.Sort(list)
	if len(list) == 0 {
		return 0
	}
	return list[len(list)/2]
}

// submitBeside submits one transaction after the other in a context of its own, while others execute statements of
// a kind, each at most one in every pace.
func (w *world) submitBeside(length, pace time.Duration, app *pgxpool.Pool, others []*pgx.Conn, seed uint64,
	statement func(*rand.Rand) string) (b beside) {
	w.T.Helper()
	ctx, stop := context.WithTimeout(w.Ctx, length)
	defer stop()
	var all sync.WaitGroup
	var statements, rows atomic.Int64
	for i, c := range others {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for next := time.Now(); ctx.Err() == nil; next = next.Add(pace) {
				time.Sleep(time.Until(next))
				tag, err := c.Exec(w.Ctx, statement(r))
				if err != nil && sqlState(err) == "" {
					w.T.Errorf("the connection of the role ended: %v", err)
					return
				}
				if statements.Add(1); err == nil && tag.Insert() {
					rows.Add(tag.RowsAffected())
				}
			}
		})
	}
	drainer, calm := pg.NewDrainer(w.S.Store), w.S.Context("calm").ID
	for ctx.Err() == nil {
		begun, uid := time.Now(), fmt.Sprint("calm", seed, ".", len(b.submits))
		w.must1(app.Exec(w.Ctx, `SELECT postern.submit('c', 'T', '{}', $1, 'calm')`, uid))
		b.submits = append(b.submits, time.Since(begun))
		for drained := false; !drained; {
			out, err := drainer.Once(w.Ctx)
			if w.Must(err); out.Failed != nil {
				w.T.Errorf("rows cannot be drained: %v", out.Failed)
			}
			w.Scan(fmt.Sprintf(`SELECT EXISTS (SELECT FROM postern.idempotency WHERE context_id = %d AND key = '%s')`,
				calm, uid), &drained)
		}
		b.drains = append(b.drains, time.Since(begun))
	}
	all.Wait()
	w.drainAll(w.S)
	b.statements, b.rows = statements.Load(), rows.Load()
	return b
}

// Roles that may submit write what they like for a while (POSTERN_FUZZ_OUTBOX, 3 s unless set). No row stands, what
// others submit goes on, nothing is told under another name, and every list of every context can be read. Where
// POSTERN_FUZZ_OUTBOX is set, the machine is taken to be quiet: submits of others take at most 1.5 times as long as
// beside as many valid rows as these write. The two are measured by turns.
func TestWhateverARoleWritesIntoTheOutboxHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	measured := os.Getenv("POSTERN_FUZZ_OUTBOX") != ""
	length, err := time.ParseDuration(cmp.Or(os.Getenv("POSTERN_FUZZ_OUTBOX"), "3s"))
	if err != nil {
		t.Fatal(err)
	}
	w, first, name := tenant(t)
	roles := []*pgx.Conn{first, connect(t, first.Config().ConnString())}
	_, err = w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "calm", MaxDepth: 1 << 30}}, 0)
	w.Must(err)
	w.Exec(`UPDATE postern.context SET max_depth = 1 << 30 WHERE name = 'shop'`)
	by := w.By
	by.Context = w.S.Context("calm").ID
	d := w.S.DispatcherOf(w.S.Context("shop").ID, "T").Dispatcher
	_, err = w.S.PutDispatcher(w.Ctx, by, d, 0)
	w.Must(err)

	seed, app := uint64(time.Now().UnixNano()), w.app(1)
	t.Logf("seed %d", seed)
	var mad, sane beside
	if !measured {
		mad = w.submitBeside(length, 0, app, roles, seed, attack)
	}
	for round := uint64(0); measured && round < 3; round++ {
		w.submitBeside(length/20, time.Second, app, roles, seed+10*round, valid) // the first ones are slow
		b := w.submitBeside(length/3, 0, app, roles, seed+10*round+1, attack)
		pace := length / 3 * time.Duration(len(roles)) / time.Duration(max(1, b.rows)) // as many valid rows
		mad.add(b)
		sane.add(w.submitBeside(length/3, pace, app, roles, seed+10*round+2, valid))
	}
	slowest := slices.Max(mad.drains)
	t.Logf("%d statements, %d rows inserted; %d submits of others, the slowest drained after %s", mad.statements,
		mad.rows, len(mad.submits), slowest)
	if mad.statements == 0 || mad.rows == 0 {
		t.Error("nothing was tried")
	}
	if slowest > 10*time.Second { // a few milliseconds on an idle machine
		t.Errorf("a submit of another context took %s", slowest)
	}
	for what, c := range map[string][2][]time.Duration{
		"submitted": {mad.submits, sane.submits},
		"drained":   {mad.drains, sane.drains},
	} {
		odd, fair := middle(c[0]), middle(c[1])
		if !measured {
			break
		}
		t.Logf("the middle one is %s after %s, beside %d valid rows after %s", what, odd, sane.rows, fair)
		if odd > fair*3/2 {
			t.Errorf("the middle one is %s after %s: want at most 1.5 times the %s beside valid rows", what, odd, fair)
		}
	}
	var left, foreign int
	w.Scan(`SELECT (SELECT count(*) FROM postern.outbox), (SELECT count(*) FROM postern.task t JOIN postern.context c
		USING (context_id)
		WHERE c.name = 'shop' AND t.uid <> 'u-shop' AND t.actor <> '`+name+`' OR c.name <> 'shop' AND t.actor =
			'`+name+`')`, &left, &foreign)
	if left != 0 || foreign != 0 {
		t.Errorf("%d rows stand, %d are told under a foreign name or in a foreign context", left, foreign)
	}
	for _, context := range []string{"default", "shop", "other", "calm"} {
		w.readAll(w.S.Context(context).ID)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// readAll reads the whole list of a context, and fails the test where one cannot be shown or has a name that no API
// takes.
func (w *world) readAll(context int32) {
	w.T.Helper()
	f := pgreads.ListFilter{Limit: 100}
	for {
		list, next, err := w.S.Reads.ListTransactions(w.Ctx, context, f)
		w.Must(err)
		for _, x := range list {
			if _, err := json.Marshal(x); err != nil {
				w.T.Errorf("%s cannot be shown: %v", x.UID, err)
			}
			if strings.ContainsAny(x.Type+x.Queue+x.UID, " /\n") || len(x.Type) > 200 || len(x.Queue) > 200 ||
				len(x.UID) > 255 {
				w.T.Errorf("%q %q %q is named as no API takes it", x.Type, x.Queue, x.UID)
			}
		}
		if next == nil {
			return
		}
		f.From = next
	}
}
