package work_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// journal is a log that can be read while it is written.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) lines(t *testing.T) (list []map[string]any) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.b.String()) {
		m := map[string]any{}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, m)
	}
	return list
}

func (j *journal) at(level slog.Level) func(*parts) {
	return func(c *parts) {
		c.Log = slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: level}))
	}
}

func TestEveryTransitionIsALineForWhoeverWantsThem(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done(map[string]any{"ok": true}))
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Attempt: 1, UID: "b"}, remotetest.Fail(20203, "sending"))
	j := &journal{}
	stop := h.engine("n1", j.at(slog.LevelDebug))
	ids := h.post("q", "T", "a", "b")
	h.await(ids, 20*time.Second, outbox.DONE)
	stop()
	want := []string{"1 WAITING SenderBound DISPATCHING", "1 DISPATCHING Completed DONE",
		"1 WAITING SenderBound DISPATCHING", "1 DISPATCHING DispatchError RETRY", "1 RETRY DelayElapsed DISPATCHING", "2 DISPATCHING Completed DONE"}
	var got []string
	for _, l := range j.lines(t) {
		if l["msg"] != "transition" {
			continue
		}
		if l["queue"] != "q" || l["type"] != "T" || l["level"] != "DEBUG" || (l["tx"] != ids[0].String() && l["tx"] != ids[1].String()) {
			t.Errorf("%v", l)
		}
		got = append(got, strings.Join([]string{jsonText(l["attempt"]), jsonText(l["from"]), jsonText(l["on"]), jsonText(l["to"])}, " "))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("transitions:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func jsonText(v any) string {
	b, _ := json.Marshal(v)
	return strings.Trim(string(b), `"`)
}

func TestTheUsualLogTellsOfAWorkerAndNotOfItsTransactions(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.Retry.MaxRetries = new(int); *d.Retry.MaxRetries = 1 })
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Fail(20203, "sending"))
	j := &journal{}
	h.fake.Refuse()
	stop := h.engine("n1", func(c *parts) {
		j.at(slog.LevelInfo)(c)
	})
	var ids []outbox.ID
	for _, q := range []string{"q1", "q2", "q3", "q4"} {
		ids = append(ids, h.post(q, "T", q+"-1", q+"-2", q+"-3", q+"-4", q+"-5")...)
	}
	for len(j.lines(t)) < 2 {
		time.Sleep(10 * time.Millisecond)
	}
	h.fake.Listen(t)
	h.await(ids, 30*time.Second, outbox.FAILED)
	stop()
	var told []string
	for _, l := range j.lines(t) {
		told = append(told, l["msg"].(string))
	}
	all := strings.Join(told, "\n")
	if len(told) > 6 || !strings.Contains(all, "nothing came of calls to a worker") || !strings.Contains(all, "a worker can work again") {
		t.Errorf("20 transactions that failed twice, and a worker that was away:\n%s", strings.Join(told, "\n"))
	}
}
