package work_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
	"github.com/postern-dev/postern/internal/work"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// soon is how long a test waits for what should come within moments: a process may get no processor for seconds.
const soon = time.Minute

// house is a store, a fake worker and engines that run until the test ends.
type house struct {
	t    *testing.T
	db   *pgtest.DB
	s    *stores.Store
	fake *remotetest.Fake
	by   db.By
	ctx  context.Context
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{t: t, db: pgtest.New(t), fake: remotetest.NewFake(t), ctx: t.Context()}
	h.s = h.store()
	h.by = db.By{Context: h.s.Context("default").ID, Actor: "test", Via: "test", Reason: "because"}
	return h
}

func (h *house) store() *stores.Store {
	h.t.Helper()
	pool, err := pg.Connect(h.ctx, h.db.URL, 10)
	h.must(err)
	h.t.Cleanup(pool.Close)
	s, err := stores.Open(h.ctx, pool, slog.New(slog.DiscardHandler))
	h.must(err)
	s.Events.SourceSchemas = []string{"shop"}
	return s
}

func (h *house) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("%+v", err)
	}
}

// parts is what a node with all systems is made of.
type parts struct {
	work.Config
	work.EventsConfig
	work.DeliveriesConfig
}

func (p parts) engine() (*work.Engine, *work.Events) {
	e := work.New(p.Config)
	events := work.NewEvents(e, p.EventsConfig)
	e.Add(
		work.NewDeliveries(e, p.DeliveriesConfig).System(),
		events.System(),
		work.NewBatches(e).System(),
		work.NewChannels(e).System(),
	)
	return e, events
}

// engine starts a node on a store of its own and returns how to stop it; it is stopped at the end in
// any case.
func (h *house) engine(name string, change func(*parts)) (stop func()) {
	h.t.Helper()
	level := slog.LevelWarn
	if os.Getenv("POSTERN_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	c := parts{
		Config: work.Config{
			Store:    h.store(),
			Worker:   remote.Mux{Next: client},
			NodeName: name,
			TTL:      soon,
			Grace:    2 * time.Second,
			Log:      slog.New(slog.NewTextHandler(h.t.Output(), &slog.HandlerOptions{Level: level})),
		},
		DeliveriesConfig: work.DeliveriesConfig{Webhook: client.Webhook},
	}
	if change != nil {
		change(&c)
	}
	e, _ := c.engine()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			h.t.Errorf("engine %s: %v", name, err)
		}
		client.Close()
	}
	h.t.Cleanup(stop)
	return stop
}

func (h *house) dispatcher(typ string, change func(*outbox.Dispatcher)) {
	h.t.Helper()
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL = typ, h.fake.URL()
	d.Retry.Initial, d.Inclusion.PollEvery = outbox.Duration(20*time.Millisecond), outbox.Duration(20*time.Millisecond)
	if change != nil {
		change(&d)
	}
	_, err := h.s.PutDispatcher(h.ctx, h.by, d, 0)
	h.must(err)
}

// holds makes a type whose calls go out, and are not answered before release.
func (h *house) holds(typ string) (called <-chan struct{}, release func()) {
	h.t.Helper()
	calls, answer := make(chan struct{}, 1), make(chan struct{})
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/dispatch/") {
			select {
			case calls <- struct{}{}:
			default:
			}
			<-answer
		}
		h.fake.ServeHTTP(w, r)
	}))
	h.t.Cleanup(worker.Close)
	release = sync.OnceFunc(func() { close(answer) })
	h.t.Cleanup(release)
	h.dispatcher(typ, func(d *outbox.Dispatcher) { d.WorkerURL = worker.URL })
	return calls, release
}

func (h *house) sender(pool string, accounts ...string) {
	h.t.Helper()
	for _, a := range accounts {
		_, err := h.s.PutSender(h.ctx, h.by, pg.Sender{Account: a, Pool: pool}, 0)
		h.must(err)
	}
}

func (h *house) post(queue, typ string, uids ...string) []outbox.ID {
	h.t.Helper()
	var subs []*pg.Submission
	for _, u := range uids {
		subs = append(subs, &pg.Submission{ContextID: h.by.Context, Queue: queue, Type: typ, UID: u, Hash: []byte(u),
			Poster: outbox.SystemOf(typ), Data: json.RawMessage(`{}`)})
	}
	out, err := h.s.Ingest(h.ctx, subs, false)
	for end := time.Now().Add(soon); fault.KindOf(err) == fault.Retry && time.Now().Before(end); {
		out, err = h.s.Ingest(h.ctx, subs, false) // as the answer tells a client
	}
	h.must(err)
	var ids []outbox.ID
	for _, a := range out {
		h.must(a.Err)
		ids = append(ids, a.ID)
	}
	return ids
}

// await waits until every transaction is in one of the states.
func (h *house) await(ids []outbox.ID, within time.Duration, states ...outbox.State) map[outbox.ID]*pg.Transaction {
	h.t.Helper()
	end := time.Now().Add(within)
	for {
		all, err := h.s.Transactions(h.ctx, h.by.Context, ids)
		h.must(err)
		left := 0
		for _, tx := range all {
			ok := false
			for _, s := range states {
				ok = ok || tx.State == s
			}
			if !ok {
				left++
			}
		}
		if left == 0 && len(all) == len(ids) {
			return all
		}
		if time.Now().After(end) {
			for _, id := range ids {
				if tx := all[id]; tx != nil {
					h.t.Logf("%s %s/%d %s %s attempt %d: %s", tx.UID, tx.Queue, id.Seq, tx.State,
						tx.QueueState, tx.Attempt, tx.Error)
				}
			}
			h.t.Fatalf("%d of %d are not in %v after %s", left, len(ids), states, within)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
