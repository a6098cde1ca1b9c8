package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/pg/watch"
)

// poolers are the URLs that lead to a pooler which keeps a session for each client. With the configuration that Parse
// makes of such a URL, each session sets by a statement the settings that the pooler does not pass on.
var poolers sync.Map

// errPooler is the cause of a fault that may come of a pooler.
var errPooler = errors.New("a pooler stands before the database")

// passed are the settings that every pooler passes on when a session begins.
var passed = []string{"application_name", "client_encoding", "datestyle", "standard_conforming_strings", "timezone"}

// PerhapsPooler says whether err may come of a pooler that keeps sessions: then Reach decides.
func PerhapsPooler(err error) bool { return errors.Is(err, errPooler) }

// Reach opens a session once. Where a pooler stands before the database, it finds out whether that keeps a session for
// each client, which later calls of Parse heed. Faults: those of Connect.
func Reach(ctx context.Context, url string) error {
	conn, err := Connect(ctx, url)
	if err == nil {
		_ = conn.Close(context.WithoutCancel(ctx))
	}
	return err
}

// Settle has each session set by a statement what a pooler before the database does not pass on. It is called when all
// settings are said, and does nothing where there is no pooler: there a session asks for its settings as it begins,
// which costs nothing, and counts before any timeout of its role.
func (c *Config) Settle() {
	if !c.pooled {
		return
	}
	var calls []string
	params := c.ConnConfig.RuntimeParams
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if !slices.Contains(passed, name) {
			call := fmt.Sprintf("pg_catalog.set_config(%s, %s, false)", quoted(name), quoted(params[name]))
			calls = append(calls, call)
			delete(params, name)
		}
	}
	sql := "SELECT " + strings.Join(calls, ", ")
	next := c.ConnConfig.ValidateConnect
	c.ConnConfig.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if _, err := conn.Exec(ctx, sql).ReadAll(); err != nil {
			return err
		}
		return next(ctx, conn)
	}
}

// quoted is a text as SQL, whatever standard_conforming_strings says.
func quoted(text string) string {
	return " E'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

// shared are what a pooler says, and what is to be done, where clients share sessions.
const shared = "a pooler before the database lets clients share sessions (pool_mode transaction or statement), and " +
	"Postern keeps settings, prepared statements and LISTEN in them: let DATABASE_URL name PostgreSQL itself, " +
	"or a pooler with pool_mode = session"

// keepsSessions refuses a pooler whose clients share sessions. Two sessions that ask for nothing look whether what one
// sets is seen by the other, or lost while the other holds a server. Nothing else is set: that would change the
// sessions of applications.
func (c *Config) keepsSessions(ctx context.Context) error {
	cfg := c.ConnConfig.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	cfg.RuntimeParams = map[string]string{"application_name": "postern", "client_encoding": "UTF8"}
	watch.Configure(cfg)
	var two [2]*pgx.Conn
	for i := range two {
		conn, err := pgx.ConnectConfig(ctx, cfg)
		if err != nil {
			return Explain(err)
		}
		defer conn.Close(context.WithoutCancel(ctx))
		two[i] = conn
	}
	for range 3 {
		common, err := common(ctx, two[0], two[1], rand.Text())
		switch {
		case err != nil && strings.Contains(err.Error(), "pooling"):
			common = true
		case err != nil:
			return Explain(err)
		}
		if common {
			return notFit("%s", shared)
		}
	}
	return nil
}

// common says whether two clients share sessions.
func common(ctx context.Context, a, b *pgx.Conn, mark string) (bool, error) {
	const read = `SELECT coalesce(current_setting('postern.session', true), '')`
	var seen, kept string
	if _, err := a.Exec(ctx, `SELECT set_config('postern.session', $1, false)`, mark); err != nil {
		return false, err
	}
	tx, err := b.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := tx.QueryRow(ctx, read).Scan(&seen); err != nil {
		return false, err
	}
	if err := a.QueryRow(ctx, read).Scan(&kept); err != nil {
		return false, err
	}
	return seen == mark || kept != mark, nil
}
