package httpapi

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/safe"
)

// hub looks up what all waiting requests of the process name, in one statement for ends and one for all else, for as
// long as there are any: soon after one has come, since most of what is waited for takes milliseconds, and then ever
// more rarely, up to every 50 ms; and at once after this process has ended one of them itself, unless others were told
// a moment ago. Where looks are slow, it spends no more than a fifth of its time on them. Those that have ended are
// read together.
type hub struct {
	store *stores.Store
	log   *slog.Logger
	loops *safe.Loops
	slots chan struct{}
	end   chan struct{}
	came  chan struct{} // somebody new waits, or is known to be done

	mu      sync.Mutex
	waiting map[outbox.ID][]*waiter
	running bool
}

type waiter struct {
	id      outbox.ID
	context int32
	end     bool            // nothing but its end is waited for
	over    bool            // it is known to have ended
	ended   *pg.Transaction // as it ended; nil if it is not known to be over
	reached func(*pg.Transaction) bool
	since   time.Time
	done    chan struct{}
}

// pollEvery is how often the hub looks for who has waited long, pollSoon for who has just come.
const (
	pollEvery = 50 * time.Millisecond
	pollSoon  = 3 * time.Millisecond
)

func newHub(s *stores.Store, slots int, log *slog.Logger) *hub {
	return &hub{store: s, log: log, slots: make(chan struct{}, slots), end: make(chan struct{}),
		came: make(chan struct{}, 1), waiting: map[outbox.ID][]*waiter{}}
}

// close lets everybody go who waits now or later.
func (h *hub) close() { close(h.end) }

// wait returns when s is reached or its time is over, when ctx ends, or when the hub is closed; with the transaction,
// if it has been read. False at once means that all slots are taken or that the hub is closed.
func (h *hub) wait(ctx context.Context, id outbox.ID, s *waitSpec) (*pg.Transaction, bool) {
	select {
	case <-h.end:
		return nil, false
	default:
	}
	select {
	case h.slots <- struct{}{}:
	default:
		return nil, false
	}
	defer func() { <-h.slots }()
	scopeOf(ctx).timed.wait(s.length)
	w := &waiter{id: id, context: contextID(ctx), end: s.forEnd(), reached: s.reached,
		since: time.Now(), done: make(chan struct{})}
	h.mu.Lock()
	h.waiting[id] = append(h.waiting[id], w)
	if !h.running {
		h.running = true
		go h.loops.Run(context.Background(), "waits", func(context.Context) { h.run() })
	}
	h.knock()
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.forget(w)
		h.mu.Unlock()
	}()
	timer := time.NewTimer(s.length)
	defer timer.Stop()
	select {
	case <-w.done:
		return w.ended, true
	case <-timer.C:
	case <-ctx.Done():
	case <-h.end:
	}
	return nil, true
}

// over hears that this process has ended a transaction.
func (h *hub) over(id outbox.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.waiting[id] {
		w.over = true
		h.knock()
	}
}

// knock has the hub see who waits.
func (h *hub) knock() {
	select {
	case h.came <- struct{}{}:
	default:
	}
}

// forget takes a waiter out. h.mu is held.
func (h *hub) forget(w *waiter) {
	left := slices.DeleteFunc(h.waiting[w.id], func(o *waiter) bool { return o == w })
	if h.waiting[w.id] = left; len(left) == 0 {
		delete(h.waiting, w.id)
	}
}

// rest is how long the hub rests from the begin of a look to the next, by how long the newest request has waited, and
// how long the last two looks took: one alone that was slow, as by a new plan after a day was dropped, says nothing
// of the next. A request whose transaction is known to be done is told at once, or, right after others were told,
// together with those that are done by then.
func rest(youngest time.Duration, done, told bool, took, before time.Duration) time.Duration {
	least := max(pollSoon, youngest/4)
	switch {
	case done && told:
		least = pollSoon
	case done:
		least = 0
	}
	return max(least, 5*min(took, before))
}

