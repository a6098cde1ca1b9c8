package reads

import (
	"context"
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

// newest selects, by machine, the states of the newest things of a context $1, at most $2, from at most $3 processors
// or channels. Each is a read by an index that has the order, so that its cost does not grow with the tables.
var newest = map[string]string{
	"event": `SELECT e.status AS state
		FROM postern.event e
		WHERE e.context_id = $1
		ORDER BY e.context_id, e.created_at DESC, e.event_id DESC
		LIMIT $2`,
	"flow": `SELECT f.status AS state
		FROM postern.flow f
		WHERE f.context_id = $1
		ORDER BY f.created_at DESC, f.flow_id DESC
		LIMIT $2`,
	"job": `SELECT j.status AS state
		FROM postern.job j
		WHERE j.context_id = $1
		ORDER BY j.created_at DESC, j.job_id DESC
		LIMIT $2`,
	"job_try": `SELECT t.state
		FROM (SELECT j.job_id, j.created_at
			FROM postern.job j
			WHERE j.context_id = $1
			ORDER BY j.created_at DESC, j.job_id DESC
			LIMIT $2) j
		CROSS JOIN LATERAL (SELECT t.state
			FROM postern.job_try t
			WHERE t.job_id = j.job_id
			LIMIT $2) t
		LIMIT $2`,
	"batch": `SELECT x.state
		FROM (SELECT p.processor_id
			FROM postern.processor p
			WHERE p.context_id = $1
			LIMIT $3) p
		CROSS JOIN LATERAL (SELECT b.state, b.batch_id
			FROM postern.batch b
			WHERE b.processor_id = p.processor_id
			ORDER BY b.batch_id DESC
			LIMIT $2) x
		ORDER BY x.batch_id DESC
		LIMIT $2`,
	"channel_message": `SELECT x.state
		FROM (SELECT c.channel_id
			FROM postern.channel c
			WHERE c.context_id = $1
			LIMIT $3) c
		CROSS JOIN (VALUES ('Queued'), ('Offered'), ('Active')) s(state)
		CROSS JOIN LATERAL (SELECT m.state, m.updated_at
			FROM postern.channel_message m
			WHERE m.channel_id = c.channel_id AND m.state = s.state
			ORDER BY m.updated_at DESC
			LIMIT $2) x
		ORDER BY x.updated_at DESC
		LIMIT $2`,
}

// Censuses are the machines whose things are counted by TakeCensus; transactions and queues are by Look.
func Censuses() (machines []string) {
	for name := range newest {
		machines = append(machines, name)
	}
	return machines
}

// TakeCensus counts the newest things of a machine by state, in one read that locks nothing; nil: it is not known here.
// It is bounded, so that a thing that has stood for longer than a thousand newer ones is not in it.
func (s *Store) TakeCensus(ctx context.Context, contextID int32, machine string) (*Census, error) {
	things, ok := newest[machine]
	if !ok {
		return nil, nil
	}
	c := &Census{Of: censusOf, States: map[string]int64{}}
	var err error
	if c.AsOf, err = s.Now(ctx); err != nil {
		return nil, err
	}
	args := []any{contextID, censusOf}
	if machine == "batch" || machine == "channel_message" {
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
