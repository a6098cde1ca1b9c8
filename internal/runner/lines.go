package runner

import (
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/sandbox"
)

const (
	logEvery = 250 * time.Millisecond
	logMost  = 128 << 10 // bytes of text in one call
	logLines = 1000      // in one call: the server takes no more
)

// lines sends what a script writes to the server. A server that does not answer holds up no script: the lines wait
// here, and the sandbox bounds them.
type lines struct {
	try  *try
	mu   sync.Mutex
	n    int    // of the last line
	wait []Line // not sent yet
	more chan struct{}
	end  chan struct{}
	sent chan struct{}
}

func newLines(t *try) *lines {
	l := &lines{try: t, more: make(chan struct{}, 1), end: make(chan struct{}), sent: make(chan struct{})}
	go l.send()
	return l
}

// add numbers a line and returns at once.
func (l *lines) add(line sandbox.Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	l.wait = append(l.wait, Line{N: l.n, Stream: line.Stream, Text: line.Text})
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// goOn numbers lines behind those of an execution of the same try that was killed, and says that it was.
func (l *lines) goOn(before lost) {
	l.mu.Lock()
	l.n = before.lines
	l.mu.Unlock()
	l.add(sandbox.Line{Stream: "runner", Text: "begins again; what ran before was killed: " + before.why})
}

// count is the number of the last line.
func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// finish returns when all lines are sent, or the try is lost.
func (l *lines) finish() {
	close(l.end)
	<-l.sent
}

// send sends batches until the end, or until the try is lost.
func (l *lines) send() {
	defer close(l.sent)
	for ended := false; ; {
		batch := l.batch()
		switch {
		case len(batch) > 0:
			if !l.post(batch) {
				return
			}
		case ended:
			return
		}
		if len(batch) > 0 && ended {
			continue
		}
		select {
		case <-l.try.ctx.Done():
			return
		case <-l.end:
			ended = true
		case <-l.more:
			select { // lines that come together go together
			case <-l.end:
				ended = true
			case <-time.After(logEvery):
			}
		}
	}
}

// batch takes the lines of the next call.
func (l *lines) batch() []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, size := 0, 0
	for n < len(l.wait) && n < logLines && (n == 0 || size+len(l.wait[n].Text) <= logMost) {
		size += len(l.wait[n].Text)
		n++
	}
	batch := l.wait[:n:n]
	l.wait = l.wait[n:]
	if len(l.wait) > 0 {
		select {
		case l.more <- struct{}{}:
		default:
		}
	}
	return batch
}

// post sends a batch until the server has it. false: the try is lost.
func (l *lines) post(batch []Line) bool {
	t := l.try
	r := t.runner
	body := encode(LogRequest{Lines: batch})
	err := r.repeat(t.ctx, "log", refused, func() error {
		return r.post(t.ctx, 15*time.Second, path(PathLog, t.job.Try), t.job.Fence, body, nil)
	})
	switch {
	case lostBy(err):
		t.drop(err.Error())
		return false
	case err != nil && t.ctx.Err() == nil:
		t.log.Warn("the server refuses lines of the log", "from", batch[0].N, "lines", len(batch), "error", err)
	}
	return t.ctx.Err() == nil
}
