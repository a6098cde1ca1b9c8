package work

import (
	"time"

	"github.com/postern-dev/postern/internal/pg"
)

// peerWatch notes what a node has seen of the others' heartbeats, on its own monotonic clock. A node is buried only
// if it was seen without a new heartbeat for a third of the TTL, and this node's own heartbeats were committed at
// once all the while. So no node is buried while all are held up: by a standby that commits wait for, a server that
// is away, a jump of its clock, a freeze of this process. A node that dies is watched from before its death, so that
// its burial is no later for that.
//
// It is used by the loop of heartbeats alone.
type peerWatch struct {
	steady time.Time // since when this node's own heartbeats have been committed at once; zero: the last one was not
	seen   map[int64]sighted
}

type sighted struct {
	beats int64
	since time.Time
}

// beat notes one of this node's own heartbeats: when it began, and how old the one before it was then.
func (w *peerWatch) beat(began time.Time, age, ttl time.Duration, committed bool) {
	switch {
	case !committed || time.Since(began) > ttl/5:
		w.steady = time.Time{}
	case w.steady.IsZero() || age > ttl/2:
		w.steady = time.Now()
	}
}

// silent notes what was seen of the others and returns those that are to be buried.
func (w *peerWatch) silent(others []pg.Peer, ttl time.Duration) (dead []pg.Peer) {
	now := time.Now()
	seen := make(map[int64]sighted, len(others))
	for _, p := range others {
		s, known := w.seen[p.ID]
		if !known || s.beats != p.Beats {
			s = sighted{p.Beats, now}
		}
		if seen[p.ID] = s; s.since.Before(w.steady) {
			s.since = w.steady
		}
		if p.Silent && !w.steady.IsZero() && now.Sub(s.since) >= ttl/3 {
			dead = append(dead, p)
		}
	}
	w.seen = seen
	return dead
}
