package work

import (
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// A sender with an address of its own that this node may not call is left to others alone: its type goes on by the
// other senders of its pool. Readiness names what is left, with the setting that mends it, and holds.
func TestASenderThatIsLeftToOthersLeavesItsTypeAlone(t *testing.T) {
	t.Parallel()
	var f left
	if c := f.check(); !c.OK || c.Detail != "" {
		t.Errorf("nothing is left, and readiness says %+v", c)
	}
	d := &pg.Dispatcher{Dispatcher: outbox.Dispatcher{Type: "T"}, ID: 1}
	own := &pg.Lease{
		Task:       &pg.Task{Type: "T"},
		Dispatcher: d,
		SenderID:   7,
		SenderURL:  "http://10.1.2.3/",
		Account:    "acct",
	}
	if !f.add(own, "--a 10.0.0.0/8", true) || f.add(own, "--a 10.0.0.0/8", true) {
		t.Error("that it is left is to be new once")
	}
	if f.has(d) || !slices.Equal(f.senders(), []int32{7}) {
		t.Errorf("its type is left: %t; left senders: %v", f.has(d), f.senders())
	}
	other := *own
	other.SenderURL = ""
	f.add(&other, "--a 127.0.0.0/8", false)
	if f.has(d) {
		t.Error("there is no other node, and its type is left to it")
	}
	f.add(&other, "--a 127.0.0.0/8", true)
	if !f.has(d) || !slices.Equal(f.senders(), []int32{7}) {
		t.Errorf("its type is left: %t; left senders: %v", f.has(d), f.senders())
	}
	c := f.check()
	for _, want := range []string{"senders/acct", "--a 10.0.0.0/8", "dispatchers/T", "--a 127.0.0.0/8"} {
		if !c.OK || !strings.Contains(c.Detail, want) {
			t.Errorf("readiness says %+v, want %q in it, and that it holds", c, want)
		}
	}
}
