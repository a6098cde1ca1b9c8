package pg_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// TestANodeOfOtherTypesOnlyReleases: queues of a dead node, and those that wait for their time, go to nodes that work
// on their types. A node of other types buries the dead one and releases its queues, and neither asks nor sends.
func TestANodeOfOtherTypesOnlyReleases(t *testing.T) {
	t.Parallel()
	for _, quarantined := range []bool{false, true} { // then other statements read the lane resume
		w := newWorld(t)
		for _, typ := range []string{"PAY", "PUBLISH", "OTHER"} {
			w.Dispatcher(typ, nil)
		}
		w.Post("pay-out", "PAY", "a")
		w.Post("publish-out", "PUBLISH", "b")
		w.Post("pay-delay", "PAY", "c")
		w.Post("publish-delay", "PUBLISH", "d")
		w.Post("pay-hash", "PAY", "e")
		dead := w.Node("dead")
		for _, l := range w.Claim(dead, pgworld.Everything()) {
			switch {
			case strings.HasSuffix(l.Queue, "-delay"):
				w.Settle(w.Answer(l, outbox.Answer{Class: outbox.ClassRetry, Code: "20203", Told: true}))
			case strings.HasSuffix(l.Queue, "-hash"):
				w.Settle(w.Answer(l, outbox.Answer{Result: outbox.Result{Hash: "0x1"}}))
			}
		}
		w.Later(time.Hour)
		publisher, all := w.Node("publisher"), w.Node("all")
		publisher.Types = []string{"PUBLISH"}
		if quarantined {
			w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Type: "OTHER", Reason: "test"}))
			for _, n := range []pg.Node{publisher, all} {
				_, err := w.S.Beat(w.Ctx, n, pg.NodeLoad{})
				w.Must(err)
			}
		}
		_, err := w.S.Bury(w.Ctx)
		w.Must(err)
		if n, err := w.S.Release(w.Ctx); err != nil || n == 0 {
			t.Fatal(n, err)
		}
		takes := func(n pg.Node, want string) {
			t.Helper()
			var got []string
			for _, l := range w.Claim(n, pgworld.Everything()) {
				got = append(got, l.Queue)
			}
			for range 3 { // a delay goes out after a look at its time
				woken, err := w.S.Wake(w.Ctx, n, 100, 100)
				w.Must(err)
				for _, l := range append(woken.Leases, woken.Polls...) {
					got = append(got, l.Queue)
				}
			}
			slices.Sort(got)
			if s := strings.Join(got, " "); s != want {
				t.Errorf("%s (quarantine %t) takes %q, want %q", n.Name, quarantined, s, want)
			}
		}
		takes(publisher, "publish-delay publish-out")
		takes(all, "pay-delay pay-hash pay-out")
	}
}
