package ledger

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/postern-dev/postern/internal/devnet"
)

// model is what a ledger without reorgs would have done: grants and blocks, in their order.
type model struct {
	l    *Ledger
	data string
	past []happened
}

// happened is a grant or a block.
type happened struct {
	to     devnet.Address
	amount uint64
	txs    []devnet.Tx // of a block
	block  bool
}

func (m *model) open(t *rapid.T) {
	l, err := Open(Config{Data: m.data, Seed: 7})
	must(t, err)
	m.l = l
}

func (m *model) Grant(t *rapid.T) {
	to, amount := address(rapid.IntRange(0, len(keys)-1).Draw(t, "to")), rapid.Uint64Range(1, 300).Draw(t, "amount")
	_, err := m.l.Grant(to, amount)
	must(t, err)
	m.past = append(m.past, happened{to: to, amount: amount})
}

func (m *model) Submit(t *rapid.T) {
	from := rapid.IntRange(0, len(keys)-1).Draw(t, "from")
	a, _ := m.l.Account(address(from))
	nonce := a.NextNonce
	if back := rapid.Uint64Range(0, 3).Draw(t, "back"); back <= nonce {
		nonce -= back // used, or in the pool: to be replaced
	}
	if rapid.IntRange(0, 9).Draw(t, "gap") == 0 {
		nonce += 2
	}
	s := sign(m.l, from, nonce, rapid.Uint64Range(1, 20).Draw(t, "fee"), func(tx *devnet.Tx) {
		tx.Calls = nil
		for range rapid.IntRange(0, 3).Draw(t, "calls") {
			c := devnet.Call{Amount: rapid.Uint64Range(0, 60).Draw(t, "amount"), To: "app"}
			methods := []string{"", "vote", "create", "require", "revert"}
			switch c.Method = rapid.SampledFrom(methods).Draw(t, "method"); c.Method {
			case "":
				c.To = string(address(rapid.IntRange(0, len(keys)-1).Draw(t, "to")))
			case "create", "require":
				c.To = rapid.SampledFrom([]string{"app", "b", "c"}).Draw(t, "app")
			}
			tx.Calls = append(tx.Calls, c)
		}
		if rapid.IntRange(0, 5).Draw(t, "fated") == 0 {
			tx.Fate = &devnet.Fate{After: rapid.IntRange(0, 3).Draw(t, "after"), Vanish: rapid.Bool().Draw(t, "vanish")}
		}
	})
	_, _, _ = m.l.Submit(s) // refusals are a part of life
}

func (m *model) Block(t *rapid.T) {
	_, err := m.l.Block()
	must(t, err)
	h := happened{block: true}
	for _, e := range m.l.head().txs {
		h.txs = append(h.txs, e.tx)
	}
	m.past = append(m.past, h)
}

// Reorg takes blocks out. Their transactions never happened, and blocks without any stand in their place.
func (m *model) Reorg(t *rapid.T) {
	depth := rapid.IntRange(1, 2).Draw(t, "depth")
	if len(m.l.blocks) <= depth {
		t.Skip("too short")
	}
	var lose []string
	for _, b := range m.l.blocks[len(m.l.blocks)-depth:] {
		for _, e := range b.txs {
			if rapid.Bool().Draw(t, "lose") {
				lose = append(lose, e.hash)
			}
		}
	}
	_, err := m.l.Reorg(depth, lose)
	must(t, err)
	for i, left := len(m.past)-1, depth; left > 0 && i >= 0; i-- {
		if m.past[i].block {
			m.past[i].txs = nil
			left--
		}
	}
}

// Restart opens the journal again: the same state, chain, pool and log.
func (m *model) Restart(t *rapid.T) {
	was := m.l
	must(t, was.Close())
	m.open(t)
	is := m.l
	if was.Health() != is.Health() || was.head().hash != is.head().hash || len(was.events) != len(is.events) || was.final != is.final {
		t.Fatalf("before the restart %+v, after it %+v", was.Health(), is.Health())
	}
	for hash := range was.txs {
		if a, b := was.known(hash), is.known(hash); a != b {
			t.Fatalf("before the restart %+v, after it %+v", a, b)
		}
	}
}

