package pg_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// rowTexts are what posts and ends lock, read and write, by what the statements begin with.
var rowTexts = []string{"INSERT INTO postern.attempt ", "INSERT INTO postern.idempotency ", "INSERT INTO postern.outcome ", "INSERT INTO postern.queue (queue_id, head_seq",
	"INSERT INTO postern.task ", "SELECT 1 / (", "SELECT i.context_id, i.key", "SELECT q.queue_id, q.context_id", "SELECT t.queue_id, t.seq", "UPDATE postern.queue "}

// texts says which of rowTexts the sessions of the store have run with lists of rows, or with one row.
func (w *world) texts(lists bool) (found []string) {
	w.T.Helper()
	for _, c := range w.S.Pool().AcquireAllIdle(w.Ctx) {
		rows, err := c.Query(w.Ctx, `SELECT statement FROM pg_prepared_statements WHERE statement NOT LIKE '%postern.ready%'`) // claims are made for many
		w.Must(err)
		for rows.Next() {
			var sql string
			w.Must(rows.Scan(&sql))
			if at := slices.IndexFunc(rowTexts, func(s string) bool { return strings.HasPrefix(sql, s) }); at >= 0 && strings.Contains(sql, "unnest(") == lists {
				found = append(found, rowTexts[at])
			}
		}
		w.Must(rows.Err())
		c.Release()
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// TestOneRowIsStoredAsManyAre posts and ends one, two and three transactions at once, with all that they can have and
// with as little, by the rows and by memory, and compares what is stored: one has statements of its own, two have not.
func TestOneRowIsStoredAsManyAre(t *testing.T) {
	t.Parallel()
	var of [4]map[string]int
	at := time.Now().UTC().Truncate(24 * time.Hour).Add(time.Hour)
	retries := 3
	for n := 1; n <= 3; n++ {
		w := newWorld(t)
		w.At(at)
		w.Dispatcher("T", nil)
		post := func(queue, uid string, full bool) {
			var subs []*pg.Submission
			for i := range n {
				sub := &pg.Submission{ContextID: w.ID, Type: "T", Data: json.RawMessage(`{"it":"s"}`)}
				if queue != "" {
					sub.Queue = fmt.Sprint(queue, "_", i)
				}
				if uid != "" {
					sub.UID = fmt.Sprint(uid, "_", i)
					sub.Hash = []byte(sub.UID)
				}
				if full {
					sub.Actor, sub.MaxRetries, sub.Tags, sub.Traceparent = "somebody", &retries, json.RawMessage(`{"a":"b"}`), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
				}
				subs = append(subs, sub)
			}
			for range 2 { // a transaction with a uid is known the second time
				out, err := w.S.Ingest(w.Ctx, subs, false)
				w.Must(err)
				for _, a := range out {
					w.Must(a.Err)
				}
				if uid == "" {
					break
				}
			}
		}
		node := w.Node("n")
		settle := func(answer outbox.Answer) {
			for leases := w.Claim(node, pgworld.Everything()); len(leases) > 0; {
				var answers []*pg.Answer
				for _, l := range leases {
					answers = append(answers, w.Answer(l, answer))
				}
				if leases = nil; len(answers) != n {
					t.Fatalf("%d at once, want %d", len(answers), n)
				}
				for _, s := range w.Settle(answers...) {
					if w.Must(s.Err); s.Next != nil {
						leases = append(leases, s.Next)
					}
				}
			}
		}
		failed := outbox.Answer{Class: outbox.ClassRetry, Code: "20203", Message: "failed", Result: outbox.Result{Data: json.RawMessage(`{"more":1}`)}}
		for _, byMemory := range []bool{true, false} {
			for _, queue := range []string{fmt.Sprint("q", byMemory), ""} {
				for _, answer := range []outbox.Answer{pgworld.Done(), failed} {
					if !byMemory {
						w.S.Distrust()
					}
					post(queue, fmt.Sprint("u", byMemory, queue, answer.Code), true)
					if queue != "" {
						post(queue, "", false)
					}
					settle(answer)
				}
			}
		}
		post("", "", false)
		settle(pgworld.Done())
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())

		of[n] = map[string]int{}
		for _, table := range []string{"task", "queue", "idempotency", "outcome", "attempt", "timer"} {
			for _, row := range w.Lines(`SELECT regexp_replace((to_jsonb(x) - '{queue_id,era,writes,fence,node_id,lane,epoch,body_hash}'::text[])::text, '_[0-2]"', '_"')
				FROM postern.` + table + ` x`) {
				of[n][table+" "+row]++
			}
		}
		hashed := 0
		if w.Scan(`SELECT count(*) FROM postern.idempotency WHERE body_hash = convert_to(key, 'UTF8')`, &hashed); hashed != 8*n {
			t.Errorf("%d hashes of %d transactions", hashed, 8*n)
		}
		if n == 1 {
			if got := w.texts(true); len(got) > 0 {
				t.Errorf("one row is a list in %q", got)
			}
		}
		if got := w.texts(n > 1); !slices.Equal(got, rowTexts) {
			t.Errorf("%d rows took %q, want %q", n, got, rowTexts)
		}
		for row, count := range of[n] {
			if of[1][row]*n != count {
				t.Errorf("of %d at once stored %d times, of one %d times: %s", n, count, of[1][row], row)
			}
		}
		for row := range of[1] {
			if of[n][row] == 0 {
				t.Errorf("of %d at once not stored: %s", n, row)
			}
		}
	}
}
