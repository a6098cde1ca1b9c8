package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestAFileThatHasGrownIsWrittenAnewWhileItIsUsed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	f, err := OpenFile(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.grow = 50
	done := Done(1)
	if _, err := f.Begin(t.Context(), "kept", "T"); err != nil {
		t.Fatal(err)
	}
	if err := f.End(t.Context(), "kept", &done); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 50 {
				token := fmt.Sprintf("%d-%d", i, n)
				if _, err := f.Begin(t.Context(), token, "T"); err != nil {
					t.Error(err)
				}
				if err := f.End(t.Context(), token, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if f.lines > 200 {
		t.Errorf("the file has %d lines for one token", f.lines)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err = OpenFile(path, 0); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if e, _ := f.Find(t.Context(), "kept", ""); e.Open || len(f.memory.tokens) != 1 {
		b, _ := os.ReadFile(path)
		t.Errorf("%+v of %d tokens\n%s", e, len(f.memory.tokens), b)
	}
}
