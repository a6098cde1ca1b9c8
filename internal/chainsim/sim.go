package chainsim

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// Config of a simulated chain.
type Config struct {
	BlockEvery time.Duration // 0: no block but by Block
	Seed       uint64        // hashes and chances follow from it
	Log        *slog.Logger  // nil: silent
}

// Sim is a chain and the worker in front of it. It is safe for concurrent use.
type Sim struct {
	cfg Config
	log *slog.Logger

	mu       sync.Mutex
	height   int64
	names    []string // of accounts, sorted
	accounts map[string]*account
	byHash   map[string]*tx
	byToken  map[string]*said
	count    map[string]*counts // by transaction
	fences   map[string]int64   // by queue
	executed map[string]int     // by transaction: attempts that went into the pool
	included map[string]int     // by transaction: attempts that did well in a block
	hooks    map[string]int     // by token: deliveries
}

// said is what was answered to a token, to be answered again.
type said struct {
	answer map[string]any
	tx     *tx    // nil if it was refused with an error
	reason string // of the error
}

// counts are how often something was done to one transaction.
type counts struct {
	failedDispatch, failedInBlock, vanished, unavailable, lost int
}

// New makes a chain of height 1 with empty accounts.
func New(cfg Config) *Sim {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Sim{
		cfg: cfg, log: cfg.Log, height: 1,
		accounts: map[string]*account{}, byHash: map[string]*tx{}, byToken: map[string]*said{}, count: map[string]*counts{},
		fences: map[string]int64{}, executed: map[string]int{}, included: map[string]int{}, hooks: map[string]int{},
	}
}

// Run makes blocks until ctx ends.
func (s *Sim) Run(ctx context.Context) error {
	if s.cfg.BlockEvery <= 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(s.cfg.BlockEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.Block()
		case <-ctx.Done():
			return nil
		}
	}
}

// Stats is what happened so far. The keys are ids of transactions, those of Hooks tokens.
type Stats struct {
	Height   int64
	Executed map[string]int // attempts that went into the pool
	Included map[string]int // attempts that did well in a block: more than 1 would be a double spend
	Hooks    map[string]int // deliveries
}

// Stats copies what happened so far.
func (s *Sim) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Height: s.height, Executed: maps.Clone(s.executed), Included: maps.Clone(s.included), Hooks: maps.Clone(s.hooks)}
}

// counts of one transaction. The lock is held.
func (s *Sim) counts(id string) *counts {
	n := s.count[id]
	if n == nil {
		n = &counts{}
		s.count[id] = n
	}
	return n
}
