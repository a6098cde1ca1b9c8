package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
)

// Journal is an open file of records. It is safe for concurrent use.
type Journal struct {
	file *os.File // nil: nothing is kept

	mu       sync.Mutex
	synced   sync.Cond
	written  int64 // records in the file
	durable  int64 // of these, how many a sync has covered
	inSync   bool
	unlock   func()
	broken   error // the first failure to write: nothing is taken any more
	closed   bool
	syncs    int
	syncFile func() error
}

// Memory makes a journal that keeps nothing, for a devnet without a data directory.
func Memory() *Journal {
	j := &Journal{unlock: func() {}}
	j.synced.L = &j.mu
	return j
}

// Open opens the journal at path, creates it if there is none, and hands each record to read, oldest
// first. Errors: another process holds it; a record in the middle is damaged; whatever read returns.
func Open(path string, read func(line []byte) error) (*Journal, error) {
	unlock, err := lock(path + ".lock")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		err = replay(f, read)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path)) // the name of a new file must survive too
	}
	if err != nil {
		if f != nil {
			f.Close()
		}
		unlock()
		return nil, fmt.Errorf("open the journal %s: %w", path, err)
	}
	j := &Journal{file: f, unlock: unlock, syncFile: f.Sync}
	j.synced.L = &j.mu
	return j, nil
}

// errClosed is what a closed journal answers.
var errClosed = errors.New("the journal is closed")

// Append writes records behind the others, in one piece, and returns the number to Sync. They are not
// durable yet. After an error nothing is taken any more: the end of the file is not known.
func (j *Journal) Append(records ...any) (upTo int64, err error) {
	var b []byte
	for _, r := range records {
		if b, err = appendLine(b, r); err != nil {
			return 0, err
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed:
		return 0, errClosed
	case j.broken != nil:
		return 0, j.broken
	case j.file != nil:
		if _, err := j.file.Write(b); err != nil {
			j.broken = fmt.Errorf("write to the journal: %w", err)
			return 0, j.broken
		}
	}
	j.written += int64(len(records))
	return j.written, nil
}

// appendLine writes a record as checksum, blank, JSON, newline.
func appendLine(b []byte, record any) ([]byte, error) {
	text, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("write a record of the journal: %w", err)
	}
	b = fmt.Appendf(b, "%08x ", crc32.ChecksumIEEE(text))
	return append(append(b, text...), '\n'), nil
}

// Sync returns once everything up to that number is durable. Many callers share one fsync.
func (j *Journal) Sync(upTo int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		switch {
		case j.broken != nil:
			return j.broken
		case j.durable >= upTo || j.file == nil:
			return nil
		case j.closed:
			return errClosed
		case j.inSync:
			j.synced.Wait()
			continue
		}
		j.inSync = true
		covers := j.written
		j.mu.Unlock()
		err := j.syncFile()
		j.mu.Lock()
		j.inSync = false
		j.syncs++
		if err != nil { // it is unknown what the system lost of it: never believe a second fsync
			j.broken = fmt.Errorf("sync the journal: %w", err)
		} else {
			j.durable = max(j.durable, covers)
		}
		j.synced.Broadcast()
	}
}

// Close syncs and closes the file and lets others open it.
func (j *Journal) Close() error {
	j.mu.Lock()
	upTo, done := j.written, j.closed
	j.mu.Unlock()
	if done {
		return nil
	}
	err := j.Sync(upTo)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return err
	}
	j.closed = true
	for j.inSync {
		j.synced.Wait()
	}
	j.synced.Broadcast()
	if j.file != nil {
		err = errors.Join(err, j.file.Close())
	}
	j.unlock()
	return err
}
