package domains

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// pull pulls levers of an intent in one step. may looks at the intent behind the lock, and says whether there is
// anything to do.
func (s *Store) pull(ctx context.Context, by db.By, domain, called, action string,
	may func(*seat, *coord.Intent) ([]coord.Lever, error)) (r pg.LeverResult, err error) {
	i, err := s.Intent(ctx, by.Context, domain, called)
	if err != nil {
		return r, err
	}
	d, err := s.Domain(ctx, by.Context, domain)
	if err != nil {
		return r, err
	}
	lever := func(ctx context.Context, t *db.Txn, h *seat, b *pgx.Batch) ([]Event, error) {
		x := h.d.Intent(i.ID)
		if x == nil {
			return nil, fault.New(fault.NotFound, "not_found", "no intent %q in domain %q", fault.Clip(called),
				fault.Clip(domain))
		}
		if err := by.Seen(versionOf(x.Since)); err != nil {
			return nil, err
		}
		levers, err := may(h, x)
		if err == nil && action != "resume" {
			err = s.knowing(ctx, t, h)
		}
		if err != nil {
			return nil, err
		}
		r.Changed = len(levers) > 0
		s.AuditIn(b, by, action, "/domains/"+domain+"/intents/"+i.ID)
		var events []Event
		for _, l := range levers {
			events = append(events, Event{Event: coord.Event{Lever: l, ID: i.ID}})
		}
		return events, nil
	}
	out, err := s.step(ctx, d.ID, taking{wait: true, events: []Event{{Event: coord.Event{ID: i.ID}}}, more: lever})
	if err == nil && !out.Taken {
		return r, noDomain(domain)
	}
	if err == nil {
		s.ring()
		err = s.Appeared(ctx, !s.Has(Domains))
	}
	return r, err
}

// knowing refuses to end anything by rows while the node does not know whether its store has lost something: in the
// life that is lost there may have been a permit that these rows do not know. A process that has no node asks the same
// of those that have: while none of them lives, none has said hello.
func (s *Store) knowing(ctx context.Context, t *db.Txn, h *seat) error {
	if h.d.Still() || s.Quarantined(h.context, "") {
		return fault.New(fault.Conflict, "wrong_state", "domain %s waits to know whether its store has lost "+
			"something, and ends nothing until then: GET /domains/%s/why", h.name, h.name)
	}
	begun, err := s.begun(ctx, t, h)
	if err == nil && !begun {
		err = fault.New(fault.Conflict, "wrong_state", "no process of this node works, so that it is not known "+
			"whether its store has lost something, and domain %s ends nothing: start `postern work`", h.name)
	}
	return err
}

// versionOf tells one state of an intent from the others that it has been in.
func versionOf(since time.Time) int64 { return since.UnixMicro() }

// Version rises with each state of an intent.
func (i *Intent) Version() int64 { return versionOf(i.Since) }

func wrongState(i *coord.Intent, want string) error {
	return fault.New(fault.Conflict, "wrong_state", "intent %s is %s: %s", i.ID, i.State, want).With("state",
		string(i.State))
}

// Resume has an intent that is Parked go on. One that is not parked goes on already.
func (s *Store) Resume(ctx context.Context, by db.By, domain, called string) (pg.LeverResult, error) {
	return s.pull(ctx, by, domain, called, "resume", func(_ *seat, i *coord.Intent) ([]coord.Lever, error) {
		switch {
		case i.Ended():
			return nil, wrongState(i, "it has ended")
		case i.State != coord.Parked:
			return nil, nil
		}
		return []coord.Lever{coord.Resume}, nil
	})
}

// Cancel ends an intent for which no permit may still be used: behind its end it is given none, and so nothing of it
// goes out, wherever it is assembled or endorsed meanwhile.
func (s *Store) Cancel(ctx context.Context, by db.By, domain, called string) (pg.LeverResult, error) {
	return s.pull(ctx, by, domain, called, "cancel", func(h *seat, i *coord.Intent) ([]coord.Lever, error) {
		if i.Ended() {
			return nil, wrongState(i, "it has ended")
		}
		for _, p := range h.d.Permits {
			if p.ID == i.ID && !p.Ended {
				return nil, wrongState(i, "node "+p.Node+" holds a permit for it, so that it may land")
			}
		}
		if !slices.Contains(coord.CancelledIn, i.State) {
			return nil, wrongState(i, "its public transaction may go out")
		}
		return []coord.Lever{coord.Cancel}, nil
	})
}

