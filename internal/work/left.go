package work

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/sequencer"
)

// codeRefused is the code of a call that this process may not make: its own settings keep it from the address.
const codeRefused = "address_refused"

// leftFor is how long an address is left to others. Then one call is tried again: the settings of the type, or the
// nodes that live, may have changed.
const leftFor = 15 * time.Second

// left are the addresses that this node may not call, while another live node may: those of types, and those of senders
// that have one of their own. They are no trouble of a worker, so no gate closes for them.
type left struct {
	any atomic.Bool // so that a claim takes no lock where there are none
	mu  sync.Mutex
	of  map[address]*leaving
}

// leaving is one address that this node may not call.
type leaving struct {
	until   time.Time // for so long it is left to others; zero: there is no other
	told    time.Time // when a call was refused last
	object  string    // as levers name it
	setting string    // that lets this node call it
}

// has says whether the calls of a dispatcher are left to others now.
func (f *left) has(d *pg.Dispatcher) bool { return f.holds(address{dispatcher: d.ID}) }

// holds says whether what goes to an address is left to others now.
func (f *left) holds(at address) bool {
	if !f.any.Load() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	own := f.of[at]
	return own != nil && time.Now().Before(own.until)
}

// senders are those whose calls are left to others now.
func (f *left) senders() (ids []int32) {
	if !f.any.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for at, own := range f.of {
		if at.sender != 0 && time.Now().Before(own.until) {
			ids = append(ids, at.sender)
		}
	}
	return ids
}

// add notes the address of a lease, and leaves it to others for a while where there are any. It says whether that is
// new.
func (f *left) add(l *pg.Lease, setting string, others bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[address]*leaving{}
	}
	at, object := addressOf(l), "dispatchers/"+l.Task.Type
	if at.sender != 0 {
		object = "senders/" + l.Account
	}
	_, known := f.of[at]
	own := &leaving{told: time.Now(), object: object, setting: setting}
	if others {
		own.until = own.told.Add(leftFor)
	}
	f.of[at] = own
	f.any.Store(true)
	return !known
}

// leftShown is how long readiness tells of an address after a call to it was refused last.
const leftShown = time.Minute

// check is what readiness says of them. It holds all the same: what this node may not call goes out by others, or waits
// until there are any, and it works on all else.
func (f *left) check() Check {
	c := Check{Name: "addresses", OK: true}
	if !f.any.Load() {
		return c
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	objects := map[string][]string{}
	for _, own := range f.of {
		if time.Since(own.told) < leftShown {
			objects[own.setting] = append(objects[own.setting], own.object)
		}
	}
	for _, setting := range slices.Sorted(maps.Keys(objects)) {
		list := objects[setting]
		slices.Sort(list)
		if c.Detail != "" {
			c.Detail += "; "
		}
		c.Detail += fmt.Sprintf("this node may not call %s: start it with %s",
			strings.Join(list, ", "), setting)
	}
	return c
}

// leaveToOthers says whether another live node may make the call of a lease, which this one may not: then it claims
// no more of that type for a while, and gives back what it has. Where no other may, the gate closes as for any
// worker that cannot be reached. A sender with an address of its own is left alone, and the node goes on with the
// other senders of its pool.
func (e *Engine) leaveToOthers(ctx context.Context, l *pg.Lease) bool {
	if e.Reach == nil {
		return false
	}
	place := e.Reach.Find(ctx, l.WorkerURL())
	other, known := e.other(ctx, place, l.Task.Type)
	if !known {
		return false
	}
	if e.left.add(l, place.Setting(), other != "") && other != "" {
		e.Log.Warn("this node may not call a worker, and leaves it to nodes that may: "+
			"start it with "+place.Setting(),
			"type", l.Task.Type, "sender", l.Account, "host", place.Host, "other", other)
	}
	return other != ""
}

// other names a live node that may call a place, for a type unless that is empty; "": there is none. known says whether
// that could be found out.
func (n *Node) other(ctx context.Context, place remote.Place, typ string) (name string, known bool) {
	nodes, err := n.Store.Allowances(ctx)
	if err != nil || len(place.Addrs) == 0 {
		return "", false
	}
	for _, o := range nodes {
		if (typ == "" || o.Takes(typ)) && n.Reach.With(o.Prefixes()).May(place) {
			return o.Node, true
		}
	}
	return "", true
}

// othersMay says whether another live node may call a URL that this one may not. Then what goes there is put back for
// leftAgain, and no try is counted or told: each node that finds it does the same, until one finds it that may.
func (n *Node) othersMay(ctx context.Context, url string) bool {
	if n.Reach == nil {
		return false
	}
	name, _ := n.other(ctx, n.Reach.Find(ctx, url), "")
	return name != ""
}

// leftAgain is how long something rests that this node put back for others. Chance keeps two nodes from looking at it
// in one rhythm, in which always the same one finds it.
func leftAgain() time.Duration { return 250*time.Millisecond + rand.N(time.Second) }

// leave is what becomes of a lease whose worker was to be asked by this node, which may not call it: another asks soon.
func leave(l *pg.Lease, started time.Time) *pg.Answer {
	f := l.Flight(l.Dispatcher.DefaultMaxRetries())
	a := &pg.Answer{Lease: l, StartedAt: started, Step: sequencer.Withheld(f, true, l.Dispatcher.Dispatcher)}
	a.Step.Delay = leftAgain()
	return a
}
