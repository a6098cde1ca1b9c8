// Package merge makes few wide partitions of many narrow ones, while no process lives. It stands beside the store, as
// migrations do. A database that was kept in partitions of a day for years is brought to the width that its retention
// asks for.
package merge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
	conn, err := connect(ctx, url)
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
	// The size is null where another merge has dropped the partition since the statement began.
	rows, err := conn.Query(ctx, `SELECT min(s.first), max(s.last), count(*) FILTER (WHERE s.relation = 'task'),
			sum(greatest(k.reltuples, 0))::bigint, coalesce(sum(pg_total_relation_size(s.oid)), 0)::bigint
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

// Run merges what Of says, and tells done of each group when it is committed. Two at once share the work. Faults:
// processes_live, where a process of Postern is connected to the database; not_the_owner; in_use, where somebody else
// keeps a partition locked.
func Run(
	ctx context.Context, url, width string, done func(g Group, rows int64, took time.Duration),
) (p Plan, err error) {
	defer fault.Wrap(&err, "merge partitions")
	conn, err := connect(ctx, url)
	if err != nil {
		return p, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := session.Writable(ctx, conn); err != nil {
		return p, err
	}
	if err := isOwner(ctx, conn); err != nil {
		return p, err
	}
	if err := nobodyLives(ctx, conn); err != nil {
		return p, err
	}
	if p, err = plan(ctx, conn, width); err != nil {
		return p, err
	}
	for _, g := range p.Groups {
		began := time.Now()
		rows, err := mergeGroup(ctx, conn, g)
		if err != nil {
			return p, fmt.Errorf("%s: %w", g, err)
		}
		if rows != nil {
			done(g, *rows, time.Since(began))
		}
	}
	return p, nil
}

// name is how the session of a merge is called.
const name = "postern partitions merge"

// connect opens the session of a merge. The server ends it within a second where its process has died, so that the
// next merge can go on.
func connect(ctx context.Context, url string) (*pgx.Conn, error) {
	said, err := session.Parse(url)
	if err != nil {
		return nil, err
	}
	said.ConnConfig.RuntimeParams["application_name"] = name
	conn, err := said.Connect(ctx)
	if err != nil {
		return nil, err
	}
	// Not every system can do this; then the session goes on to the end of its group.
	_, _ = conn.Exec(ctx, `SELECT set_config('client_connection_check_interval', '1s', false)`)
	return conn, nil
}

// patience is how long a merge tries to lock the partitions of a group.
const patience = 30 * time.Second

// mergeGroup merges one group; nil if another merge has done it. Before each try it looks whether a process has been
// started. The first tries are given up before PostgreSQL looks for deadlocks, so that none ends a statement of such a
// process; the later ones wait until an autovacuum gives way.
func mergeGroup(ctx context.Context, conn *pgx.Conn, g Group) (rows *int64, err error) {
	wait := 400 * time.Millisecond
	for until := time.Now().Add(patience); ; wait = 3 * time.Second {
		if err := nobodyLives(ctx, conn); err != nil {
			return nil, err
		}
		err := conn.QueryRow(ctx, `SELECT postern.merge_spans($1, $2, $3)`, g.First, g.Last, wait).Scan(&rows)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "55P03" && refused.Code != "40P01" {
			return rows, err
		}
		if time.Now().After(until) {
			return nil, inUse(ctx, conn, g)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait / 4):
		}
	}
}

// inUse says who has locked the partitions of a group.
func inUse(ctx context.Context, conn *pgx.Conn, g Group) error {
	var who string
	err := conn.QueryRow(ctx, `SELECT coalesce(string_agg(w.who, '; '), 'a session that has just let go')
		FROM (SELECT DISTINCT format('session %s (%s), since %s', a.pid,
				coalesce(nullif(a.application_name, ''), a.usename), to_char(a.xact_start, 'HH24:MI:SS')) AS who
			FROM pg_locks l
			JOIN postern.spans s ON s.oid = l.relation
			JOIN pg_stat_activity a ON a.pid = l.pid
			WHERE l.granted AND s.first >= $1 AND s.last <= $2 AND l.pid <> pg_backend_pid()) w`,
		g.First, g.Last).Scan(&who)
	if err != nil {
		return err
	}
	return fault.New(fault.Conflict, "in_use", "the partitions are locked by %s: have it end its SQL transaction, "+
		"or end it (SELECT pg_terminate_backend(...)), and run the merge again, which goes on", who)
}

// isOwner refuses who may not make partitions of the tables. What a superuser makes is given to the owner.
func isOwner(ctx context.Context, conn *pgx.Conn) error {
	var who, owner string
	var may bool
	err := conn.QueryRow(ctx, `SELECT current_user, pg_get_userbyid(c.relowner),
			pg_has_role(current_user, c.relowner, 'USAGE')
		FROM pg_class c
		WHERE c.oid = 'postern.task'::regclass`).Scan(&who, &owner, &may)
	if err != nil || may {
		return err
	}
	return fault.New(fault.Forbidden, "not_the_owner",
		"%s does not own the tables: connect as %s, which owns them, as for postern migrate up", who, owner)
}

// passing is how long a session of Postern may stay that is not of a process that serves: one of a command, as is the
// look of this merge at the migrations.
const passing = 3 * time.Second

// nobodyLives refuses a database to which a process of Postern is connected, or on which a node lives. Other merges may
// be. A process that starts afterwards waits for the locks of the group at hand, and reads the spans as they then are;
// the merge ends before its next group.
func nobodyLives(ctx context.Context, conn *pgx.Conn) error {
	for until := time.Now().Add(passing); ; {
		sessions, err := living(ctx, conn)
		if err != nil || sessions == 0 {
			return err
		}
		if time.Now().After(until) {
			return livesStill(fault.Many(sessions, "session") + " of postern connected")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(passing / 30):
		}
	}
}

// living counts the sessions of Postern; a node that lives is a fault.
func living(ctx context.Context, conn *pgx.Conn) (sessions int, err error) {
	var nodes int
	var wait float64
	err = conn.QueryRow(ctx, `SELECT
			(SELECT count(*) FROM pg_stat_activity a
				WHERE a.datname = current_database() AND a.application_name = 'postern' AND a.pid <> pg_backend_pid()),
			count(*), coalesce(extract(epoch FROM max(n.heartbeat_at + n.ttl) - clock_timestamp()), 0)::float8
		FROM postern.node n
		WHERE n.dead_at IS NULL AND n.heartbeat_at + n.ttl > clock_timestamp()`).Scan(&sessions, &nodes, &wait)
	if err == nil && nodes > 0 {
		err = livesStill(fmt.Sprintf("%s of postern connected, and %s alive (one that was killed counts for another %.0f s)",
			fault.Many(sessions, "session"), fault.Many(nodes, "node"), wait))
	}
	return sessions, err
}

func livesStill(what string) error {
	return fault.New(fault.Conflict, "processes_live", "%s: stop postern serve and postern work first", what)
}
