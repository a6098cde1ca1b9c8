package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/session"
)

// plainConnections is how many of the database the comparison may use: as many as its requests of 64
// connections can keep busy, since PostgreSQL gathers commits by itself.
const plainConnections = 64

// PlainHandler is what Postern's POST is compared with: a router of the same kind, and for each request one
// INSERT into a narrow table with a commit of its own. It promises durability and nothing else: no order,
// no queue, no refusal.
func PlainHandler(ctx context.Context, database string) (http.Handler, func(), error) {
	said, err := session.Parse(database)
	if err != nil {
		return nil, nil, err
	}
	cfg := said.Config
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = plainConnections, 0, 0
	said.Settle()
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	r := chi.NewMux()
	r.Get("/readyz", func(http.ResponseWriter, *http.Request) {})
	r.Post("/transactions", func(w http.ResponseWriter, req *http.Request) {
		var in struct {
			Queue, Type string
			Data        json.RawMessage
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<20)).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var id int64
		if err := pool.QueryRow(req.Context(), `INSERT INTO postern_bench.plain (queue, type, data) VALUES ($1, $2, $3) RETURNING id`, in.Queue, in.Type, in.Data).
			Scan(&id); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		w.Write([]byte(`{"id": ` + strconv.FormatInt(id, 10) + `}`))
	})
	return r, pool.Close, nil
}

// makePlain makes the tables of comparisons and calibrations, empty.
func (b *Bench) makePlain(ctx context.Context) error {
	_, err := b.pool.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS postern_bench;
		CREATE TABLE IF NOT EXISTS postern_bench.plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL, type text NOT NULL,
			data jsonb NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
		CREATE TABLE IF NOT EXISTS postern_bench.durable (client int NOT NULL, n bigint NOT NULL, body text NOT NULL, PRIMARY KEY (client, n));
		TRUNCATE postern_bench.plain, postern_bench.durable`)
	return err
}

// checkPlain compares the rows of the comparison with what was acknowledged: even its rate counts only if
// nothing is lost.
func (b *Bench) checkPlain(ctx context.Context, tr *traffic) (wrong []string, n int, err error) {
	var stored, distinct int
	err = b.pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT (queue, data->>'n')) FROM postern_bench.plain WHERE queue LIKE $1 || '-%'`, tr.prefix).Scan(&stored, &distinct)
	if want := tr.sum(); stored != want || distinct != want {
		wrong, n = []string{fmt.Sprintf("%d acknowledged, %d stored, %d of them different", want, stored, distinct)}, max(want-stored, stored-want)+stored-distinct
	}
	return wrong, n, err
}

// NoCommit answers posts as pg.Ingester does, without storing them, so that a request is only HTTP, validation and
// JSON.
type NoCommit struct {
	last atomic.Int64
}

// Submit accepts everything and keeps nothing.
func (i *NoCommit) Submit(context.Context, *pg.Submission) (pg.Accepted, error) {
	now := time.Now()
	return pg.Accepted{ID: outbox.ID{Queue: i.last.Add(1), Seq: 1, Day: outbox.DayOf(now), Salt: outbox.SaltOf(now, "")}, At: now}, nil
}

// SubmitBatch is Submit for each.
func (i *NoCommit) SubmitBatch(ctx context.Context, subs []*pg.Submission, _ bool) (out []pg.Accepted, err error) {
	for _, sub := range subs {
		one, _ := i.Submit(ctx, sub)
		out = append(out, one)
	}
	return out, nil
}
