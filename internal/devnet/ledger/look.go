package ledger

import (
	"net/http"

	"github.com/postern-dev/postern/internal/devnet"
)

// known says what is known of a hash. The lock is held.
func (l *Ledger) known(hash string) devnet.Status {
	e := l.txs[hash]
	if e == nil {
		return devnet.Status{Hash: hash, State: devnet.Unknown}
	}
	st := devnet.Status{Hash: hash, State: e.state, From: e.tx.From, Nonce: e.tx.Nonce, Fee: e.tx.Fee, Memo: e.tx.Memo,
		Height: e.height, Reason: e.reason, ReplacedBy: e.replacedBy}
	if e.state == devnet.Included || e.state == devnet.Failed {
		st.Confirmations = l.depth(e.height)
	}
	return st
}

// depth is how many confirmations a block of that height has.
func (l *Ledger) depth(height uint64) uint64 { return uint64(len(l.blocks)) - height }

// Statuses says what is known of some transactions, in their order.
func (l *Ledger) Statuses(hashes []string) []devnet.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]devnet.Status, len(hashes))
	for i, h := range hashes {
		out[i] = l.known(h)
	}
	return out
}

// Account says what is known of an account; false if it never got any money.
func (l *Ledger) Account(a devnet.Address) (devnet.Account, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.account(a)
}

func (l *Ledger) account(a devnet.Address) (devnet.Account, bool) {
	now, ok := l.state.accounts[a]
	out := devnet.Account{Address: a, Balance: now.balance(), Nonce: now.nonce, FinalNonce: now.nonce, NextNonce: l.next(a), Pool: len(l.pool[a])}
	for _, b := range l.blocks[max(0, len(l.blocks)-devnet.FinalDepth+1):] { // these may yet be taken out
		for _, e := range b.txs {
			if e.tx.From == a {
				out.FinalNonce = min(out.FinalNonce, e.tx.Nonce)
			}
		}
	}
	return out, ok
}

// App says what is known of an app; false if it was never called.
func (l *Ledger) App(name string) (devnet.App, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, ok := l.state.apps[name]
	return devnet.App{Name: name, Calls: now.calls, Balance: now.balance, Root: now.root}, ok
}

// BlockAt returns the block of a height, or the head; false if there is none.
func (l *Ledger) BlockAt(height uint64, head bool) (devnet.Block, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if head {
		return l.shown(l.head()), true
	}
	if height >= uint64(len(l.blocks)) {
		return devnet.Block{}, false
	}
	return l.shown(l.blocks[height]), true
}

func (l *Ledger) shown(b *block) devnet.Block {
	out := devnet.Block{Height: b.height, Hash: b.hash, Parent: b.parent, Time: b.time, Transactions: []string{}, Confirmations: l.depth(b.height)}
	out.Final = out.Confirmations >= devnet.FinalDepth
	for _, e := range b.txs {
		out.Transactions = append(out.Transactions, e.hash)
	}
	return out
}

// Health says how the ledger stands.
func (l *Ledger) Health() devnet.Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	return devnet.Health{OK: l.broken == nil, Chain: l.chain, Height: l.head().height, Pool: l.pool.len(), Reorgs: l.forks,
		Granted: l.state.granted, Sink: l.state.sink, StateHash: l.state.hash()}
}

// Grant gives money to an account, at once and for good. An error is a *devnet.Refusal, or that the ledger
// is broken.
func (l *Ledger) Grant(a devnet.Address, amount uint64) (devnet.Account, error) {
	if !devnet.IsAddress(string(a)) {
		return devnet.Account{}, refuse(http.StatusUnprocessableEntity, devnet.CodeInvalid, "address is %.80q: want dn and 64 hexadecimal digits", string(a))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := devnet.MaxAmount - l.state.granted; amount < 1 || amount > left {
		return devnet.Account{}, refuse(http.StatusUnprocessableEntity, devnet.CodeInvalid, "amount is %d: want 1 to %d, which is what the faucet has left", amount, left)
	}
	if err := l.commit(record{Op: opGrant, To: a, Amount: amount}); err != nil {
		return devnet.Account{}, err
	}
	out, _ := l.account(a)
	return out, nil
}
