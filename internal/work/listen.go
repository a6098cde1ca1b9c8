package work

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/safe"
)

// How a node reads sources: so many at once, and none for longer than that without its lease being gone.
const (
	sourcesAtOnce = 16
	sourceLease   = time.Minute
	sourcesEvery  = time.Second // where no earlier time is known: as long as a new source waits at most
	leastPage     = 2           // events; a page of one, where cursors are inclusive, brings nothing new
	usualPage     = 4 << 20     // bytes that are kept of a page
	mostPage      = 32 << 20    // of one that cannot be smaller
	smallPage     = 1 << 20     // after it more events are asked for again
)

// listen is the loop that reads the sources whose time has come. A turn begins readings and waits for none, so that a
// source that answers slowly holds up no other; the end of a reading is the bell of the next turn.
func (e *Events) listen() Loop {
	var all sync.WaitGroup
	var looking atomic.Int32
	looked := make(chan struct{}, 1)
	return Loop{
		Name:   "sources",
		Does:   "listen",
		Await:  e.any(events.Sources),
		Leased: true,
		Every:  sourcesEvery,
		Bell:   looked,
		Once: func(ctx context.Context) (Turn, error) {
			free := sourcesAtOnce - int(looking.Load())
			if free <= 0 {
				return Turn{}, nil
			}
			looks, at, err := e.Store.Events.LeaseSources(ctx, *e.node.Load(), free, sourceLease)
			for _, l := range looks {
				looking.Add(1)
				all.Go(safe.Func("look", func() {
					defer func() {
						looking.Add(-1)
						knock(looked)
					}()
					e.readSource(ctx, l)
				}))
			}
			return Turn{Did: len(looks), Next: e.until(ctx, at)}, err
		},
		End: all.Wait,
	}
}

// until is how long it is until a time of the database's clock, or zero where that is no time, or later than a turn
// comes.
func (e *Events) until(ctx context.Context, at time.Time) time.Duration {
	if at.IsZero() || at.Unix() <= 0 {
		return 0
	}
	now, err := e.Store.Now(ctx)
	if err != nil {
		return 0
	}
	return min(sourcesEvery, max(at.Sub(now), time.Millisecond))
}

// ListenOnce asks each source that is due for one page, and returns how many those were.
func (e *Events) ListenOnce(ctx context.Context) (int, error) {
	looks, _, err := e.Store.Events.LeaseSources(ctx, *e.node.Load(), sourcesAtOnce, sourceLease)
	var all sync.WaitGroup
	for _, l := range looks {
		all.Go(safe.Func("look", func() { e.readSource(ctx, l) }))
	}
	all.Wait()
	return len(looks), err
}

// readSource asks for a page and stores it. Whatever happens before the commit has not happened: the lease ends, and
// somebody asks for the same page again.
func (e *Events) readSource(ctx context.Context, l *events.SourceLease) {
	if e.Store.Quarantined(l.ContextID, "") { // its lease ends, and then somebody looks who may
		return
	}
	var out events.Stored
	var err error
	page, trouble := e.page(ctx, l)
	if trouble == nil {
		if out, err = e.Store.Events.StorePage(ctx, l, page); err != nil && fault.KindOf(err) != fault.Retry {
			e.Log.Error("a page cannot be stored", "source", l.Name, "error", err)
			trouble = &leader.Trouble{Retryable: true,
				Text: "its page could not be stored: the log of " + e.NodeName + " says why"}
		}
	}
	if ctx.Err() != nil {
		return
	}
	if trouble != nil && trouble.Refused && e.othersMay(ctx, l.Source.URL) {
		if err := e.Store.Events.LeavePage(ctx, l, leftAgain()); err != nil {
			e.Log.Warn("put back a source", "source", l.Name, "error", err)
		}
		return
	}
	if trouble != nil {
		wait := backoff.Doubling(l.Failures+1, time.Second, time.Minute)
		if trouble.Large {
			wait = 0
		}
		out, err = e.Store.Events.FailPage(ctx, l, trouble, wait)
	}
	switch {
	case err != nil:
		e.Log.Warn("a page could not be stored: it is asked for again", "source", l.Name, "error", err)
	case out.Stopped != "":
		e.Log.Error("a source has stopped: find out why, then resume it", "source", l.Name, "error", out.Stopped)
	case trouble != nil && l.Failures == 0:
		e.Log.Warn("a source gives no page: it is asked again", "source", l.Name, "error", trouble.Text)
	case out.New > 0:
		e.ledger.ring()
		e.Log.Debug("events stored", "source", l.Name, "new", out.New, "known", out.Known, "dead", out.Dead)
	}
}

// page asks a source once for what comes after its cursor: for fewer events than last time, where those were too large
// for a page or took too long, and of the fewest for as many bytes as one reading of a node at a time may hold. How
// many that are is this node's to remember, so that no reading takes longer than its lease. An event that is too large
// to be stored is none of those bytes.
func (e *Events) page(ctx context.Context, l *events.SourceLease) (leader.Page, *leader.Trouble) {
	if l.Table != nil {
		return e.Store.Events.TablePage(ctx, l, e.Dial)
	}
	src := l.Source.Source
	if n, ok := e.fewer.Load(l.ID); ok {
		src.PageSize = min(src.PageSize, n.(int))
	}
	most := usualPage
	if src.PageSize <= leastPage && e.largePage.TryLock() {
		defer e.largePage.Unlock()
		most = mostPage
	}
	var page leader.Page
	var unread *leader.Trouble
	trouble := e.Fetch(ctx, src.Page(l.Cursor), func(body io.Reader) { page, unread = src.Read(body, l.Cursor, most) })
	if trouble == nil {
		trouble = unread
	}
	switch {
	case trouble == nil && src.PageSize >= l.PageSize:
		e.fewer.Delete(l.ID)
	case trouble == nil && page.Size <= smallPage:
		e.fewer.Store(l.ID, 2*src.PageSize)
	case trouble == nil || !trouble.Large:
	case src.PageSize > leastPage:
		e.fewer.Store(l.ID, max(src.PageSize/2, leastPage))
		trouble.Retryable, trouble.Text = true, trouble.Text+": fewer events are asked for"
	case trouble.Retryable: // it took too long
		trouble.Large = false
	case most < mostPage:
		trouble.Retryable, trouble.Text = true, trouble.Text+": it is read when no other such page is"
	default:
		trouble.Large = false
		trouble.Text += fmt.Sprintf(", where %d events were asked for: its source goes by no limit", src.PageSize)
	}
	return page, trouble
}
