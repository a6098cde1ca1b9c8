package domains

import (
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"

	"github.com/postern-dev/postern/internal/coord"
)

// kept is what a process keeps of a seat from its last step.
type kept struct {
	steps, version int64
	life           int64
	stamp          string
	settings       *Settings
	d              *coord.Domain
	permits        []int
	top            int64
}

// stepsTold is how many steps back the row tells what they changed, and changesTold how many intents of each: two
// processes of an installation take steps in turns, and do not read all that waits each time.
const (
	stepsTold   = 16
	changesTold = 64
)

// change is what a step has changed. Its stamp is its own: a database that went back gives its number to another one.
type change struct {
	Stamp string   `json:"stamp"`
	IDs   []string `json:"ids,omitempty"` // of intents
	Many  bool     `json:"many,omitempty"`
}

// since lists the intents that steps have changed since those of an image that is kept. It is not known of an image of
// a step that the row does not tell of, be it too old or of a history that is lost.
func (h *seat) since(k *kept) (ids []string, known bool) {
	if k == nil || k.life != h.life || h.life != h.newLife {
		return nil, false
	}
	at := len(h.changed) - 1 - int(h.steps-k.steps)
	if at < 0 || at >= len(h.changed) || h.changed[at].Stamp != k.stamp {
		return nil, false
	}
	for _, c := range h.changed[at+1:] {
		if c.Many {
			return nil, false
		}
		ids = append(ids, c.IDs...)
	}
	slices.Sort(ids)
	return slices.Compact(ids), true
}

// leave takes over an image that is kept, without what has changed since, which is to be read again.
func (h *seat) leave(k *kept, changed []string) {
	is := func(id string) bool { _, found := slices.BinarySearch(changed, id); return found }
	h.d = k.d.Clone()
	h.d.Intents = slices.DeleteFunc(h.d.Intents, func(i *coord.Intent) bool { return is(i.ID) })
	h.d.Works = slices.DeleteFunc(h.d.Works, func(w *coord.Work) bool { return is(w.ID) })
	permits := h.d.Permits
	h.d.Permits, h.d.Calls = nil, nil
	for n, p := range permits {
		if !is(p.ID) {
			h.d.Permits, h.permits = append(h.d.Permits, p), append(h.permits, k.permits[n])
		}
	}
}

// tellChanged adds what this step changes to what the row tells of the last ones.
func (h *seat) tellChanged() ([]byte, error) {
	c := change{Stamp: rand.Text(), IDs: slices.Sorted(maps.Keys(h.wrote))}
	if len(c.IDs) > changesTold {
		c.IDs, c.Many = nil, true
	}
	h.changed = append(h.changed, c)
	h.changed = h.changed[max(0, len(h.changed)-stepsTold):]
	return json.Marshal(h.changed)
}

// keeps returns what this process keeps of a seat, or nil.
func (s *Store) keeps(id int32) *kept {
	k, _ := s.seats.Load(id)
	held, _ := k.(*kept)
	return held
}

// keep has the process remember a seat as a step has left it, once that is committed.
func (s *Store) keep(h *seat) { s.seats.Store(h.id, h.kept()) }

// kept is what is worth keeping of a seat.
func (h *seat) kept() *kept {
	d := h.d.Needed()
	k := &kept{steps: h.steps, version: h.version, life: h.newLife, settings: h.settings, d: d, top: h.top}
	if n := len(h.changed); n > 0 {
		k.stamp = h.changed[n-1].Stamp
	}
	d.Permits = nil
	for n, p := range h.d.Permits {
		if d.Intent(p.ID) != nil {
			d.Permits, k.permits = append(d.Permits, p), append(k.permits, h.permits[n])
		}
	}
	return k
}
