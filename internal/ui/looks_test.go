package ui_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/cut"
)

// Ten pages that ten people look at cost a process one page a tick, whatever is open: its statements are counted where
// they go out.
func TestTenOpenPagesCostOneReadATick(t *testing.T) {
	t.Parallel()
	const every = 500 * time.Millisecond
	db := pgtest.New(t)
	wire := cut.New(t, db.URL)
	db.URL = wire.URL(db.URL)
	h := houseOn(t, db, "required", every)
	ids := h.scenario("default")
	pages := []string{"now", "transactions/" + ids["first"], "transactions/" + ids["waits"], "queues/line",
		"queues/other", "flows/" + ids["flow"], "jobs/" + ids["job"], "machines/transaction", "machines/job",
		"domains/notes"}
	var sent atomic.Int64
	wire.Arm(nil, func(_ bool, statements int) { sent.Store(int64(statements)) })
	defer wire.Disarm()

	// one page costs so many statements, when it is read as a live one is
	dearest := int64(0)
	root := h.browser().signIn(h.root)
	for _, p := range pages {
		root.get("/ui/c/default/" + p)
		before := sent.Load()
		root.get("/ui/c/default/" + p)
		dearest = max(dearest, sent.Load()-before)
	}
	var heard atomic.Int64
	for _, p := range pages {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", h.url+"/ui/c/default/"+p+"?live=1", nil)
		res, err := h.browser().signIn(h.root).client.Do(r)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v %v", p, res, err)
		}
		go func() {
			defer res.Body.Close()
			for b := make([]byte, 1<<16); ; heard.Add(1) {
				if _, err := res.Body.Read(b); err != nil {
					return
				}
			}
		}()
	}
	until(t, func() bool { time.Sleep(every); return heard.Load() >= 20 }) // each page has come once
	begun, before := time.Now(), sent.Load()
	until(t, func() bool { time.Sleep(every); return time.Since(begun) >= 10*every })
	ticks := int64(time.Since(begun)/every) + 1
	if n := sent.Load() - before; n > ticks*(dearest+4) { // and who looks is asked for, of the reader and of the viewer
		t.Errorf("ten open pages cost %d statements in %d ticks; the dearest page costs %d", n, ticks, dearest)
	} else {
		t.Logf("%d statements in %d ticks; the dearest page costs %d", n, ticks, dearest)
	}
}
