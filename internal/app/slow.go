package app

import (
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/safe"
)

// slowAfter is how long a step of a start may take before it is named.
var slowAfter = 2 * time.Second

// tellSlow says what a step is where it is not done in time. done ends that; nothing is said after it.
func tellSlow(say func(string), what string) (done func()) {
	var mu sync.Mutex
	over := false
	t := time.AfterFunc(slowAfter, safe.Func("slow step", func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			say(what + " ...")
		}
	}))
	return func() {
		t.Stop()
		mu.Lock()
		defer mu.Unlock()
		over = true
	}
}

// oneAtATime lets one line be said after the other, whichever goroutine says it.
func oneAtATime(say func(string)) func(string) {
	var mu sync.Mutex
	return func(line string) {
		mu.Lock()
		defer mu.Unlock()
		say(line)
	}
}
