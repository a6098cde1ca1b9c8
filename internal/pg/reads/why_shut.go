package reads

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/pg"
)

// Shut lists what keeps here whatever a type of a context sends, in the order in which a person would remove it: the
// quarantines that hold it, a pause of the type, and one of the context. Without a type it is about what the context
// does itself, as pg.Store.Quarantined is. since stands where the audit does not say since when.
func (s *Store) Shut(ctx context.Context, contextID int32, typ string, since time.Time) ([]Blocker, error) {
	x := &explain{s: s, ctx: ctx, context: contextID, since: since}
	if _, err := x.quarantines(typ, "nothing of it leaves"); err != nil {
		return nil, err
	}
	var d *pg.Dispatcher
	if typ != "" {
		list, err := s.ReadDispatchers(ctx, s.Pool(), contextID, typ)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 && !list[0].Removed {
			d = list[0]
		}
	}
	err := x.pauses(d)
	return x.blockers, err
}
