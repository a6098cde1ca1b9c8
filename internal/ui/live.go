package ui

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/safe"
)

// live keeps pages up to date that are being looked at. However many are open, one page is read again at a time, at
// most one in Config.Every: each page has its turn, and all who look at it get what was read. It stops when no page is
// looked at. The part "live" of a page is sent, which holds no form and is the same for all with the same role.
type live struct {
	ui *UI

	mu      sync.Mutex
	topics  []*topic
	running bool
	streams int
}

// topic is a page that is being looked at, by those who may see the same.
type topic struct {
	url, as string
	viewers []*viewer
}

// viewer is one browser that looks at a page.
type viewer struct {
	v    *visit
	news chan []byte // holds the newest alone
}

// streamed is how long a stream lasts, heard how long a browser may take to read an event, and streamsMost how many
// streams a process has. Those who look at a page are asked for their sessions each askedAgain.
const (
	askedAgain  = 10 * time.Second
	streamed    = 10 * time.Minute
	heard       = 10 * time.Second
	streamsMost = 1000
)

// serve streams the live part of a page, which the visitor may read: that has been asked by loading it.
func (l *live) serve(w http.ResponseWriter, v *visit) {
	conn := http.NewResponseController(w)
	me := &viewer{v, make(chan []byte, 1)}
	if !l.join(me) {
		http.Error(w, "too many pages are looked at in this process", http.StatusTooManyRequests)
		return
	}
	defer l.leave(me)
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	ctx, cancel := context.WithTimeout(v.r.Context(), streamed)
	defer cancel()
	_ = conn.SetReadDeadline(time.Time{})
	if _, err := w.Write([]byte(": \n\n")); err != nil || conn.Flush() != nil {
		return
	}
	for asked := time.Now(); !l.ui.stopped(ctx); {
		select {
		case <-ctx.Done():
			return
		case <-l.ui.Stop:
			return
		case text, on := <-me.news:
			if !on {
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
			if _, err := w.Write(event(text)); err != nil || conn.Flush() != nil {
				return
			}
		}
	}
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
	if l.streams == streamsMost {
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
			return true
		}
	}
	l.topics = append(l.topics, &topic{url, as, []*viewer{me}})
	return true
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

// sees says what a visitor may see: others with the same get the same live pages.
func (v *visit) sees() string {
	switch {
	case v.who == nil:
		return ""
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
			continue
		}
		l.tell(t, text)
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
	t := l.topics[0]
	l.topics = append(l.topics[1:len(l.topics):len(l.topics)], t)
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
	return execute(s.file, "live", s)
}

// hangUp ends the stream of one viewer.
func (l *live) hangUp(me *viewer) {
	l.leave(me)
	close(me.news)
}

// tell gives all who look at a page what was read; one who is slow gets the newest alone.
func (l *live) tell(t *topic, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range t.viewers {
		select {
		case <-x.news:
		default:
		}
		select {
		case x.news <- text:
		default:
		}
	}
}
