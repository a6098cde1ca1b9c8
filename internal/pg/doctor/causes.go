package doctor

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
)

// cause is a line of report.causes.
type cause struct {
	tenant, cause, typ string
	n                  int64
	age                time.Duration
	detail, id, lever  string
}

// causes names in one line each the causes for which heads stand still, the things that are paused, and the ends of
// today that are bad. The heads are those of the sample, which a process that works takes every 15 s; without a fresh
// sample the queues are looked at.
func causes(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	var fresh bool
	if err := c.QueryRow(ctx, `
		SELECT coalesce(greatest((SELECT max(as_of) FROM postern.stuck), (SELECT max(as_of) FROM postern.node_load))
			> clock_timestamp() - interval '1 min', false)`).Scan(&fresh); err != nil {
		return nil, err
	}
	rows, err := c.Query(ctx, `
		SELECT context, cause, coalesce(type, ''), n, age, detail, coalesce(id::text, ''), coalesce(lever, '')
		FROM report.causes
		WHERE cause IN ('paused', 'rejected_today', 'unresolved_today')
			OR $1
				AND (cause <> 'outcome_unknown' OR lever NOT LIKE '%/was-done%') -- what is held has a line of its own
				AND (cause <> 'quarantined' OR EXISTS (SELECT FROM postern.quarantine)) -- the sample may be older
		ORDER BY since
		LIMIT 50`, fresh)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (x cause, err error) {
		return x, row.Scan(&x.tenant, &x.cause, &x.typ, &x.n, &x.age, &x.detail, &x.id, &x.lever)
	})
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, x := range list {
		found = append(found, x.finding())
	}
	if !fresh {
		more, err := queues(ctx, c)
		return append(found, more...), err
	}
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.Check == "stuck queues" }) {
		found = append(found, Finding{
			Check: "stuck queues",
			State: OK,
			Found: "none has stood still for " + coarse(old),
		})
	}
	return found, nil
}

// sampled is how many heads of a kind the sample holds at most: there may be more.
const sampled = 100

// finding is a cause as people read it.
func (x cause) finding() Finding {
	of := ""
	if x.typ != "" {
		of = " of type " + x.typ
	}
	f := Finding{State: Warn, Remedy: x.remedy()}
	switch x.cause {
	case "paused":
		f.Check, f.Found = "paused", fmt.Sprintf("%s (context %s), for %s", x.detail, x.tenant, coarse(x.age))
	case "unresolved_today":
		f.Check = "unresolved"
		f.Found = fmt.Sprintf("%s%s (context %s) ended UNRESOLVED today: %s",
			fault.Many(x.n, "transaction"), of, x.tenant, x.detail)
	case "rejected_today":
		f.Check = "rejections"
		f.Found = fmt.Sprintf("the worker rejected %s%s (context %s) today: %s",
			fault.Many(x.n, "transaction"), of, x.tenant, x.detail)
	default:
		f.Check, f.State = "stuck queues", Bad
		stand := "stand still for up to"
		if x.n == 1 {
			stand = "stands still for"
		}
		n := fault.Many(x.n, "head")
		if x.n >= sampled {
			n = "at least " + n
		}
		f.Found = fmt.Sprintf("%s%s (context %s) %s %s: %s: %s", n, of, x.tenant, stand,
			coarse(x.age), strings.ReplaceAll(x.cause, "_", " "), x.detail)
	}
	return f
}

// ofItsOwn are the levers of causes that have a command of their own.
var ofItsOwn = map[string]bool{
	"resume":  true,
	"unblock": true,
	"retry":   true,
	"cancel":  true,
	"why":     true,
}

// remedy is the lever of a cause as the command that pulls it.
func (x cause) remedy() string {
	method, rest, _ := strings.Cut(x.lever, " ")
	path, body, _ := strings.Cut(rest, " {")
	words := []string{"postern", "api", method, path}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch filter, listed := strings.CutPrefix(path, "/transactions?"); {
	case x.lever == "":
		words = []string{"postern", "why", x.id}
	case len(parts) == 3 && body == "" && ofItsOwn[parts[2]]:
		name, _ := url.PathUnescape(parts[1])
		words = []string{"postern", parts[2], strings.TrimPrefix(parts[0]+"/"+name, "transactions/")}
	case listed:
		words = append([]string{"postern", "ls"}, strings.Split(filter, "&")...)
	case body != "":
		words = append(words, "-d", "{"+body)
	}
	if x.tenant != "default" {
		words = append(words, "--context", x.tenant)
	}
	return Shell(words...)
}
