package httpapi

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/safe"
)

// news tells those who wait for events of subscriptions that there are some: it looks at all their newest
// positions in one statement every 50 ms, for as long as anybody waits.
type news struct {
	store *stores.Store
	log   *slog.Logger
	loops *safe.Loops
	slots chan struct{}
	end   chan struct{}

	mu      sync.Mutex
	waiting map[*reader]struct{}
	running bool
}

// reader is one who has read a subscription up to a position.
type reader struct {
	sub  int32
	at   int64
	more chan struct{}
}

func newNews(s *stores.Store, slots int, log *slog.Logger) *news {
	return &news{store: s, log: log, slots: make(chan struct{}, slots), end: make(chan struct{}),
		waiting: map[*reader]struct{}{}}
}

// close lets everybody go who waits now or later.
func (n *news) close() { close(n.end) }

// take takes a slot and returns how to give it back, or false when all are taken or it is closed.
func (n *news) take() (func(), bool) {
	select {
	case <-n.end:
		return nil, false
	default:
	}
	select {
	case n.slots <- struct{}{}:
		return func() { <-n.slots }, true
	default:
		return nil, false
	}
}

// after waits until a subscription has an event after a position, or no longer exists: there; for at most d. Not open:
// ctx ended, or it is closed.
func (n *news) after(ctx context.Context, sub int32, at int64, d time.Duration) (there, open bool) {
	r := &reader{sub, at, make(chan struct{})}
	n.mu.Lock()
	n.waiting[r] = struct{}{}
	if !n.running {
		n.running = true
		go n.loops.Run(context.Background(), "news", func(context.Context) { n.run() })
	}
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.waiting, r)
		n.mu.Unlock()
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.more:
		return true, true
	case <-timer.C:
		return false, true
	case <-ctx.Done():
	case <-n.end:
	}
	return false, false
}

// run looks for new events until no request waits for any.
func (n *news) run() {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for range tick.C {
		subs, asked := n.due()
		if len(subs) == 0 {
			return
		}
		n.ask(subs, asked)
	}
}

// due lists the subscriptions that are waited for. None: run has ended.
func (n *news) due() (subs []int32, asked map[int32]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked = map[int32]bool{}
	for r := range n.waiting {
		if !asked[r.sub] {
			asked[r.sub] = true
			subs = append(subs, r.sub)
		}
	}
	n.running = len(subs) > 0
	return subs, asked
}

func (n *news) ask(subs []int32, asked map[int32]bool) {
	ctx, cancel := context.WithTimeout(context.Background(), db.AnswerWithin)
	defer cancel()
	newest, err := n.store.Deliveries.NewestPositions(ctx, subs)
	if err != nil {
		n.log.Warn("the newest events cannot be looked up", "error", err)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for r := range n.waiting {
		if at, there := newest[r.sub]; asked[r.sub] && (!there || at > r.at) {
			close(r.more)
			delete(n.waiting, r)
		}
	}
}
