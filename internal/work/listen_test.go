package work_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
	"github.com/postern-dev/postern/internal/work"
)

// eventLog is a log of n events over HTTP, in three shapes. Its cursors are inclusive, a page begins with the event at
// which the one before ended, but for those of GraphQL.
type eventLog struct {
	*httptest.Server
	n      atomic.Int64
	pruned atomic.Int64 // of GraphQL, how many of its first events are gone
	status atomic.Int64 // what it answers with, 0 for pages
	body   atomic.Pointer[string]
}

func newEventLog(t *testing.T) *eventLog {
	l := &eventLog{}
	l.Server = httptest.NewServer(http.HandlerFunc(l.serve))
	t.Cleanup(l.Close)
	return l
}

func (l *eventLog) serve(w http.ResponseWriter, r *http.Request) {
	if s := l.status.Load(); s != 0 {
		w.WriteHeader(int(s))
		return
	}
	if b := l.body.Load(); b != nil {
		_, _ = w.Write([]byte(*b))
		return
	}
	from, limit := int64(0), int64(0)
	var rpc struct {
		Method    string
		Params    []json.RawMessage
		Query     string
		Variables graphQL
	}
	if r.Method == http.MethodPost {
		var at struct{ EventSeq string }
		err := json.NewDecoder(r.Body).Decode(&rpc)
		if err == nil && rpc.Query != "" {
			_ = json.NewEncoder(w).Encode(rpc.Variables.page(l.pruned.Load(), l.n.Load()))
			return
		}
		if err != nil || rpc.Method != "suix_queryEvents" || len(rpc.Params) != 4 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_ = json.Unmarshal(rpc.Params[1], &at)
		from, _ = strconv.ParseInt(at.EventSeq, 10, 64)
		_ = json.Unmarshal(rpc.Params[2], &limit)
		if string(rpc.Params[3]) == "true" {
			from = max(l.n.Load()-1, 0)
		}
	} else {
		from, _ = strconv.ParseInt(r.URL.Query().Get("cursor"), 10, 64)
		limit, _ = strconv.ParseInt(r.URL.Query().Get("limit"), 10, 64)
	}
	to := min(from+limit, l.n.Load())
	items := []any{}
	for i := from; i < to; i++ {
		if rpc.Method == "" {
			items = append(items, map[string]any{"id": i, "tool": "xyz.labs.add@1"})
		} else {
			items = append(items, map[string]any{"id": map[string]string{"txDigest": "d", "eventSeq": strconv.FormatInt(i, 10)}, "parsedJson": map[string]any{"tool": "xyz.labs.add@1"}})
		}
	}
	page := map[string]any{"events": items, "next_cursor": max(to-1, 0), "has_more": to < l.n.Load()}
	if rpc.Method != "" {
		page = map[string]any{"jsonrpc": "2.0", "id": 1, "result": map[string]any{"data": items, "hasNextPage": to < l.n.Load(),
			"nextCursor": map[string]string{"txDigest": "d", "eventSeq": strconv.FormatInt(max(to-1, 0), 10)}}}
	}
	_ = json.NewEncoder(w).Encode(page)
}

// graphQL are the variables with which events are asked for.
type graphQL struct {
	First, Last int64
	After       *string
}

// page is what a server of Sui answers that has the events from pruned up to n: a cursor whose event it does not have
// gets an empty page and no error.
func (v graphQL) page(pruned, n int64) any {
	events := func(from, to int64) []any {
		list := []any{}
		for i := from; i < to; i++ {
			list = append(list, map[string]any{
				"sequenceNumber": i,
				"transaction": map[string]any{
					"digest":  "d",
					"effects": map[string]any{"checkpoint": map[string]any{"sequenceNumber": i / 3}},
				},
				"contents": map[string]any{"json": map[string]any{"tool": "xyz.labs.add@1"}},
			})
		}
		return list
	}
	from, to := pruned, n
	if v.After != nil {
		after, _ := strconv.ParseInt(strings.TrimPrefix(*v.After, "c"), 10, 64)
		if from = after + 1; after < pruned || after >= n {
			from = n
		}
	}
	if v.First > 0 {
		to = min(from+v.First, n)
	}
	if v.Last > 0 {
		from = max(from, n-v.Last)
	}
	info := map[string]any{"hasNextPage": to < n, "endCursor": nil}
	if to > from {
		info["endCursor"] = fmt.Sprintf("c%d", to-1)
	}
	return map[string]any{"data": map[string]any{
		"events": map[string]any{"pageInfo": info, "nodes": events(from, to)},
		"newest": map[string]any{"nodes": events(max(pruned, n-1), n)},
	}}
}