func (m *model) Check(t *rapid.T) {
	var sum uint64
	for _, a := range m.l.state.accounts {
		sum += a.balance()
	}
	for _, a := range m.l.state.apps {
		sum += a.balance
	}
	if sum += m.l.state.sink; sum != m.l.state.granted {
		t.Fatalf("there is money for %d and %d was granted", sum, m.l.state.granted)
	}
	nonces, seen := map[devnet.Address]uint64{}, map[string]bool{}
	for _, b := range m.l.blocks {
		for _, e := range b.txs {
			if seen[e.hash] || e.tx.Nonce != nonces[e.tx.From] || e.height != b.height {
				t.Fatalf("block %d holds nonce %d of %s, the next is %d; seen before: %v", b.height, e.tx.Nonce, e.tx.From, nonces[e.tx.From], seen[e.hash])
			}
			seen[e.hash] = true
			nonces[e.tx.From]++
		}
	}
	for hash, e := range m.l.txs {
		pooled := m.l.pool[e.tx.From][e.tx.Nonce] == e
		if in := e.state == devnet.Included || e.state == devnet.Failed; in != seen[hash] || pooled != (e.state == devnet.Pending) || pooled && e.tx.Nonce < nonces[e.tx.From] {
			t.Fatalf("transaction %s is %s, in a block: %v, in the pool: %v", hash, e.state, seen[hash], pooled)
		}
	}
	never := newState()
	for _, h := range m.past {
		if !h.block {
			never.grant(h.to, h.amount)
		}
		for _, tx := range h.txs {
			never.execute(tx)
		}
	}
	if never.hash() != m.l.state.hash() {
		t.Fatal("what reorgs took out left something behind")
	}
	var log []devnet.Event
	for _, b := range m.l.blocks[:m.l.final] {
		for _, e := range b.txs {
			if e.state == devnet.Included {
				log = append(log, effects(e)...)
			}
		}
	}
	if !slices.EqualFunc(log, m.l.events, func(a, b devnet.Event) bool { return a.ID == b.ID && a.Checkpoint == b.Checkpoint }) {
		t.Fatalf("the event log holds %d events, the final blocks make %d", len(m.l.events), len(log))
	}
}

// No nonce is spent twice, no money is made or lost, a reorg is as if the blocks had never been, and a
// restart in the middle changes nothing.
func TestTheLedgerKeepsItsInvariants(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(root, "")
		must(t, err)
		m := &model{data: dir}
		m.open(t)
		defer func() { m.l.Close(); os.RemoveAll(dir) }()
		for i := range keys {
			_, err := m.l.Grant(address(i), 200)
			must(t, err)
			m.past = append(m.past, happened{to: address(i), amount: 200})
		}
		t.Repeat(map[string]func(*rapid.T){"": m.Check, "Grant": m.Grant, "Submit": m.Submit, "Submit more": m.Submit, "Submit most": m.Submit,
			"Block": m.Block, "Block more": m.Block, "Reorg": m.Reorg, "Restart": m.Restart})
	})
}

// A journal of many empty blocks is folded, and is the same ledger.
func TestFoldingKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	defer func(n int64) { foldFrom = n }(foldFrom)
	foldFrom = 1
	l, err := Open(Config{Data: dir})
	must(t, err)
	grant(t, l, 0, 1000)
	blocks(t, l, 30)
	submit(t, l, sign(l, 0, 0, 1))
	blocks(t, l, 30)
	_, err = l.Reorg(2, nil)
	must(t, err)
	blocks(t, l, 30)
	was := l.head().hash
	must(t, l.Close())
	size := func() int64 { i, err := os.Stat(filepath.Join(dir, "ledger.journal")); must(t, err); return i.Size() }
	before := size()
	again, err := Open(Config{Data: dir})
	must(t, err)
	defer again.Close()
	if after := size(); again.Health() != l.Health() || again.head().hash != was || after > before/4 {
		t.Errorf("folded from %d to %d bytes: was %+v, is %+v", before, after, l.Health(), again.Health())
	}
}
