package work

import (
	"context"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/pg"
)

// How often a node compares the queues that are its own by their rows with those that it holds: soon after a commit
// with an unknown end and after a connection that broke, and once a minute besides. A walk takes about a microsecond
// for each queue of the table; where that is much, soon is later, so that walks take no more than a fiftieth of the
// time.
const (
	compareEvery = time.Minute
	walkRest     = time.Second
	compareChunk = 5000
	handBackMost = 500 // in one SQL transaction
)

// lateAfter is how long a commit may be under way that leases queues. That of a claim or a round of timers is given
// up after 30 s, that of a post gathers for roundWithin of internal/pg/db at most, a minute, and then has its own 30 s;
// and each may begin again.
const lateAfter = 3 * time.Minute

// sight is when a queue was seen that is ours by its row and that no flight has.
type sight struct {
	node   pg.Node
	ticket uint64
	at     time.Time
}

// loose are the queues that may be lost: seen once, and looked at again until they are held, handed back, or
// somebody else's.
type loose struct {
	mu   sync.Mutex
	list map[pg.Fenced]sight
	soon bool // a walk is wanted
	bell chan struct{}
}

// lose has queues handed back that the node may own and does not work on, after a commit with an unknown end. They
// need no second look.
func (e *Engine) lose(n pg.Node, list ...pg.Fenced) {
	e.loose.mu.Lock()
	for _, f := range list {
		e.loose.list[f] = sight{n, 0, time.Now()}
	}
	e.loose.soon = true
	e.loose.mu.Unlock()
	knock(e.loose.bell)
}

// compareLoop looks for queues that are this node's by their rows, and that it does not know of, and hands them
// back. It runs until the last flight has ended, also while the node is drained or stops.
func (e *Engine) compareLoop(ctx context.Context) {
	var walked time.Time // the end of the last walk
	var rest time.Duration
	tries, failed := 0, false
	next := time.Now().Add(e.compareEvery)
	for {
		wait := time.Until(next)
		if tries++; e.looseNow() > 0 || failed {
			wait = min(wait, backoff.Doubling(tries, 50*time.Millisecond, 2*time.Second))
		} else {
			tries = 0
		}
		if !pause(ctx, e.loose.bell, wait) {
			return
		}
		var err error
		if now := time.Now(); !now.Before(next) || e.soon() && now.Sub(walked) >= max(walkRest, rest) {
			e.walkNext(false)
			err = e.walk(ctx)
			walked = time.Now()
			rest = restAfter(walked.Sub(now))
			if next = walked.Add(e.compareEvery); err != nil {
				e.walkNext(true)
			}
		} else if e.soon() {
			next = walked.Add(max(walkRest, rest))
		}
		if err == nil {
			err = e.handLooseBack(ctx)
		}
		if failed = err != nil; failed && ctx.Err() == nil {
			e.Log.Warn("compare what this node holds with its rows", "error", err)
		}
	}
}

// compareSoon has the rows compared within a moment: a connection broke, or the end of a commit is unknown.
func (e *Engine) compareSoon() {
	e.walkNext(true)
	knock(e.loose.bell)
}

func (e *Engine) looseNow() int {
	e.loose.mu.Lock()
	defer e.loose.mu.Unlock()
	return len(e.loose.list)
}

// soon says whether a walk is wanted before its minute; walkNext wants one, or no more.
func (e *Engine) soon() bool {
	e.loose.mu.Lock()
	defer e.loose.mu.Unlock()
	return e.loose.soon
}

func (e *Engine) walkNext(soon bool) {
	e.loose.mu.Lock()
	e.loose.soon = soon
	e.loose.mu.Unlock()
}

// walk reads all queues by their key and notes those that are ours by their rows and that no flight has.
func (e *Engine) walk(ctx context.Context) error {
	node := *e.node.Load()
	for after := int64(0); ; {
		mine, next, err := e.Store.Owned(ctx, node, after, compareChunk)
		if err != nil {
			return err
		}
		list, ticket := e.holdings.unheld(mine)
		e.loose.mu.Lock()
		for _, f := range list {
			if _, seen := e.loose.list[f]; !seen {
				e.loose.list[f] = sight{node, ticket, time.Now()}
			}
		}
		e.loose.mu.Unlock()
		if after = next; next == 0 {
			return nil
		}
	}
}

// handLooseBack hands back queues that were seen and are not held, once no commit can bring their leases any more.
// The statement looks at the rows again, behind their locks: a queue with another fence or another owner by now is
// left alone. A queue that the statement left is looked at again, for as long as a transaction may be under way;
// after that a walk finds it.
func (e *Engine) handLooseBack(ctx context.Context) error {
	late := func(s sight) bool { return time.Since(s.at) > e.lateAfter }
	e.loose.mu.Lock()
	list := e.holdings.condemn(e.loose.list, late)
	type incarnation struct {
		id    int64
		epoch int32
	}
	nodes, held := map[incarnation]pg.Node{}, map[incarnation][]pg.Fenced{}
	for _, f := range list {
		n := e.loose.list[f].node
		of := incarnation{n.ID, n.Epoch}
		nodes[of], held[of] = n, append(held[of], f)
	}
	e.loose.mu.Unlock()
	for of, list := range held {
		n := nodes[of]
		for len(list) > 0 {
			part := list[:min(len(list), handBackMost)]
			list = list[len(part):]
			if err := e.giveUp(ctx, n, part, late); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveUp hands back one part of what is loose.
func (e *Engine) giveUp(ctx context.Context, n pg.Node, part []pg.Fenced, late func(sight) bool) error {
	total, left, err := e.Store.GiveUp(ctx, n, part)
	if err != nil {
		return err
	}
	again := make(map[pg.Fenced]bool, len(left))
	for _, f := range left {
		again[f] = true
	}
	e.loose.mu.Lock()
	for _, f := range part {
		if !again[f] || late(e.loose.list[f]) {
			delete(e.loose.list, f)
		}
	}
	e.loose.mu.Unlock()
	if total > 0 {
		e.Metrics.HandedBack(total)
		e.Log.Warn("handed back queues that were this node's by their rows and that it did not work on: their workers are asked first",
			"node", n.Name, "queues", total)
		e.Ring()
	}
	return nil
}
