package doctor

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/session"
)

// othersSQL lists up to four tables that are none of Postern's, its queue's, or an extension's.
const othersSQL = `SELECT n.nspname || '.' || c.relname
	FROM pg_class c
	JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'p', 'f')
		AND NOT c.relispartition
		AND n.nspname NOT IN ('postern', 'report', 'river', 'postern_bench', 'information_schema')
		AND n.nspname NOT LIKE 'pg\_%'
		AND NOT EXISTS (SELECT FROM pg_depend d
			WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
	ORDER BY 1
	LIMIT 4`

// Others lists what tells that a database is in use by others: processes of Postern that are alive, and tables of
// applications. It changes nothing. Faults: those of session.Connect.
func Others(ctx context.Context, url string) (found []string, err error) {
	c, err := session.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	var migrated bool
	if err := c.QueryRow(ctx, `SELECT to_regclass('postern.node') IS NOT NULL`).Scan(&migrated); err != nil {
		return nil, err
	}
	if migrated {
		const alive = `SELECT name FROM postern.node WHERE dead_at IS NULL AND heartbeat_at > clock_timestamp() - ttl
			ORDER BY name LIMIT 4`
		if found, err = list(ctx, c, "the process %s works on it", alive); err != nil {
			return nil, err
		}
	}
	tables, err := list(ctx, c, "it has the table %s", othersSQL)
	return append(found, tables...), err
}

// list is a sentence for each name that a statement returns.
func list(ctx context.Context, c *pgx.Conn, sentence, sql string) (said []string, err error) {
	rows, err := c.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		said = append(said, fmt.Sprintf(sentence, name))
	}
	return said, err
}
