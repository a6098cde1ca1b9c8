package devnetworker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
)

// Config of a worker.
type Config struct {
	Ledger   string        // URL of the devnet
	Keys     string        // directory of the keystore
	Data     string        // directory of the journal
	FirstFee uint64        // where a dispatch names none; 0: 1,000
	Timeout  time.Duration // of one call to the ledger; 0: 5 s
	Auto     uint64        // for development: an account without key or money gets both, so much of it; 0: it does not
	Log      *slog.Logger  // nil: silent
}

// Worker is the worker of a devnet. It is safe for concurrent use. Close it at the end.
type Worker struct {
	cfg    Config
	log    *slog.Logger
	ledger *devnet.Client
	keys   Keystore
	memory *memory
	locks  locks

	mu     sync.Mutex
	chain  string         // of the ledger, as it was last asked
	counts map[string]int // of simulate
}

// Open makes a worker that remembers what the one before it did in the same data directory. The ledger
// need not be there yet.
func Open(cfg Config) (*Worker, error) {
	if cfg.FirstFee == 0 {
		cfg.FirstFee = 1000
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return nil, err
	}
	m, err := recall(cfg.Data, time.Now())
	if err != nil {
		return nil, err
	}
	return &Worker{cfg: cfg, log: cfg.Log, ledger: devnet.NewClient(cfg.Ledger, cfg.Timeout), keys: Keystore{cfg.Keys},
		memory: m, counts: map[string]int{}}, nil
}

// Close ends the worker. Its memory is on the disk.
func (w *Worker) Close() error {
	w.ledger.Close()
	return w.memory.journal.Close()
}

// onChain returns the id of the ledger's chain, asked once, and again after forget.
func (w *Worker) onChain(ctx context.Context) (string, error) {
	w.mu.Lock()
	chain := w.chain
	w.mu.Unlock()
	if chain != "" {
		return chain, nil
	}
	var h devnet.Health
	_, err := patient(ctx, func() (err error) { h, err = w.ledger.Health(ctx); return err })
	if err != nil {
		return "", err
	}
	w.setChain(h.Chain)
	return h.Chain, nil
}

func (w *Worker) setChain(id string) {
	w.mu.Lock()
	w.chain = id
	w.mu.Unlock()
}

// account asks after an account, and in development gives it its first money.
func (w *Worker) account(ctx context.Context, a devnet.Address) (devnet.Account, error) {
	var out devnet.Account
	_, err := patient(ctx, func() (err error) { out, err = w.ledger.Account(ctx, a); return err })
	if refused(err) == devnet.CodeNoAccount && w.cfg.Auto > 0 {
		return w.ledger.Faucet(ctx, a, w.cfg.Auto)
	}
	return out, err
}

// refused is the code with which the ledger refused something, "" if it did not.
func refused(err error) string {
	var r *devnet.Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}
