package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/doctor"
	"github.com/postern-dev/postern/internal/pg/migrate"
	"github.com/postern-dev/postern/internal/pg/session"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// fromEnvironment is the URL that leaves everything to PGHOST and its like.
const fromEnvironment = "postgres://"

// Database returns the URL of the configured database, or a fault with code no_database whose sentence
// says what to set.
func (c *Config) Database() (string, error) {
	if c.DatabaseURL != "" {
		return c.DatabaseURL, nil
	}
	for _, name := range []string{"PGHOST", "PGSERVICE", "PGDATABASE"} {
		if os.Getenv(name) != "" {
			return fromEnvironment, nil
		}
	}
	return "", fault.New(fault.Invalid, "no_database",
		"DATABASE_URL is not set: set it (DATABASE_URL=postgres://user@host/postern) or PGHOST and its like, or run `postern dev`, which brings a database of its own")
}

// Shown is a database URL as people may want to copy it: what PGHOST and its like say is spelt out.
func Shown(database string) string {
	if database != fromEnvironment {
		return database
	}
	u := url.URL{Scheme: "postgres", Path: "/" + os.Getenv("PGDATABASE")}
	if user := os.Getenv("PGUSER"); user != "" {
		u.User = url.User(user)
	}
	host := os.Getenv("PGHOST")
	if strings.HasPrefix(host, "/") {
		u.RawQuery = url.Values{"host": {host}}.Encode()
	} else if port := os.Getenv("PGPORT"); port != "" {
		u.Host = net.JoinHostPort(host, port)
	} else {
		u.Host = host
	}
	return u.String()
}

// Warnings are sentences, one for each parameter of DATABASE_URL that is ignored. A parameter that cannot be used is
// refused where a command connects.
func (c *Config) Warnings() []string {
	database, err := c.Database()
	if err != nil {
		return nil
	}
	said, err := session.Parse(database)
	if err != nil {
		return nil
	}
	return said.Warnings
}

// Masked is a database URL without its password, for logs.
func Masked(database string) string { return mask(Shown(database)) }

// connections is the size of the pool for each part of a process where the URL does not say pool_max_conns. They are
// open all the time: under load serve uses up to seven at once, and work eight.
const connections = 10

// lookConnections is the size of the pool for what a process looks for all the time; one is enough, unless a look takes
// long.
const lookConnections = 2

// connect opens a pool on a database that answers and that is fit for use. Every command begins with it. Faults:
// bad_setting, database_unfit, database_unavailable, two_primaries (of several hosts).
func connect(ctx context.Context, w *db.Witness, database string, parts ...pg.Part) (*pgxpool.Pool, error) {
	said, err := session.Parse(database)
	if err != nil {
		return nil, err
	}
	conns := int32(connections * max(1, len(parts)))
	if said.Sized {
		conns = 0
	}
	soon, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	pool, err := judged(ctx, soon, w, database, conns, parts...)
	if session.PerhapsPooler(err) {
		if err = session.Reach(soon, database); err == nil {
			pool, err = judged(ctx, soon, w, database, conns, parts...)
		}
	}
	if err != nil {
		switch fault.CodeOf(err) {
		case "two_primaries", "database_unfit", "bad_setting":
			return nil, fault.As(err)
		}
		if soon.Err() != nil && fault.CodeOf(err) == "database_unavailable" {
			return nil, err
		}
		return nil, unanswered(database, err)
	}
	return pool, nil
}

// unanswered is the fault of a database that could not be used: it refuses us, has run out of something, or does not
// answer.
func unanswered(database string, err error) error {
	why, _ := session.Refused(err)
	return fault.New(fault.Retry, "database_unavailable", "the database %s %s", Masked(database), why).Because(err)
}

// judged opens a pool and judges the database; soon ends the judgement.
func judged(
	ctx, soon context.Context, w *db.Witness, database string, conns int32, parts ...pg.Part,
) (*pgxpool.Pool, error) {
	pool, err := pg.ConnectBy(ctx, w, database, conns, parts...)
	if err != nil {
		return nil, err
	}
	if err := session.Judge(soon, pool); err != nil {
		if soon.Err() != nil && ctx.Err() == nil { // the pool's connections are still being opened, which Took sees
			err = step(ctx, database, "open a connection", func() error { return errors.Join(err, soon.Err()) })
		}
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// open opens a store over a database that fits this program; its pool is to be closed. keep is how long what has ended
// is kept, as far as the process decides it: nil where it drops nothing. Faults: those of connect, and
// migrations_differ (run `postern migrate up`).
func open(
	ctx context.Context, database string, log *slog.Logger, keep *Days, parts ...pg.Part,
) (*stores.Store, error) {
	w := db.NewWitness()
	if err := fit(ctx, w, database, log, keep); err != nil {
		return nil, err
	}
	pool, err := connect(ctx, w, database, parts...)
	if err != nil {
		return nil, err
	}
	var store *stores.Store
	err = step(ctx, database, "make the partitions of the coming days and read the configuration", func() (err error) {
		if store, err = stores.Open(ctx, pool, log); err == nil {
			err = store.Leap(ctx)
		}
		return err
	})
	if err != nil {
		pool.Close()
		return nil, err
	}
	store.Rely(w)
	if n := len(store.Spans()); n > doctor.MostSpans {
		log.Warn("each table has many partitions: connections and lists of what is rare take longer",
			"partitions", n, "want_at_most", doctor.MostSpans, "remedy", doctor.Merge)
	}
	looks, err := w.Connect(ctx, database, lookConnections, nil)
	if err != nil {
		pool.Close()
		return nil, err
	}
	store.LookThrough(looks)
	if opened := db.Fill(ctx, pool); opened < int(pool.Config().MaxConns) {
		log.Warn("not all connections were open in time: the others are opened when they are needed", "open", opened,
			"want", pool.Config().MaxConns,
			"within", db.OpenWithin.String(), "because", doctor.Took(ctx, database))
	}
	return store, nil
}

// fit checks that a database fits this program, and makes the days that statements name, before any connection
// practises those: in spans as wide as this process keeps them, where it is one that drops them.
func fit(ctx context.Context, w *db.Witness, database string, log *slog.Logger, keep *Days) error {
	pool, err := connect(ctx, w, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	err = step(ctx, database, "read the state of the migrations", func() error { return migrate.Check(ctx, pool) })
	if err != nil {
		return err
	}
	return step(ctx, database, "make the partitions of the coming days and read the configuration", func() error {
		if keep != nil {
			if err := pg.New(pool, log).Keep(ctx, keep.Long()); err != nil {
				return err
			}
		}
		_, err := stores.Open(ctx, pool, log)
		return err
	})
}
