package devnetworker_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/devnet/ledger"
	"github.com/postern-dev/postern/internal/devnetworker"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// bench is a ledger and a worker that a test turns the handle of.
type bench struct {
	t      *testing.T
	ledger *ledger.Ledger
	door   *httptest.Server // of the ledger
	client *remote.Client   // of the worker
	cfg    devnetworker.Config
	url    string       // of the worker
	stop   func()       // of the worker
	behind atomic.Value // the handler behind the door
}

// swap puts another handler behind the door of the ledger.
func (b *bench) swap(h http.Handler) { b.behind.Store(h.ServeHTTP) }

// newBench starts both. If every is 0, only the test makes blocks. The worker knows the keys of accounts, and each
// account has 1,000,000.
func newBench(t *testing.T, every time.Duration, cfg devnetworker.Config, accounts ...string) *bench {
	t.Helper()
	l, err := ledger.Open(ledger.Config{BlockEvery: every})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var blocks sync.WaitGroup
	blocks.Go(func() { l.Run(ctx) })
	b := &bench{t: t, ledger: l, client: remotetest.Client(t)}
	b.swap(l.Handler())
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.behind.Load().(func(http.ResponseWriter, *http.Request))(w, r)
	}))
	dir := t.TempDir()
	cfg.Ledger, cfg.Keys, cfg.Data = door.URL, filepath.Join(dir, "keys"), filepath.Join(dir, "data")
	b.door, b.cfg = door, cfg
	for _, name := range accounts {
		key, err := devnetworker.Keystore{Dir: cfg.Keys}.Create(name)
		must(t, err)
		_, err = l.Grant(devnet.AddressOf(key), 1_000_000)
		must(t, err)
	}
	b.start()
	t.Cleanup(func() { b.stop(); door.Close(); cancel(); blocks.Wait(); l.Close() })
	return b
}

// start starts the worker on what an earlier one left.
func (b *bench) start() {
	b.t.Helper()
	w, err := devnetworker.Open(b.cfg)
	must(b.t, err)
	server := httptest.NewServer(w.Handler())
	b.url, b.stop = server.URL, func() { server.Close(); w.Close() }
}

func (b *bench) restart() { b.t.Helper(); b.stop(); b.start() }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call is a transfer of 10 from alice to bob as the first attempt of transaction seq.
func (b *bench) call(seq int64, change ...func(*remote.Call)) remote.Call {
	c := remotetest.Call(b.url, seq)
	c.Type, c.Account, c.Data, c.Fee = "TRANSFER", "alice", json.RawMessage(`{"to":"bob","amount":"10"}`), "100"
	for _, f := range change {
		f(&c)
	}
	return c
}

// again is the next attempt of a call with what came of this one.
func again(c remote.Call, a outbox.Answer, fee string) remote.Call {
	c.Attempt, c.Fee, c.Nonce = c.Attempt+1, fee, a.Result.Nonce
	if a.Result.Hash != "" {
		c.PreviousHashes = append(c.PreviousHashes[:len(c.PreviousHashes):len(c.PreviousHashes)], a.Result.Hash)
	}
	return c
}

// send dispatches and wants a class.
func (b *bench) send(c remote.Call, class outbox.Class) outbox.Answer {
	b.t.Helper()
	c.BaseURL = b.url
	a := b.client.Dispatch(b.t.Context(), c)
	if a.Class != class {
		b.t.Fatalf("dispatch of %s: class %q, code %q: %s; want class %q", c.Token(), a.Class, a.Code, a.Message, class)
	}
	return a
}

func (b *bench) byHash(hash string) outbox.Status {
	return b.client.Status(b.t.Context(), b.url, "TRANSFER", "", hash)
}

func (b *bench) byToken(c remote.Call) outbox.Status {
	return b.client.Status(b.t.Context(), b.url, "TRANSFER", c.Token(), "")
}

func (b *bench) wants(st outbox.Status, state outbox.StatusState) outbox.Status {
	b.t.Helper()
	if st.State != state {
		b.t.Errorf("status %+v, want %s", st, state)
	}
	return st
}

func (b *bench) blocks(n int) {
	b.t.Helper()
	for range n {
		_, err := b.ledger.Block()
		must(b.t, err)
	}
}

// account is what the ledger knows of an account of the keystore.
func (b *bench) account(name string) devnet.Account {
	b.t.Helper()
	key, err := devnetworker.Keystore{Dir: b.cfg.Keys}.Key(name)
	must(b.t, err)
	a, _ := b.ledger.Account(devnet.AddressOf(key))
	return a
}

// received wants that bob got so much, when all that is pending is in a final block.
func (b *bench) received(amount uint64) {
	b.t.Helper()
	b.blocks(4)
	if got := b.account("bob").Balance - 1_000_000; got != amount {
		b.t.Errorf("bob received %d, want %d", got, amount)
	}
}
