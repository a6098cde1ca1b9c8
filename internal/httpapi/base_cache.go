package httpapi

import (
	"sync"
	"time"
)

// cache remembers look-ups of credentials for a moment. It does not remember a look-up that found nothing, so that
// guesses do not fill it.
type cache[V any] struct {
	life time.Duration
	mu   sync.Mutex
	m    map[string]remembrance[V]
	age  int // how often everything was dropped
}

type remembrance[V any] struct {
	value *V
	until time.Time
}

const cacheMost = 10000

// get returns what is remembered of key, else what load finds.
func (c *cache[V]) get(key string, load func() (*V, error)) (*V, error) {
	now := time.Now()
	c.mu.Lock()
	r, ok := c.m[key]
	age := c.age
	c.mu.Unlock()
	if ok && now.Before(r.until) {
		return r.value, nil
	}
	v, err := load()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v == nil {
		delete(c.m, key)
		return nil, nil
	}
	if c.age != age { // it may have been read before the change for which the others were dropped
		return v, nil
	}
	if c.m == nil || len(c.m) >= cacheMost {
		c.m = map[string]remembrance[V]{}
	}
	c.m[key] = remembrance[V]{v, now.Add(c.life)}
	return v, nil
}

// forget drops everything, after a change that this process made itself.
func (c *cache[V]) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m = nil
	c.age++
}
