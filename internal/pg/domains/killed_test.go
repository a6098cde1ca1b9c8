package domains_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// pair are two installations, each with a database of its own: ann, which posts, and ben, which coordinates.
type pair struct {
	nodes map[string]*world
	dead  string        // the node whose process is the one that is to be killed
	runs  *stores.Store // that process
}

func newTwo(t *testing.T) *pair {
	t.Helper()
	p := &pair{nodes: map[string]*world{}}
	for self, other := range map[string]string{"ann": "ben", "ben": "ann"} {
		w := &world{World: pgworld.New(t), inputs: map[string][]string{}, plan: planOf("ann", "ben")}
		w.Dispatcher("TOK", func(d *outbox.Dispatcher) { d.Slots = 10 })
		w.core, w.node = w.Another(2), w.Node("core")
		w.Exec(`INSERT INTO postern.peer (context_id, name, url) VALUES ($1, $2, 'http://127.0.0.1:1/')`, w.ID, other)
		set := domains.Default()
		set.Types, set.ServiceURL = []string{"TOK"}, "http://127.0.0.1:1"
		set.Self, set.Nodes, set.Mode, set.Static = self, []string{"ann", "ben"}, "STATIC", "ben"
		set.Heartbeat, set.RequestTimeout, set.StateTimeout = second, second, 3*second
		_, err := w.S.Domains.Put(w.Ctx, w.By, "tok", set, 0)
		w.Must(err)
		w.begun()
		p.nodes[self] = w
	}
	return p
}

// store is the process that works for a node.
func (p *pair) store(node string) *stores.Store {
	if node == p.dead && p.runs != nil {
		return p.runs
	}
	return p.nodes[node].S
}

// turn has both nodes do all that they can, once, and time pass.
func (p *pair) turn() (err error) {
	for self, other := range map[string]string{"ann": "ben", "ben": "ann"} {
		if err = p.act(self, other); err != nil {
			return err
		}
	}
	for _, w := range p.nodes {
		w.Later(300 * time.Millisecond)
	}
	return nil
}

func (p *pair) act(self, other string) error {
	w, s := p.nodes[self], p.store(self)
	if err := w.turn(w.Ctx, s, w.node); err != nil {
		return err
	}
	w.send()
	list, err := s.Domains.ClaimMail(w.Ctx, nil, 100)
	if err != nil {
		return err
	}
	var raw []json.RawMessage
	for _, m := range list {
		one, err := json.Marshal(m.Parcel)
		if err != nil {
			return err
		}
		raw = append(raw, one)
	}
	if len(raw) == 0 {
		return nil
	}
	to := p.nodes[other]
	if _, err := p.store(other).Domains.Arrive(to.Ctx, to.ID, self, raw); err != nil {
		return err
	}
	return s.Domains.Delivered(w.Ctx, list)
}

// A process of one of two nodes dies at each of the commits of an intent's life: with the commit, or behind it. Another
// one of the node goes on: the intent has one receipt, and is on the ledger once.
func TestAProcessOfEitherNodeIsKilledAtEachCommit(t *testing.T) {
	t.Parallel()
	p := newTwo(t)
	ann, ben := p.nodes["ann"], p.nodes["ben"]
	for range 12 { // they greet each other
		ann.Must(p.turn())
	}
	lives := 0
	for p.dead = range p.nodes {
		for k, last := 1, false; !last; k++ {
			if k > 60 {
				t.Fatal("a life has no end")
			}
			if !pgtest.Turn(fmt.Sprint(p.dead, k)) {
				continue
			}
			uid, killed := fmt.Sprint(p.dead, " at ", k), p.begin(k)
			if _, err := ann.submit(p.store("ann"), uid); err != nil {
				ann.post(uid)
			}
			for n := 0; n < 60 && !*killed && ann.open() > 0; n++ {
				_ = p.turn()
			}
			last, p.runs = !*killed, nil
			for n := 0; ann.open() > 0; n++ {
				if n > 100 {
					t.Fatalf("%s does not end: %s", uid, strings.Join(append(ann.history(), ben.history()...), "\n"))
				}
				ann.Must(p.turn())
			}
			p.judge(uid)
			lives++
		}
	}
	t.Logf("%d lives", lives)
	for _, w := range p.nodes {
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	}
}

// begin starts the process that dies at its kth commit.
func (p *pair) begin(k int) *bool {
	commits, killed := 0, false
	p.runs = p.nodes[p.dead].Another(2)
	p.runs.HoldCommits(func(context.Context, uint32) error {
		if commits++; commits >= k {
			killed = true
			return errKilled
		}
		return nil
	})
	return &killed
}

// judge wants one receipt of an intent, and one public transaction, at the node that coordinates.
func (p *pair) judge(uid string) {
	ann, ben := p.nodes["ann"], p.nodes["ben"]
	ann.T.Helper()
	var id, receipt string
	ann.Scan(`SELECT intent_id::text, receipt FROM postern.coord_intent WHERE uid = '`+uid+`'`, &id, &receipt)
	count := func(w *world) (tasks, activities, ends int) {
		w.Scan(`SELECT (SELECT count(*) FROM postern.task WHERE uid LIKE ':coord:%`+id+`%'),
			(SELECT count(*) FROM postern.coord_activity WHERE intent_id::text = '`+id+`'),
			(SELECT count(*) FROM postern.coord_step WHERE object = '`+id+`' AND state = 'Confirmed'
				AND machine = 'originator_transaction')`, &tasks, &activities, &ends)
		return tasks, activities, ends
	}
	tasks, activities, ends := count(ann)
	sent, dispatched, foreign := count(ben)
	got := fmt.Sprint(receipt, " ", ends, tasks, activities, " ", sent, dispatched, foreign)
	if got != "success 1 0 0 1 1 0" {
		ann.T.Errorf("killed: %s: its receipt, ends and public transactions at both nodes are %s", uid, got)
	}
}
