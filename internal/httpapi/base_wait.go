package httpapi

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// Waiting is how a request asks to be answered later.
type Waiting struct {
	Wait   string `query:"wait" example:"30s" doc:"How long to wait, at most 60s; wins over Prefer: wait=N."`
	Until  string `query:"until" example:"terminal" doc:"What to wait for: terminal (default), change (with If-None-Match), or a state."`
	Prefer string `header:"Prefer" doc:"wait=N, in seconds."`
}

// waitSpec is the same, understood.
type waitSpec struct {
	length time.Duration
	change bool
	seen   string       // the ETag to differ from, with change
	state  outbox.State // "" for any terminal one
}

func (a *API) waitOf(w *Waiting) (waitSpec, error) {
	var s waitSpec
	if n, ok := preferred(w.Prefer); ok {
		s.length = n
	}
	if w.Wait != "" {
		d, err := time.ParseDuration(w.Wait)
		if err != nil || d < 0 {
			return s, fault.At("wait", "wait %q: want a duration such as \"30s\", not below zero", fault.Clip(w.Wait))
		}
		s.length = d
	}
	s.length = min(s.length, time.Duration(a.Limits.Wait)*time.Second)
	switch state := outbox.State(w.Until); {
	case w.Until == "", w.Until == "terminal":
	case w.Until == "change":
		s.change = true
	case state.Code() != 0:
		s.state = state
	default:
		return s, fault.At("until", "until %q: want terminal, change or one of %s", fault.Clip(w.Until), stateNames())
	}
	return s, nil
}

func stateNames() string {
	var list []string
	for _, s := range outbox.States {
		list = append(list, string(s))
	}
	return strings.Join(list, ", ")
}

// preferred reads wait=N out of a Prefer header. It ignores preferences that it does not understand, as RFC 7240 wants.
func preferred(header string) (time.Duration, bool) {
	for _, part := range strings.FieldsFunc(header, func(r rune) bool { return r == ',' || r == ';' }) {
		k, v, _ := strings.Cut(strings.TrimSpace(part), "=")
		if n, err := strconv.Atoi(strings.Trim(v, `"`)); strings.EqualFold(k, "wait") &&
			err == nil && n >= 0 && n < 1<<20 {
			return time.Duration(n) * time.Second, true
		}
	}
	return 0, false
}

// reached says whether there is nothing more to wait for. A terminal state never changes again.
func (s *waitSpec) reached(t *pg.Transaction) bool {
	switch {
	case s.change:
		return !matches(s.seen, etagOf(t)) || t.State.Terminal()
	case s.state != "":
		return t.State == s.state || t.State.Terminal()
	}
	return t.State.Terminal()
}

// forEnd says whether nothing but an end is waited for.
func (s *waitSpec) forEnd() bool { return s.length > 0 && !s.change && s.state == "" }

// wait returns the transaction when s is reached, the time is over, or the process drains; and what to say in
// Preference-Applied, "" if it did not wait. t is as it was read before; nil: it has not been, and is not before it has
// ended where it is known to be under way.
func (a *API) wait(ctx context.Context, id outbox.ID,
	t *pg.Transaction, s waitSpec) (_ *pg.Transaction, applied string, err error) {
	open := false
	if t == nil && s.forEnd() {
		if open, err = a.Store.Open(ctx, contextID(ctx), id); err != nil {
			return nil, "", err
		}
	}
	if t == nil && !open {
		if t, err = a.Store.Transaction(ctx, contextID(ctx), id); err != nil {
			return nil, "", err
		}
	}
	if t != nil {
		id, open = t.ID, s.length > 0 && !s.reached(t)
	}
	if open {
		if over, waited := a.waits.wait(ctx, id, &s); waited {
			if err := a.stillMay(ctx); err != nil {
				return nil, "", err
			}
			t, applied = over, "wait="+itoa(int(s.length/time.Second))
		}
	}
	if t == nil {
		t, err = a.Store.Transaction(ctx, contextID(ctx), id)
	}
	return t, applied, err
}

// waitOften asks done every 50 ms until it says so, or as wait ends, and no more once who waits may not go on.
func (a *API) waitOften(ctx context.Context, length time.Duration, done func() bool) (err error) {
	a.waits.often(ctx, length, func() bool { err = a.stillMay(ctx); return err != nil || done() })
	return err
}

// vainPause is how long a claim or a receive rests that was woken in vain: another session may hold what it was woken
// for.
const vainPause = 100 * time.Millisecond

// beginWait begins to wait for so long, unless as many wait in this process as may: left is 0 then. It returns what
// Preference-Applied says, and what gives the place back.
func (a *API) beginWait(ctx context.Context, length time.Duration) (left time.Duration, applied string, back func()) {
	if length <= 0 {
		return 0, "", func() {}
	}
	back, ok := a.news.take()
	if !ok {
		return 0, "", func() {}
	}
	scopeOf(ctx).timed.wait(length)
	return length, "wait=" + itoa(int(length/time.Second)), back
}
