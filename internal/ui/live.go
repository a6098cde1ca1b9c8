package ui

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/safe"
)

// live keeps pages up to date that are being looked at. However many are open, one page is read again at a time, at
// most one in Config.Every: each page has its turn, and all who look at it get what was read. It stops when no page is
// looked at. One who comes to look reads nothing, and gets what was read last. The part "live" of a page is sent, which
// holds no form and is the same for all with the same role.
type live struct {
	ui *UI

	mu      sync.Mutex
	topics  []*topic
	running bool
	streams int
	turns   int
}

// topic is a page that is being looked at, by those who may see the same.
type topic struct {
	url, as string
	viewers []*viewer
	last    *news // of the last turn; nil: it had none yet
}

// news is what the turn of a page has come to: its live part, or why it cannot be read.
type news struct {
	text []byte
	err  error
}

// viewer is one browser that looks at a page.
type viewer struct {
	v    *visit
	news chan *news // holds the newest alone
}

// streamed is how long a stream lasts, heard how long a browser may take to read an event and how long a stream waits
// for its first. A process has streamsMost streams, of one session streamsEach, since each page that is looked at takes
// turns of the others. Those who look at a page are asked for their sessions each askedAgain.
const (
	askedAgain  = 10 * time.Second
	streamed    = 10 * time.Minute
	heard       = 10 * time.Second
	streamsMost = 1000
	streamsEach = 30
)

