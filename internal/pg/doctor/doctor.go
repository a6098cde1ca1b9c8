// Package doctor looks at a database as somebody who has to run it: its settings, its clock, who holds it
// up, and what in Postern does not move. It only reads, with statements of its own on a connection of its
// own, so that it also works where the store refuses to. It stands beside the store, which must not know it.
package doctor

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

// State says how a finding is.
type State string

const (
	OK   State = "ok"   // as it should be
	Warn State = "warn" // worth knowing; nothing is wrong yet
	Bad  State = "bad"  // something is wrong: its remedy is to be applied
)

// Finding is what one check found, and for what is not ok what to do about it.
type Finding struct {
	Check  string `json:"check"`
	State  State  `json:"state"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

// check looks at one thing. It returns nothing where there is nothing to say.
type check struct {
	name string
	look func(ctx context.Context, c *pgx.Conn) ([]Finding, error)
}

// server are the checks that any PostgreSQL can be put to, ours those that want our tables.
var (
	server = []check{{"version", version}, {"settings", settings}, {"connections", connections}, {"clock", clock},
		{"old snapshots", snapshots}, {"notifications", notifications}}
	ours = []check{
		{"nodes", nodes},
		{"quarantine", quarantine},
		{"partitions", partitions},
		{"overdue queues", overdue},
		{"held", held},
		{"causes", causes},
		{"workers", gates},
		{"workers", blocked},
		{"peers", refusing},
	}
)

// Database checks the database at url. Without migrated only what needs none of our tables is checked. The
// error says that the database does not answer (database_unavailable).
func Database(ctx context.Context, url string, migrated bool) ([]Finding, error) {
	said, err := session.Parse(url)
	if err != nil {
		return nil, err
	}
	said.ConnConfig.RuntimeParams["application_name"] = "postern doctor"
	said.Leave(given...)
	c, err := said.Connect(ctx)
	switch fault.CodeOf(err) {
	case "database_unfit", "bad_setting":
		return nil, fault.As(err)
	}
	if said := session.Exhausted(err); said != "" {
		return nil, fault.New(fault.Retry, "database_unavailable", "%s", said).Because(err)
	}
	if err != nil {
		return nil, fault.New(fault.Retry, "database_unavailable", "the database does not answer").Because(err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	list := server
	if migrated {
		list = append(list[:len(list):len(list)], ours...)
	}
	var found []Finding
	for _, look := range list {
		f, err := look.look(ctx, c)
		var refused *pgconn.PgError
		switch {
		case errors.As(err, &refused):
			f = []Finding{{look.name, Warn, "cannot be seen: " + refused.Message,
				"run it as a role that may read the schema postern, such as postern_verify"}}
		case err != nil:
			return found, fault.New(fault.Retry, "database_unavailable", "the database broke off").Because(err)
		}
		found = append(found, f...)
	}
	return found, nil
}

// old is since when what does not move is called stuck, and what is open is called old.
const old = 10 * time.Minute

// coarse is an age for a sentence.
func coarse(d time.Duration) string {
	if d < time.Hour {
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
