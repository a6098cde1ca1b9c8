package pg

import (
	"context"
	"sync"
)

// Kinds says of what there is any at all, of what most installations have none: nobody looks after what is not there.
type Kinds struct {
	Sources    bool // also removed ones, whose events may still be on their way
	Processors bool
	Tools      bool
}

const kindsSQL = `SELECT EXISTS (SELECT FROM postern.source), EXISTS (SELECT FROM postern.processor WHERE removed_at IS NULL),
	EXISTS (SELECT FROM postern.tool WHERE removed_at IS NULL), ` + quarantineSQL

// kinds is what the last reading of the configuration found, and who waits for more.
type kinds struct {
	mu   sync.Mutex
	now  Kinds
	news chan struct{} // closed when now changes; nil while nobody waits
}

// tell notes what the present view has: it is read behind the lock, so that no older one is noted after it.
func (c *conf) tell() {
	k := &c.kinds
	k.mu.Lock()
	defer k.mu.Unlock()
	now := c.view.Load().kinds
	if k.now == now {
		return
	}
	if k.now = now; k.news != nil {
		close(k.news)
		k.news = nil
	}
}

func (k *kinds) read() (Kinds, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.news == nil {
		k.news = make(chan struct{})
	}
	return k.now, k.news
}

// Await waits until there is something of a kind: of what this process made at once, of what another did until the
// configuration is read again, within a second. False is the end of ctx.
func (s *Store) Await(ctx context.Context, any func(Kinds) bool) bool {
	for {
		now, news := s.conf.kinds.read()
		if any(now) {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-news:
		}
	}
}

// appeared reads the configuration again where the first of its kind may have been made.
func (s *Store) appeared(ctx context.Context, created bool) error {
	if !created {
		return nil
	}
	return s.reconfigured(ctx)
}
