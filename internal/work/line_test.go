package work_test

import (
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// TestFencesAreToldWithTheirLine: each call for a queue names the same line, two queues have two, and what is in no
// queue has none. A queue that was reaped comes back with its line.
func TestFencesAreToldWithTheirLine(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done("ok"))
	h.engine("n1", nil)
	post := func(uid, queue string) outbox.ID { return h.post(queue, "T", uid)[0] }
	h.await([]outbox.ID{post("a1", "a"), post("a2", "a"), post("b1", "b"),
		post("none", "")}, 20*time.Second, outbox.DONE)
	if n, err := h.s.Reap(h.ctx, time.Now().Add(time.Hour), 10); n < 2 || err != nil {
		t.Fatalf("%d queues are reaped: %v", n, err)
	}
	h.await([]outbox.ID{post("a3", "a")}, 20*time.Second, outbox.DONE)
	lines := map[string][]string{}
	for _, c := range h.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch}) {
		if !slices.Contains(lines[c.Queue], c.Line) {
			lines[c.Queue] = append(lines[c.Queue], c.Line)
		}
	}
	if len(lines["a"]) != 1 || len(lines["b"]) != 1 || lines["a"][0] == lines["b"][0] || lines["a"][0] == "" {
		t.Errorf("the lines of the queues are %q", lines)
	}
	for queue, of := range lines {
		if queue != "a" && queue != "b" && of[0] != "" {
			t.Errorf("what is in no queue has the line %q", of)
		}
	}
}
