package main

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/pgtest"
)

// A pooler that keeps a session for each client may stand before the database: every command works, although the pooler
// does not pass on what a session asks for when it begins.
func TestEveryCommandWorksBehindAPoolerThatKeepsSessions(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{
		"refuses": "",
		"forgets": "ignore_startup_parameters = " + everySetting,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			set := "ALTER DATABASE " + db.Name + " SET "
			for _, s := range []string{"DateStyle = 'German'", "statement_timeout = '20s'", "search_path = nowhere"} {
				mustExec(t, db, set+s)
			}
			everyCommand(t, pgtest.Bouncer(t, "session", "default_pool_size = 60\n"+settings, db.URL)[0])
		})
	}
}

// everySetting is what a pooler is told to ignore where its operator tries to make Postern work.
const everySetting = "search_path,intervalstyle,bytea_output,extra_float_digits,array_nulls,transform_null_equals," +
	"row_security,client_min_messages,default_transaction_isolation,default_transaction_deferrable," +
	"synchronous_commit,statement_timeout,lock_timeout,idle_in_transaction_session_timeout,idle_session_timeout,jit,enable_hashjoin," +
	"enable_mergejoin,enable_seqscan,enable_material,enable_bitmapscan,enable_memoize,plan_cache_mode," +
	"max_parallel_workers_per_gather,tcp_user_timeout,tcp_keepalives_idle,tcp_keepalives_interval,tcp_keepalives_count"

// A pooler whose clients share sessions is refused by every command, with what would work, and without a trace in the
// sessions of others.
func TestAPoolerWhoseClientsShareSessionsIsRefused(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"transaction", "statement"} {
		for _, settings := range []string{"", "ignore_startup_parameters = " + everySetting} {
			db := pgtest.New(t)
			behind := pgtest.Bouncer(t, mode, settings, db.URL)[0]
			for _, args := range commands {
				postern(t, database(behind), args...).want(t, exitBad, "pooler", "pool_mode = session")
			}
			var path string
			mustScan(t, &pgtest.DB{Pool: simply(t, behind), Name: db.Name}, `SHOW search_path`, &path)
			if path != `"$user", public` {
				t.Errorf("%s: a session of others looks in %s", mode, path)
			}
		}
	}
}

// simply is a pool of an application that prepares no statements.
func simply(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
