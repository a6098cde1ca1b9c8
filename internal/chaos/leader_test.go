package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	pgdb "github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remotetest"
)

// killsEnv is how often the leader is killed below: 1000 is the promise (make test-kills).
const killsEnv = "POSTERN_LEADER_KILLS"

// eventLog is a log that grows, in three shapes. Its cursors are inclusive, but for those of GraphQL.
func eventLog(t *testing.T, n *atomic.Int64) *httptest.Server {
	l := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sui := r.Method == http.MethodPost
		var rpc struct {
			Params    []json.RawMessage
			Query     string
			Variables struct {
				First int64
				After string
			}
		}
		from, limit := int64(0), int64(0)
		if sui {
			err := json.NewDecoder(r.Body).Decode(&rpc)
			if err == nil && rpc.Query != "" {
				_ = json.NewEncoder(w).Encode(graphQLPage(rpc.Variables.First, rpc.Variables.After, n.Load()))
				return
			}
			if err != nil || len(rpc.Params) != 4 {
				return // its reader died
			}
			var at struct{ EventSeq string }
			_ = json.Unmarshal(rpc.Params[1], &at)
			from, _ = strconv.ParseInt(at.EventSeq, 10, 64)
			_ = json.Unmarshal(rpc.Params[2], &limit)
		} else {
			from, _ = strconv.ParseInt(r.URL.Query().Get("cursor"), 10, 64)
			limit, _ = strconv.ParseInt(r.URL.Query().Get("limit"), 10, 64)
		}
		most := n.Load()
		to := min(from+limit, most)
		items := []any{}
		for i := from; i < to; i++ {
			if sui {
				items = append(items, map[string]any{"id": map[string]string{"txDigest": "d", "eventSeq": strconv.FormatInt(i, 10)}, "parsedJson": map[string]any{"tool": "xyz.labs.add@1", "n": i}})
			} else {
				items = append(items, map[string]any{"id": i, "parsedJson": map[string]any{"tool": "xyz.labs.add@1", "n": i}})
			}
		}
		last := strconv.FormatInt(max(to-1, 0), 10)
		if sui {
			_ = json.NewEncoder(w).Encode(map[string]any{"result": map[string]any{"data": items, "hasNextPage": to < most, "nextCursor": map[string]string{"txDigest": "d", "eventSeq": last}}})
		} else {
			_ = json.NewEncoder(w).Encode(map[string]any{"events": items, "next_cursor": last, "has_more": to < most})
		}
	}))
	t.Cleanup(l.Close)
	return l
}

// graphQLPage is the page of first events after a cursor, of a log with n.
func graphQLPage(first int64, after string, n int64) any {
	events := func(from, to int64) []any {
		list := []any{}
		for i := from; i < to; i++ {
			list = append(list, map[string]any{
				"sequenceNumber": i,
				"transaction": map[string]any{
					"digest":  "d",
					"effects": map[string]any{"checkpoint": map[string]any{"sequenceNumber": i}},
				},
				"parsedJson": map[string]any{"tool": "xyz.labs.add@1", "n": i},
			})
		}
		return list
	}
	from := int64(0)
	if last, err := strconv.ParseInt(after, 10, 64); err == nil {
		from = last + 1
	}
	to := min(from+first, n)
	info := map[string]any{"hasNextPage": to < n, "endCursor": nil}
	if to > from {
		info["endCursor"] = strconv.FormatInt(to-1, 10)
	}
	return map[string]any{"data": map[string]any{
		"events": map[string]any{"pageInfo": info, "nodes": events(from, to)},
		"newest": map[string]any{"nodes": events(max(n-1, 0), n)},
	}}
}