func (h *house) source(v leader.Source) {
	h.t.Helper()
	_, err := h.s.Events.PutSource(h.ctx, h.by, v.WithDefaults(), 0)
	h.must(err)
}

// stored lists how often each event of a source is stored, in the order of their numbers.
func (h *house) stored(source string) (list []string) {
	h.t.Helper()
	rows, err := h.s.Pool().Query(h.ctx, `SELECT regexp_replace(e.identity, '^d:', '') FROM postern.event e JOIN postern.source s USING (source_id)
		WHERE s.name = $1 ORDER BY length(e.identity), e.identity`, source)
	h.must(err)
	list, err = pgx.CollectRows(rows, pgx.RowTo[string])
	h.must(err)
	return list
}

// byHand is a node that does nothing by itself.
type byHand struct {
	*work.Engine
	*work.Events
}

func (h *house) manual(change func(*parts)) byHand {
	h.t.Helper()
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	h.t.Cleanup(client.Close)
	c := parts{
		Config:       work.Config{Store: h.s, Worker: client, NodeName: "n", TTL: time.Hour},
		EventsConfig: work.EventsConfig{Fetch: client.Fetch},
	}
	if change != nil {
		change(&c)
	}
	e, events := c.engine()
	h.must(e.Manual(h.ctx))
	return byHand{e, events}
}

func sources(l *eventLog) []leader.Source {
	return []leader.Source{
		{Name: "paged", Kind: "http_json", URL: l.URL, Map: leader.SourceMap{FQN: "/tool"}, PageSize: 7},
		{
			Name:     "sui",
			Kind:     "sui",
			URL:      l.URL,
			Filter:   json.RawMessage(`{"MoveEventModule": {"package": "0xf1", "module": "workflow"}}`),
			Map:      leader.SourceMap{FQN: "/parsedJson/tool"},
			PageSize: 7,
		},
		bySuiGraphQL("graphql", l),
	}
}

func bySuiGraphQL(name string, l *eventLog) leader.Source {
	return leader.Source{
		Name:     name,
		Kind:     "sui_graphql",
		URL:      l.URL,
		Filter:   json.RawMessage(`{"module": "0xf1::workflow"}`),
		Map:      leader.SourceMap{FQN: "/contents/json/tool"},
		PageSize: 7,
	}
}

// Pages go on to the end of the log without a gap, over inclusive cursors, and then with what is new.
func TestASourceIsReadToItsEndAndOn(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	log := newEventLog(t)
	log.n.Store(40)
	for _, v := range sources(log) {
		h.source(v)
	}
	late := sources(log)[1]
	late.Name, late.Start = "late", "latest"
	h.source(late)
	later := bySuiGraphQL("later", log)
	later.Start = "latest"
	h.source(later)
	e := h.manual(nil)
	now, err := h.s.Now(h.ctx)
	h.must(err)
	h.s.SetNow(&now)
	drain := func() {
		t.Helper()
		for {
			n, err := e.ListenOnce(h.ctx)
			if h.must(err); n == 0 {
				return
			}
		}
	}
	check := func(source string, from, to int) {
		t.Helper()
		var want []string
		for i := from; i < to; i++ {
			want = append(want, strconv.Itoa(i))
		}
		if got := h.stored(source); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s has %v, want %v", source, got, want)
		}
	}
	drain()
	check("paged", 0, 40)
	check("sui", 0, 40)
	check("graphql", 0, 40)
	check("late", 39, 40) // its cursor is inclusive, so the last one comes once
	check("later", 0, 0)
	log.n.Store(53)
	now = now.Add(time.Second)
	drain()
	check("paged", 0, 53)
	check("sui", 0, 53)
	check("graphql", 0, 53)
	check("late", 39, 53)
	check("later", 40, 53)
}

