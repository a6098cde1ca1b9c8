package ledger

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/postern-dev/postern/internal/devnet"
)

// Reorg takes the last one or two blocks out and puts as many without transactions in their place, as a longer chain
// would that appears late. The transactions of the blocks are pending again, but for those that lose names and those
// that the fault reorg_lose picks. An error is a *devnet.Refusal, or says that the ledger is broken.
func (l *Ledger) Reorg(depth int, lose []string) (devnet.Reorged, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.broken != nil:
		return devnet.Reorged{}, l.broken
	case depth < 1 || depth >= devnet.FinalDepth:
		return devnet.Reorged{}, refuse(http.StatusUnprocessableEntity, devnet.CodeInvalid,
			"depth is %d: want 1 to %d, what lies deeper is final", depth, devnet.FinalDepth-1)
	case depth >= len(l.blocks):
		return devnet.Reorged{}, refuse(http.StatusConflict, devnet.CodeInvalid,
			"depth is %d and there are %d blocks: the first one stays", depth, len(l.blocks))
	}
	r := record{Op: opReorg, Depth: depth, Time: l.cfg.Now().UTC(), Drops: map[string]string{}}
	out := devnet.Reorged{Height: uint64(len(l.blocks) - depth), Returned: []string{}, Lost: []string{}}
	for _, b := range l.blocks[len(l.blocks)-depth:] {
		for _, e := range b.txs {
			if slices.Contains(lose, e.hash) || l.faults.ReorgLose > 0 && l.chance.Float64() < l.faults.ReorgLose {
				r.Drops[e.hash] = "lost in a reorg"
				out.Lost = append(out.Lost, e.hash)
			} else {
				out.Returned = append(out.Returned, e.hash)
			}
		}
	}
	if err := l.commit(r); err != nil {
		return devnet.Reorged{}, err
	}
	l.cfg.Log.Debug("reorg", "height", out.Height, "depth", depth, "returned", len(out.Returned), "lost", len(out.Lost))
	return out, nil
}

// unwind does the reorg of a record. The lock is held.
func (l *Ledger) unwind(r record) error {
	if r.Depth < 1 || r.Depth >= devnet.FinalDepth || r.Depth >= len(l.blocks) {
		return fmt.Errorf("a reorg of depth %d at height %d", r.Depth, l.head().height)
	}
	for range r.Depth {
		b := l.head()
		l.blocks = l.blocks[:len(l.blocks)-1]
		l.state.back(b.undo)
		for _, e := range b.txs {
			e.state, e.height, e.reason = devnet.Pending, 0, ""
			if reason := r.Drops[e.hash]; reason != "" {
				l.drop(e, reason, "")
			} else {
				l.pool.put(e)
			}
		}
	}
	l.forks++
	for range r.Depth {
		l.push(&block{time: r.Time})
	}
	return nil
}