// TestKillTheLeader kills the process of a leader again and again, at random points: between a cursor and its
// events, between an event and its call, between a call and its result, wherever. Of every kind of source, the
// devnet of the demo too, each event ends exactly once, with one result: the loss that seed 1 admits has no place to
// happen.
func TestKillTheLeader(t *testing.T) {
	kills := 8
	if text := os.Getenv(killsEnv); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	db := pgtest.New(t)
	s := db.Store(t, 6)
	by := pgdb.By{Context: s.Context("default").ID, Actor: "test", Via: "test"}
	fake := remotetest.NewFake(t)
	fake.Script(dispatches, remotetest.Done("ok").Slow(2*time.Millisecond))
	fake.IncludeAll(true) // a call that a dead node made is done, as its next owner hears
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL, d.Pool = leader.TypeResult, fake.URL(), leader.PoolOfResults
	_, err := s.PutDispatcher(t.Context(), by, d, 0)
	must(t, err)
	for i := range 4 {
		_, err := s.PutSender(t.Context(), by, pg.Sender{Account: fmt.Sprintf("cap-%d", i), Pool: leader.PoolOfResults}, 0)
		must(t, err)
	}
	tool := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
		fmt.Fprint(w, `{"ok": {}}`)
	}))
	defer tool.Close()
	def, err := leader.Meta{FQN: "xyz.labs.add@1", URL: tool.URL, InputSchema: json.RawMessage(`{"type": "object", "required": ["n"]}`),
		OutputSchema: json.RawMessage(`{"oneOf": [{"type": "object", "required": ["ok"]}]}`)}.Definition()
	must(t, err)
	_, err = s.Events.PutTool(t.Context(), by, def, events.ToolSettings{TTL: time.Minute}, 0)
	must(t, err)
	var n atomic.Int64
	log := eventLog(t, &n)
	chain, add := remotetest.Devnet(t, func(i int) any { return map[string]any{"tool": "xyz.labs.add@1", "n": i} })
	for _, v := range []leader.Source{
		{Name: "paged", Kind: "http_json", URL: log.URL},
		{
			Name:   "sui",
			Kind:   "sui",
			URL:    log.URL,
			Filter: json.RawMessage(`{"MoveEventModule": {"package": "0xf1", "module": "workflow"}}`),
		},
		{Name: "graphql", Kind: "sui_graphql", URL: log.URL, Filter: json.RawMessage(`{"module": "0xf1::workflow"}`)},
		{Name: "devnet", Kind: "devnet", URL: chain, Filter: json.RawMessage(`{"type": "request"}`), Map: leader.SourceMap{Input: "/args"}},
	} {
		if v.Kind != "devnet" {
			v.Map = leader.SourceMap{FQN: "/parsedJson/tool", Input: "/parsedJson"}
		}
		v.PageSize, v.PollEvery, v.MaxRetries = 5, 100*time.Millisecond, 100
		_, err := s.Events.PutSource(t.Context(), by, v.WithDefaults(), 0)
		must(t, err)
	}
	for i := range kills {
		n.Add(7)
		add(7)
		p := startNode(t, db.URL, fmt.Sprintf("leader-%d", i))
		// it is at work once something of it is written; then it dies within moments
		begun, moves := time.Now(), count(t, s, `SELECT count(*) FROM postern.event_move`)
		for count(t, s, `SELECT count(*) FROM postern.event_move`) == moves && time.Since(begun) < 3*time.Second {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(rand.IntN(80)) * time.Millisecond)
		p.kill()
	}
	startNode(t, db.URL, "heir")
	want := 4 * int(n.Load())
	ended := func() int {
		return count(t, s, `SELECT count(*) FROM postern.event WHERE status IN ('Successful', 'Dead')`)
	}
	for begun, last := time.Now(), 0; last < want; time.Sleep(50 * time.Millisecond) { // it may have thousands to do: as long as it does
		if n := ended(); n > last {
			begun, last = time.Now(), n
		}
		if time.Since(begun) > 2*time.Minute {
			rows, _ := s.Pool().Query(t.Context(), `SELECT format('%s %s %s %s %s; result %s %s; message %s', identity, status, outcome, retried, error, result_id,
				(SELECT state FROM postern.transactions x WHERE x.uid = 'event:' || event_id || ':result'),
				(SELECT format('%s node %s retries %s %s', state, node_id, retries, error) FROM postern.channel_message m WHERE m.message_id = event_id::text)) FROM postern.event WHERE status NOT IN ('Successful') LIMIT 10`)
			left, _ := pgx.CollectRows(rows, pgx.RowTo[string])
			t.Fatalf("%d of %d have ended: %v", last, want, left)
		}
	}
	for sql, want := range map[string]int{
		`SELECT count(*) FROM postern.event`:                                                        want,
		`SELECT count(DISTINCT (source_id, identity)) FROM postern.event`:                           want,
		`SELECT count(*) FROM postern.event WHERE status = 'Successful'`:                            want,
		`SELECT count(*) FROM postern.event_move WHERE status = 'Successful'`:                       want,
		`SELECT count(*) FROM postern.task WHERE type = 'leader.result'`:                            want,
		`SELECT count(*) FROM postern.transactions WHERE type = 'leader.result' AND state = 'DONE'`: want,
		`SELECT count(*) FROM postern.channel_message`:                                              0,
		`SELECT count(*) FROM postern.event_move WHERE event = 'Stale'`:                             0,
	} {
		if got := count(t, s, sql); got != want {
			t.Errorf("%s: %d, want %d", sql, got, want)
		}
	}
	told := map[string]bool{}
	for _, c := range fake.Calls(dispatches) {
		if told[c.Token] = true; fake.Executed(c.Token) != 1 {
			t.Errorf("%s was executed %d times", c.Token, fake.Executed(c.Token))
		}
	}
	if len(told) != want {
		t.Errorf("the workflow was told %d things about %d events", len(told), want)
	}
	t.Logf("%d kills, %d events, %d of their calls repeated", kills, want, count(t, s, `SELECT count(*) FROM postern.event_move WHERE event = 'Taken'`)-want)
}

func count(t *testing.T, s *stores.Store, sql string) (n int) {
	t.Helper()
	must(t, s.Pool().QueryRow(t.Context(), sql).Scan(&n))
	return n
}
