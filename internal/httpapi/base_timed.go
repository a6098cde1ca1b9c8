package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/safe"
)

// timed is the writer of one answer, which holds its request to its times: the body arrives within Limits.BodyRead, the
// answer begins within Limits.Answer (what the request itself asks to wait comes on top), and the client reads it
// within Limits.Taken; a stream sets that anew with each event. It wraps every handler that could refuse a request, so
// that net/http also stops in time to read a body after the answer.
//
// An answer that is given while the body is still on its way closes the connection: the rest of a refused request is
// not read. Once the process is about to end, every answer closes its connection.
type timed struct {
	http.ResponseWriter
	api    *API
	conn   *http.ResponseController
	about  *scope
	change bool               // the request is to change something
	head   bool               // its answer has no body
	body   *arriving          // nil: it has none
	giveUp context.CancelFunc // ends the context of the request
	timer  *time.Timer

	mu    sync.Mutex
	begun bool // the handler answers, or has returned
	over  bool // the handler was too late: the client has been told so
}

// arriving is a body that knows whether all of it has arrived.
type arriving struct {
	io.ReadCloser
	whole atomic.Bool
}

// Read notes the end.
func (b *arriving) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { //nolint:errorlint // readers return it as it is
		b.whole.Store(true)
	}
	return n, err
}

// linger is how long after a refusal the rest of a body is read and dropped. A client that sends all of it before it
// reads gets the answer so, and no reset.
const linger = time.Second

// time begins the times of a request, and has its body tell when it has arrived.
func (a *API) time(w http.ResponseWriter, r *http.Request, s *scope, giveUp context.CancelFunc) *timed {
	t := &timed{
		ResponseWriter: w,
		api:            a,
		conn:           http.NewResponseController(w),
		about:          s,
		change:         r.Method != http.MethodGet && r.Method != http.MethodHead,
		head:           r.Method == http.MethodHead,
		giveUp:         giveUp,
	}
	if r.Body != nil && r.Body != http.NoBody {
		t.body = &arriving{ReadCloser: r.Body}
		r.Body = t.body
		// net/http takes it back when all has arrived
		_ = t.conn.SetReadDeadline(time.Now().Add(seconds(a.Limits.BodyRead)))
	}
	t.timer = time.AfterFunc(seconds(a.Limits.Answer), safe.Func("late answer", func() {
		t.late(fmt.Sprintf("this was not answered within %d s", a.Limits.Answer))
	}))
	a.requests.mu.Lock()
	a.requests.open[t] = struct{}{}
	a.requests.mu.Unlock()
	return t
}

// requests are those whose handlers have not returned.
type requests struct {
	mu   sync.Mutex
	open map[*timed]struct{}
}

// GiveUp answers all requests that are still open, since the process ends: their changes are told as unknown, not cut
// off.
func (a *API) GiveUp() {
	a.requests.mu.Lock()
	open := slices.Collect(maps.Keys(a.requests.open))
	a.requests.mu.Unlock()
	for _, t := range open {
		t.late("this process stops before it was answered")
	}
}

// arrived says whether there is no more of the request to come.
func (t *timed) arrived() bool { return t.body == nil || t.body.whole.Load() }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// Unwrap lets http.ResponseController reach the connection.
func (t *timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// WriteHeader begins the answer, unless it comes too late.
func (t *timed) WriteHeader(status int) {
	if t.begin() {
		t.ResponseWriter.WriteHeader(status)
	}
}

// Write writes a part of the answer. A part that comes too late is dropped: http.ErrHandlerTimeout.
func (t *timed) Write(p []byte) (int, error) {
	if !t.begin() {
		return 0, http.ErrHandlerTimeout
	}
	return t.ResponseWriter.Write(p)
}

// begin says whether the handler may answer, and sets what holds for an answer when it does so first.
func (t *timed) begin() bool {
	t.mu.Lock()
	first, over := !t.begun, t.over
	t.begun = true
	t.mu.Unlock()
	if !first || over {
		return !over
	}
	t.timer.Stop()
	unread := !t.arrived()
	if unread || t.api.leaving.Load() {
		t.Header().Set("Connection", "close")
	}
	if unread {
		_ = t.conn.SetReadDeadline(time.Now().Add(linger))
	}
	_ = t.conn.SetWriteDeadline(time.Now().Add(seconds(t.api.Limits.Taken)))
	return true
}

// drop reads the rest of a request that was refused before it had arrived, for linger at most. net/http reads no more
// than 256 KiB of it, and a client that is still sending would have a reset instead of the answer.
func (t *timed) drop() {
	t.mu.Lock()
	answered := t.begun && !t.over
	t.mu.Unlock()
	if answered && !t.arrived() {
		_ = t.conn.Flush()
		_, _ = io.Copy(io.Discard, t.body)
	}
}

// wait gives the request d more, for which it asked itself.
func (t *timed) wait(d time.Duration) {
	if t != nil && t.timer.Stop() { // else it answers already
		t.timer.Reset(d + seconds(t.api.Limits.Answer))
	}
}

// end says that the handler has returned. net/http goes on with the connection behind it, so late must have ended, or
// not begin any more.
func (t *timed) end() {
	t.timer.Stop()
	t.api.requests.mu.Lock()
	delete(t.api.requests.open, t)
	t.api.requests.mu.Unlock()
	t.mu.Lock()
	t.begun = true
	t.mu.Unlock()
}

// late answers in the place of a handler that has not answered, and says why, takes its connection, and ends its
// context. The handler may be in a commit, which nothing ends: its end is then unknown. A body that is still on its
// way has a deadline of its own, and nothing has been done for it.
func (t *timed) late(why string) {
	t.mu.Lock()
	if t.begun || t.over || !t.arrived() {
		t.mu.Unlock()
		return
	}
	t.over = true
	conn, _, err := t.conn.Hijack()
	t.mu.Unlock()
	t.giveUp()
	if err != nil { // there is no connection, as in a test
		return
	}
	defer conn.Close()
	err = fault.New(fault.Retry, "overloaded", "%s: send it again", why)
	if t.change {
		err = fault.New(fault.Retry, "commit_unknown",
			"%s, and may have been done, or be done yet: send it again, with the same Idempotency-Key if it has one",
			why)
	}
	t.api.Log.Warn("a request was not answered in time", "request", t.about.RequestID, "code", fault.CodeOf(err))
	p := describe(fault.As(err), t.about.RequestID)
	body, _ := json.Marshal(p)
	head := p.GetHeaders()
	head.Set("Content-Type", "application/problem+json")
	head.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	head.Set("Postern-Request-Id", t.about.RequestID)
	answer := http.Response{
		StatusCode:    p.Status,
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        head,
		ContentLength: int64(len(body)),
		Body:          io.NopCloser(bytes.NewReader(body)),
		Close:         true,
	}
	if t.head {
		answer.Request = &http.Request{Method: http.MethodHead}
	}
	_ = conn.SetDeadline(time.Now().Add(linger))
	_ = answer.Write(conn)
}
