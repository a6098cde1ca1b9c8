package coordtest

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/coord"
)

const (
	blockTime = 500 * time.Millisecond
	finality  = 3
)

// Ledger is one chain that all nodes see. It takes a public transaction once for each uid.
type Ledger struct {
	w      *World
	height int
	txs    map[string]*ledgerTx
	order  []*ledgerTx // in the order of their arrival
	serial int
	spent  map[string]bool
}

type ledgerTx struct {
	uid, id         string
	inputs, outputs []string
	block           int // 0: not included
	place           int // its place among all inclusions
	ok, retry       bool
	reason          string
}

// send hands a public transaction to the ledger. One that is known stays what it is.
func (l *Ledger) send(p coord.Post) {
	if l.txs[p.UID] != nil {
		return
	}
	tx := &ledgerTx{uid: p.UID, id: p.ID, inputs: p.Inputs, outputs: p.Outputs}
	l.txs[p.UID] = tx
	l.order = append(l.order, tx)
}

func (l *Ledger) final(tx *ledgerTx) bool { return tx.block > 0 && l.height-tx.block >= finality }

// busy says whether a quiet ledger has something to do.
func (l *Ledger) busy() bool {
	return slices.ContainsFunc(l.order, func(tx *ledgerTx) bool { return !l.final(tx) })
}

// tick makes a block, and lets the cores look.
func (l *Ledger) tick() {
	l.w.after(blockTime, l.tick)
	if !l.w.Plan.Quiet || l.busy() {
		l.block()
	}
	for _, n := range l.w.nodes {
		n.look()
	}
}

func (l *Ledger) block() {
	if l.w.Plan.Reorgs && !l.w.whole && l.w.chance(0.05) {
		l.reorg(1 + l.w.rng.IntN(finality-1))
	}
	l.height++
	l.w.moving = l.w.now
	for _, tx := range l.order {
		if tx.block == 0 && l.w.chance(0.6) {
			l.include(tx)
		}
	}
}

// include carries a public transaction out. A ledger with a guard refuses the second one of an intent.
func (l *Ledger) include(tx *ledgerTx) {
	l.serial++
	tx.block, tx.place, tx.ok, tx.reason, tx.retry = l.height, l.serial, false, "", true
	switch {
	case l.w.Plan.Settings.Once == coord.Ledger && l.has(tx.id, false):
		tx.reason = "exists"
	case slices.ContainsFunc(tx.inputs, func(in string) bool { return l.spent[in] }):
		tx.reason = "an input is spent"
	case hash("revert", tx.uid)%10 == 0:
		tx.reason, tx.retry = "reverted", hash("retry", tx.uid)%3 > 0
	default:
		tx.ok = true
		for _, in := range tx.inputs {
			l.spent[in] = true
		}
	}
	l.w.tell("ledger: block %d has %s: %v %s", l.height, tx.uid, tx.ok, tx.reason)
}

// reorg takes the last blocks away: their transactions are to be included again.
func (l *Ledger) reorg(depth int) {
	l.w.tell("ledger: a reorg of %d", depth)
	for _, tx := range l.order {
		if tx.block == 0 || l.height-tx.block >= depth {
			continue
		}
		if tx.ok {
			for _, in := range tx.inputs {
				delete(l.spent, in)
			}
		}
		tx.block, tx.ok = 0, false
	}
}

// has says whether an intent has succeeded, finally or at all.
func (l *Ledger) has(id string, finally bool) bool {
	return slices.ContainsFunc(l.order, func(tx *ledgerTx) bool {
		return tx.id == id && tx.block > 0 && tx.ok && (!finally || l.final(tx))
	})
}

// pool says whether something of an intent may still land.
func (l *Ledger) pool(id string) bool {
	return slices.ContainsFunc(l.order, func(tx *ledgerTx) bool { return tx.id == id && !l.final(tx) })
}

// states lists the outputs that the ledger has for good, and that are not spent.
func (l *Ledger) states() (ids []string) {
	for _, tx := range l.order {
		if tx.ok && l.final(tx) {
			for _, o := range tx.outputs {
				if !l.spent[o] {
					ids = append(ids, o)
				}
			}
		}
	}
	return ids
}
