package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/session"
)

// tookSQL says what may keep a statement of ours from its end, a sentence a row: locks on our tables, what our
// sessions have been doing for long, and that there are many partitions.
const tookSQL = `SELECT format('session %s (%s) has locked %s since %s, and its last statement is: %s',
			a.pid, coalesce(nullif(a.application_name, ''), a.usename),
			string_agg(DISTINCT n.nspname || '.' || c.relname, ', '),
			to_char(a.xact_start, 'HH24:MI:SS'), left(a.query, 200))
		FROM pg_locks l
		JOIN pg_class c ON c.oid = l.relation
		JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.granted AND l.mode = 'AccessExclusiveLock' AND n.nspname IN ('postern', 'river')
			AND c.relkind IN ('r', 'p') AND a.pid <> pg_backend_pid()
		GROUP BY a.pid, a.application_name, a.usename, a.xact_start, a.query
	UNION ALL (SELECT format('our session %s has been at this for %s s (%s): %s', a.pid, round(extract(epoch
		FROM clock_timestamp() - a.query_start)),
			coalesce(a.wait_event_type || ' ' || a.wait_event, 'it computes'), left(a.query, 200))
		FROM pg_stat_activity a
		WHERE a.datname = current_database() AND a.application_name = 'postern' AND a.state = 'active'
			AND a.pid <> pg_backend_pid()
			AND a.query_start < clock_timestamp() - interval '1 s'
		ORDER BY a.query_start LIMIT 1)
	UNION ALL SELECT format('each table has %s partitions,
		which each connection reads: postern partitions merge makes few of them', count(*))
		FROM pg_inherits i
		WHERE i.inhparent = to_regclass('postern.task')
		HAVING count(*) > 61`

// lookWithin bounds the look at what took a statement its time.
const lookWithin = 5 * time.Second

// Took says in a sentence what took the statements of this program the time that was over, as another session of the
// database sees it.
func Took(ctx context.Context, url string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin)
	defer cancel()
	conn, err := session.Connect(ctx, url)
	if err != nil {
		return fmt.Sprintf("another session does not get an answer, either: %v", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, tookSQL)
	if err == nil {
		var found []string
		if found, err = pgx.CollectRows(rows, pgx.RowTo[string]); err == nil && len(found) > 0 {
			return strings.Join(found, "; ")
		}
	}
	if err != nil {
		return fmt.Sprintf("another session is answered, but not told why: %v", err)
	}
	return "another session is answered at once, nothing has locked our tables, " +
		"and no statement of ours is under way: it was slow, and no more is"
}
