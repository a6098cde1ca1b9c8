package work

import (
	"context"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remote"
)

// System is a part of a process besides the core: what looks after events, batches, deliveries or channels. A new one
// is a type with a small configuration of its own, a *Node for what all parts share, a constructor, and a method
// System that returns this value; internal/app adds it to the engine. Every field but Name may be left out, and what
// is left out costs nothing.
type System struct {
	Name  string
	Loops []Loop // run in every process that dispatches
	Jobs  []Job  // run in one of them at a time, by River

	// First does what comes before this process claims anything, also once a quarantine is over. Nothing is claimed
	// until it succeeds.
	First func(context.Context) error
	// Sweep does what must be done now and then by somebody. It runs with the core's own sweep, every ten seconds.
	Sweep func(context.Context) error
	// Round does everything that can be done now, and returns how much that was. It stands in for the loops where a
	// node is moved by hand; see Engine.Round.
	Round func(context.Context) (int, error)
	// Ring hears that this process made work, a moment after the claims did. It must not wait.
	Ring func()
	// Ended hears what was recorded of a lease that this process held. It must not wait.
	Ended func(*pg.Lease, *pg.Answer)
	// Workers are workers inside this process, by the URL that dispatchers name them with.
	Workers map[string]Call
}

// Call makes the call of a lease, as a worker behind HTTP would answer it.
type Call func(ctx context.Context, l *pg.Lease, call remote.Call) outbox.Answer

// Add adds systems to the engine, before it runs.
func (e *Engine) Add(systems ...System) {
	for _, s := range systems {
		e.systems = append(e.systems, s)
		for url, call := range s.Workers {
			e.workers[url] = call
		}
	}
}
