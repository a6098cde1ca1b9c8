package flows

import (
	"sync"
	"time"
)

// bells wake the claims of this process that wait for a lane. Another process sees an offer by its look, a second later
// at most.
type bells struct {
	mu   sync.Mutex
	wait map[*bell]bool
}

// bell is one claim that waits.
type bell struct {
	context int32
	lanes   []string
	c       chan struct{}
}

// hang has a claim wait for lanes of a context, until down is called.
func (b *bells) hang(contextID int32, lanes []string) (c <-chan struct{}, down func()) {
	x := &bell{contextID, lanes, make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wait == nil {
		b.wait = map[*bell]bool{}
	}
	b.wait[x] = true
	return x.c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.wait, x)
	}
}

// ring wakes one claim that waits for the lane of an offer and was not woken yet.
func (b *bells) ring(o offer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for x := range b.wait {
		if x.context != o.context || !contains(x.lanes, o.lane) {
			continue
		}
		select {
		case x.c <- struct{}{}:
			return
		default:
		}
	}
}

// ringAll wakes all that wait.
func (b *bells) ringAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for x := range b.wait {
		select {
		case x.c <- struct{}{}:
		default:
		}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// fullLook is how often a claim looks from the beginning of a lane.
const fullLook = time.Second

// fronts remember, for each lane, when the oldest offer was made that was seen lately. While any session holds an old
// snapshot, what was claimed stays in the index, in front of what is offered: a claim that begins behind that reads
// little of it. A commit may make an older offer visible, which the next full look finds.
type fronts struct {
	mu sync.Mutex
	at map[offer]front
}

type front struct {
	oldest time.Time
	looked time.Time // from the beginning, on our own clock
}

// of is from where lanes are read now.
func (f *fronts) of(contextID int32, lanes []string) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]time.Time, len(lanes))
	for i, lane := range lanes {
		x, ok := f.at[offer{contextID, lane}]
		if ok && time.Since(x.looked) < fullLook {
			out[i] = x.oldest
			continue
		}
		if f.at == nil {
			f.at = map[offer]front{}
		}
		f.at[offer{contextID, lane}] = front{looked: time.Now()}
	}
	return out
}

// saw notes the newest offer that a claim took of a lane: those before it are taken.
func (f *fronts) saw(o offer, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x, ok := f.at[o]; ok && at.After(x.oldest) {
		x.oldest = at
		f.at[o] = x
	}
}

// lower has the next claim of a lane begin at its beginning: something was offered there again.
func (f *fronts) lower(o offer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.at, o)
}
