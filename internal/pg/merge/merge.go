// Package merge makes few wide partitions of many narrow ones, while no process lives. It stands beside the store, as
// migrations do. A database that was kept in partitions of a day for years is brought to the width that its retention
// asks for.
package merge

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/session"
)

// Group is the spans of days that become one. All of its rows are copied in one commit: a merge that was killed has
// done whole groups, and the next one goes on with the others.
type Group struct {
	First time.Time `json:"first"` // a day
	Last  time.Time `json:"last"`  // the last day
	Spans int       `json:"spans"` // how many there are now
	Rows  int64     `json:"rows"`  // of all tables, as PostgreSQL estimates it
	Bytes int64     `json:"bytes"` // so much more is needed on the disk until the group is committed
}

// String names its days.
func (g Group) String() string {
	return fmt.Sprintf("%s to %s", g.First.Format(time.DateOnly), g.Last.Format(time.DateOnly))
}

// Plan is what a merge would do.
type Plan struct {
	Width  string  `json:"width"`  // of the spans to be: day, week, month, quarter or year
	Before int     `json:"before"` // partitions of each table
	After  int     `json:"after"`
	Groups []Group `json:"groups"`
}

// Widths are those that spans may have.
var Widths = []string{"day", "week", "month", "quarter", "year"}

// Of reads what there is to merge into spans of a width; "" for that of the retention that the database was told of
// last.
func Of(ctx context.Context, url, width string) (p Plan, err error) {
	defer fault.Wrap(&err, "plan the merge")
	conn, err := session.Connect(ctx, url)
	if err != nil {
		return p, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return plan(ctx, conn, width)
}

func plan(ctx context.Context, conn *pgx.Conn, width string) (p Plan, err error) {
	p.Groups = []Group{}
	err = conn.QueryRow(ctx, `SELECT coalesce(nullif($1, ''), postern.span_width(r.keep, 0)),
			(SELECT count(*) FROM postern.spans s WHERE s.relation = 'task')
		FROM postern.retained r`, width).Scan(&p.Width, &p.Before)
	if err != nil {
		return p, err
	}
	rows, err := conn.Query(ctx, `SELECT min(s.first), max(s.last), count(*) FILTER (WHERE s.relation = 'task'),
			sum(greatest(k.reltuples, 0))::bigint, sum(pg_total_relation_size(s.oid))::bigint
		FROM postern.spans s
		JOIN pg_class k ON k.oid = s.oid
		WHERE date_trunc($1, s.first::timestamp) = date_trunc($1, s.last::timestamp)
		GROUP BY date_trunc($1, s.first::timestamp)
		HAVING count(*) FILTER (WHERE s.relation = 'task') > 1
		ORDER BY 1`, p.Width)
	if err != nil {
		return p, err
	}
	if p.Groups, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Group]); err != nil {
		return p, err
	}
	p.After = p.Before
	for _, g := range p.Groups {
		p.After -= g.Spans - 1
	}
	return p, nil
}

// Run merges what Of says, and tells done of each group when it is committed. Conflict processes_live: a process of
// Postern is connected to the database.
func Run(
	ctx context.Context, url, width string, done func(g Group, rows int64, took time.Duration),
) (p Plan, err error) {
	defer fault.Wrap(&err, "merge partitions")
	conn, err := session.Connect(ctx, url)
	if err != nil {
		return p, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := nobodyLives(ctx, conn); err != nil {
		return p, err
	}
	if p, err = plan(ctx, conn, width); err != nil {
		return p, err
	}
	for _, g := range p.Groups {
		began := time.Now()
		var n int64
		if err := conn.QueryRow(ctx, `SELECT postern.merge_spans($1, $2)`, g.First, g.Last).Scan(&n); err != nil {
			return p, fmt.Errorf("%s: %w", g, err)
		}
		done(g, n, time.Since(began))
	}
	return p, nil
}

// nobodyLives refuses a database to which a process of Postern is connected, or on which a node lives. A process that
// starts afterwards waits for the locks of the group at hand, and reads the spans as they then are.
func nobodyLives(ctx context.Context, conn *pgx.Conn) error {
	var sessions, nodes int
	var wait float64
	err := conn.QueryRow(ctx, `SELECT
			(SELECT count(*) FROM pg_stat_activity a
				WHERE a.datname = current_database() AND a.application_name = 'postern' AND a.pid <> pg_backend_pid()),
			count(*), coalesce(extract(epoch FROM max(n.heartbeat_at + n.ttl) - clock_timestamp()), 0)::float8
		FROM postern.node n
		WHERE n.dead_at IS NULL AND n.heartbeat_at + n.ttl > clock_timestamp()`).Scan(&sessions, &nodes, &wait)
	if err != nil || sessions+nodes == 0 {
		return err
	}
	what := fmt.Sprintf("%d sessions of postern are connected", sessions)
	if nodes > 0 {
		what = fmt.Sprintf("%s, and %d nodes live (one that was killed counts for another %.0f s)", what, nodes, wait)
	}
	return fault.New(fault.Conflict, "processes_live", "%s: stop postern serve and postern work first", what)
}
