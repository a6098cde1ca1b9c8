package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/devpg"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/doctor"
	"github.com/postern-dev/postern/internal/pg/migrate"
)

// DevDefaults are the defaults of dev and demo: no authentication, workers on this machine.
var DevDefaults = map[string]string{
	"POSTERN_AUTH":              "none",
	"POSTERN_REGISTRATION":      "open",
	"POSTERN_WORKER_ALLOW_CIDR": "127.0.0.0/8,::1/128",
	"POSTERN_SOURCE_SCHEMAS":    "public",
	"POSTERN_LOG_LEVEL":         "warn",
}

// WorkDefaults are the defaults of every process that calls workers: a call may take its time.
var WorkDefaults = map[string]string{"POSTERN_SHUTDOWN_GRACE": "30s"}

// Dev is a whole installation in one process: database, API and sequencer.
type Dev struct {
	*App
	Database string // its URL, to be used by others

	stop func() error
}

// DevOptions say how a Dev differs from its Config.
type DevOptions struct {
	Ephemeral bool // the database is thrown away at the end
	Reset     bool // the kept database is thrown away before, and made anew
	Move      bool // take another port if that of Listen is in use
	Yes       bool // use a database that is named also where others use it
	Version   string
	Say       func(string) // told what happens, a line each
}

// NewDev starts a PostgreSQL, or takes the database that cfg.DatabaseURL names, brings it to the newest migration and
// builds API and sequencer on it. Faults: those of New and of devpg.Start, and ephemeral_and_database,
// reset_and_database, database_of_others.
func NewDev(ctx context.Context, cfg Config, o DevOptions, log *slog.Logger) (_ *Dev, err error) {
	d := &Dev{stop: func() error { return nil }}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	o.Say = oneAtATime(o.Say) // steps that take long are told from timers
	kept, err := d.findDatabase(ctx, &cfg, o)
	if err != nil {
		return nil, err
	}
	cfg.DebugClock = true // the dashboard offers it
	if len(cfg.SigningKey) == 0 {
		var said string
		if cfg.SigningKey, said, err = devKey(kept); err != nil {
			return nil, err
		}
		o.Say(said)
	}
	told := tellSlow(o.Say, "migrating the database")
	err = prepare(ctx, cfg.DatabaseURL)
	if told(); err != nil {
		return nil, err
	}
	moved := ""
	if o.Move && !free(cfg.Listen) {
		moved = cfg.Listen
		host, _, _ := net.SplitHostPort(cfg.Listen)
		cfg.Listen = net.JoinHostPort(host, "0")
	}
	told = tellSlow(o.Say, "starting API and sequencer")
	d.App, err = New(ctx, cfg, Role{Serve: true, Work: true, Home: true, Version: o.Version}, log)
	if told(); err != nil {
		return nil, err
	}
	if at := d.MetricsURL(); cfg.MetricsListen == metricsDefault && !strings.Contains(at, metricsDefault) {
		o.Say(cfg.MetricsListen + " is in use: the metrics are at " + at + " instead")
	}
	if moved != "" {
		o.Say(fmt.Sprintf("%s is in use: the API listens at %s instead", moved, d.URL()))
	}
	return d, nil
}

// Dashboard is where it is, "" where it is off.
func (d *Dev) Dashboard() string {
	if d.cfg.UI != "on" {
		return ""
	}
	return d.URL() + "/ui/"
}

// findDatabase uses the database that is named, or starts a PostgreSQL, and returns the directory where a key can be
// kept beside it, "" for none.
func (d *Dev) findDatabase(ctx context.Context, cfg *Config, o DevOptions) (kept string, err error) {
	configured := cfg.DatabaseURL
	switch {
	case configured != "" && o.Ephemeral:
		return "", fault.New(fault.Invalid, "ephemeral_and_database",
			"--ephemeral asks for a database that is thrown away, and --database-url names one: leave out one of them")
	case configured != "" && o.Reset:
		return "", fault.New(fault.Invalid, "reset_and_database",
			"--reset throws away the database that dev keeps, and --database-url names one of yours: "+
				"leave it out, or drop the schemas postern, report and river there yourself")
	case configured != "":
		if err := ofOthers(ctx, configured, o.Yes); err != nil {
			return "", err
		}
		o.Say("using the database " + Masked(configured))
	default:
		told := tellSlow(o.Say, "starting PostgreSQL")
		server, err := devpg.Start(ctx, devpg.Options{
			StateDir:      cfg.StateDir,
			BinDir:        cfg.PGBin,
			AllowDownload: cfg.PGDownload,
			Ephemeral:     o.Ephemeral,
			Reset:         o.Reset,
			Log:           o.Say,
		})
		if told(); err != nil {
			return "", err
		}
		d.stop = server.Close
		if !o.Ephemeral {
			kept = filepath.Dir(server.DataDir)
		}
		configured = server.URL
		o.Say(fmt.Sprintf("PostgreSQL %s, data in %s", server.Version, server.DataDir))
	}
	cfg.DatabaseURL, d.Database = configured, Shown(configured)
	return kept, nil
}

// ofOthers refuses a database that others use, unless that is meant: migrations and samples are written into it, and
// what waits there goes out.
func ofOthers(ctx context.Context, database string, meant bool) error {
	if meant {
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found, err := doctor.Others(soon, database)
	switch {
	case err == nil && len(found) > 0:
		return fault.New(fault.Conflict, "database_of_others", "the database %s is in use by others: %s. "+
			"Postern would migrate it, and send what waits there: leave out --database-url, or say --yes",
			Masked(database), strings.Join(found, ", "))
	case err == nil, fault.KindOf(err) != fault.Internal:
		return err
	}
	return unanswered(database, err)
}

// prepare brings a database that answers to the newest migration.
func prepare(ctx context.Context, database string) error {
	pool, err := connect(ctx, db.NewWitness(), database)
	if err != nil {
		return err
	}
	pool.Close()
	return migrate.Up(ctx, database, nil)
}

// DatabaseBeside makes an empty database on the server of another one, and returns its URL.
func DatabaseBeside(ctx context.Context, database, name string) (string, error) {
	at, err := url.Parse(database)
	if err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", err
	}
	at.Path = "/" + name
	return at.String(), nil
}

// Run is App.Run; the database is stopped at the end if it is ours.
func (d *Dev) Run(ctx context.Context) error {
	return errors.Join(d.App.Run(ctx), d.stop())
}

// Close lets go of what NewDev took, where Run was not called.
func (d *Dev) Close() {
	if d.App != nil {
		d.App.Close()
	}
	d.stop()
}

// free says whether an address can be listened on.
func free(address string) bool {
	l, err := net.Listen("tcp", address)
	if err == nil {
		l.Close()
	}
	return err == nil
}
