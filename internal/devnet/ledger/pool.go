package ledger

import (
	"fmt"

	"github.com/postern-dev/postern/internal/devnet"
)

// poolMost is how many transactions the pool takes, nonceMost how far above its account's a nonce may be.
const (
	poolMost  = 20_000
	nonceMost = 64
)

// entry is a transaction that the ledger has seen, wherever it is now.
type entry struct {
	hash       string
	tx         devnet.Tx
	state      devnet.State // Pending, Included, Failed or Dropped
	due        uint64       // the first height that may take it
	height     uint64       // of its block
	reason     string
	replacedBy string
}

// pool is what is pending, by account and nonce.
type pool map[devnet.Address]map[uint64]*entry

func (p pool) put(e *entry) {
	of := p[e.tx.From]
	if of == nil {
		of = map[uint64]*entry{}
		p[e.tx.From] = of
	}
	of[e.tx.Nonce] = e
}

// take takes e out, if it is the one in its place.
func (p pool) take(e *entry) {
	if of := p[e.tx.From]; of[e.tx.Nonce] == e {
		if delete(of, e.tx.Nonce); len(of) == 0 {
			delete(p, e.tx.From)
		}
	}
}

func (p pool) len() (n int) {
	for _, of := range p {
		n += len(of)
	}
	return n
}

// next is the first nonce of an account that neither a block nor the pool uses.
func (l *Ledger) next(a devnet.Address) uint64 {
	n := l.state.accounts[a].nonce
	for l.pool[a][n] != nil {
		n++
	}
	return n
}

// drop takes a transaction out of the pool for good, unless somebody sends it again.
func (l *Ledger) drop(e *entry, reason, by string) {
	l.pool.take(e)
	e.state, e.height, e.reason, e.replacedBy = devnet.Dropped, 0, reason, by
}

// admit puts a transaction into the pool, in place of one with its nonce. That it may go there was decided
// by refuse before it was written. The lock is held.
func (l *Ledger) admit(s devnet.Signed) error {
	tx, err := s.Open()
	if err != nil {
		return err
	}
	hash := s.Hash()
	if old := l.pool[tx.From][tx.Nonce]; old != nil {
		l.drop(old, "replaced by one with a higher fee", hash)
	}
	e := l.txs[hash]
	if e == nil {
		e = &entry{hash: hash, tx: tx}
		l.txs[hash] = e
	} else if e.state != devnet.Dropped {
		return fmt.Errorf("transaction %s is %s and came again", hash, e.state)
	}
	e.state, e.reason, e.replacedBy, e.due = devnet.Pending, "", "", l.head().height+1
	if tx.Fate != nil && tx.Fate.After > 1 {
		e.due += uint64(tx.Fate.After) - 1
	}
	l.pool.put(e)
	return nil
}
