package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// refusing names peers that take no calls.
func refusing(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	rows, err := c.Query(ctx, `SELECT x.name, p.name, clock_timestamp() - p.refused_at, p.refused_code, p.refused
		FROM postern.peer p
		JOIN postern.context x USING (context_id)
		WHERE p.removed_at IS NULL AND p.refused_at IS NOT NULL
		ORDER BY p.refused_at
		LIMIT 5`)
	if err != nil {
		return nil, err
	}
	var found []Finding
	var tenant, name, code, why string
	var since time.Duration
	_, err = pgx.ForEachRow(rows, []any{&tenant, &name, &since, &code, &why}, func() error {
		f := Finding{
			Check: "peers",
			State: Warn,
			Found: fmt.Sprintf("peer %q (context %s) takes no calls for %s (%s): %s",
				name, tenant, coarse(since), code, why),
			Remedy: "postern peer check " + name + " says whether it still is so",
		}
		if since > old {
			f.State = Bad
		}
		switch code {
		case "peer_unauthenticated", "unsigned_answer":
			f.Remedy = "give both ends the same secret: postern peer rotate " + name + " --secret-file FILE, and there"
		case "wrong_installation":
			f.Remedy = "look where its url leads; if that is right: postern peer put " + name + " --secret-file FILE"
		}
		found = append(found, f)
		return nil
	})
	return found, err
}
