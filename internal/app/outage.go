package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/fault"
)

// outage logs an outage of the database once when the database goes, once a minute while it is away, and once when it
// is back. It leaves out the lines of the loops of the process, since each loop fails several times a second.
//
// A line that speaks of a database that cannot be reached is kept until the database was asked, twice. If it answers,
// one connection was lost, or one statement took too long: the line is logged. Otherwise the outage begins. With the
// level debug every line is logged as it comes.
type outage struct {
	next slog.Handler
	wake chan struct{} // the database is to be asked

	mu    sync.Mutex
	state outageState
	kept  []func() // lines that wait for the answer
	left  int      // lines that were left out
}

type outageState int

const (
	there   outageState = iota // the database answers, as far as is known
	doubted                    // it is asked whether it answers
	away                       // it does not answer
	leaving                    // the process stops: every line is logged
)

// Limits of an outage: how often the database is asked, how long it may take to answer, how often an outage is told,
// how many lines wait for the answer.
const (
	outageAsk   = time.Second
	outageLimit = 2 * time.Second
	outageTold  = time.Minute
	outageKeeps = 20
)

func newOutage(next slog.Handler) *outage {
	return &outage{next: next, wake: make(chan struct{}, 1)}
}

// handler is the handler that the process logs through.
func (o *outage) handler() slog.Handler { return outageHandler{o, o.next, false} }

// watch asks the database whenever a line doubts it, and tells of outages, until ctx ends.
func (o *outage) watch(ctx context.Context, ask func(context.Context) error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		}
		err := o.asked(ctx, ask)
		if err == nil { // a server that stops still answers the sessions that it has not ended yet
			pause(ctx, outageAsk)
			err = o.asked(ctx, ask)
		}
		if err == nil {
			o.settle(there)
		} else if ctx.Err() == nil {
			o.last(ctx, ask, err)
		}
	}
}

// pause waits for d; false is the end of ctx.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// asked asks the database once.
func (o *outage) asked(ctx context.Context, ask func(context.Context) error) error {
	soon, cancel := context.WithTimeout(ctx, outageLimit)
	defer cancel()
	return ask(soon)
}

// last tells of an outage from its beginning to its end.
func (o *outage) last(ctx context.Context, ask func(context.Context) error, err error) {
	since := time.Now()
	told := since
	o.settle(away)
	log := slog.New(o.next)
	log.Error("the database does not answer: nothing is accepted and nothing goes out until it does",
		"error", oneLine(err), "next_line", "in a minute, or when it answers")
	for {
		if !pause(ctx, outageAsk) {
			return
		}
		if err = o.asked(ctx, ask); err == nil {
			log.Info("the database answers again", "away", time.Since(since).Round(time.Second).String(),
				"lines_left_out", o.settle(there))
			return
		}
		if time.Since(told) >= outageTold && ctx.Err() == nil {
			told = time.Now()
			log.Error("the database still does not answer", "away", time.Since(since).Round(time.Second).String(),
				"error", oneLine(err))
		}
	}
}

// settle sets what is known of the database, and returns how many lines were left out meanwhile. Lines that waited are
// logged unless it is away.
func (o *outage) settle(state outageState) (left int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == leaving {
		return o.left
	}
	if state == away {
		o.left += len(o.kept)
	} else {
		for _, line := range o.kept {
			line()
		}
	}
	left, o.kept, o.state = o.left, nil, state
	if state == there {
		o.left = 0
	}
	return left
}

// leave lets every line through from now on: a process that stops says things once.
func (o *outage) leave() { o.settle(leaving) }

// outageHandler hands to next what no outage explains.
type outageHandler struct {
	*outage
	next    slog.Handler
	library bool // River logs: it retries by itself, and its errors have no codes
}

func (h outageHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h outageHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.library = h.library || a.Key == "library"
	}
	h.next = h.next.WithAttrs(attrs)
	return h
}

func (h outageHandler) WithGroup(name string) slog.Handler {
	h.next = h.next.WithGroup(name)
	return h
}

func (h outageHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn || h.next.Enabled(ctx, slog.LevelDebug) {
		return h.next.Handle(ctx, r)
	}
	doubts := h.doubts(r)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.state == away && (doubts || h.library):
		h.left++
	case !doubts || h.state == leaving:
		return h.next.Handle(ctx, r)
	case len(h.kept) >= outageKeeps:
		h.left++
	default:
		r = r.Clone()
		h.kept = append(h.kept, func() { _ = h.next.Handle(context.WithoutCancel(ctx), r) })
	}
	if h.state == there {
		h.state = doubted
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// doubts says whether a line speaks of a database that cannot be reached.
func (h outageHandler) doubts(r slog.Record) (yes bool) {
	r.Attrs(func(a slog.Attr) bool {
		switch v := a.Value.Any().(type) {
		case error:
			var refused *pgconn.ConnectError
			yes = isOutage(fault.CodeOf(v)) || errors.As(v, &refused) || h.library && speaksOfOutage(v.Error())
		case string:
			yes = a.Key == "code" && isOutage(v) || h.library && speaksOfOutage(v)
		}
		return !yes
	})
	return yes
}

func isOutage(code string) bool { return code == "database_unavailable" || code == "commit_unknown" }

// speaksOfOutage finds in an error of the library, which has no codes, the words of the driver and of a server that
// stops.
func speaksOfOutage(text string) bool {
	for _, words := range []string{"failed to connect", "SQLSTATE 57P0", "SQLSTATE 08", "conn closed", "unexpected EOF",
		"connection reset", "broken pipe", "deadline exceeded", "i/o timeout", "conn busy"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// oneLine is an error without line breaks.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
