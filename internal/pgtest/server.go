package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/devpg"
	"github.com/postern-dev/postern/internal/pg/migrate"
)

// init has a test binary that devpg starts again become a keeper before any test runs, also where there is no TestMain.
func init() { devpg.MaybeChild() }

// server is where the databases of this process are made.
type server struct {
	url      string
	template string        // name of the template database
	admin    *pgxpool.Pool // where databases are made and dropped: a session costs as much as half of that
	own      *devpg.Server // nil if it is somebody else's
}

var (
	once   sync.Once
	the    *server
	theErr error
)

// shared returns the server of this process; the first call finds or starts it and makes the template.
func shared() (*server, error) {
	once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		s := &server{url: os.Getenv("POSTERN_TEST_DATABASE_URL"), template: templateName(time.Now())}
		if s.url == "" {
			if s.own, theErr = devpg.Start(ctx, options()); theErr != nil {
				return
			}
			s.url = s.own.URL
		}
		the = s
		if s.admin, theErr = connect(ctx, s.url); theErr != nil {
			return
		}
		theErr = s.makeTemplate(ctx)
	})
	return the, theErr
}

// templateName holds the day too: migrations make the partitions of the days to come, and a server may run for weeks.
func templateName(now time.Time) string {
	return "postern_template_" + now.UTC().Format("20060102") + "_" + migrate.Hash()[:16]
}

// options are those of a server for tests.
func options() devpg.Options {
	return devpg.Options{Ephemeral: true, Unsafe: true, BinDir: os.Getenv("POSTERN_PG_BIN")}
}

// connect opens a pool for as many statements as are sent at once.
func connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 2
	return pgxpool.NewWithConfig(ctx, cfg)
}

// stopOwn stops the server that this process started, if it did.
func stopOwn() {
	if the != nil && the.admin != nil {
		the.admin.Close()
	}
	if the != nil && the.own != nil {
		if err := the.own.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the test server:", err)
		}
	}
}

// makeTemplate makes the template database unless it is there. Other processes may be about to do the same, so it holds
// an advisory lock meanwhile. A template that is not marked as one is half made, and made anew.
func (s *server) makeTemplate(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtext($1))", s.template); err != nil {
		return err
	}
	var whole bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)",
		s.template).Scan(&whole); err != nil || whole {
		return err
	}
	name := pgx.Identifier{s.template}.Sanitize()
	for _, stmt := range []string{"DROP DATABASE IF EXISTS " + name + " WITH (FORCE)", "CREATE DATABASE " + name} {
		if _, err := conn.Exec(ctx, stmt); err != nil {
			return err
		}
	}
	if err := migrate.Up(ctx, withDatabase(s.url, s.template), nil); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "ALTER DATABASE "+name+" WITH IS_TEMPLATE true ALLOW_CONNECTIONS false")
	return err
}

// clone makes a database from the template, by copying files: measured 14 ms against 30 to 60 ms for the default
// WAL_LOG, which also fills the log.
func (s *server) clone(ctx context.Context, name string) error {
	return s.exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+
		" TEMPLATE "+pgx.Identifier{s.template}.Sanitize()+" STRATEGY FILE_COPY")
}

// exec runs one statement outside of the databases of tests.
func (s *server) exec(ctx context.Context, stmt string) error {
	_, err := s.admin.Exec(ctx, stmt)
	return err
}

// withDatabase is the URL with another database.
func withDatabase(raw, name string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" {
		return raw + " dbname=" + name // the other form: key=value
	}
	u.Path = "/" + name
	return u.String()
}

// Few is the URL of a database for a process of few connections: it opens all that it may have when it starts, and to
// plan the statements of twenty takes a second of processor time.
func Few(raw string) string { return withParameter(raw, "pool_max_conns", "4") }

// withParameter is a URL with a parameter, unless it has it.
func withParameter(raw, name, value string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" || u.Query().Has(name) {
		return raw
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += name + "=" + value
	return u.String()
}
