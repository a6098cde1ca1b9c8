package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// statesView is how many things of a context are in each state of a machine.
type statesView struct {
	Machine string           `json:"machine"`
	AsOf    time.Time        `json:"as_of" doc:"kept for a second, or twenty times what the read took"`
	Of      int              `json:"of" doc:"the newest so many are counted; 0: all that have not ended"`
	States  map[string]int64 `json:"states" doc:"by name of the state; states that are not counted are missing"`
}

type statesOutput struct{ Body statesView }

// census is what was counted of a machine, and until when it is shown.
type census struct {
	mu    sync.Mutex
	seen  *reads.Census
	until time.Time
}

type censusKey struct {
	context int32
	machine string
}

// censuses keeps what was counted, so that the reads take a twentieth of a connection at most.
type censuses struct {
	mu   sync.Mutex
	kept map[censusKey]*census
}

func (c *censuses) of(k censusKey) *census {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.kept[k]
	if have == nil {
		if c.kept == nil || len(c.kept) >= cacheMost {
			c.kept = map[censusKey]*census{}
		}
		have = &census{}
		c.kept[k] = have
	}
	return have
}

type statesInput struct {
	Name name `path:"name"`
}

// getStates counts the things of a machine by state. Transactions and queues are those of GET /now.
func (a *API) getStates(ctx context.Context, in *statesInput) (*statesOutput, error) {
	machine := string(in.Name)
	if machine == "transaction" || machine == "queue" {
		now, err := a.getNow(ctx, nil)
		if err != nil {
			return nil, err
		}
		v := statesView{Machine: machine, AsOf: now.Body.AsOf, States: now.Body.Queues}
		if machine == "transaction" {
			v.States = map[string]int64{"WAITING": now.Body.Waiting, "DISPATCHING": 0, "REVISION": 0, "RETRY": 0}
			for state, n := range now.Body.InFlight {
				v.States[state] = n
			}
		}
		return &statesOutput{v}, nil
	}
	c := a.censuses.of(censusKey{contextID(ctx), machine})
	c.mu.Lock()
	defer c.mu.Unlock()
	if begun := time.Now(); begun.After(c.until) {
		seen, err := a.Store.Reads.TakeCensus(ctx, contextID(ctx), machine)
		if err != nil {
			return nil, err
		}
		if seen == nil {
			return nil, fault.New(fault.NotFound, "not_found", "no machine %q: GET /machines lists them",
				fault.Clip(machine))
		}
		c.seen, c.until = seen, begun.Add(max(nowKept, 20*time.Since(begun)))
	}
	return &statesOutput{statesView{machine, c.seen.AsOf.UTC(), c.seen.Of, c.seen.States}}, nil
}
