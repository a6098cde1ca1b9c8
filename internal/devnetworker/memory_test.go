package devnetworker

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
)

func memoryIn(t *testing.T, dir string, now time.Time) *memory {
	t.Helper()
	m, err := recall(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.journal.Close() })
	return m
}

func TestMemoryForgetsWhatIsOldAndNothingElse(t *testing.T) {
	defer func(n int64) { pruneFrom = n }(pruneFrom)
	pruneFrom = 1
	dir := t.TempDir()
	m := memoryIn(t, dir, time.Now())
	for i := range 10 {
		if err := m.note(record{Token: fmt.Sprint("t.", i), Hash: "h"}); err != nil {
			t.Fatal(err)
		}
	}
	m.journal.Close()
	if m = memoryIn(t, dir, time.Now()); len(m.tokens) != 10 {
		t.Errorf("it remembers %d tokens of 10", len(m.tokens))
	}
	m.journal.Close()
	if m = memoryIn(t, dir, time.Now().Add(remember+time.Hour)); len(m.tokens) != 0 {
		t.Errorf("it remembers %d old tokens", len(m.tokens))
	}
	if info, err := os.Stat(filepath.Join(dir, "worker.journal")); err != nil || info.Size() != 0 {
		t.Errorf("journal %+v, %v", info, err)
	}
}

func TestAVoidIntentIsForgottenAlsoAfterARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := memoryIn(t, dir, time.Now())
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	var hashes []string
	for nonce := range uint64(2) {
		s, err := devnet.Sign(devnet.Tx{Chain: "c", From: devnet.AddressOf(key), Nonce: nonce, Fee: 1}, key)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, s.Hash())
		if err := m.note(record{Token: fmt.Sprint("x.", nonce+1), Account: "a", Signed: &s}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.note(record{Void: hashes[0]}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		left := m.of("x")
		if _, known := m.answered("x.1"); known || len(left) != 1 || left[0].hash != hashes[1] {
			t.Errorf("left %+v, the first token is known: %v", left, known)
		}
		m.journal.Close()
		m = memoryIn(t, dir, time.Now())
	}
}

func TestLocksLetOneInAndForgetTheirName(t *testing.T) {
	t.Parallel()
	var l locks
	var wg sync.WaitGroup
	inside := 0
	for range 20 {
		wg.Go(func() {
			release, err := l.take(context.Background(), "x")
			if err != nil {
				t.Error(err)
				return
			}
			inside++ // the race detector watches
			release()
		})
	}
	wg.Wait()
	release, _ := l.take(context.Background(), "x")
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.take(gone, "x"); err == nil {
		t.Error("who left got the lock")
	}
	release()
	if inside != 20 || len(l.of) != 0 {
		t.Errorf("%d were inside, %d names are left", inside, len(l.of))
	}
}
