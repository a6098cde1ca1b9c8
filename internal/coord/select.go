package coord

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// EffectiveHeight is the first block of the range that a height lies in.
func EffectiveHeight(height, blockRange int64) int64 {
	if blockRange < 1 {
		return height
	}
	return height - height%blockRange
}

// Priority returns the nodes in the order in which they are to coordinate in the range that begins at a height: the
// sorted pool, rotated by a hash of the height (S3.6). A node that is not in the pool never coordinates.
func Priority(pool []string, effective int64) []string {
	list := slices.Compact(slices.Sorted(slices.Values(pool)))
	if len(list) == 0 {
		return nil
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(strconv.FormatInt(effective, 10)))
	i := int(h.Sum32() % uint32(len(list)))
	return slices.Concat(list[i:], list[:i])
}

// list returns the order of the nodes at a height, whatever the mode.
func (d *Domain) list(height int64) []string {
	switch d.Settings.Mode {
	case Sender:
		return []string{d.Self}
	case Static:
		return []string{d.Settings.Static[strings.LastIndexByte(d.Settings.Static, '@')+1:]}
	}
	return Priority(d.Settings.Nodes, EffectiveHeight(height, d.Settings.BlockRange))
}

// digest names what the order of the nodes follows from. Nodes whose digests differ do not rank one another.
func (d *Domain) digest() string {
	s := d.Settings
	pool := slices.Compact(slices.Sorted(slices.Values(s.Nodes)))
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %s %d %q", s.Mode, s.Static, s.BlockRange, pool)
	return strconv.FormatUint(h.Sum64(), 36)
}

// Digest names the order in which the nodes coordinate: two nodes with one digest agree on it.
func (d *Domain) Digest() string { return d.digest() }

// believed is the height of another node as far as it counts: up to a range above our own.
func (d *Domain) believed(height int64) int64 {
	if height > d.Height+d.Settings.BlockRange {
		return d.Height
	}
	return height
}

// outranks says whether node a is to coordinate rather than b, at the larger of our height and the other's: two nodes
// on two sides of a boundary would each outrank the other by their own. Where they are more than a range apart, it is
// the smaller for both, since the lower of them does not believe the other.
func (t *turn) outranks(a, b string, p *Peer) bool {
	if p.Digest != "" && p.Digest != t.d.digest() {
		return false
	}
	height := max(t.d.Height, t.d.believed(p.Height))
	if t.d.Height > p.Height+t.d.Settings.BlockRange {
		height = p.Height
	}
	if t.planted(OutrankByOwnHeight) {
		height = t.d.Height
	}
	list := t.d.list(height)
	i, j := slices.Index(list, a), slices.Index(list, b)
	return i >= 0 && (j < 0 || i < j)
}

// lives says whether a state of a coordinator is one in which it takes works, or ends those that it has.
func lives(s State) bool { return s != "" && s != Idle && s != Observing }

// takes says whether a coordinator in a state accepts works.
func takes(s State) bool { return s == Active || s == Elect || s == Standby || s == Prepared }

// live says whether a node was heard as a coordinator within the grace.
func (t *turn) live(p *Peer) bool {
	return lives(p.State) && t.now.Sub(p.LiveAt) <= t.d.Settings.grace()
}

// best returns the live node of highest rank in one of the states, or nil.
func (t *turn) best(states ...State) *Peer {
	var best *Peer
	for _, p := range t.d.Peers {
		if t.live(p) && slices.Contains(states, p.State) && (best == nil || t.outranks(p.Node, best.Node, p)) {
			best = p
		}
	}
	return best
}

// lost says whether a node was given intents and was silent then, not long ago.
func (t *turn) lost(node string) bool {
	p := t.d.peer(node)
	return p == nil || !p.FailedAt.IsZero() && t.now.Sub(p.FailedAt) < 4*t.d.Settings.grace()
}

// choose returns the node to delegate to: a live coordinator, or the head of the list where that may take over from
// it; else the first of the list that is not silent.
func (t *turn) choose() string {
	list := t.d.list(t.d.Height)
	if a := t.best(Active); a != nil && slices.Contains(list, a.Node) {
		due := a.Tenure >= t.d.Settings.HeartbeatInterval*nanos(t.d.Settings.MinTenure)
		if !t.d.Settings.KeepsActive && due && !t.lost(list[0]) {
			return list[0]
		}
		return a.Node
	}
	if p := t.best(Prepared, Elect, Standby); p != nil && slices.Contains(list, p.Node) {
		return p.Node
	}
	for _, p := range t.d.Peers {
		if t.live(p) && p.Successor != "" && slices.Contains(list, p.Successor) && !t.lost(p.Successor) {
			return p.Successor
		}
	}
	longest := list[0]
	for _, node := range list {
		if !t.lost(node) {
			return node
		}
		if a, b := t.d.peer(node), t.d.peer(longest); a != nil && b != nil && a.FailedAt.Before(b.FailedAt) {
			longest = node
		}
	}
	return longest
}
