package work

import (
	"context"
	"sync"
)

// firsts is whether the systems have done what comes before all claims, under which number of the quarantine.
type firsts struct {
	mu    sync.Mutex
	done  bool
	under int64
}

// first has the systems do what comes before all claims: at the start of this process, and once a quarantine is over.
// Nothing is claimed, and no timer taken, until that has succeeded.
func (e *Engine) first(ctx context.Context) error {
	q := e.Store.QuarantineView()
	if q.Whole() { // nothing is claimed
		return nil
	}
	f := &e.firsts
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done && f.under == q.Number() {
		return nil
	}
	for _, s := range e.systems {
		if s.First == nil {
			continue
		}
		if err := s.First(ctx); err != nil {
			return err
		}
	}
	f.done, f.under = true, q.Number()
	return nil
}
