package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"github.com/postern-dev/postern/api/worker"
)

// bank stands for whatever a worker works with. It pays once per reference, and remembers its payments; a
// real one does so also when this process restarts.
type bank struct {
	mu    sync.Mutex
	paid  map[string]payment // by the hash of the reference
	total int64
}

// pay pays, unless it has, and returns what to ask after the payment by.
func (b *bank) pay(reference string, p payment) (hash string) {
	sum := sha256.Sum256([]byte(reference))
	hash = hex.EncodeToString(sum[:])
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, done := b.paid[hash]; !done {
		if b.paid == nil {
			b.paid = map[string]payment{}
		}
		b.paid[hash] = p
		b.total += p.Cents
	}
	return hash
}

// status answers what became of a payment. It is asked by token only for those that began and never ended;
// the bank knows none by token, so they come again, and pay is safe to call again.
func (b *bank) status(_ context.Context, q worker.Question) (worker.Status, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p, ok := b.paid[q.Hash]; ok {
		return worker.Finished(p), nil // a bank has no blocks
	}
	return worker.Unknown(), nil
}
