package pg_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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

// Roles that may submit write what they like for a while (POSTERN_FUZZ_OUTBOX, 3 s unless set). No row stands, what
// others submit goes on, nothing is told under another name, and every list of every context can be read.
func TestWhateverARoleWritesIntoTheOutboxHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	length, err := time.ParseDuration(cmp.Or(os.Getenv("POSTERN_FUZZ_OUTBOX"), "3s"))
	if err != nil {
		t.Fatal(err)
	}
	w, first, name := tenant(t)
	second := connect(t, first.Config().ConnString())
	_, err = w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "calm", MaxDepth: 1 << 30}}, 0)
	w.Must(err)
	calm := w.S.Context("calm").ID
	w.Exec(`UPDATE postern.context SET max_depth = 1 << 30 WHERE name = 'shop'`)
	by := w.By
	by.Context = calm
	d := w.S.DispatcherOf(w.S.Context("shop").ID, "T").Dispatcher
	_, err = w.S.PutDispatcher(w.Ctx, by, d, 0)
	w.Must(err)

	ctx, stop := context.WithTimeout(w.Ctx, length)
	defer stop()
	var all sync.WaitGroup
	var attacks, accepted int64
	var count sync.Mutex
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i, c := range []*pgx.Conn{first, second} {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for ctx.Err() == nil {
				tag, err := c.Exec(w.Ctx, attack(r))
				if err != nil && sqlState(err) == "" {
					t.Errorf("the connection of the role ended: %v", err)
					return
				}
				count.Lock()
				if attacks++; err == nil && tag.Insert() {
					accepted += tag.RowsAffected()
				}
				count.Unlock()
			}
		})
	}
	drainer, app := pg.NewDrainer(w.S.Store), w.app(1)
	waited, n := time.Duration(0), 0
	for ; ctx.Err() == nil; n++ {
		begun, uid := time.Now(), fmt.Sprint("calm", n)
		w.must1(app.Exec(w.Ctx, `SELECT postern.submit('c', 'T', '{}', $1, 'calm')`, uid))
		for drained := false; !drained; {
			out, err := drainer.Once(w.Ctx)
			if w.Must(err); out.Failed != nil {
				t.Errorf("rows cannot be drained: %v", out.Failed)
			}
			w.Scan(fmt.Sprintf(`SELECT EXISTS (SELECT FROM postern.idempotency WHERE context_id = %d AND key = '%s')`,
				calm, uid), &drained)
		}
		waited = max(waited, time.Since(begun))
	}
	all.Wait()
	w.drainAll(w.S)
	t.Logf("%d statements, %d rows inserted; %d submits of others, the slowest drained after %s", attacks, accepted,
		n, waited)
	if attacks == 0 || accepted == 0 || n == 0 {
		t.Error("nothing was tried")
	}
	if waited > 10*time.Second { // a few milliseconds on an idle machine
		t.Errorf("a submit of another context took %s", waited)
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
