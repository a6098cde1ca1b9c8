package coord

import (
	"slices"
	"time"
)

// clocks are read before the events of a step: a node that was away learns that before all else.
var clocks = []func(*turn){(*turn).departed, (*turn).blocks, (*turn).away}

// timers are looked at behind them, in this order.
var timers = []func(*turn){
	(*turn).heardAgain,
	(*turn).greeted,
	(*turn).interval,
	(*turn).requests,
	(*turn).delegations,
	(*turn).waits,
	(*turn).parked,
}

func (t *turn) still() bool { return t.d.Still() }

// departed gives back the works of nodes that are none of the domain any more. Those that are dispatched go on.
func (t *turn) departed() {
	t.dropEarly(func(w *Work) bool { return t.d.peer(w.Origin) == nil }, "its node has left the domain")
}

// takesBack says whether a work that was dispatched may be assembled here once more: also its node must still be one of
// the domain.
func (t *turn) takesBack(w *Work) bool {
	return takes(t.d.Seat.Coordinator) && t.d.peer(w.Origin) != nil
}

// forsaken says whether a work waits in the pool for a node that has not been heard for long: it would take the room of
// others. Nothing of it is on its way, and its node delegates it again.
func (t *turn) forsaken(w *Work) bool {
	p := t.d.peer(w.Origin)
	return slices.Contains(poolWorks, w.State) && w.Origin != t.d.Self && p != nil &&
		t.now.Sub(later(p.HeardAt, w.Since)) > forsakenAfter*t.d.Settings.grace()
}

const forsakenAfter = 5

// silentUntil is until when a node that does not answer is left alone.
func (t *turn) silentUntil(node string) time.Time {
	if p := t.d.peer(node); p != nil {
		return p.Silent
	}
	return noTime
}

func (t *turn) blocks() {
	if t.height > t.d.Height && !t.still() {
		t.d.Height = t.height
		t.originator(OnNewBlock, fact{})
		t.coordinator(OnNewBlock, fact{})
	}
}

// lowered takes back a height that was wrong. Permits do not depend on it, and so nothing else is taken back.
func (t *turn) lowered() {
	if t.height >= t.d.Height {
		return
	}
	if t.d.Height = t.height; !t.still() {
		t.originator(OnNewBlock, fact{})
		t.coordinator(OnNewBlock, fact{})
	}
}

// away is for an Active that has not beaten: others may have taken over.
func (t *turn) away() {
	if !t.still() {
		t.awaySince(t.d.Seat.TickedAt)
	}
}

func (t *turn) awaySince(beaten time.Time) {
	if !beaten.IsZero() && t.now.Sub(beaten) > t.d.Settings.grace() && t.d.Seat.Coordinator == Active {
		t.coordinator(OnAway, fact{})
	}
}

func (t *turn) interval() {
	s := &t.d.Seat
	if t.now.Sub(s.TickedAt) < t.d.Settings.HeartbeatInterval || t.d.Paused {
		return
	}
	s.TickedAt = t.now
	t.hello()
	if t.still() {
		return
	}
	t.dropEarly(t.forsaken, "its node has not been heard for long")
	t.originator(OnHeartbeatInterval, fact{})
	t.coordinator(OnHeartbeatInterval, fact{})
	for _, w := range t.d.Works {
		if w.State == Confirmed || w.State == Reverted {
			t.work(w, OnHeartbeatInterval, fact{})
		}
		if w.dispatched() && (w.Unknown || w.Reason != "") && t.now.Sub(w.LookedAt) > t.d.Settings.grace() {
			t.look(w)
		}
	}
}

func (t *turn) requests() {
	for _, w := range t.d.Works {
		if at, waits := t.requestDue(w); waits && !t.still() && !at.After(t.now) {
			t.work(w, OnRequestTimeoutInterval, fact{})
		}
	}
}

// requestDue is when a work is to be looked at again since answers are missing.
func (t *turn) requestDue(w *Work) (at time.Time, waits bool) {
	if w.State != Assembling && w.State != Gathering && w.State != ConfirmingDispatch {
		return noTime, false
	}
	at = w.Since.Add(t.d.Settings.StateTimeout)
	for _, a := range w.Asks {
		if again := a.Last.Add(t.d.Settings.RequestTimeout); a.Answer == "" && w.waitsFor(a) && again.Before(at) {
			at = again
		}
	}
	return at, true
}

func (t *turn) delegations() {
	for _, i := range t.d.Intents {
		if !t.still() && t.delegateAgain(i) {
			t.originator(OnDelegateTimeout, fact{})
			return
		}
	}
}

// waits lets works go on that were to wait for a while.
func (t *turn) waits() {
	if !t.still() && t.d.Seat.Coordinator == Active {
		t.raise(t.selectNext)
	}
}

// parked lets intents go on that were parked for a while.
func (t *turn) parked() {
	for _, i := range t.d.Intents {
		if i.State == Parked && !i.ResumeAt.IsZero() && !i.ResumeAt.After(t.now) && !t.still() {
			t.resume(i)
		}
	}
}

func (t *turn) resume(i *Intent) {
	i.ResumeAt = noTime
	t.intent(i, OnResumed, fact{})
	t.originator(OnTransactionCreated, fact{})
}

// due is when the domain is to be looked at again.
func (t *turn) due() time.Time {
	if t.d.Paused {
		return noTime
	}
	at := t.d.Seat.TickedAt.Add(t.d.Settings.HeartbeatInterval)
	sooner := func(x time.Time) {
		if x.Before(at) && x.After(t.now) {
			at = x
		}
	}
	for _, w := range t.d.Works {
		if due, waits := t.requestDue(w); waits {
			sooner(due)
		}
		if w.State == Pooled {
			sooner(w.NotBefore)
			sooner(t.silentUntil(w.Origin))
		}
	}
	for _, i := range t.d.Intents {
		if i.State == Delegated && i.Acked == 0 {
			sooner(i.DelegatedAt.Add(t.d.Settings.DelegateTimeout))
		}
		if i.State == Parked {
			sooner(i.ResumeAt)
		}
	}
	return at
}
