package scenario

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// worker is a fake worker, and how many of its calls the story has told.
type worker struct {
	*remotetest.Fake
	told int
}

// worker returns the worker of that name; a new one starts.
func (s *story) worker(name string) *worker {
	if s.workers[name] == nil {
		s.workers[name] = &worker{Fake: remotetest.NewFake(s.t)}
	}
	return s.workers[name]
}

// replies are the answers that a story can give; the part behind the colon is theirs.
var replies = map[string]func(arg string) remotetest.Reply{
	"done":     func(string) remotetest.Reply { return remotetest.Done(map[string]bool{"ok": true}) },
	"accept":   remotetest.Accept,
	"error":    func(code string) remotetest.Reply { return remotetest.Fail(number(code), "says the worker") },
	"class":    func(class string) remotetest.Reply { return remotetest.FailWith(map[string]any{"class": class}) },
	"http":     func(code string) remotetest.Reply { n, _ := strconv.Atoi(code); return remotetest.HTTP(n, "") },
	"json":     remotetest.Body,
	"drop":     func(string) remotetest.Reply { return remotetest.Drop() },
	"hang":     func(string) remotetest.Reply { return remotetest.Hang() },
	"garbage":  func(string) remotetest.Reply { return remotetest.Garbage() },
	"huge":     func(string) remotetest.Reply { return remotetest.Huge() },
	"redirect": remotetest.Redirect,
}

// number is a code as JSON would have it: 20203 is a number, ACCOUNT_NOT_FOUND is not.
func number(code string) any {
	if n, err := strconv.Atoi(code); err == nil {
		return n
	}
	return code
}

// reply reads "accept:0xa", "error:20203", or with "+drop", "+hang" or "+cut" what is done and not said.
func reply(text string) (remotetest.Reply, error) {
	text, manner, _ := strings.Cut(text, "+")
	name, arg, _ := strings.Cut(text, ":")
	do, ok := replies[name]
	if !ok {
		return remotetest.Reply{}, fmt.Errorf("no worker answers %q", text)
	}
	switch r := do(arg); manner {
	case "":
		return r, nil
	case "drop":
		return r.ThenDrop(), nil
	case "hang":
		return r.ThenHang(), nil
	case "cut":
		return r.ThenCut(), nil
	}
	return remotetest.Reply{}, fmt.Errorf("no worker answers and then %q", manner)
}

// answer: answer UID|* REPLY... [on=worker] [op=dispatch] [account=]. The last reply counts from then on;
// a later answer goes before an earlier one, so that of * stands first.
func answer(s *story, c *command, _ say) error {
	m := remotetest.Match{Op: c.option("op", remotetest.OpDispatch), Account: c.option("account", "")}
	if m.UID = c.word(); m.UID == "*" {
		m.UID = ""
	}
	var list []remotetest.Reply
	for _, text := range c.rest() {
		r, err := reply(text)
		if err != nil {
			return err
		}
		list = append(list, r)
	}
	s.worker(c.option("on", "worker")).Script(m, list...)
	return nil
}

// status: status HASH|UID.ATTEMPT STATE [height=] [confirmations=] [reason=] [nonce=] [hash=] [on=worker]
func status(s *story, c *command, _ say) (err error) {
	key := c.word()
	if uid, attempt, ok := strings.Cut(key, "."); ok {
		if id, known := s.ids[uid]; known {
			t, err := s.store.Transaction(s.ctx, s.by.Context, id)
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(attempt)
			if err != nil {
				return err
			}
			key = id.Token(t.ReceivedAt, n)
		}
	}
	st := outbox.Status{State: outbox.StatusState(c.word()), BlockHeight: c.option("height", ""),
		FailureReason: c.option("reason", ""),
		Nonce:         c.option("nonce", ""), Hash: c.option("hash", "")}
	if st.Confirmations, err = strconv.Atoi(c.option("confirmations", "0")); err != nil {
		return err
	}
	s.worker(c.option("on", "worker")).SetStatus(key, st)
	return nil
}

// habits are what a story can make a worker do, or stop doing.
var habits = map[string]func(*story, *worker){
	"away":             func(_ *story, w *worker) { w.Refuse() },
	"back":             func(s *story, w *worker) { w.Listen(s.t) },
	"forgets":          func(_ *story, w *worker) { w.Forget() },
	"unscripted":       func(_ *story, w *worker) { w.Unscript() },
	"without-dedupe":   func(_ *story, w *worker) { w.Dedupe(false) },
	"fencing":          func(_ *story, w *worker) { w.Fencing(true) },
	"without-status":   func(_ *story, w *worker) { w.HasStatus(false) },
	"with-status":      func(_ *story, w *worker) { w.HasStatus(true) },
	"without-batch":    func(_ *story, w *worker) { w.HasBatch(false) },
	"without-hooks":    func(_ *story, w *worker) { w.HasHooks(false) },
	"with-hooks":       func(_ *story, w *worker) { w.HasHooks(true) },
	"status-down":      func(_ *story, w *worker) { w.StatusDown(true) },
	"status-up":        func(_ *story, w *worker) { w.StatusDown(false) },
	"includes-at-once": func(_ *story, w *worker) { w.IncludeAll(true) },
}

// workerIs: worker HABIT... [max_retries=n] [on=worker]
func workerIs(s *story, c *command, _ say) error {
	w := s.worker(c.option("on", "worker"))
	if text := c.option("max_retries", ""); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		w.SetMaxRetries(&n)
	}
	for _, h := range c.rest() {
		do, ok := habits[h]
		if !ok {
			return fmt.Errorf("no worker is %q", h)
		}
		do(s, w)
	}
	return nil
}
