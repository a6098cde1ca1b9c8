package remotetest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
)

// Fake is a worker whose behaviour a test scripts and flips while it runs. Without a script it accepts
// each dispatch with a hash, answers a repeated token like the first time, knows every hash as pending
// until a later attempt names it, and takes every hook. It is safe for concurrent use.
type Fake struct {
	addr    string // fixed once it listens
	serving sync.WaitGroup

	mu         sync.Mutex
	server     *http.Server
	gone       chan struct{} // closed when the listener is: ends what hangs
	changed    chan struct{} // closed and renewed with every call that is logged
	scripts    []*script
	calls      []Seen
	answers    map[string]answer // by token: the calls that were executed, and their answers
	byHash     map[string]string // hash -> token
	executed   map[string]int    // by token: how often it was executed; 1 unless dedupe is off
	statuses   map[string]outbox.Status
	replaced   map[string]bool  // hashes that a later attempt named: unknown, unless a status says otherwise
	fences     map[string]int64 // by line
	seq        int
	flags      flags
	maxRetries *int
}

// flags are the habits of a fake that are on or off.
type flags struct {
	noDedupe, fencing, noStatus, noBatch, noHooks, statusDown, includeAll bool
}

// answer is what the fake said to a token, to be said again.
type answer struct {
	status int
	body   []byte
}

// NewFake starts a fake worker on a free port of 127.0.0.1; it stops at the end of t.
func NewFake(t testing.TB) *Fake {
	t.Helper()
	f := &Fake{
		addr:     "127.0.0.1:0",
		changed:  make(chan struct{}),
		answers:  map[string]answer{},
		byHash:   map[string]string{},
		executed: map[string]int{},
		statuses: map[string]outbox.Status{},
		replaced: map[string]bool{},
		fences:   map[string]int64{},
	}
	if err := f.listen(); err != nil {
		t.Fatalf("start a fake worker: %v", err)
	}
	t.Cleanup(f.Refuse)
	return f
}

// URL is the worker URL of the fake; it stays the same through Refuse and Listen.
func (f *Fake) URL() string { return "http://" + f.addr }

func (f *Fake) listen() error {
	l, err := net.Listen("tcp", f.addr)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server != nil {
		return errors.Join(errors.New("it listens already"), l.Close())
	}
	if strings.HasSuffix(f.addr, ":0") {
		f.addr = l.Addr().String()
	}
	f.gone = make(chan struct{})
	f.server = &http.Server{Handler: f}
	server := f.server
	f.serving.Go(func() { server.Serve(l) })
	return nil
}

// Refuse closes the listener and all connections: from now on connections are refused, and calls in
// flight break off.
func (f *Fake) Refuse() {
	f.mu.Lock()
	server := f.server
	f.server = nil
	if server != nil {
		close(f.gone)
	}
	f.mu.Unlock()
	if server != nil {
		server.Close()
		f.serving.Wait()
	}
}

// Listen opens the same port again after Refuse, with all that the fake remembers.
func (f *Fake) Listen(t testing.TB) {
	t.Helper()
	f.mu.Lock()
	open := f.server != nil
	f.mu.Unlock()
	if open {
		return
	}
	if err := f.listen(); err != nil {
		t.Fatalf("let the fake worker listen again on %s: %v", f.addr, err)
	}
}

// Forget makes the fake forget tokens, hashes, statuses and fences, as after the loss of its disk. The
// log stays.
func (f *Fake) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.answers)
	clear(f.byHash)
	clear(f.executed)
	clear(f.statuses)
	clear(f.replaced)
	clear(f.fences)
}

func (f *Fake) set(b *bool, on bool) {
	f.mu.Lock()
	*b = on
	f.mu.Unlock()
}

// Dedupe says whether a repeated token is answered like the first time (it is) or executed again.
func (f *Fake) Dedupe(on bool) { f.set(&f.flags.noDedupe, !on) }

// Fencing says whether a fence lower than one seen for the same line is refused with 409 (it is not).
func (f *Fake) Fencing(on bool) { f.set(&f.flags.fencing, on) }

// HasStatus says whether /status and /status:batch exist (they do), else they are 404.
func (f *Fake) HasStatus(on bool) { f.set(&f.flags.noStatus, !on) }

// HasBatch says whether /status:batch exists (it does), else it is 404.
func (f *Fake) HasBatch(on bool) { f.set(&f.flags.noBatch, !on) }

// HasHooks says whether /on-success and /on-failure exist (they do), else they are 404.
func (f *Fake) HasHooks(on bool) { f.set(&f.flags.noHooks, !on) }

// StatusDown says whether questions for a status are answered with 503 (they are not).
func (f *Fake) StatusDown(on bool) { f.set(&f.flags.statusDown, on) }

// IncludeAll says whether every accepted hash without a status of its own is included at once in block
// 1, six deep (it is pending).
func (f *Fake) IncludeAll(on bool) { f.set(&f.flags.includeAll, on) }

// SetMaxRetries makes /max-retries answer n; nil, as at the start, makes it 404.
func (f *Fake) SetMaxRetries(n *int) {
	f.mu.Lock()
	f.maxRetries = n
	f.mu.Unlock()
}

// SetStatus says what is known of a hash or a token from now on.
func (f *Fake) SetStatus(hashOrToken string, st outbox.Status) {
	f.mu.Lock()
	f.statuses[hashOrToken] = st
	f.mu.Unlock()
}

// Executed counts how often a token was executed: accepted or done, and not answered from memory.
func (f *Fake) Executed(token string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.executed[token]
}

// WaitCall waits until a call has been logged that m matches, and returns the first such.
func (f *Fake) WaitCall(ctx context.Context, m Match) (Seen, error) {
	seen, err := f.WaitCalls(ctx, m, 1)
	if err != nil {
		return Seen{}, err
	}
	return seen[0], nil
}

// WaitCalls waits until n calls have been logged that m matches, and returns those.
func (f *Fake) WaitCalls(ctx context.Context, m Match, n int) ([]Seen, error) {
	for {
		f.mu.Lock()
		changed, seen := f.changed, f.matching(m)
		f.mu.Unlock()
		if len(seen) >= n {
			return seen[:n], nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return seen, ctx.Err()
		}
	}
}

// Calls returns the calls so far that m matches, oldest first.
func (f *Fake) Calls(m Match) []Seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.matching(m)
}

func (f *Fake) matching(m Match) (out []Seen) {
	for _, c := range f.calls {
		if m.fits(c) {
			out = append(out, c)
		}
	}
	return out
}
