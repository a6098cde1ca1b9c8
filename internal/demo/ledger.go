package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/outbox"
)

// Ledger is what the devnet says of a run, read back from it.
type Ledger struct {
	Calls     int    `json:"calls"`     // of apps by samples, in final blocks
	Apps      int    `json:"apps"`      // that they called
	Transfers int    `json:"transfers"` // that are DONE
	Moved     int64  `json:"moved"`     // by them in all
	Balanced  bool   `json:"balanced"`  // each account received the amounts of its transfers that are DONE
	Fees      string `json:"fees"`
	Height    uint64 `json:"height"`
	Reorgs    int    `json:"reorgs"`
	Landed    int    `json:"landed"`  // in blocks, of those that call apps, failed ones included
	Dropped   int    `json:"dropped"` // samples that had the devnet drop them from its pool, and were sent again
}

// reorg takes the last block out once a third of the samples has ended: its transactions go back into the pool, and are
// not included any more (S2.11). With confirmations 2 no sample ends differently.
func (r *run) reorg(ctx context.Context) error {
	ended := 0
	for _, l := range r.byUID {
		if l.tx.State.Terminal() {
			ended++
		}
	}
	if r.reorged || ended < len(r.byUID)/3 {
		return nil
	}
	r.reorged = true
	out, err := r.ledger.Reorg(ctx, 1)
	if err != nil {
		return fmt.Errorf("have the devnet reorg: %w", err)
	}
	if !r.Redraw {
		fmt.Fprintf(r.Out, "        the devnet took block %d out again: what it held is pending once more (%d)\n", out.Height, len(out.Returned))
	}
	return nil
}

// readBack compares the ends of the samples with the ledger: each DONE sample is on it once, nothing else is on it,
// each app was called as often as the outcomes say, and each account received as much. It waits for the blocks that
// make that final.
func (r *run) readBack(ctx context.Context) (*Ledger, []Difference, error) {
	head, err := r.ledger.Health(ctx)
	if err != nil {
		return nil, nil, err
	}
	tick := time.NewTicker(BlockEvery / 4)
	defer tick.Stop()
	for h := head; h.Height < head.Height+devnet.FinalDepth-1; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		if h, err = r.ledger.Health(ctx); err != nil {
			return nil, nil, err
		}
	}
	times, err := r.times(ctx)
	if err != nil {
		return nil, nil, err
	}
	if head, err = r.ledger.Health(ctx); err != nil {
		return nil, nil, err
	}
	out := &Ledger{Fees: fmt.Sprint(head.Sink), Height: head.Height, Reorgs: head.Reorgs}
	var differ []Difference
	apps := map[string]uint64{}
	for _, uid := range r.order {
		l := r.byUID[uid]
		t, want := l.tx, 0
		if t.State == outbox.DONE {
			want = 1
		}
		e := times[t.ID]
		if e.n != want {
			differ = append(differ, Difference{uid, fmt.Sprintf("is %s and %d times on the ledger, want %d", t.State, e.n, want)})
		}
		if e.app != "" {
			apps[e.app] += uint64(want)
			out.Calls += e.n
		}
		if l.sample.dropped() && t.Retries > 0 {
			out.Dropped++
		}
	}
	for name, want := range apps {
		if a, err := r.ledger.App(ctx, name); err != nil || a.Calls != want {
			differ = append(differ, Difference{name, fmt.Sprintf("was called %d times, the outcomes say %d (%v)", a.Calls, want, err)})
		}
	}
	out.Apps = len(apps)
	beside, err := r.onePerBlock(ctx, out)
	if err != nil {
		return nil, nil, err
	}
	differ = append(differ, beside...)
	unpaid, err := r.received(ctx, out)
	out.Balanced = err == nil && len(unpaid) == 0
	return out, append(differ, unpaid...), err
}

// onePerBlock finds blocks of the run that have two transactions of one app (S2.20), whatever came of them: those that
// failed in their block are none of the event log, so that it reads the blocks.
func (r *run) onePerBlock(ctx context.Context, out *Ledger) (differ []Difference, err error) {
	apps := map[string]string{}
	for _, l := range r.byUID {
		apps[l.tx.ID] = l.sample.app()
	}
	for height := r.from + 1; height <= out.Height; height++ {
		block, err := r.ledger.Block(ctx, &height)
		if err != nil {
			return nil, err
		}
		if len(block.Transactions) == 0 {
			continue
		}
		landed, err := r.ledger.Statuses(ctx, block.Transactions)
		if err != nil {
			return nil, err
		}
		seen := map[string]string{}
		for _, l := range landed {
			id, _, _ := strings.Cut(l.Memo, ".")
			app := apps[id]
			if app == "" {
				continue
			}
			out.Landed++
			if other := seen[app]; other != "" {
				how := fmt.Sprintf("has two transactions in block %d: %s and %s", height, other, id)
				differ = append(differ, Difference{app, how})
			}
			seen[app] = id
		}
	}
	return differ, nil
}

// onLedger is how often a transaction is on the ledger, and which app it called, "" for a transfer.
type onLedger struct {
	n   int
	app string
}

// times reads the whole event log: what each transaction did, by its id, which the worker puts into the
// memo with the number of the attempt.
func (r *run) times(ctx context.Context) (map[string]onLedger, error) {
	all := map[string]onLedger{}
	for cursor := ""; ; {
		page, err := r.ledger.Events(ctx, cursor, 1000)
		if err != nil {
			return nil, err
		}
		for i, e := range page.Events {
			if i == 0 && cursor != "" {
				continue // the cursor is inclusive
			}
			id, _, _ := strings.Cut(e.Memo, ".")
			app := e.To
			if devnet.IsAddress(app) {
				app = ""
			}
			all[id] = onLedger{all[id].n + 1, app}
		}
		if cursor = page.NextCursor; !page.HasMore {
			return all, nil
		}
	}
}
