package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/pg/reads"
)

func (a *API) nowRoutes() {
	get(a, "service", "/now", "get-now",
		"What the context holds now, and its oldest heads with what each waits for", a.getNow)
	get(a, "service", "/machines/{name}/states", "get-machine-states",
		"How many things of the context are in each state of a machine now", a.getStates)
}

// nowView is what a context holds at a moment.
type nowView struct {
	AsOf     time.Time        `json:"as_of" doc:"kept for a second, or twenty times what the read took"`
	Waiting  int64            `json:"waiting" doc:"transactions behind those in flight"`
	InFlight map[string]int64 `json:"in_flight" doc:"transactions, by state"`
	Queues   map[string]int64 `json:"queues" doc:"those that hold something, by state"`
	Heads    []oldHeadView    `json:"heads" doc:"the ten oldest heads"`
	Hours    []hourView       `json:"hours" doc:"the last 24, up to the present one, as they are rolled up"`
}

// hourView is what came and what ended in one hour.
type hourView struct {
	Hour      time.Time `json:"hour" doc:"its beginning"`
	Accepted  int64     `json:"accepted"`
	Done      int64     `json:"done"`
	Failed    int64     `json:"failed" doc:"or unresolved"`
	Cancelled int64     `json:"cancelled"`
}

// oldHeadView is a head with the blocker at its root.
type oldHeadView struct {
	Queue   *string     `json:"queue" doc:"null for unordered work"`
	ID      string      `json:"id"`
	UID     string      `json:"uid"`
	Type    string      `json:"type"`
	State   string      `json:"state"`
	Since   time.Time   `json:"since" doc:"it is head"`
	Moving  bool        `json:"moving" doc:"something happens now, without anybody's help"`
	Summary string      `json:"summary"`
	Root    blockerView `json:"root" doc:"the last blocker with a lever, or the last one"`
}

// glance is what was read of a context, and until when it is shown.
type glance struct {
	mu    sync.Mutex
	seen  *reads.Present
	until time.Time
}

// present keeps what was read, so that the reads take a twentieth of a connection at most, however many look.
type present struct {
	mu   sync.Mutex
	kept map[int32]*glance
}

// of is the glance of a context.
func (p *present) of(contextID int32) *glance {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.kept[contextID]
	if g == nil {
		if len(p.kept) >= cacheMost {
			clear(p.kept)
		}
		g = &glance{}
		p.kept[contextID] = g
	}
	return g
}

// getNow reads what the context holds. Those who ask while it is being read get what that read finds.
func (a *API) getNow(ctx context.Context, _ *struct{}) (*nowOutput, error) {
	g := a.present.of(contextID(ctx))
	g.mu.Lock()
	defer g.mu.Unlock()
	if begun := time.Now(); begun.After(g.until) {
		n, err := a.Store.Reads.Look(ctx, contextID(ctx))
		if err != nil {
			return nil, err
		}
		g.seen, g.until = n, begun.Add(max(nowKept, 20*time.Since(begun)))
	}
	return &nowOutput{viewNow(g.seen)}, nil
}

// nowKept is how long what was read is shown at least.
const nowKept = 900 * time.Millisecond

type nowOutput struct{ Body nowView }

func viewNow(n *reads.Present) nowView {
	v := nowView{AsOf: n.AsOf.UTC(), Waiting: n.Waiting, InFlight: n.InFlight, Queues: n.Queues, Heads: []oldHeadView{},
		Hours: []hourView{}}
	for _, h := range n.Hours {
		v.Hours = append(v.Hours, hourView{h.At.UTC(), h.Accepted, h.Done, h.Failed, h.Cancelled})
	}
	for _, h := range n.Heads {
		v.Heads = append(v.Heads, oldHeadView{
			Queue:   ptr(h.Queue),
			ID:      h.ID.String(),
			UID:     h.UID,
			Type:    h.Type,
			State:   h.State,
			Since:   h.Since.UTC(),
			Moving:  h.Moving,
			Summary: h.Summary,
			Root:    viewBlocker(h.Root),
		})
	}
	return v
}
