package coordtest

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/coord"
)

// Twenty times as many intents as a coordinator takes stand at another node when that coordinator dies: each is
// delegated at most twice on average, and no node is brought more than a batch before it has said that it has it.
// POSTERN_CROWD=10000 makes the crowd that large, which takes minutes.
func TestACrowdIsDelegatedFewTimes(t *testing.T) {
	crowd := 400
	if n, err := strconv.Atoi(os.Getenv("POSTERN_CROWD")); err == nil {
		crowd = n
	}
	plan := Draw(1)
	plan.Perfect, plan.Restores, plan.Timeouts, plan.Forger, plan.Reorgs = true, "none", false, false, false
	plan.Settings = coord.Defaults("n1", "n2", "n3")
	s := &plan.Settings
	s.HeartbeatInterval, s.RequestTimeout, s.StateTimeout, s.DelegateTimeout = time.Second, time.Second, 3*time.Second,
		time.Second
	s.MaxInflight, s.Batch, s.KeepsActive = crowd/20, crowd/100, true
	w := New(1, plan, "")
	given, refused, most, open := 0, 0, 0, map[[2]string]map[string]bool{}
	w.watch = func(m *coord.Message) {
		switch m.Kind {
		case coord.DelegationRequest:
			line := [2]string{m.From, m.To}
			if open[line] == nil {
				open[line] = map[string]bool{}
			}
			for _, d := range m.Delegations {
				given++
				open[line][d.ID] = true
			}
			most = max(most, len(open[line]))
		case coord.DelegationResponse:
			refused += len(m.Refused)
			for _, id := range append(m.IDs, m.Refused...) {
				delete(open[[2]string{m.To, m.From}], id)
			}
		case coord.DelegationRejected:
			clear(open[[2]string{m.To, m.From}])
		}
	}
	for _, n := range w.nodes {
		w.after(0, n.start)
	}
	w.after(blockTime, w.ledger.tick)
	w.heal()
	post := func(id, node string) {
		o := &order{id: id, node: node}
		w.orders = append(w.orders, o)
		w.post(o)
	}
	var active, other, third *Node
	w.after(time.Second, func() { post("first", "n1") })
	w.after(3*time.Second, func() {
		for _, n := range w.nodes {
			if n.store.image.Seat.Coordinator == coord.Active {
				active = n
			} else {
				other, third = n, other
			}
		}
		for i := range crowd {
			post(fmt.Sprint("i", i), other.name)
		}
	})
	// A third node has one intent meanwhile, and hears of room as well.
	w.after(8*time.Second, func() { post("one", third.name) })
	w.after(25*time.Second, func() { active.die(time.Minute) })
	w.after(84*time.Second, func() { // a dead node has nothing on its way
		clear(open[[2]string{other.name, active.name}])
	})
	w.run(epoch.Add(20*time.Minute*time.Duration(max(1, crowd/400))), w.settled)
	w.check()
	for _, b := range w.broken {
		t.Error(b)
	}
	// The node where they stand may be elected next: the rest of them are delegated to none.
	if each := float64(given) / float64(crowd); each > 2 || each < 0.5 {
		t.Errorf("%.2f delegations an intent", each)
	}
	if took := third.store.image.Intent("one").EndedAt.Sub(epoch) - 8*time.Second; took > 15*time.Second {
		t.Errorf("the intent of a third node is done after %s", took)
	}
	if most > s.Batch {
		t.Errorf("%d intents are on their way to one node at once", most)
	}
	t.Logf("%s died; %.2f delegations an intent, %d refused, %d on their way at most, %d steps, all ended after %s",
		active.name, float64(given)/float64(crowd), refused, most, w.Steps, w.now.Sub(epoch))
}
