package doctor

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// MostSpans is how many partitions each table has at most in a database whose partitions are as wide as its retention
// asks for. With more, each connection, and each list of what is rare, takes longer.
const MostSpans = 60

// Merge says what to do about more partitions.
const Merge = "stop postern serve and postern work, and run: postern partitions merge " +
	"(--dry-run says what it would do, and for how much disk)"

// partitions counts those of each table.
func partitions(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	f := Finding{Check: "partitions", State: OK}
	var n int
	err := c.QueryRow(ctx, `SELECT count(*) FROM postern.spans WHERE relation = 'task'`).Scan(&n)
	if f.Found = fmt.Sprintf("%d of each table", n); n > MostSpans {
		f.State, f.Remedy = Warn, Merge
		f.Found += fmt.Sprintf(", which each connection and each list of what is rare goes through: want at most %d",
			MostSpans)
	}
	return []Finding{f}, err
}
