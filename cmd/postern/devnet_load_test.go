package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/pgtest"
)

// moved is a transfer as the API shows it.
type moved struct {
	ID       string
	Queue    string
	State    string
	Position int64
	Retries  int
	Error    json.RawMessage
}

// fleet is Postern, a devnet and its worker, each a process of its own.
type fleet struct {
	t             *testing.T
	api           string
	chain         *devnet.Client
	ledger        *process
	startLedger   func() *process
	worker        *process
	startWorker   func() *process
	senders       []devnet.Address
	queues, total int
}

// startFleet starts all three, with eight senders of 10^9 each and a receiver for each queue.
func startFleet(t *testing.T, queues, total int) *fleet {
	t.Helper()
	dir, ledgerAt, workerAt, apiAt := t.TempDir(), freeAddress(t), freeAddress(t), freeAddress(t)
	f := &fleet{t: t, api: "http://" + apiAt, chain: devnet.NewClient("http://"+ledgerAt, 10*time.Second), queues: queues, total: total}
	t.Cleanup(f.chain.Close)
	f.startLedger = func() *process {
		l := start(t, nil, "devnet", "--listen", ledgerAt, "--data", dir+"/ledger", "--block-every", "20ms")
		l.line()
		return l
	}
	f.ledger = f.startLedger()
	keys := func(fund string, names ...string) (all []devnet.Address) {
		t.Helper()
		r := postern(t, nil, append([]string{"devnet", "keys", "-o", "json", "--keys", dir + "/keys", "--ledger", "http://" + ledgerAt, "--fund", fund}, names...)...)
		r.want(t, 0)
		var out struct {
			Items []struct{ Address devnet.Address }
		}
		if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
			t.Fatal(err)
		}
		for _, k := range out.Items {
			all = append(all, k.Address)
		}
		return all
	}
	f.senders = keys("1000000000", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8")
	var receivers []string
	for i := range queues {
		receivers = append(receivers, fmt.Sprint("r", i))
	}
	keys("0", receivers...)
	f.startWorker = func() *process {
		w := start(t, nil, "worker", "devnet", "--listen", workerAt, "--ledger", "http://"+ledgerAt, "--keys", dir+"/keys", "--data", dir+"/worker")
		w.line()
		return w
	}
	f.worker = f.startWorker()
	server := start(t, append(database(pgtest.New(t).URL), "POSTERN_AUTH=none", "POSTERN_WORKER_ALLOW_CIDR=127.0.0.0/8"), "serve", "--work", "--listen", apiAt)
	await(t, server, f.api)
	call(t, http.MethodPut, f.api+"/dispatchers/TRANSFER", `{"worker_url": "http://`+workerAt+`", "pool": "devnet", "timeouts": {"dispatch": "5s"},
		"fee": {"kind": "percent", "initial": "1000", "bump_percent": 10, "cap_percent": 400},
		"retry": {"max_retries": 1000, "kind": "fixed", "initial": "50ms", "cap": "50ms"},
		"inclusion": {"poll_every": "25ms", "deadline": "3s", "unknown_grace": "200ms", "confirmations": 3}}`, 201, nil)
	for i := range f.senders {
		call(t, http.MethodPut, fmt.Sprintf("%s/senders/s%d", f.api, i+1), `{"pool": "devnet"}`, 201, nil)
	}
	return f
}

// post posts the transfers round the queues: the nth one moves 1 to 7.
func (f *fleet) post() {
	f.t.Helper()
	for from := 0; from < f.total; from += 500 {
		var items []string
		for n := from; n < min(from+500, f.total); n++ {
			items = append(items, fmt.Sprintf(`{"queue": "q%d", "type": "TRANSFER", "data": {"to": "r%d", "amount": "%d"}}`, n%f.queues, n%f.queues, 1+n%7))
		}
		call(f.t, http.MethodPost, f.api+"/transactions:batch", `{"atomic": true, "items": [`+strings.Join(items, ",")+`]}`, 201, nil)
	}
}

// all reads every transfer.
func (f *fleet) all() (out []moved) {
	f.t.Helper()
	path := f.api + "/transactions?limit=500"
	for next := path; next != ""; {
		var page struct {
			Items []moved
			Next  *string
		}
		call(f.t, http.MethodGet, next, "", 200, &page)
		if out, next = append(out, page.Items...), ""; page.Next != nil {
			next = path + "&cursor=" + *page.Next
		}
	}
	return out
}

// trouble makes the ledger refuse, answer nonsense, lose its answers and drop transactions, now and then.
func (f *fleet) trouble() {
	f.t.Helper()
	if err := f.chain.SetFaults(f.t.Context(), devnet.Faults{Refuse: 0.01, Lose: 0.01, Wrong: 0.01, Drop: 0.002}); err != nil {
		f.t.Fatal(err)
	}
}

