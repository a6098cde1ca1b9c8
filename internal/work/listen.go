package work

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
)

// How a node looks at sources: so many at once, and none for longer than that without its lease being gone.
const (
	looksAtOnce = 16
	lookLease   = time.Minute
	lookEvery   = time.Second // where nobody knows of an earlier one: as long as a new source waits at most
	leastPage   = 2           // events; a page of one, where cursors are inclusive, brings nothing new
	mostPage    = 32 << 20    // bytes of the least page, since the cursor behind it is in it
	smallPage   = 1 << 20     // after it more events are asked for again
)

// listenLoop looks at the sources whose time has come, until ctx ends.
func (e *Engine) listenLoop(ctx context.Context) {
	if e.Fetch == nil {
		return
	}
	for {
		next := lookEvery
		if e.trusted() {
			n, at, err := e.listen(ctx)
			switch {
			case err != nil && ctx.Err() == nil:
				e.Log.Warn("listen", "error", err)
			case n > 0:
				next = 0
			case !at.IsZero() && at.Unix() > 0:
				if now, err := e.Store.Now(ctx); err == nil {
					next = min(next, max(at.Sub(now), time.Millisecond))
				}
			}
		}
		if next > 0 && !pause(ctx, nil, next) || ctx.Err() != nil {
			return
		}
	}
}

// ListenOnce asks each source that is due for one page, and returns how many those were.
func (e *Engine) ListenOnce(ctx context.Context) (int, error) {
	n, _, err := e.listen(ctx)
	return n, err
}

func (e *Engine) listen(ctx context.Context) (n int, next time.Time, err error) {
	looks, next, err := e.Store.TakeLooks(ctx, *e.node.Load(), looksAtOnce, lookLease)
	if err != nil {
		return 0, next, err
	}
	var all sync.WaitGroup
	for _, l := range looks {
		all.Go(func() { e.look(ctx, l) })
	}
	all.Wait()
	return len(looks), next, nil
}

// look asks for a page and stores it. Whatever happens before the commit has not happened: the lease ends, and
// somebody asks for the same page again.
func (e *Engine) look(ctx context.Context, l *pg.Look) {
	var out pg.Stored
	var err error
	page, trouble := e.page(ctx, l)
	if trouble == nil {
		out, err = e.Store.StorePage(ctx, l, page)
	}
	if ctx.Err() != nil {
		return
	}
	if trouble != nil {
		wait := backoff.Doubling(l.Failures+1, time.Second, time.Minute)
		if trouble.Large {
			wait = 0
		}
		out, err = e.Store.FailLook(ctx, l, trouble, wait)
	}
	switch {
	case err != nil:
		e.Log.Warn("a page could not be stored: it is asked for again", "source", l.Name, "error", err)
	case out.Stopped != "":
		e.Log.Error("a source has stopped: find out why, then resume it", "source", l.Name, "error", out.Stopped)
	case trouble != nil && l.Failures == 0:
		e.Log.Warn("a source gives no page: it is asked again", "source", l.Name, "error", trouble.Text)
	case out.New > 0:
		e.events.ring()
		e.Log.Debug("events stored", "source", l.Name, "new", out.New, "known", out.Known, "dead", out.Dead)
	}
}

// page asks a source once for what comes after its cursor: for fewer events than last time, where they were too large for
// a page, and of the fewest for as many bytes as one look of a node at a time may hold. How many that are is this node's
// to remember, so that no look takes longer than its lease.
func (e *Engine) page(ctx context.Context, l *pg.Look) (leader.Page, *leader.Trouble) {
	if l.Table != nil {
		return e.Store.TablePage(ctx, l, e.Dial)
	}
	src := l.Source.Source
	if n, ok := e.fewer.Load(l.ID); ok {
		src.PageSize = min(src.PageSize, n.(int))
	}
	ask := src.Page(l.Cursor)
	if src.PageSize <= leastPage && e.largePage.TryLock() {
		defer e.largePage.Unlock()
		ask.Most = mostPage
	}
	body, trouble := e.Fetch(ctx, ask)
	if trouble == nil {
		switch {
		case src.PageSize >= l.PageSize:
			e.fewer.Delete(l.ID)
		case len(body) <= smallPage:
			e.fewer.Store(l.ID, 2*src.PageSize)
		}
		return src.Read(body, l.Cursor)
	}
	switch {
	case !trouble.Large:
	case src.PageSize > leastPage:
		e.fewer.Store(l.ID, max(src.PageSize/2, leastPage))
		trouble.Retryable, trouble.Text = true, trouble.Text+": fewer events are asked for"
	case ask.Most == 0:
		trouble = &leader.Trouble{Retryable: true, Text: trouble.Text + ": it is read when no other such page is"}
	default:
		trouble.Text += fmt.Sprintf(", even of %d events: rewind the source behind them", src.PageSize)
	}
	return leader.Page{}, trouble
}