// Where a source is to start at the end of a log that is empty, the first event that comes is its own.
func TestASourceStartsAtTheEndOfAnEmptyLog(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	log := newEventLog(t)
	late := sources(log)[1]
	late.Name, late.Start = "late", "latest"
	h.source(late)
	later := bySuiGraphQL("later", log)
	later.Start = "latest"
	h.source(later)
	e := h.manual(nil)
	now, err := h.s.Now(h.ctx)
	h.must(err)
	for _, n := range []int64{0, 0, 2, 3} {
		log.n.Store(n)
		h.s.SetNow(&now)
		_, err := e.ListenOnce(h.ctx)
		h.must(err)
		for _, name := range []string{"late", "later"} {
			if got := h.stored(name); int64(len(got)) != n {
				t.Errorf("%s: %v are stored of %d", name, got, n)
			}
		}
		now = now.Add(2 * time.Second)
	}
}

// A server that has pruned the checkpoint of a cursor answers with empty pages and no error. That is no end of the log:
// as soon as it has an event that was not read, the source says so, and a rewind reads what there is, each event once.
func TestACursorThatIsPrunedIsNoEnd(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	log := newEventLog(t)
	log.n.Store(10)
	h.source(bySuiGraphQL("graphql", log))
	e := h.manual(nil)
	now, err := h.s.Now(h.ctx)
	h.must(err)
	listen := func() *events.Source {
		t.Helper()
		now = now.Add(2 * time.Minute)
		h.s.SetNow(&now)
		h.listenAll(e)
		return h.state("graphql")
	}
	if v := listen(); v.Failures != 0 || len(h.stored("graphql")) != 10 {
		t.Fatalf("%+v has %v", v, h.stored("graphql"))
	}
	log.pruned.Store(10)
	if v := listen(); v.State != "running" || v.Failures != 0 {
		t.Errorf("nothing is new, and nothing is lost: %+v", v)
	}
	log.n.Store(13)
	v := listen()
	if v.State != "running" || v.Failures == 0 || !strings.Contains(v.LastError, "the newest one, d:12, was not read") {
		t.Errorf("%+v", v)
	}
	_, err = h.s.Events.RewindSource(h.ctx, h.by, "graphql", nil)
	h.must(err)
	if v := listen(); v.Failures != 0 || v.LastError != "" || len(h.stored("graphql")) != 13 {
		t.Errorf("%+v has %v", v, h.stored("graphql"))
	}
}

// Events come in smaller pages where a page would be too large. An event that the database cannot hold, however large
// it is, is stored Dead, and does not stop its source. A look asks once, and goes on with the number that was small
// enough.
func TestLargeEventsComeInSmallPages(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	sizes := slices.Repeat([]int{200 << 10}, 50)
	var limits []int
	log := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		limits = append(limits, limit)
		to := min(from+limit, len(sizes))
		fmt.Fprint(w, `{"events": [`)
		for i := from; i < to; i++ {
			if i > from {
				fmt.Fprint(w, ",")
			}
			fmt.Fprintf(w, `{"text": "%s", "tool": "xyz.labs.add@1", "id": %d}`, strings.Repeat("x", sizes[i]), i)
		}
		fmt.Fprintf(w, `], "next_cursor": %d, "has_more": %t}`, max(to-1, 0), to < len(sizes))
	}))
	t.Cleanup(log.Close)
	h.source(leader.Source{Name: "log", Kind: "http_json", URL: log.URL, Map: leader.SourceMap{FQN: "/tool"}, OnUndecodable: "dead"})
	e := h.manual(nil)
	now, err := h.s.Now(h.ctx)
	h.must(err)
	for _, c := range []struct {
		more   []int
		limits string
	}{
		{nil, "[50 25 12]"},
		{[]int{100, 3 << 20, 100}, "[12]"},
		{[]int{40 << 20, 40 << 20, 40 << 20, 100}, "[24]"},
	} {
		sizes, limits = append(sizes, c.more...), nil
		// a busy machine may not store a page in time: its lease ends, and the page is asked for again
		for tries := 0; tries == 0 || tries < 5 && len(h.stored("log")) < len(sizes); tries++ {
			now = now.Add(time.Minute + 2*time.Second)
			h.s.SetNow(&now)
			h.listenAll(e)
		}
		asked := fmt.Sprint(slices.Compact(limits))
		all := len(h.stored("log")) == len(sizes)
		if v := h.state("log"); v.State != "running" || v.LastError != "" || !all || asked != c.limits {
			t.Errorf("%+v %v, asked for %v", v, h.stored("log"), limits)
		}
	}
	dead, err := h.s.Events.Events(h.ctx, h.by.Context, events.EventFilter{Status: []string{leader.EventDead}, Limit: 9})
	if h.must(err); len(dead) != 4 || dead[0].Identity != "55" || !strings.Contains(dead[0].Error, `event "55" cannot be read: it has 41943`) {
		t.Errorf("%d are Dead, %+v", len(dead), dead)
	}
}

