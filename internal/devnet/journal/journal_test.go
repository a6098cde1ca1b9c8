package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
)

func open(t *testing.T, path string) (*Journal, []string) {
	t.Helper()
	var lines []string
	j, err := Open(path, func(line []byte) error { lines = append(lines, string(line)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j, lines
}

func TestWhatWasAppendedIsReadAgainInOrder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	j, lines := open(t, path)
	if len(lines) != 0 {
		t.Errorf("a new journal holds %q", lines)
	}
	for i := range 3 {
		if _, err := j.Append(i, fmt.Sprint("x", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(1); !errors.Is(err, errClosed) {
		t.Errorf("append to a closed journal: %v", err)
	}
	if _, lines := open(t, path); !reflect.DeepEqual(lines, []string{"0", `"x0"`, "1", `"x1"`, "2", `"x2"`}) {
		t.Errorf("read %q", lines)
	}
}

// Wherever a crash cuts the last record, the ones before it are there and the next goes behind them.
func TestATornEndIsCutOff(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	j, _ := open(t, path)
	j.Append("one", "two")
	j.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(whole)/2 + 1; cut < len(whole); cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		j, lines := open(t, path)
		if !reflect.DeepEqual(lines, []string{`"one"`}) {
			t.Errorf("cut at %d: read %q", cut, lines)
		}
		j.Append("three")
		j.Close()
		if j, lines := open(t, path); !reflect.DeepEqual(lines, []string{`"one"`, `"three"`}) {
			t.Errorf("cut at %d, appended: read %q", cut, lines)
		} else {
			j.Close()
		}
	}
}

func TestDamageInTheMiddleIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	j, _ := open(t, path)
	j.Append("one", "two", "three")
	j.Close()
	b, _ := os.ReadFile(path)
	os.WriteFile(path, []byte(strings.Replace(string(b), "two", "twx", 1)), 0o600)
	if _, err := Open(path, func([]byte) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), "record 2 is damaged") {
		t.Errorf("got %v", err)
	}
}

func TestOneAtATimeHoldsAJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	j, _ := open(t, path)
	if _, err := Open(path, nil); err == nil || !strings.Contains(err.Error(), "another process holds it") {
		t.Errorf("a second one: %v", err)
	}
	j.Close()
	open(t, path)
}

func TestManyShareOneSync(t *testing.T) {
	t.Parallel()
	j, _ := open(t, filepath.Join(t.TempDir(), "j"))
	entered, leave := make(chan struct{}), make(chan struct{})
	real, first := j.syncFile, true
	j.syncFile = func() error {
		if first {
			first = false
			close(entered)
			<-leave
		}
		return real()
	}
	var wg sync.WaitGroup
	add := func() {
		upTo, err := j.Append("x")
		if err == nil {
			wg.Go(func() {
				if err := j.Sync(upTo); err != nil {
					t.Error(err)
				}
			})
		}
	}
	add()
	<-entered
	for range 50 {
		add()
	}
	close(leave)
	wg.Wait()
	if j.syncs != 2 || j.durable != 51 {
		t.Errorf("%d syncs cover %d records, want 2 and 51", j.syncs, j.durable)
	}
}

func TestAfterAFailedSyncNothingIsBelieved(t *testing.T) {
	t.Parallel()
	j, _ := open(t, filepath.Join(t.TempDir(), "j"))
	j.syncFile = func() error { return errors.New("the disk is gone") }
	upTo, _ := j.Append("x")
	for range 2 {
		if err := j.Sync(upTo); err == nil {
			t.Error("a failed sync was reported as good")
		}
	}
	if _, err := j.Append("y"); err == nil {
		t.Error("a broken journal took a record")
	}
}

func TestRewriteReplacesAllOrNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	j, _ := open(t, path)
	j.Append("one", "two")
	j.Close()
	if err := Rewrite(path, func(func(any) error) error { return errors.New("no") }); err == nil {
		t.Error("a failed rewrite was reported as good")
	}
	if j, lines := open(t, path); len(lines) != 2 {
		t.Errorf("after a failed rewrite: %q", lines)
	} else {
		j.Close()
	}
	if err := Rewrite(path, func(add func(any) error) error { return add("three") }); err != nil {
		t.Fatal(err)
	}
	if _, lines := open(t, path); !reflect.DeepEqual(lines, []string{`"three"`}) {
		t.Errorf("after a rewrite: %q", lines)
	}
}
