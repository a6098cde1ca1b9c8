package processor

import "github.com/postern-dev/postern/internal/fault"

// Line is one of a processor's lines, as far as a change of its ends needs to know: how many batches stand in
// it, and bounds of their places. The bounds may be wider than the places, never narrower; with Length 0 they
// mean nothing.
type Line struct {
	Length          int64
	Lowest, Highest int64
}

// Gap lies between a batch and the next one that is put behind it: twenty batches fit between the two, each
// directly before the one that was put there last, until places around them are dealt anew.
const Gap = 1 << 20

// edge is how far places go in both directions: two million million batches behind each other. A line that
// gets there is dealt anew as a whole. The difference of two places fits into an int64.
const edge = int64(1) << 61

// Back returns the place behind all others; false when there is none left.
func (l Line) Back() (int64, bool) {
	if l.Length == 0 {
		return 0, true
	}
	return l.Highest + Gap, l.Highest+Gap <= edge
}

// Front returns the place before all others; false when there is none left.
func (l Line) Front() (int64, bool) {
	if l.Length == 0 {
		return 0, true
	}
	return l.Lowest - Gap, l.Lowest-Gap >= -edge
}

// Between returns a place in the middle of two others; false when they are next to each other.
func Between(before, after int64) (int64, bool) {
	return before + (after-before)/2, after-before >= 2
}

// With is the line with one more batch, at place.
func (l Line) With(place int64) Line {
	if l.Length == 0 {
		return Line{1, place, place}
	}
	return Line{l.Length + 1, min(l.Lowest, place), max(l.Highest, place)}
}

// Without is the line without the batch that stood at place.
func (l Line) Without(place int64) Line {
	l.Length--
	switch {
	case l.Length == 0:
		return Line{}
	case place == l.Lowest:
		l.Lowest++ // the next batch stands at a higher place
	case place == l.Highest:
		l.Highest--
	}
	return l
}

// Window is a part of a line whose places are dealt anew: those of n batches between two that stay where they
// are, or the ends of the line.
type Window struct {
	N             int64
	Before, After *int64 // nil: the line ends there
}

// roomy is how far apart places must be after they were dealt anew, so that it is not soon to be done again:
// ten batches then fit between two of them, and dealing costs a few rows per batch even if all are put at one
// and the same spot.
const roomy = 1 << 10

// Deal returns places for the batches of a window, rising and evenly apart; false when they would be too close,
// and a wider window is to be looked at. A window that is a whole line always has room.
func (w Window) Deal() ([]int64, bool) {
	var step, from int64
	switch {
	case w.Before == nil && w.After == nil:
		step = Gap
		from = -(w.N / 2) * Gap
	case w.Before == nil:
		step, from = Gap, *w.After-w.N*Gap
		if from < -edge {
			return nil, false
		}
	case w.After == nil:
		step, from = Gap, *w.Before+Gap
		if from > edge-w.N*Gap {
			return nil, false
		}
	default:
		step = (*w.After - *w.Before) / (w.N + 1)
		from = *w.Before + step
	}
	if step < roomy {
		return nil, false
	}
	places := make([]int64, w.N)
	for i := range places {
		places[i] = from + int64(i)*step
	}
	return places, true
}

// outOfBounds is the published text for a position that is not there (S4.3), with the last one that is; a line without
// any says that.
func outOfBounds(pointer string, position, most int64) error {
	f := fault.At(pointer, "Index out of bounds").With("position", position)
	if most < 0 {
		return f.With("length", 0)
	}
	return f.With("most", most)
}

// CanInsert refuses a position at which nothing can be put: only 0 to the length of the line are there.
func (l Line) CanInsert(position int64) error {
	if position < 0 || position > l.Length {
		return outOfBounds("/position", position, l.Length)
	}
	return nil
}

// CanRemove refuses a position at which no batch stands; every position of an empty line is one.
func (l Line) CanRemove(position int64) error {
	if position < 0 || position >= l.Length {
		return outOfBounds("/position", position, l.Length-1)
	}
	return nil
}

// Range is a part of a line, [From, To) in positions from the head; To < 0 is its end. The whole of it comes in
// pages of at most Limit, from the tail on if Desc.
type Range struct {
	From, To int64
	Desc     bool
	Limit    int64
}

// Page is how many batches a range shows where nothing else is said (S4.3).
const Page = 250

// Within returns the range with its end put in, and at most Limit batches of it, or the refusal of one that
// goes beyond the line or backwards (S4.3).
func (r Range) Within(l Line) (Range, error) {
	if r.To < 0 {
		r.To = l.Length
	}
	if r.From < 0 || r.From > r.To || r.To > l.Length {
		return r, fault.At("/from", "Invalid range").With("from", r.From).With("to", r.To).With("length", l.Length)
	}
	if r.Limit <= 0 {
		r.Limit = Page
	}
	if r.To-r.From > r.Limit {
		if r.Desc {
			r.From = r.To - r.Limit
		} else {
			r.To = r.From + r.Limit
		}
	}
	return r, nil
}

// Nearer says how to come to a position with the fewest steps: how many batches to pass, and whether from the
// tail. Passing is what a position costs, so that the middle of a line is the farthest.
func (l Line) Nearer(position int64) (pass int64, fromTail bool) {
	if position <= l.Length-1-position {
		return position, false
	}
	return l.Length - 1 - position, true
}
