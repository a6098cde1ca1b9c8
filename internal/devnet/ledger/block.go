package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
)

// blockMost is how many transactions a block takes.
const blockMost = 5000

// block is one block of the canonical chain.
type block struct {
	height       uint64
	hash, parent string
	time         time.Time
	fork         int // how many reorgs there were before it: it makes the hash another one
	txs          []*entry
	events       []devnet.Event
	undo         []step // until it is final
}

func (l *Ledger) head() *block { return l.blocks[len(l.blocks)-1] }

// push puts a block on the chain: its height, hash and parent follow from where it stands. The events of
// what becomes final with it go to the log.
func (l *Ledger) push(b *block) {
	b.height, b.fork = uint64(len(l.blocks)), l.forks
	if b.height > 0 {
		b.parent = l.head().hash
	}
	h := sha256.New()
	fmt.Fprintln(h, l.chain, b.height, b.parent, b.fork) // not the time: fold does not keep it for empty blocks
	for _, e := range b.txs {
		fmt.Fprintln(h, e.hash, e.reason)
	}
	b.hash = hex.EncodeToString(h.Sum(nil))
	l.blocks = append(l.blocks, b)
	for ; l.final+devnet.FinalDepth <= len(l.blocks); l.final++ {
		f := l.blocks[l.final]
		l.events = append(l.events, f.events...)
		f.events, f.undo = nil, nil
	}
}

// Block makes one block of the transactions that are due. A transaction leaves the pool if it wants to vanish, if
// chance drops it, or if it can no longer pay its fee.
func (l *Ledger) Block() (devnet.Block, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return devnet.Block{}, l.broken
	}
	r := record{Op: opBlock, Height: l.head().height + 1, Time: l.cfg.Now().UTC(), Drops: map[string]string{}}
	for _, a := range slices.Sorted(maps.Keys(l.pool)) {
		l.choose(&r, a)
	}
	if err := l.commit(r); err != nil {
		return devnet.Block{}, err
	}
	if len(r.Takes)+len(r.Drops) > 0 {
		l.cfg.Log.Debug("block", "height", r.Height, "takes", len(r.Takes), "drops", len(r.Drops))
	}
	return l.shown(l.head()), nil
}

// choose adds to a block what it takes and drops of one account. It draws chances but changes nothing.
func (l *Ledger) choose(r *record, a devnet.Address) {
	of := l.pool[a]
	for _, nonce := range slices.Sorted(maps.Keys(of)) {
		e := of[nonce]
		switch fate := e.tx.Fate; {
		case fate != nil && fate.Vanish:
			r.Drops[e.hash] = "vanished, as it wished"
		case l.faults.Drop > 0 && l.chance.Float64() < l.faults.Drop:
			r.Drops[e.hash] = "dropped by a fault"
		}
	}
	now := l.state.accounts[a]
	left := now.balance()
	for nonce := now.nonce; len(r.Takes) < blockMost; nonce++ {
		e := of[nonce]
		if e == nil || r.Drops[e.hash] != "" || e.due > r.Height || e.tx.Fate != nil && e.tx.Fate.Never {
			return
		}
		if left < e.tx.Fee { // money that others send in this block may come too late
			if nonce == now.nonce {
				r.Drops[e.hash] = "the account cannot pay the fee"
			}
			return
		}
		r.Takes = append(r.Takes, e.hash)
		left -= min(left, e.tx.Cost())
	}
}

// include makes the block of a record. The lock is held.
func (l *Ledger) include(r record) error {
	if r.Height != l.head().height+1 {
		return fmt.Errorf("block %d follows block %d", r.Height, l.head().height)
	}
	for _, hash := range slices.Sorted(maps.Keys(r.Drops)) {
		e := l.txs[hash]
		if e == nil || e.state != devnet.Pending {
			return fmt.Errorf("block %d drops %s, which is not pending", r.Height, hash)
		}
		l.drop(e, r.Drops[hash], "")
	}
	b := &block{time: r.Time}
	for _, hash := range r.Takes {
		e := l.txs[hash]
		if e == nil || e.state != devnet.Pending || !l.state.mayStand(e.tx) {
			return fmt.Errorf("block %d takes %s, which may not stand in it", r.Height, hash)
		}
		l.pool.take(e)
		e.state, e.height, e.reason = devnet.Included, r.Height, l.state.execute(e.tx)
		if e.reason != "" {
			e.state = devnet.Failed
		} else {
			b.events = append(b.events, effects(e)...)
		}
		b.txs = append(b.txs, e)
	}
	b.undo = l.state.take()
	l.push(b)
	return nil
}
