package pg_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// Applications submit through PgBouncer, where many clients share few sessions. Each row is told under the name of its
// own client, also under SET ROLE, and what one client was refused is said to no other.
func TestApplicationsSubmitThroughAPooler(t *testing.T) {
	t.Parallel()
	for mode, sessions := range map[string]int{"session": 6, "transaction": 3} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w, app, shopper := tenant(t)
			name, first := shopper+"_2", app.Config().ConnString()
			group(t, w, name)
			w.Exec(fmt.Sprintf(`ALTER ROLE %q LOGIN PASSWORD 'test'`, name))
			w.Exec(`SELECT postern.grant_context($1, 'other', 'executor')`, name)
			group(t, w, shopper+"_t")
			w.Exec(fmt.Sprintf(`GRANT %q TO %q`, shopper+"_t", shopper))
			w.Exec(`SELECT postern.grant_context($1, 'shop', 'executor')`, shopper+"_t")
			w.Exec(`UPDATE postern.context SET max_depth = 1000`)
			w.Must(w.S.Refresh(w.Ctx))
			second := strings.Replace(first, shopper, name, 1)
			behind := pgtest.Bouncer(t, mode, fmt.Sprint("default_pool_size = ", sessions), first, second)
			var all sync.WaitGroup
			for i, at := range behind {
				pool := behindPooler(t, at)
				in := []string{"shop", "other"}[i]
				for client := range 6 {
					all.Go(func() { w.submitsBehind(pool, in, []string{shopper + "_t", ""}[i], client) })
				}
			}
			all.Wait()
			if out := w.drainAll(w.S); out != (pg.Drained{Rows: 420}) { // however many queues share a round
				t.Errorf("%+v", out)
			}
			got := w.Lines(`SELECT c.name || ' ' || t.actor || ' ' || count(*)
				FROM postern.task t
				JOIN postern.context c USING (context_id)
				WHERE c.name IN ('shop', 'other') AND t.uid NOT LIKE 'u-%'
				GROUP BY c.name, t.actor
				ORDER BY 1`)
			want := []string{"other " + name + " 180", "shop " + shopper + " 180", "shop " + shopper + "_t 60"}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%v, want %v", got, want)
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}

// behindPooler is the pool of an application whose pooler keeps no prepared statements.
func behindPooler(t *testing.T, at string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(at)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DefaultQueryExecMode, cfg.MaxConns = pgx.QueryExecModeSimpleProtocol, 6
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// submitsBehind submits ten times in each way, and tries what is refused between.
func (w *world) submitsBehind(pool *pgxpool.Pool, in, role string, client int) {
	row := `INSERT INTO postern.outbox (context_id, queue, uid, type, data)
		SELECT context_id, 'q%d', '%s', '%s', '{}' FROM postern.context WHERE name = '%s'`
	for n := range 10 {
		uid := fmt.Sprintf("%s-%d-%d", in, client, n)
		for _, sql := range []string{
			fmt.Sprintf(`SELECT postern.submit('q%d', 'T', '{}', '%s-s', '%s')`, client, uid, in),
			fmt.Sprintf(row, client, uid+"-r", "T", in),
			fmt.Sprintf(`SELECT postern.submit_many('[{"type": "T", "uid": "%s-m", "context": "%s"}]')`, uid, in),
		} {
			if _, err := pool.Exec(w.Ctx, sql); err != nil {
				w.T.Errorf("%s: %v", sql, err)
			}
		}
		if _, err := pool.Exec(w.Ctx, fmt.Sprintf(row, client, uid+"-x", "NONE", in)); sqlState(err) != "ZP422" ||
			strings.Contains(err.Error(), "item ") { // which is of submit_many
			w.T.Errorf("an unknown type: %v", err)
		}
		foreign := fmt.Sprintf(`SELECT postern.submit('q', 'T', '{}', '%s-x', 'default')`, uid)
		if _, err := pool.Exec(w.Ctx, foreign); sqlState(err) != "ZP404" {
			w.T.Errorf("a context of others: %v", err)
		}
		if role == "" {
			continue
		}
		err := pgx.BeginFunc(w.Ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(w.Ctx, fmt.Sprintf(`SET LOCAL ROLE %q`, role)); err != nil {
				return err
			}
			_, err := tx.Exec(w.Ctx, fmt.Sprintf(`SELECT postern.submit('q', 'T', '{}', '%s-l', '%s')`, uid, in))
			return err
		})
		if err != nil {
			w.T.Errorf("as %s: %v", role, err)
		}
	}
}
