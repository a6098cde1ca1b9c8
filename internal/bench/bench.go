package bench

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/devpg"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/migrate"
	"github.com/postern-dev/postern/internal/pg/session"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// ServerSettings is how a PostgreSQL of our own is configured, besides its defaults: durable, and with
// room for a few minutes of load between two checkpoints.
var ServerSettings = map[string]string{
	"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
	"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "15min",
}

// Bench is a database to measure on, and how its processes are started.
type Bench struct {
	Config
	pool       *pgxpool.Pool
	store      *stores.Store
	url        string
	clean      bool // nothing but ours is in there: it may be emptied between runs
	local      bool // the server runs on this machine: its processes can be seen
	postmaster int
	stop       func() error
	lane       int32 // where transactions of type wait
	ctxID      int32
	took       int // counts trials, for names
	sampler    *sampler

	version  string
	settings map[string]string
}

// Config is what a Bench needs.
type Config struct {
	Database string        // its URL; "" starts a PostgreSQL
	Server   devpg.Options // of the one to start
	Launch   Launch
	Progress func(string) // told a line now and then
	Sizes
}

// benchType is the type of everything that a benchmark posts.
const benchType = "BENCH"

// Open starts or joins the database, brings it to the newest migration, and makes a dispatcher whose worker
// does nothing. Faults: those of devpg.Start and of migrate.Up.
func Open(ctx context.Context, c Config) (_ *Bench, err error) {
	b := &Bench{Config: c, url: c.Database, stop: func() error { return nil }}
	if b.Progress == nil {
		b.Progress = func(string) {}
	}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if b.url == "" {
		b.Server.Ephemeral, b.Server.Settings, b.Server.Log = true, ServerSettings, b.Progress
		server, err := devpg.Start(ctx, b.Server)
		if err != nil {
			return nil, err
		}
		b.stop, b.url = server.Close, server.URL
	}
	if err := migrate.Up(ctx, b.url, nil); err != nil {
		return nil, err
	}
	said, err := session.Parse(b.url)
	if err != nil {
		return nil, err
	}
	cfg := said.Config
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = 4, 0, 0
	cfg.ConnConfig.RuntimeParams["application_name"] = "postern-bench"
	said.Settle()
	if b.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	if b.store, err = stores.Open(ctx, b.pool, slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	if err := b.pool.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM postern.queue_name) AND NOT EXISTS (SELECT FROM postern.task)`).Scan(&b.clean); err != nil {
		return nil, err
	}
	if !b.clean {
		b.Progress("the database holds transactions already: they stay, and are measured along with")
	}
	b.local, err = b.findPostmaster(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.describe(ctx); err != nil {
		return nil, err
	}
	return b, b.prepare(ctx, noop())
}

// prepare makes a dispatcher the one of benchType, and finds the lane of its queues.
func (b *Bench) prepare(ctx context.Context, d outbox.Dispatcher) error {
	b.ctxID = b.store.Context("default").ID
	if _, err := b.store.PutDispatcher(ctx, db.By{Context: b.ctxID, Actor: "bench"}, d, 0); err != nil {
		return err
	}
	return b.pool.QueryRow(ctx, `WITH need AS (SELECT dispatcher_id, pool_id FROM postern.dispatcher WHERE context_id = $1 AND type = $2),
		made AS (INSERT INTO postern.lane (kind, dispatcher_id, pool_id) SELECT 'dispatcher', dispatcher_id, pool_id FROM need
			ON CONFLICT DO NOTHING RETURNING lane_id)
		SELECT lane_id FROM made UNION ALL SELECT l.lane_id FROM postern.lane l JOIN need n ON l.dispatcher_id = n.dispatcher_id
			AND l.pool_id IS NOT DISTINCT FROM n.pool_id WHERE l.kind = 'dispatcher' LIMIT 1`, b.ctxID, d.Type).Scan(&b.lane)
}

// describe reads what a reader of the figures wants to know about the server.
func (b *Bench) describe(ctx context.Context) error {
	names := append(slices.Collect(maps.Keys(ServerSettings)), "server_version", "wal_level")
	rows, err := b.pool.Query(ctx, `SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY ($1)`, names)
	if err != nil {
		return err
	}
	b.settings = map[string]string{}
	var name, value string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error { b.settings[name] = value; return nil })
	b.version = b.settings["server_version"]
	delete(b.settings, "server_version")
	if b.settings["fsync"] != "on" || b.settings["synchronous_commit"] == "off" {
		b.Progress("fsync or synchronous_commit is off: these commits are not durable, and their rates mean nothing elsewhere")
	}
	return err
}

// Close lets go of the database, without what only comparisons needed, and stops it if it is ours.
func (b *Bench) Close() error {
	b.sampler.stop()
	if b.pool != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := b.pool.Exec(ctx, `DROP SCHEMA IF EXISTS postern_bench CASCADE`); err != nil {
			b.Progress("drop the schema postern_bench: " + err.Error())
		}
		b.pool.Close()
	}
	return b.stop()
}

// history are the tables that fill with work; the others are configuration.
var history = []string{"task", "outcome", "attempt", "delivery", "mark", "redrive", "idempotency", "queue", "queue_name", "ready", "timer",
	"node", "audit", "outbox", "fanout",
	"processor", "batch", "batch_line", "batch_place", "batch_action", "batch_step", "batch_callback",
	"event", "event_move", "event_drop", "channel_message", "channel_message_end", "dependency",
	"runner", "flow", "flow_step", "job", "job_edge", "job_need", "job_due", "job_try", "try_late", "try_log",
	"message", "message_step", "message_late", "message_log",
	"domain", "coord_state", "coord_intent", "coord_permit", "coord_work", "coord_spend", "coord_activity",
	"coord_payload", "coord_call", "coord_step", "coord_in", "coord_out"}

// reset empties a database that was empty before us, so that each run begins with the same pages.
func (b *Bench) reset(ctx context.Context) error {
	if !b.clean {
		return nil
	}
	var tables string
	err := b.pool.QueryRow(ctx, `SELECT string_agg('postern.' || relname, ', ') FROM pg_class
		WHERE relnamespace = 'postern'::regnamespace AND relkind IN ('r', 'p') AND relname = ANY ($1)`, history).Scan(&tables)
	if err == nil {
		_, err = b.pool.Exec(ctx, `TRUNCATE river.river_job, `+tables+`;
			UPDATE postern.sender SET queue_id = NULL, bound_since = NULL WHERE queue_id IS NOT NULL`)
	}
	return err
}

// calm brings statistics up to date and writes what is dirty, so that no run pays for the one before.
func (b *Bench) calm(ctx context.Context) error {
	if _, err := b.pool.Exec(ctx, `VACUUM (ANALYZE) postern.task, postern.outcome, postern.queue, postern.queue_name, postern.ready, postern.sender`); err != nil {
		return err
	}
	if _, err := b.pool.Exec(ctx, `CHECKPOINT`); err != nil && ctx.Err() == nil {
		b.Progress("no CHECKPOINT before the run: " + err.Error())
	}
	return ctx.Err()
}

// fork makes another database on the same server and opens it; its end drops it. For what takes long to
// fill and is measured in turns with something else.
func (b *Bench) fork(ctx context.Context, name string) (*Bench, func(), error) {
	name = fmt.Sprintf("postern_bench_%s_%d", name, time.Now().UnixNano())
	if _, err := b.pool.Exec(ctx, `CREATE DATABASE `+name); err != nil {
		return nil, nil, err
	}
	drop := func() {
		if _, err := b.pool.Exec(context.WithoutCancel(ctx), `DROP DATABASE `+name+` WITH (FORCE)`); err != nil {
			b.Progress("drop the database " + name + ": " + err.Error())
		}
	}
	c := b.Config
	at, err := session.Named(b.url, name)
	if err != nil {
		drop()
		return nil, nil, err
	}
	c.Database, c.Progress = at, func(string) {}
	other, err := Open(ctx, c)
	if err != nil {
		drop()
		return nil, nil, err
	}
	other.Progress = b.Progress
	return other, func() { other.Close(); drop() }, nil
}

// name makes the prefix of a run's queues.
func (b *Bench) name() string {
	b.took++
	return fmt.Sprintf("bench-%d-%d", time.Now().UnixNano(), b.took)
}

// launch starts a process on our database.
func (b *Bench) launch(ctx context.Context, role string) (*Process, error) {
	p, err := b.Launch(ctx, Part{Role: role, Database: b.url})
	if err != nil {
		return nil, fmt.Errorf("start the process %s: %w", role, err)
	}
	return p, nil
}

// serving starts a process on our database, and returns it once it serves.
func (b *Bench) serving(ctx context.Context, role string) (*Process, error) {
	p, err := b.launch(ctx, role)
	if err != nil {
		return nil, err
	}
	if err = p.Go(); err == nil {
		err = ready(ctx, p.URL)
	}
	if err != nil {
		_ = p.Stop() // the first error counts
		return nil, err
	}
	return p, nil
}
