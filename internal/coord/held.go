package coord

import (
	"reflect"
	"slices"
)

// A store need not load all rows into an image: those that are live, and those that these refer to, will do.

// HoldsIntent says whether an image needs an intent: until it has ended, and while one that has not ended depends on
// it.
func (d *Domain) HoldsIntent(i *Intent) bool {
	return !i.Ended() || slices.ContainsFunc(d.Intents, func(on *Intent) bool {
		return !on.Ended() && slices.Contains(on.DependsOn, i.ID)
	})
}

// HoldsWork says whether an image needs a work: until its originator knows its end, and while another one that is not
// over uses, or may use, what it makes.
func (d *Domain) HoldsWork(w *Work) bool {
	if w.State != Final && w.State != Evicted {
		return true
	}
	return slices.ContainsFunc(d.Works, func(by *Work) bool {
		uses := slices.Contains(by.Needs, w.ID) || by.State == Assembling &&
			slices.ContainsFunc(w.Assembled.Outputs, func(o string) bool { return slices.Contains(by.Offered, o) })
		return !by.over() && uses
	})
}

// Needed returns an image with the intents and works that it needs. It shares them with the one that it is made from.
func (d *Domain) Needed() *Domain {
	c := *d
	c.Intents = slices.DeleteFunc(slices.Clone(d.Intents), func(i *Intent) bool { return !d.HoldsIntent(i) })
	c.Works = slices.DeleteFunc(slices.Clone(d.Works), func(w *Work) bool { return !d.HoldsWork(w) })
	if len(c.Intents) != len(d.Intents) {
		c.places = nil
	}
	return &c
}

// Same says whether nothing of an intent has changed. There may be very many, and most have not.
func (i *Intent) Same(was *Intent) bool {
	a, b := &i.Assembled, &was.Assembled
	return i.ID == was.ID && i.Seq == was.Seq && i.Named == was.Named && i.State == was.State && i.Since == was.Since &&
		i.Delegate == was.Delegate && i.GivenAt == was.GivenAt && i.DelegatedAt == was.DelegatedAt &&
		i.NotBefore == was.NotBefore && i.Line == was.Line && i.Rejected == was.Rejected && i.Acked == was.Acked &&
		i.Said == was.Said &&
		i.SaidWhy == was.SaidWhy && i.Generation == was.Generation && i.Key == was.Key && i.Nonce == was.Nonce &&
		i.Hash == was.Hash && i.Failed == was.Failed && i.LookedAt == was.LookedAt && i.ResumeAt == was.ResumeAt &&
		i.Trouble == was.Trouble && i.Counts == was.Counts && i.Receipt == was.Receipt && i.Text == was.Text &&
		i.EndedAt == was.EndedAt && a.Hash == b.Hash && a.Size == b.Size && slices.Equal(a.Inputs, b.Inputs) &&
		slices.Equal(a.Outputs, b.Outputs) &&
		slices.EqualFunc(a.Plan, b.Plan, Attestation.same) && slices.Equal(i.DependsOn, was.DependsOn) &&
		(i.Response == was.Response || reflect.DeepEqual(i.Response, was.Response))
}

func (a Attestation) same(b Attestation) bool {
	return a.Name == b.Name && a.Type == b.Type && a.Threshold == b.Threshold && slices.Equal(a.Parties, b.Parties)
}

// Rests says whether nothing happens in a domain unless somebody brings something: it has no other nodes, coordinates
// nothing, and whatever has not ended is parked without a time.
func (d *Domain) Rests() bool {
	return len(d.Peers) == 1 && d.Seat.Coordinator == Idle && d.Seat.HelloAt.IsZero() && len(d.Calls) == 0 &&
		!slices.ContainsFunc(d.Intents, func(i *Intent) bool {
			return !i.Ended() && (i.State != Parked || !i.ResumeAt.IsZero())
		}) &&
		!slices.ContainsFunc(d.Works, func(w *Work) bool { return w.State != Final && w.State != Evicted })
}

// Obsolete says whether the answer to a call would change nothing any more.
func (d *Domain) Obsolete(c *Call) bool {
	i, w := d.Intent(c.ID), d.Work(c.ID)
	ours, theirs := i != nil && i.Generation == c.Generation, w != nil && w.Generation == c.Generation
	switch c.Kind {
	case "assemble":
		return !ours || i.State != Assembling
	case "sign":
		return !ours || i.State != Signing
	case "prepare":
		return !theirs || w.State != ConfirmingDispatch
	case "endorse":
		return c.Node == d.Self && (!theirs || w.State != Gathering)
	case "look":
		if c.Generation == 0 {
			return i == nil || i.Ended()
		}
		return !theirs || !w.dispatched()
	}
	return false
}

// Settle makes the image of a domain follow changed settings. It keeps the knowledge of nodes that stay.
func (d *Domain) Settle(self string, s Settings) {
	fresh := New(d.Name, self, s, 1)
	for i, p := range fresh.Peers {
		if known := d.peer(p.Node); known != nil {
			fresh.Peers[i] = known
		}
	}
	d.Self, d.Settings, d.Peers = self, s, fresh.Peers
}

// Waits lists whom a request of a work waits for: kinds of requests with their nodes, and since when.
func (w *Work) Waits() (open []Ask) {
	for _, a := range w.Asks {
		if a.Answer == "" && w.waitsFor(a) {
			open = append(open, *a)
		}
	}
	return open
}
