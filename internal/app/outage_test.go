package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

// written is what a log has written, by several goroutines.
type written struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

// lines are the messages of the log, each with how long the database was away.
func (w *written) lines(t *testing.T) (lines []string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for dec := json.NewDecoder(&w.buf); dec.More(); {
		var l struct{ Msg, Away string }
		if err := dec.Decode(&l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l.Msg+" | "+l.Away)
	}
	return lines
}

// An outage is one line when it begins, one a minute while it lasts, and one when it is over, however often the loops
// of the process fail meanwhile.
func TestAnOutageIsToldOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &written{}
		o := newOutage(slog.NewJSONHandler(out, nil))
		log := slog.New(o.handler())
		back := time.Now().Add(3*time.Minute + 30*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go o.watch(ctx, func(context.Context) error {
			if time.Now().Before(back) {
				return errors.New("connection refused")
			}
			return nil
		})
		gone := fault.New(fault.Retry, "database_unavailable", "the database does not answer")
		for time.Now().Before(back) {
			log.Error("claim", "error", gone)
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		log.Error("claim", "error", errors.New("something else"))
		want := []string{
			"the database does not answer: nothing is accepted and nothing goes out until it does | ",
			"the database still does not answer | 1m0s",
			"the database still does not answer | 2m0s",
			"the database still does not answer | 3m0s",
			"the database answers again | 3m30s",
			"claim | ",
		}
		if got := out.lines(t); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}
