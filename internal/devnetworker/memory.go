package devnetworker

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/devnet/journal"
)

// remember is how long the worker remembers tokens and fences: longer than any sequencer asks.
const remember = 30 * 24 * time.Hour

// intent is a signed transaction that was, or was about to be, sent to the ledger.
type intent struct {
	token   string
	account string
	hash    string
	signed  devnet.Signed
	tx      devnet.Tx
}

// said is what a token was answered, or what was about to be: a hash or a refusal.
type said struct {
	hash    string
	refused *refusal
}

// refusal is the error of an answer: it did not go out and never will under this token.
type refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// record is one line of the worker's journal.
type record struct {
	At      time.Time      `json:"at"`
	Line    string         `json:"line,omitempty"`    // its highest fence is
	Fence   int64          `json:"fence,omitempty"`   //
	Token   string         `json:"token,omitempty"`   // it gets this answer:
	Hash    string         `json:"hash,omitempty"`    // a hash
	Refused *refusal       `json:"refused,omitempty"` // or an error
	Account string         `json:"account,omitempty"` // with Signed: an intent
	Signed  *devnet.Signed `json:"signed,omitempty"`
	Void    string         `json:"void,omitempty"` // an intent that certainly never reached the ledger
}

// memory is what the worker knows of the past. It is safe for concurrent use.
type memory struct {
	journal *journal.Journal

	mu      sync.Mutex
	upTo    int64
	fences  map[string]int64     // by line
	tokens  map[string]said      // by token
	hashes  map[string]*intent   // by hash
	intents map[string][]*intent // by transaction, oldest first, without void ones
}

// recall opens the memory in a directory.
func recall(dir string, now time.Time) (*memory, error) {
	m := &memory{fences: map[string]int64{}, tokens: map[string]said{}, hashes: map[string]*intent{},
		intents: map[string][]*intent{}}
	path := filepath.Join(dir, "worker.journal")
	err := prune(path, now.Add(-remember))
	if err != nil {
		return nil, err
	}
	m.journal, err = journal.Open(path, func(line []byte) error {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		return m.learn(r)
	})
	return m, err
}

// note writes records; sync makes them durable.
func (m *memory) note(records ...record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := make([]any, len(records))
	for i := range records {
		records[i].At = time.Now().UTC()
		lines[i] = records[i]
	}
	upTo, err := m.journal.Append(lines...)
	if err != nil {
		return err
	}
	m.upTo = upTo
	for _, r := range records {
		if err := m.learn(r); err != nil {
			return err
		}
	}
	return nil
}

// sync returns once everything noted so far is durable.
func (m *memory) sync() error {
	m.mu.Lock()
	upTo := m.upTo
	m.mu.Unlock()
	return m.journal.Sync(upTo)
}

// learn takes a record into the maps. The lock is held.
func (m *memory) learn(r record) error {
	if r.Line != "" {
		m.fences[r.Line] = max(m.fences[r.Line], r.Fence)
	}
	if r.Signed != nil {
		tx, err := r.Signed.Open()
		if err != nil {
			return err
		}
		i := &intent{token: r.Token, account: r.Account, hash: r.Signed.Hash(), signed: *r.Signed, tx: tx}
		m.hashes[i.hash] = i
		id := transactionOf(r.Token)
		m.intents[id] = append(m.intents[id], i)
		m.tokens[r.Token] = said{hash: i.hash}
	}
	if r.Hash != "" || r.Refused != nil {
		m.tokens[r.Token] = said{hash: r.Hash, refused: r.Refused}
	}
	if i := m.hashes[r.Void]; i != nil {
		id := transactionOf(i.token)
		for n, other := range m.intents[id] {
			if other == i {
				m.intents[id] = append(m.intents[id][:n:n], m.intents[id][n+1:]...)
				break
			}
		}
		delete(m.hashes, r.Void)
		if m.tokens[i.token].hash == i.hash {
			delete(m.tokens, i.token)
		}
	}
	return nil
}

// raise says whether a fence is at least the highest of its line, and remembers it; work without a line is never late.
func (m *memory) raise(line string, fence int64) (ok bool, err error) {
	m.mu.Lock()
	highest, known := m.fences[line]
	m.mu.Unlock()
	if fence < highest {
		return false, nil
	}
	if line == "" || known && fence == highest {
		return true, nil
	}
	return true, m.note(record{Line: line, Fence: fence})
}

// stale says whether a higher fence than this one came on the line.
func (m *memory) stale(line string, fence int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fence < m.fences[line]
}

// answered returns what a token was answered.
func (m *memory) answered(token string) (said, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.tokens[token]
	return s, ok
}

// of returns the intents of a transaction, oldest first.
func (m *memory) of(transaction string) []*intent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*intent(nil), m.intents[transaction]...)
}

// size is how many tokens and queues are remembered.
func (m *memory) size() (tokens, queues int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.tokens), len(m.fences)
}

// pruneFrom is the size from which a journal is worth pruning.
var pruneFrom int64 = 4 << 20

// prune leaves out what is older than before.
func prune(path string, before time.Time) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size() < pruneFrom {
		return err
	}
	var young []json.RawMessage
	old := 0
	j, err := journal.Open(path, func(line []byte) error {
		var r struct{ At time.Time }
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		if r.At.Before(before) {
			old++
		} else {
			young = append(young, append(json.RawMessage(nil), line...))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := j.Close(); err != nil || old < len(young) {
		return err
	}
	return journal.Rewrite(path, func(add func(any) error) error {
		for _, line := range young {
			if err := add(line); err != nil {
				return err
			}
		}
		return nil
	})
}
