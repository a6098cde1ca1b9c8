package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// File is a store in one file, to which it appends. A record is on the disk before the call is answered. Calls that
// wait for the disk at the same time share one fsync. After a failure of the disk it refuses everything, since it is
// unknown then what the file holds.
type File struct {
	memory Memory
	path   string
	grow   int // lines that are not worth a new file

	mu      sync.Mutex // the order of lines is that of changes in memory
	file    *os.File
	unlock  io.Closer
	written int64
	lines   int // in the file
	broken  error

	syncing sync.Mutex
	synced  int64
}

var _ Store = (*File)(nil)

// line is one change. Line of a fence, token of an entry.
type line struct {
	Line  string    `json:"line,omitempty"`
	Fence *int64    `json:"fence,omitempty"`
	Token string    `json:"token,omitempty"`
	Type  string    `json:"type,omitempty"`
	Ended bool      `json:"ended,omitempty"`
	Value *Answer   `json:"answer,omitempty"` // nil of an ended one: forgotten
	At    time.Time `json:"at"`
}

// OpenFile opens the store at path, or makes it. It forgets records older than keep (0: a week) and writes the file
// anew without them, now and whenever the file has grown. A last line that a crash cut off was never answered for and
// is left out. Any other line that cannot be read is an error, and so is a file that another process has open.
func OpenFile(path string, keep time.Duration) (*File, error) {
	f := &File{path: path, grow: 1 << 20, memory: Memory{Keep: keep}}
	f.memory.init()
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("open the store %s: %w", path, err)
	}
	if err = f.load(); err == nil {
		err = f.compact()
	}
	if err != nil {
		unlock.Close()
		return nil, fmt.Errorf("open the store %s: %w", path, err)
	}
	f.unlock = unlock
	return f, nil
}

// load plays the lines of the file.
func (f *File) load() error {
	b, err := os.ReadFile(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for n := 1; len(b) > 0; n++ {
		text, rest, whole := bytes.Cut(b, []byte("\n"))
		b = rest
		var l line
		if !whole {
			return nil
		}
		err := json.Unmarshal(text, &l)
		if err == nil && l.Token == "" && l.Fence == nil {
			err = errors.New("neither token nor fence")
		}
		if err != nil {
			return fmt.Errorf("line %d is none of ours (%w): restore the file, or remove it and with it the memory of what was sent", n, err)
		}
		f.play(l)
	}
	return nil
}

func (f *File) play(l line) {
	m := &f.memory
	switch {
	case l.Fence != nil:
		m.raise(l.Line, *l.Fence, l.At)
	case l.Ended:
		if l.Type != "" {
			m.tokens[l.Token] = Entry{Token: l.Token, Type: l.Type}
		}
		m.end(l.Token, l.Value, l.At)
	default:
		m.tokens[l.Token] = Entry{Token: l.Token, Type: l.Type, Open: true, At: l.At}
	}
}

// grown says whether most of a large file is about what is known better or forgotten.
func (f *File) grown() bool {
	return f.lines > f.grow && f.lines > 4*(len(f.memory.tokens)+len(f.memory.fences))
}

// compact writes what is in memory, and young enough, into a new file that takes the place of the old one.
func (f *File) compact() error {
	f.memory.sweep(time.Now())
	next := f.path + ".new"
	file, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	enc := json.NewEncoder(w)
	for name, at := range f.memory.fences {
		err = errors.Join(err, enc.Encode(line{Line: name, Fence: &at.fence, At: at.at}))
	}
	for _, e := range f.memory.tokens {
		l := line{Token: e.Token, Type: e.Type, At: e.At}
		if !e.Open {
			l.Ended, l.Value = true, &e.Answer
		}
		err = errors.Join(err, enc.Encode(l))
	}
	if err = errors.Join(err, w.Flush(), file.Sync()); err == nil {
		err = os.Rename(next, f.path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(f.path))
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.lines = file, len(f.memory.fences)+len(f.memory.tokens)
	return nil
}

// Raise implements Store.
func (f *File) Raise(_ context.Context, name string, fence int64) (lower bool, err error) {
	now := time.Now()
	var changed bool
	err = f.change(func() *line {
		if lower, changed = f.memory.raise(name, fence, now); changed {
			return &line{Line: name, Fence: &fence, At: now}
		}
		return nil
	})
	return lower, err
}

// Begin implements Store.
func (f *File) Begin(ctx context.Context, token, typ string) (before Entry, err error) {
	err = f.change(func() *line {
		before, _ = f.memory.Begin(ctx, token, typ)
		if before.Token != "" {
			return nil
		}
		return &line{Token: token, Type: typ, At: time.Now()}
	})
	return before, err
}

// End implements Store.
func (f *File) End(ctx context.Context, token string, a *Answer) error {
	return f.change(func() *line {
		_ = f.memory.End(ctx, token, a)
		return &line{Token: token, Ended: true, Value: a, At: time.Now()}
	})
}

// Find implements Store.
func (f *File) Find(ctx context.Context, token, hash string) (Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return Entry{}, f.broken
	}
	return f.memory.Find(ctx, token, hash)
}

// change changes the memory, writes the line of it if there is one, and waits until all lines written so far are on the
// disk: do may have found in memory a change of another call, whose line is not on the disk yet.
func (f *File) change(do func() *line) error {
	f.mu.Lock()
	if f.broken != nil {
		defer f.mu.Unlock()
		return f.broken
	}
	if l := do(); l != nil {
		b, err := json.Marshal(l)
		if err == nil {
			_, err = f.file.Write(append(b, '\n'))
		}
		if err != nil {
			f.broken = fmt.Errorf("the store %s cannot be written: %w", f.path, err)
			defer f.mu.Unlock()
			return f.broken
		}
		f.written++
		f.lines++
	}
	upto := f.written
	f.mu.Unlock()
	return f.sync(upto)
}

// sync returns when the first upto lines are on the disk.
func (f *File) sync(upto int64) error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	if f.synced >= upto {
		return nil
	}
	f.mu.Lock()
	written, broken := f.written, f.broken
	if broken == nil && f.grown() {
		old := f.file
		if broken = f.compact(); broken == nil {
			broken = old.Close()
		}
		f.broken = broken
	}
	f.mu.Unlock()
	if broken != nil {
		return broken
	}
	if err := f.file.Sync(); err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.broken = fmt.Errorf("the store %s cannot be written: %w", f.path, err)
		return f.broken
	}
	f.synced = written
	return nil
}

// Close lets go of the file. The store refuses later calls.
func (f *File) Close() error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(f.broken, os.ErrClosed) {
		return nil
	}
	f.broken = fmt.Errorf("the store %s: %w", f.path, os.ErrClosed)
	return errors.Join(f.file.Close(), f.unlock.Close())
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}
