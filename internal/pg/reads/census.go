package reads

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/db"
)

// Census is how many things of a context are in each state of a machine: of the newest Of.
type Census struct {
	AsOf   time.Time
	Of     int
	States map[string]int64
}

// censusOf is how many of the newest things are counted, and censusParts in how many processors, and in how many
// channels, the newest are looked for.
const censusOf, censusParts = 1000, 100

// TakeCensus counts the newest things of a machine by state, in one read that locks nothing; nil: it is not known here.
// It is bounded, so that a thing that has stood for longer than a thousand newer ones is not in it.
func (s *Store) TakeCensus(ctx context.Context, contextID int32, machine string) (*Census, error) {
	things := db.Newest(machine)
	if things == "" {
		return nil, nil
	}
	c := &Census{Of: censusOf, States: map[string]int64{}}
	var err error
	if c.AsOf, err = s.Now(ctx); err != nil {
		return nil, err
	}
	args := []any{contextID, censusOf}
	if strings.Contains(things, "$3") {
		args = append(args, censusParts)
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT state, count(*) FROM (`+things+`) x GROUP BY state`, args...)
	if err != nil {
		return nil, db.Known(err)
	}
	var state string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&state, &n}, func() error { c.States[state] = n; return nil })
	return c, db.Known(err)
}
