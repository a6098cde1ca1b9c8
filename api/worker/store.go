package worker

import (
	"context"
	"sync"
	"time"
)

// Store remembers tokens and fences; by it a token happens once. Its answers must be as durable as the worker is to be.
// One worker process uses a store at a time. It is safe for concurrent use; calls for one token come one after the
// other.
type Store interface {
	// Raise keeps a fence for line unless a higher one is kept; lower says that one is.
	Raise(ctx context.Context, line string, fence int64) (lower bool, err error)

	// Begin keeps token as begun, unless it is kept already. It returns what was kept before: the zero
	// Entry for a new one.
	Begin(ctx context.Context, token, typ string) (before Entry, err error)

	// End keeps the answer of a token that began; nil forgets the token, as if it had never come.
	End(ctx context.Context, token string, a *Answer) error

	// Find returns what is kept of a token, or if that is "", of the token whose answer has this hash. The
	// zero Entry: nothing.
	Find(ctx context.Context, token, hash string) (Entry, error)
}

// Entry is what is kept of a token.
type Entry struct {
	Token  string
	Type   string
	Open   bool // it began, and its end is unknown
	Answer Answer
	At     time.Time
}

// week is how long something is remembered unless told otherwise: longer than Postern asks after anything
// without an operator noticing.
const week = 7 * 24 * time.Hour

// Memory is a store that a restart empties. Keep is how long things are remembered, 0 for a week.
type Memory struct {
	Keep time.Duration

	mu     sync.Mutex
	tokens map[string]Entry
	hashes map[string]string
	fences map[string]mark
	swept  int // so many things there were after the last sweep
}

type mark struct {
	fence int64
	at    time.Time
}

var _ Store = (*Memory)(nil)

// Raise implements Store.
func (m *Memory) Raise(_ context.Context, line string, fence int64) (lower bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lower, _ = m.raise(line, fence, time.Now())
	return lower, nil
}

func (m *Memory) raise(line string, fence int64, at time.Time) (lower, changed bool) {
	m.init()
	was, known := m.fences[line]
	if known && fence < was.fence {
		return true, false
	}
	m.fences[line] = mark{fence, at}
	return false, !known || was.fence < fence
}

// Begin implements Store.
func (m *Memory) Begin(_ context.Context, token, typ string) (before Entry, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.init()
	before, known := m.tokens[token]
	if !known {
		m.put(Entry{Token: token, Type: typ, Open: true, At: time.Now()})
	}
	return before, nil
}

// End implements Store.
func (m *Memory) End(_ context.Context, token string, a *Answer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.init()
	m.end(token, a, time.Now())
	return nil
}

func (m *Memory) end(token string, a *Answer, at time.Time) {
	e := m.tokens[token]
	if a == nil {
		delete(m.tokens, token)
		return
	}
	m.put(Entry{Token: token, Type: e.Type, Answer: *a, At: at})
}

// Find implements Store.
func (m *Memory) Find(_ context.Context, token, hash string) (Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if token == "" {
		token = m.hashes[hash]
	}
	return m.tokens[token], nil
}

func (m *Memory) init() {
	if m.tokens == nil {
		m.tokens, m.hashes, m.fences = map[string]Entry{}, map[string]string{}, map[string]mark{}
	}
}

func (m *Memory) put(e Entry) {
	m.tokens[e.Token] = e
	if e.Answer.Hash != "" {
		m.hashes[e.Answer.Hash] = e.Token
	}
	if n := len(m.tokens) + len(m.fences); n > 2*m.swept+1024 {
		m.sweep(time.Now())
	}
}

// sweep forgets what is old, whenever there is twice as much as after the last time.
func (m *Memory) sweep(now time.Time) {
	keep := m.Keep
	if keep <= 0 {
		keep = week
	}
	for token, e := range m.tokens {
		if now.Sub(e.At) > keep {
			delete(m.tokens, token)
			if m.hashes[e.Answer.Hash] == token {
				delete(m.hashes, e.Answer.Hash)
			}
		}
	}
	for line, f := range m.fences {
		if now.Sub(f.at) > keep {
			delete(m.fences, line)
		}
	}
	m.swept = len(m.tokens) + len(m.fences)
}