// An event that the database would refuse holds up no event behind it: it is stored Dead, or stops its source before it
// and is named.
func TestAPoisonousEventIsNamed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	log := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"events": [{"id": 1, "tool": "xyz.labs.add@1"}, {"id": 2, "tool": "xyz.labs.add@1", "text": "\ud800"}, {"id": 3, "tool": "xyz.labs.add@1", "n": 1e999999},
			{"id": 4, "tool": "xyz.labs.add@1", "text": "\x"}, {"id": 5, "tool": "xyz.labs.add@1"}], "next_cursor": 5}`)
	}))
	t.Cleanup(log.Close)
	for name, rule := range map[string]string{"goes_on": "dead", "halts": "halt"} {
		h.source(leader.Source{Name: name, Kind: "http_json", URL: log.URL, Map: leader.SourceMap{FQN: "/tool"}, OnUndecodable: rule})
	}
	h.listenAll(h.manual(nil))
	if v := h.state("goes_on"); v.State != "running" || v.LastError != "" || string(v.Cursor) != "5" || len(h.stored("goes_on")) != 5 {
		t.Errorf("%+v has %v", v, h.stored("goes_on"))
	}
	if v := h.state("halts"); v.State != "failed" || v.LastError != `event "2" cannot be read: it is not JSON that we accept: half of a surrogate pair at /text` || fmt.Sprint(h.stored("halts")) != "[1]" {
		t.Errorf("%+v has %v", v, h.stored("halts"))
	}
}

// A source that answers slowly holds up no other of its node.
func TestASlowSourceHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	asked, answer := make(chan bool, 1), make(chan bool)
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- true
		<-answer
	}))
	t.Cleanup(slow.Close)
	defer close(answer)
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(client.Close)
	log := newEventLog(t)
	h.source(leader.Source{Name: "slow", Kind: "http_json", URL: slow.URL, Map: leader.SourceMap{FQN: "/tool"}})
	h.engine("n", func(c *parts) { c.Fetch = client.Fetch })
	<-asked
	for _, v := range sources(log) {
		v.PollEvery = 100 * time.Millisecond
		h.source(v)
	}
	for _, n := range []int64{3, 7} {
		log.n.Store(n)
		h.until("the other source goes on", func() bool { return int64(len(h.stored("paged"))) == n })
	}
}

// The loss that the seed admits, a cursor that was saved for a message that was not sent, does not happen: the
// listener dies at random points, POSTERN_LEADER_KILLS of them, and every event is stored exactly once. 1,000 is the
// promise (make test-kills).
func TestAListenerThatDiesAnywhereLosesNothing(t *testing.T) {
	t.Parallel()
	deathsWanted := 60
	if n, err := strconv.Atoi(os.Getenv("POSTERN_LEADER_KILLS")); err == nil {
		deathsWanted = max(n, 1)
	}
	h := newHouse(t)
	log := newEventLog(t)
	log.n.Store(100)
	chain, add := remotetest.Devnet(t, func(i int) any { return map[string]any{"tool": "xyz.labs.add@1", "n": i} })
	add(100)
	all := append(sources(log), leader.Source{Name: "devnet", Kind: "devnet", URL: chain})
	for _, v := range all {
		v.PageSize = 5
		h.source(v)
	}
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(client.Close)
	deaths := 0
	for tries := 0; ; tries++ {
		if tries > 10*deathsWanted {
			t.Fatalf("not done after %d tries and %d deaths", tries, deaths)
		}
		// Each life is a node of its own. It dies before it asks, with the answer in hand, or at any moment of storing
		// it: then its connection breaks off, before the commit or with a commit whose answer is lost.
		ctx, die := context.WithCancel(h.ctx)
		point := rand.IntN(5)
		e := h.manual(func(c *parts) {
			c.Fetch = func(_ context.Context, ask leader.Ask, read func(io.Reader)) *leader.Trouble {
				if point == 0 {
					die()
				}
				trouble := client.Fetch(h.ctx, ask, read)
				switch point {
				case 1:
					die()
				case 2, 3:
					time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, die)
				}
				return trouble
			}
		})
		looked, err := e.ListenOnce(ctx)
		if ctx.Err() != nil {
			deaths++
			looked = 1
			_, err = h.s.Pool().Exec(h.ctx, `UPDATE postern.node SET dead_at = clock_timestamp(), epoch = epoch + 1 WHERE dead_at IS NULL`)
		}
		die()
		if h.must(err); looked == 0 && deaths >= deathsWanted {
			break
		}
		if looked == 0 {
			log.n.Add(50)
			add(50)
			_, err := h.s.Pool().Exec(h.ctx, `UPDATE postern.source SET next_at = clock_timestamp()`)
			h.must(err)
		}
	}
	_, err := h.s.Pool().Exec(h.ctx, `UPDATE postern.source SET next_at = clock_timestamp()`)
	h.must(err)
	for e := h.manual(nil); ; {
		n, err := e.ListenOnce(h.ctx)
		if h.must(err); n == 0 {
			break
		}
	}
	for _, v := range all {
		got := h.stored(v.Name)
		if int64(len(got)) != log.n.Load() || v.Kind != "devnet" && got[len(got)-1] != strconv.FormatInt(log.n.Load()-1, 10) {
			t.Errorf("%s: %d events stored of %d, after %d deaths", v.Name, len(got), log.n.Load(), deaths)
		}
	}
}

// A source in trouble gives these answers, and an operator brings it back.
func TestASourceInTroubleIsAskedAgainOrStops(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	log := newEventLog(t)
	log.n.Store(3)
	h.source(sources(log)[0])
	e := h.manual(nil)
	now, err := h.s.Now(h.ctx)
	h.must(err)
	h.s.SetNow(&now)
	listen := func() *events.Source {
		t.Helper()
		now = now.Add(time.Minute)
		_, err := e.ListenOnce(h.ctx)
		h.must(err)
		v, err := h.s.Events.Source(h.ctx, h.by.Context, "paged")
		h.must(err)
		return v
	}
	log.status.Store(503)
	listen()
	if v := listen(); v.State != "running" || v.Failures != 2 ||
		!strings.HasPrefix(v.LastError, "HTTP 503: Service Unavailable, which is no page") {
		t.Errorf("%+v", v)
	}
	log.status.Store(404)
	if v := listen(); v.State != "running" || v.Failures != 3 {
		t.Errorf("%+v", v)
	}
	log.status.Store(0)
	refusal := `{"message": "service unavailable"}`
	log.body.Store(&refusal)
	if v := listen(); v.State != "running" || v.Failures != 4 ||
		!strings.HasPrefix(v.LastError, "the answer has no array at /events, which is no page of the source") {
		t.Errorf("%+v", v)
	}
	refusal = `{"events": [], "next_cursor": {}}`
	if v := listen(); v.State != "failed" || !strings.HasPrefix(v.LastError, "the cursor at /next_cursor is neither") {
		t.Errorf("%+v", v)
	}
	log.body.Store(nil)
	if v := listen(); v.State != "failed" || len(h.stored("paged")) != 0 {
		t.Errorf("%+v", v)
	}
	_, err = h.s.Events.PauseSource(h.ctx, h.by, "paged", false)
	h.must(err)
	if v := listen(); v.State != "running" || v.Failures != 0 || v.LastError != "" || len(h.stored("paged")) != 3 {
		t.Errorf("%+v", v)
	}
	broken := `{"events": [{"id": 3, "tool": "xyz.labs.add@1"}, {"id": 4}], "next_cursor": 4, "has_more": false}`
	log.body.Store(&broken)
	if v := listen(); v.State != "failed" || v.LastError != `event "4" cannot be read: it names no tool at /tool` || len(h.stored("paged")) != 4 {
		t.Errorf("%+v %v", v, h.stored("paged"))
	}
}

// A node that runs listens by itself.
func TestARunningNodeListens(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	log := newEventLog(t)
	log.n.Store(20)
	h.source(sources(log)[0])
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(client.Close)
	h.engine("n", func(c *parts) { c.Fetch = client.Fetch })
	for len(h.stored("paged")) < 20 && h.ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
}