// run looks until no request waits.
func (h *hub) run() {
	h.store.OnEnd(h.over)
	looked, took, before, told := time.Now(), time.Duration(0), time.Duration(0), false
	for {
		ends, others, over, youngest := h.due()
		if len(ends)+len(others)+len(over) == 0 {
			return
		}
		next := looked.Add(rest(youngest, len(over) > 0, told, took, before))
		if wait := time.Until(next); wait > 0 {
			select {
			case <-time.After(wait):
			case <-h.came: // perhaps sooner now
				continue
			}
		}
		looked = time.Now()
		seen, found := h.ask(ends, others)
		took, before = time.Since(looked), took
		maps.Copy(over, seen)
		told = len(over) > 0
		h.tell(over, found)
	}
}

// due lists what is waited for: of what only the end, of what anything, what is known to be over; and how long the one
// who came last has waited. Nothing: run has ended.
func (h *hub) due() (ends, others []outbox.ID, over map[outbox.ID]bool, youngest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	over, youngest = map[outbox.ID]bool{}, pollEvery*4
	for id, waits := range h.waiting {
		end, other := false, false
		for _, w := range waits {
			switch {
			case !w.end:
				other = true
			case w.over:
				over[id] = true
			default:
				end = true
			}
			youngest = min(youngest, time.Since(w.since))
		}
		if other {
			others = append(others, id)
		} else if end {
			ends = append(ends, id)
		}
	}
	h.running = len(h.waiting) > 0
	return ends, others, over, youngest
}

// ask finds out which of ends are over, and what others are now.
func (h *hub) ask(ends, others []outbox.ID) (over map[outbox.ID]bool, found map[outbox.ID]*pg.Transaction) {
	ctx, cancel := context.WithTimeout(context.Background(), db.AnswerWithin)
	defer cancel()
	var err error
	if len(ends) > 0 {
		var elsewhere []outbox.ID
		over, elsewhere, err = h.store.Ended(ctx, ends)
		others = append(others, elsewhere...)
	}
	if err == nil && len(others) > 0 {
		found, err = h.store.Watch(ctx, others)
	}
	if err != nil {
		h.log.Warn("waiting requests cannot be looked up", "error", err)
	}
	return over, found
}

// readAtOnce is how many that have ended are read in one statement, with their bodies.
const readAtOnce = 64

// tell lets those requests go whose transaction is over, or has become what they wait for. Ends are read for all of a
// context at once; a request that does not get its end so reads it by itself.
func (h *hub) tell(over map[outbox.ID]bool, found map[outbox.ID]*pg.Transaction) {
	ended := h.sort(over, found)
	ctx, cancel := context.WithTimeout(context.Background(), db.AnswerWithin)
	defer cancel()
	for of, all := range ended {
		for some := range slices.Chunk(all, readAtOnce) {
			var ids []outbox.ID
			for _, w := range some {
				ids = append(ids, w.id)
			}
			read, err := h.store.Transactions(ctx, of, ids)
			if err != nil {
				h.log.Warn("what has ended cannot be read together", "error", err)
			}
			h.releaseAll(some, read)
		}
	}
}

// sort lets those go who have what they wait for, and returns those whose transaction is over, by context. Whose
// condition panics goes, too, and sees by itself.
func (h *hub) sort(over map[outbox.ID]bool, found map[outbox.ID]*pg.Transaction) (ended map[int32][]*waiter) {
	ended = map[int32][]*waiter{}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, waits := range h.waiting {
		for _, w := range slices.Clone(waits) {
			if w.end && over[id] {
				ended[w.context] = append(ended[w.context], w)
			} else if t := found[id]; t != nil {
				reached := true
				safe.Run("wait", func() { reached = w.reached(t) })
				if reached {
					h.release(w)
				}
			}
		}
	}
	return ended
}

func (h *hub) releaseAll(list []*waiter, read map[outbox.ID]*pg.Transaction) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range list {
		w.ended = read[w.id]
		h.release(w)
	}
}

// release lets one go, unless it has gone by itself. h.mu is held.
func (h *hub) release(w *waiter) {
	if slices.Contains(h.waiting[w.id], w) {
		close(w.done)
		h.forget(w)
	}
}

// often asks done every 50 ms until it says so, or as wait ends.
func (h *hub) often(ctx context.Context, d time.Duration, done func() bool) {
	select {
	case h.slots <- struct{}{}:
	default:
		return
	}
	defer func() { <-h.slots }()
	scopeOf(ctx).timed.wait(d)
	over := time.NewTimer(d)
	defer over.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-over.C:
			return
		case <-h.end:
			return
		case <-ctx.Done():
			return
		}
	}
}
