package httpapi

import (
	"sync"
	"time"
)

// pace lets each key do something so many times a second, and as many at once after a second of rest. Each process
// keeps its own. For each key it remembers the time at which the key is at rest again.
type pace struct {
	every time.Duration
	mu    sync.Mutex
	until map[string]time.Time
}

// paceKeys is how many keys are remembered before those that are at rest are forgotten.
const paceKeys = 10000

func newPace(perSecond int) *pace {
	return &pace{every: time.Second / time.Duration(perSecond), until: map[string]time.Time{}}
}

// take returns 0, or how long the key must wait.
func (p *pace) take(key string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.until[key]
	if at.Before(now) {
		at = now
	}
	if wait := at.Sub(now) - time.Second + p.every; wait > 0 {
		return wait
	}
	if len(p.until) >= paceKeys {
		for k, t := range p.until {
			if t.Before(now) {
				delete(p.until, k)
			}
		}
	}
	p.until[key] = at.Add(p.every)
	return 0
}