// ReleaseDomain lets a domain go on that stands since another node has heard what this store does not know: under a new
// install, so that no node takes the two lives for one. It presumes that any node may have a permit for what is open.
// madeGood takes an operator's word besides: nothing that this node posted in the time that is lost is on its way, and
// what was done has been told.
func (s *Store) ReleaseDomain(ctx context.Context, by db.By, domain string, madeGood bool) (r pg.LeverResult,
	err error) {
	if by.Reason == "" {
		return r, fault.At("/reason", "release wants a reason: it is kept for those who ask why")
	}
	d, err := s.Domain(ctx, by.Context, domain)
	if err != nil {
		return r, err
	}
	leave := func(_ context.Context, _ *db.Txn, h *seat, b *pgx.Batch) ([]Event, error) {
		if err := by.Seen(h.version); err != nil {
			return nil, err
		}
		s.AuditIn(b, by, "release", "/domains/"+domain)
		var list []Event
		noticed := h.life != h.newLife // this step leaves the quarantine of the store
		if h.d.Paused && !noticed {
			list = append(list, Event{Event: coord.Event{Lever: coord.LeaveIt}})
		}
		lost := h.d.Paused || noticed || !h.d.Seat.LostAt.IsZero() && !h.d.Seat.MadeGood
		if madeGood && lost {
			list = append(list, Event{Event: coord.Event{Lever: coord.MadeGood}})
		}
		r.Changed = noticed || len(list) > 0
		return list, nil
	}
	out, err := s.step(ctx, d.ID, taking{wait: true, more: leave})
	if err == nil && !out.Taken {
		return r, noDomain(domain)
	}
	if err == nil {
		s.ring()
	}
	return r, err
}

// releaseWork takes that word where an intent of another node is coordinated: its public transaction is here, and what
// became of it is not known.
func (s *Store) releaseWork(ctx context.Context, by db.By, domain, id string, done bool) (r pg.LeverResult, err error) {
	d, err := s.Domain(ctx, by.Context, domain)
	if err != nil {
		return r, err
	}
	say := func(ctx context.Context, t *db.Txn, h *seat, b *pgx.Batch) ([]Event, error) {
		w := h.d.Work(id)
		switch {
		case w == nil:
			return nil, fault.New(fault.NotFound, "not_found", "no intent %q in domain %q, and none of another node "+
				"that is coordinated here", id, fault.Clip(domain))
		case w.State != coord.Dispatched && w.State != coord.Submitted || !w.Unknown:
			return nil, fault.New(fault.Conflict, "wrong_state", "the work of intent %s is %s here, and what became "+
				"of its public transaction is known, or will be", id, w.State).With("state", string(w.State))
		}
		if err := by.Seen(versionOf(w.Since)); err != nil {
			return nil, err
		}
		if err := s.knowing(ctx, t, h); err != nil {
			return nil, err
		}
		r.Changed = true
		s.AuditIn(b, by, "release", "/domains/"+domain+"/intents/"+id)
		l := coord.WasNotDone
		if done {
			l = coord.WasDoneWork
		}
		return []Event{{Event: coord.Event{Lever: l, ID: id}}}, nil
	}
	out, err := s.step(ctx, d.ID, taking{wait: true, events: []Event{{Event: coord.Event{ID: id}}}, more: say})
	if err == nil && !out.Taken {
		return r, noDomain(domain)
	}
	if err == nil {
		s.ring()
	}
	return r, err
}

// Release takes an operator's word for what became of an intent that waits for its permit to end, or for the outcome of
// its public transaction: it was done, or nothing of it is on its way any more. Of an intent of another node, by its
// id, it is the word about the public transaction that was sent here.
func (s *Store) Release(ctx context.Context, by db.By, domain, called string, done bool) (pg.LeverResult, error) {
	if by.Reason == "" {
		return pg.LeverResult{}, fault.At("/reason", "release wants a reason: it is kept for those who ask why")
	}
	if id, ok := idOf(called); ok {
		_, err := s.Intent(ctx, by.Context, domain, called)
		if fault.KindOf(err) == fault.NotFound {
			return s.releaseWork(ctx, by, domain, id.String(), done)
		}
	}
	return s.pull(ctx, by, domain, called, "release", func(h *seat, i *coord.Intent) ([]coord.Lever, error) {
		if i.Ended() {
			return nil, wrongState(i, "it has ended")
		}
		held := false
		for _, p := range h.d.Permits {
			held = held || p.ID == i.ID && !p.Ended
		}
		w := h.d.Work(i.ID)
		out := w != nil && (w.State == coord.Dispatched || w.State == coord.Submitted)
		switch {
		case !held:
			return nil, wrongState(i, "no node holds a permit for it, so that there is nothing to release")
		case out && !w.Unknown:
			return nil, wrongState(i, "its public transaction is with the core here, and will end by itself")
		case done && out:
			return []coord.Lever{coord.WasDoneWork, coord.ItWasDone}, nil
		case done:
			return []coord.Lever{coord.ItWasDone}, nil
		case out:
			return []coord.Lever{coord.WasNotDone, coord.ReleaseIt}, nil
		}
		return []coord.Lever{coord.ReleaseIt}, nil
	})
}
