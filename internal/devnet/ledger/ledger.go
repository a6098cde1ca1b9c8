package ledger

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/devnet/journal"
)

// Config of a ledger.
type Config struct {
	Data       string        // directory of the journal; "": nothing survives
	BlockEvery time.Duration // 0: no block but by Block
	Seed       uint64        // of chances
	Faults     devnet.Faults // to begin with
	Log        *slog.Logger  // nil: silent
	Now        func() time.Time
}

// Ledger is the whole devnet. It is safe for concurrent use. Close it at the end.
type Ledger struct {
	cfg     Config
	journal *journal.Journal

	mu     sync.Mutex
	chain  string
	state  *state
	blocks []*block // by height; the last is the head
	txs    map[string]*entry
	pool   pool
	events []devnet.Event // of final blocks
	final  int            // blocks whose events are in there
	faults devnet.Faults
	chance *mrand.Rand
	forks  int   // reorgs that there ever were
	since  int   // blocks since the last reorg of faults.ReorgEvery
	broken error // memory and journal may differ: nothing is answered any more
}

// Open makes a ledger, or makes the one in the data directory again.
func Open(cfg Config) (*Ledger, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	l := &Ledger{cfg: cfg, journal: journal.Memory(), state: newState(), txs: map[string]*entry{}, pool: pool{},
		faults: cfg.Faults, chance: mrand.New(mrand.NewPCG(cfg.Seed, cfg.Seed))}
	if err := check(cfg.Faults); err != nil {
		return nil, err
	}
	if cfg.Data != "" {
		path := filepath.Join(cfg.Data, "ledger.journal")
		err := fold(path)
		if err == nil {
			l.journal, err = journal.Open(path, l.replay)
		}
		if err != nil {
			return nil, err
		}
	}
	if l.chain == "" {
		id := make([]byte, 8)
		rand.Read(id)
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := l.commit(record{Op: opGenesis, Chain: hex.EncodeToString(id), Time: cfg.Now().UTC()}); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Run makes blocks until ctx ends. An error says that the journal can no longer be written.
func (l *Ledger) Run(ctx context.Context) error {
	if l.cfg.BlockEvery <= 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(l.cfg.BlockEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := l.tick(); err != nil {
				return fmt.Errorf("make a block: %w", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// tick makes a block, and now and then a reorg, as the faults want it.
func (l *Ledger) tick() error {
	f := l.Faults()
	if f.Halt {
		return nil
	}
	if _, err := l.Block(); err != nil {
		return err
	}
	l.mu.Lock()
	l.since++
	due := f.ReorgEvery > 0 && l.since >= f.ReorgEvery && len(l.blocks) > devnet.FinalDepth
	depth := f.ReorgDepth
	if due {
		l.since = 0
		if depth == 0 {
			depth = 1 + l.chance.IntN(devnet.FinalDepth-1)
		}
	}
	l.mu.Unlock()
	if due {
		_, err := l.Reorg(depth, nil)
		return err
	}
	return nil
}

// Close ends the ledger; its directory may be opened again.
func (l *Ledger) Close() error { return l.journal.Close() }

// commit writes a decision and carries it out, both durably. The lock is held.
func (l *Ledger) commit(r record) error {
	upTo, err := l.write(r)
	if err == nil {
		err = l.settle(upTo)
	}
	return err
}

// write writes a decision and carries it out; settle makes it durable. The lock is held.
func (l *Ledger) write(r record) (upTo int64, err error) {
	if l.broken != nil {
		return 0, l.broken
	}
	if upTo, err = l.journal.Append(r); err == nil {
		err = l.carryOut(r)
	}
	if err != nil {
		l.broken = fmt.Errorf("the ledger is broken and wants a restart: %w", err)
	}
	return upTo, l.broken
}

// settle waits until a decision is durable. It takes no lock, so that many can wait for one fsync.
func (l *Ledger) settle(upTo int64) error {
	if err := l.journal.Sync(upTo); err != nil {
		return fmt.Errorf("the ledger is broken and wants a restart: %w", err)
	}
	return nil
}