// serve streams the live part of a page. The first turn says whether the visitor may read it, and that it has one; the
// answer begins after it, or without it where many pages are looked at.
func (l *live) serve(w http.ResponseWriter, v *visit) {
	conn := http.NewResponseController(w)
	me := &viewer{v, make(chan *news, 1)}
	if !l.join(me) {
		http.Error(w, "too many pages are looked at in this process, or by you", http.StatusTooManyRequests)
		return
	}
	defer l.leave(me)
	ctx, cancel := context.WithTimeout(v.r.Context(), streamed)
	defer cancel()
	first, err := l.first(ctx, me)
	if err != nil {
		l.ui.refuseTo(w, v, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	_ = conn.SetReadDeadline(time.Time{})
	if _, err := w.Write(append([]byte(": \n\n"), first...)); err != nil || conn.Flush() != nil {
		return
	}
	for asked := time.Now(); !l.ui.stopped(ctx); {
		select {
		case <-ctx.Done():
			return
		case <-l.ui.Stop:
			return
		case told, on := <-me.news:
			if !on || told.err != nil {
				return
			}
			// the session has ended, or its holder may see something else by now: then the browser comes again
			if time.Since(asked) >= askedAgain {
				if again, err := l.ui.visitor(v.r); err != nil || again == nil || again.sees() != v.sees() {
					return
				}
				asked = time.Now()
			}
			_ = conn.SetWriteDeadline(time.Now().Add(heard))
			if _, err := w.Write(event(told.text)); err != nil || conn.Flush() != nil {
				return
			}
		}
	}
}

// first waits for the event with which a stream begins; nil: its page has not had its turn yet. Each second turn is for
// a page that was not read yet.
func (l *live) first(ctx context.Context, me *viewer) ([]byte, error) {
	select {
	case <-ctx.Done():
	case <-l.ui.Stop:
	case <-time.After(heard):
		return nil, nil
	case told, on := <-me.news:
		switch {
		case on && told.err != nil:
			return nil, told.err
		case on:
			return event(told.text), nil
		}
	}
	return nil, fault.New(fault.Retry, "overloaded", "the page was not read: try again")
}

// event is a part of a page as an event of a stream.
func event(text []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.SplitSeq(bytes.ReplaceAll(text, []byte("\r"), []byte(" ")), []byte("\n")) {
		fmt.Fprintf(&b, "data: %s\n", line)
	}
	b.WriteString("\n")
	return b.Bytes()
}

// join adds a viewer, unless there are too many.
func (l *live) join(me *viewer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams == streamsMost || l.of(me.v.cookie) >= streamsEach {
		return false
	}
	l.streams++
	if !l.running {
		l.running = true
		go safe.Run("live pages", l.run)
	}
	url, as := me.v.r.URL.RequestURI(), me.v.sees()
	for _, t := range l.topics {
		if t.url == url && t.as == as {
			t.viewers = append(t.viewers, me)
			if t.last != nil {
				me.news <- t.last
			}
			return true
		}
	}
	l.topics = append(l.topics, &topic{url: url, as: as, viewers: []*viewer{me}})
	return true
}

// of is how many streams a session has.
func (l *live) of(cookie string) (n int) {
	for _, t := range l.topics {
		for _, x := range t.viewers {
			if x.v.cookie == cookie {
				n++
			}
		}
	}
	return n
}

func (l *live) leave(me *viewer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, t := range l.topics {
		for j, x := range t.viewers {
			if x != me {
				continue
			}
			l.streams--
			t.viewers = append(t.viewers[:j:j], t.viewers[j+1:]...)
			if len(t.viewers) == 0 {
				l.topics = append(l.topics[:i:i], l.topics[i+1:]...)
			}
			return
		}
	}
}

// sees says what a visitor may see: others with the same get the same live pages. Without sign-in the API refuses those
// that a foreign page sends here, by their Host and Origin.
func (v *visit) sees() string {
	switch {
	case v.who == nil:
		return v.r.Host + " " + v.r.Header.Get("Origin")
	case v.who.Key != nil:
		return fmt.Sprint(v.who.Key.ContextID, v.who.Key.Role, v.who.Key.Only)
	}
	return fmt.Sprint(v.who.Roles) // a map is printed in the order of its keys
}

// run reads one page after the other, while any is looked at. After a panic the next one who looks runs it again.
func (l *live) run() {
	ended := false
	defer func() {
		l.mu.Lock()
		l.running = l.running && ended
		l.mu.Unlock()
	}()
	tick := time.NewTicker(l.ui.Every)
	defer tick.Stop()
	for range tick.C {
		t, who := l.turn()
		if t == nil {
			ended = true
			return
		}
		text, err := l.read(who, t.as)
		if err != nil {
			l.ui.Log.Debug("a page that is looked at cannot be read", "page", t.url, "error", err)
		}
		if err == nil || problemOf(err).Status < http.StatusInternalServerError {
			l.tell(t, &news{text, err})
		}
	}
}

// turn is the next page, and one who looks at it; nil when none is looked at, which ends the run.
func (l *live) turn() (*topic, *viewer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.topics) == 0 {
		l.running = false
		return nil, nil
	}
	next := 0
	if l.turns++; l.turns%2 == 1 {
		next = max(0, slices.IndexFunc(l.topics, func(t *topic) bool { return t.last == nil }))
	}
	t := l.topics[next]
	l.topics = append(slices.Delete(l.topics, next, next+1), t)
	who := t.viewers[0]
	t.viewers = append(t.viewers[1:len(t.viewers):len(t.viewers)], who)
	return t, who
}

// read makes the live part of a page anew, as one of those who look at it: all may see the same. Where that one's
// session has ended, or shows something else by now, the next turn takes another.
func (l *live) read(who *viewer, as string) ([]byte, error) {
	v, err := l.ui.visitor(who.v.r)
	if err != nil {
		return nil, err
	}
	if v == nil || v.sees() != as {
		l.hangUp(who)
		return nil, fmt.Errorf("the session has ended, or its roles are others")
	}
	v.Context = who.v.Context
	s, err := v.load()
	if err != nil {
		return nil, err
	}
	if s.Live == "" {
		return nil, fault.New(fault.NotFound, "not_found", "no part of this page is kept up to date")
	}
	text, err := l.ui.execute(s.file, "live", s)
	return fmt.Appendf(text, "<data id=\"present\" value=\"%s\"></data>", s.Stamp()), err
}

// hangUp ends the stream of one viewer.
func (l *live) hangUp(me *viewer) {
	l.leave(me)
	close(me.news)
}

// tell gives all who look at a page what was read; one who is slow gets the newest alone.
func (l *live) tell(t *topic, told *news) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.last = told
	for _, x := range t.viewers {
		select {
		case <-x.news:
		default:
		}
		select {
		case x.news <- told:
		default:
		}
	}
}