// disturb waits until the ledger has seen so much, then kills the worker or reorgs, step by step. Half-way
// it kills the ledger too.
func (f *fleet) disturb(kills, reorgs int) {
	f.t.Helper()
	ctx := f.t.Context()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	f.trouble()
	for n, steps := 1, kills+reorgs; n <= steps; n++ {
		for f.nonces() < uint64(f.total*n/(steps+1)) {
			<-tick.C
		}
		if n*kills/steps > (n-1)*kills/steps {
			f.worker.cmd.Process.Kill()
			<-f.worker.ended
			f.worker = f.startWorker()
			continue
		}
		if n == steps/2 {
			f.ledger.cmd.Process.Kill()
			<-f.ledger.ended
			f.ledger = f.startLedger()
			f.trouble()
		}
		var head devnet.Block
		f.ask(func() (err error) { head, err = f.chain.Block(ctx, nil); return err })
		lose := head.Transactions[:len(head.Transactions)/2]
		if out, err := f.chain.Reorg(ctx, 1+n%2, lose...); err != nil {
			f.t.Fatal(err)
		} else {
			f.t.Logf("reorg at height %d: %d came back, %d were lost", out.Height, len(out.Returned), len(out.Lost))
		}
	}
}

// nonces is how many transactions of the senders are in blocks.
func (f *fleet) nonces() (sum uint64) {
	f.t.Helper()
	for _, s := range f.senders {
		var a devnet.Account
		f.ask(func() (err error) { a, err = f.chain.Account(f.t.Context(), s); return err })
		sum += a.Nonce
	}
	return sum
}

// ask asks the ledger until none of its faults happens to the answer.
func (f *fleet) ask(question func() error) {
	f.t.Helper()
	var err error
	for range 100 {
		if err = question(); err == nil {
			return
		}
	}
	f.t.Fatal(err)
}

// Each transfer is on the ledger exactly once and in the order of its queue, and the ledger agrees with the outcomes on
// money and nonces: over kills of both, reorgs that lose transactions, a pool that drops some, and a ledger that
// refuses, answers nonsense or loses its answers. DEVNET_TRANSFERS says how many there are, such as 5000.
func TestEveryTransferIsOnTheLedgerExactlyOnce(t *testing.T) {
	t.Parallel()
	total, queues := 240, 24
	if n, err := strconv.Atoi(os.Getenv("DEVNET_TRANSFERS")); err == nil {
		total, queues = n, 200
	}
	f := startFleet(t, queues, total)
	began := time.Now()
	f.post()
	f.disturb(3, 6)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var txs []moved
	for open := total; open > 0; <-tick.C {
		if txs, open = f.all(), 0; len(txs) != total {
			t.Fatalf("%d transfers are listed, want %d", len(txs), total)
		}
		for _, tx := range txs {
			switch tx.State {
			case "DONE":
			case "FAILED", "UNRESOLVED", "CANCELLED":
				t.Fatalf("transfer %+v", tx)
			default:
				open++
			}
		}
		if time.Since(began) > 10*time.Minute {
			t.Fatalf("%d of %d transfers are open after 10 min", open, total)
		}
	}
	t.Logf("%d transfers in %s", total, time.Since(began).Round(time.Second))
	f.compare(txs)
}

// amount is what post gave a transfer to move.
func (f *fleet) amount(tx moved) uint64 {
	queue, _ := strconv.Atoi(strings.TrimPrefix(tx.Queue, "q"))
	n := int(tx.Position-1)*f.queues + queue
	return uint64(1 + n%7)
}

// compare holds the outcomes against the ledger.
func (f *fleet) compare(txs []moved) {
	t, ctx := f.t, f.t.Context()
	if err := f.chain.SetFaults(ctx, devnet.Faults{}); err != nil {
		t.Fatal(err)
	}
	byID, retries := map[string]moved{}, 0
	for _, tx := range txs {
		byID[tx.ID] = tx
		retries += tx.Retries
	}
	seen, last, received := map[string]int{}, map[string]int64{}, map[string]uint64{}
	for cursor, first := "", true; ; first = false {
		page, err := f.chain.Events(ctx, cursor, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range page.Events {
			if i == 0 && !first {
				continue // the cursor is inclusive
			}
			id, _, _ := strings.Cut(e.Memo, ".")
			tx, ok := byID[id]
			if seen[id]++; !ok || e.Amount != f.amount(tx) || seen[id] > 1 {
				t.Fatalf("event %+v: of transfer %+v, for the %d. time; want once, with %d", e, tx, seen[id], f.amount(tx))
			}
			if tx.Position <= last[tx.Queue] {
				t.Errorf("queue %s: position %d is on the ledger after %d", tx.Queue, tx.Position, last[tx.Queue])
			}
			last[tx.Queue] = tx.Position
			received[e.To] += e.Amount
		}
		if cursor = page.NextCursor; !page.HasMore {
			break
		}
	}
	if len(seen) != f.total {
		t.Errorf("%d transfers are on the ledger, want %d", len(seen), f.total)
	}
	var sum, spent, nonces uint64
	for to, amount := range received {
		a, err := f.chain.Account(ctx, devnet.Address(to))
		if err != nil || a.Balance != amount {
			t.Errorf("%s has %d and received %d (%v)", to, a.Balance, amount, err)
		}
		sum += amount
	}
	for _, s := range f.senders {
		a, err := f.chain.Account(ctx, s)
		if err != nil || a.Pool != 0 {
			t.Errorf("sender %+v, %v: want nothing left in the pool", a, err)
		}
		spent, nonces = spent+1_000_000_000-a.Balance, nonces+a.Nonce
	}
	h, err := f.chain.Health(ctx)
	if err != nil || spent != sum+h.Sink || nonces < uint64(f.total) {
		t.Errorf("senders spent %d with %d nonces, receivers got %d, fees are %d (%v)", spent, nonces, sum, h.Sink, err)
	}
	t.Logf("%d retries, %d nonces, %d reorgs, height %d", retries, nonces, h.Reorgs, h.Height)
}
