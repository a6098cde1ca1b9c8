package domains

import (
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/outbox"
)

// tell adds to b what subscriptions of the domain's context hear of a step, in its commit: that intents have ended or
// are parked, and that another node coordinates. Where no subscription may hear of it, it adds nothing.
func (s *Store) tell(b *pgx.Batch, h *seat, st *coord.Step, out *Stepped) {
	day := outbox.DayOf(h.now)
	tell := func(id outbox.ID, e outbox.Event) {
		if s.deliveries.Subscribers.TellOf(b, h.now, h.context, id, e) {
			out.told = true
		}
	}
	for _, m := range st.Moves {
		e, known := told[m.To]
		if i := h.d.Intent(m.ID); known && m.Machine == coord.OriginatorTransaction.Name && i != nil {
			tell(outbox.OfIntent(h.id, i.Seq, h.steps, day), e)
		}
	}
	if st.Led == "" {
		return
	}
	seat := h.d.Seat
	b.Queue(`INSERT INTO postern.coord_step (domain_id, object, at, machine, was, event, state, node, reason)
		VALUES ($1, '', $2, $3, $4, $5, $4, $6, $7)`, h.id, h.now, coord.Coordinator.Name, string(seat.Coordinator),
		string(coord.OnCoordinatorChanged), seat.Leader, st.Led)
	tell(outbox.OfDomain(h.id, h.steps, day), outbox.EventCoordinatorChanged)
}

// told are the states of an intent that subscriptions hear of.
var told = map[coord.State]outbox.Event{
	coord.Confirmed: outbox.EventIntentConfirmed,
	coord.Reverted:  outbox.EventIntentReverted,
	coord.Parked:    outbox.EventIntentParked,
}
