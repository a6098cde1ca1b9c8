package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// ingestSQL measures an application that writes a row of its own and submits a transaction in one SQL transaction,
// beside the same application that submits nothing. The submitted transactions are executed afterwards, so that check
// knows them to be complete and in order.
func ingestSQL(ctx context.Context, b *Bench) ([]*Result, error) {
	var there bool
	if err := b.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_proc WHERE pronamespace = 'postern'::regnamespace AND proname = 'submit')`).Scan(&there); err != nil {
		return nil, err
	}
	if !there {
		b.Progress("ingest-sql is skipped: the database has no function postern.submit")
		return []*Result{{Scenario: "ingest-sql", System: "postern", Skipped: "the database has no function postern.submit"}}, nil
	}
	var with, without []*trial
	for i := range b.Runs {
		for j := range 2 {
			submits := i%2 == j
			t, err := b.submit(ctx, submits)
			if err != nil {
				return nil, fmt.Errorf("run %d of %d: %w", i+1, b.Runs, err)
			}
			if submits {
				b.told("ingest-sql", i, t)
				with = append(with, t)
			} else {
				b.told("ingest-sql (without submit)", i, t)
				without = append(without, t)
			}
		}
	}
	ours, theirs := b.summary("ingest-sql", "postern", with), b.summary("ingest-sql", "without-submit", without)
	for _, r := range []*Result{ours, theirs} {
		r.Settings["connections"] = b.Connections
	}
	ours.timed(with, "transaction")
	theirs.timed(without, "transaction")
	ours.compare("to_without_submit", with, without, (*trial).rate)
	return []*Result{ours, theirs}, nil
}

// submit is one run of such an application. A queue belongs to one connection.
func (b *Bench) submit(ctx context.Context, submits bool) (*trial, error) {
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	if err := b.makePlain(ctx); err != nil {
		return nil, err
	}
	if err := b.calm(ctx); err != nil {
		return nil, err
	}
	prefix := b.name()
	conns, closeAll, err := b.connect(ctx, b.Connections)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	m, err := b.meter(ctx, nil)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	var n atomic.Int64
	all, used := &histogram{}, map[string]bool{}
	start := time.Now()
	for i, c := range conns {
		wg.Go(func() {
			h, mine := &histogram{}, map[string]bool{}
			var err error
			for k := 0; err == nil && time.Since(start) < b.Length; k++ {
				began := time.Now()
				queue := fmt.Sprintf("%s-%d", prefix, i+k%max(b.Queues/b.Connections, 1)*b.Connections)
				data := map[string]any{"n": k, "to": "B62qre3erTHfzQckNuibViWQGyyKwZseztqrjPZBv6SQF384Rg6ESAy", "amount": "1000000"}
				if err = writeOne(ctx, c, queue, data, submits); err == nil {
					h.add(time.Since(began))
					n.Add(1)
					mine[queue] = true
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.merge(h)
			for q := range mine {
				used[q] = true
			}
			failed = errors.Join(failed, err)
		})
	}
	wg.Wait()
	t := &trial{n: int(n.Load()), took: time.Since(start), times: map[string]*histogram{"transaction": all}}
	if failed != nil {
		return nil, failed
	}
	closeAll()
	if t.cost, err = m.stop(ctx); err != nil || !submits {
		return t, err
	}
	return t, b.workOff(ctx, t, prefix, len(used))
}

// writeOne writes a row of the application, and submits if it is told to, in one SQL transaction.
func writeOne(ctx context.Context, c *pgx.Conn, queue string, data any, submits bool) error {
	return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		const row = `INSERT INTO postern_bench.plain (queue, type, data) VALUES ($1, $2, $3)`
		if _, err := tx.Exec(ctx, row, queue, benchType, data); err != nil || !submits {
			return err
		}
		_, err := tx.Exec(ctx, `SELECT postern.submit($1, $2, $3)`, queue, benchType, data)
		return err
	})
}

// workOff executes the transactions that a run has submitted to so many queues, and checks them.
func (b *Bench) workOff(ctx context.Context, t *trial, prefix string, queues int) error {
	p, err := b.launch(ctx, RoleWork)
	if err != nil {
		return err
	}
	defer p.Stop()
	if err := p.Go(); err != nil {
		return err
	}
	for staged := 1; staged > 0; { // they have a queue once they are taken over
		if err := b.pool.QueryRow(ctx, `SELECT count(*) FROM postern.outbox`).Scan(&staged); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d are still staged: %w", staged, t.n, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	s, err := b.spanOf(ctx, prefix)
	if err != nil {
		return err
	}
	if _, _, err := b.await(ctx, s, t.n); err != nil {
		return err
	}
	t.wrong, t.bad, err = b.check(ctx, s, want{stored: t.n, ended: t.n, queues: queues, timed: b.local})
	return err
}
