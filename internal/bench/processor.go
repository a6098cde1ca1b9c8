package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	pgbatches "github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

// fillBatches writes batches as their owner's posts would have left them: each of one action, in the line Med of its
// processor, the processors named from first on.
func (b *Bench) fillBatches(ctx context.Context, name string, processors, each int) error {
	if processors*each >= 10000 {
		b.Progress("writing the rows of " + count(processors*each) + " batches")
	}
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		for _, q := range []struct {
			sql  string
			args []any
		}{
			{`INSERT INTO postern.processor (context_id, name, tick_interval) SELECT $1, $2 || '-' || k, '1 ms' FROM generate_series(1, $3::int) k`,
				[]any{b.ctxID, name, processors}},
			{`INSERT INTO postern.batch_line (processor_id, priority, length, lowest, highest)
				SELECT processor_id, q, CASE q WHEN 1 THEN $2::int ELSE 0 END, 0, CASE q WHEN 1 THEN ($2::bigint - 1) * $3 ELSE 0 END
				FROM postern.processor, generate_series(0, 1) q WHERE name LIKE $1 || '-%'`, []any{name, each, int64(processor.Gap)}},
			{`INSERT INTO postern.batch (batch_id, context_id, processor_id, initiator, by_owner, priority, actions, messages, state, steps, created_at, updated_at)
				SELECT nextval('postern.batch_id'), p.context_id, p.processor_id, 'bench', true, 1, jsonb_build_object('non_atomic', jsonb_build_object('functions',
						jsonb_build_array(jsonb_build_object('domain', p.name, 'contract_address', $3::text, 'message_details', '{"message": {"name": "pay"}}'::jsonb)))),
					'[{"msg": {"pay": {"to": "B62qre3erTHfzQckNuibViWQGyyKwZseztqrjPZBv6SQF384Rg6ESAy"}}}]', 'Queued', 1, now(), now()
				FROM generate_series(1, $2::int) n, postern.processor p WHERE p.name LIKE $1 || '-%' ORDER BY n, p.processor_id`, []any{name, each, benchType}},
			{`INSERT INTO postern.batch_place (processor_id, priority, place, batch_id)
				SELECT b.processor_id, 1, (row_number() OVER (PARTITION BY b.processor_id ORDER BY b.batch_id) - 1) * $2::bigint, b.batch_id
				FROM postern.batch b JOIN postern.processor p USING (processor_id) WHERE p.name LIKE $1 || '-%'`, []any{name, int64(processor.Gap)}},
		} {
			if _, err := tx.Exec(ctx, q.sql, q.args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// batches measures how fast batches of many processors are ticked and executed, from the first tick to the last result.
func batches(ctx context.Context, b *Bench) ([]*Result, error) {
	var trials []*trial
	for i := range b.Runs {
		t, err := b.batchRun(ctx)
		if err != nil {
			return nil, err
		}
		b.told("processor", i, t)
		trials = append(trials, t)
	}
	r := b.summary("processor", "postern", trials)
	r.Settings["processors_of_batches"], r.Settings["batches"] = b.Processors, b.Batches
	return []*Result{r}, nil
}

func (b *Bench) batchRun(ctx context.Context) (_ *trial, err error) {
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	each := max(1, b.Batches/b.Processors)
	if err := b.fillBatches(ctx, b.name(), b.Processors, each); err != nil {
		return nil, err
	}
	t, err := b.untilEnded(ctx, b.Processors*each, "batches", `postern.processor, postern.batch, postern.batch_line, postern.batch_place`, `SELECT (SELECT coalesce(sum(length), 0) FROM postern.batch_line)::int + (SELECT count(*) FROM postern.batch WHERE state = 'Executing')::int`)
	if err != nil {
		return nil, err
	}
	var executed, actions, outcomes, disorder int
	err = b.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM postern.batch WHERE result = 'executed'), (SELECT count(*) FROM postern.batch_action WHERE ok),
		(SELECT count(*) FROM postern.outcome o JOIN postern.queue_name n USING (queue_id) WHERE o.state = 'DONE' AND n.name LIKE 'processor:%'),
		(SELECT count(*) FROM (SELECT b.batch_id, lag(b.batch_id) OVER (PARTITION BY b.processor_id ORDER BY a.started_at) AS before
			FROM postern.batch b JOIN postern.batch_action a USING (batch_id)) o WHERE batch_id < before)`).Scan(&executed, &actions, &outcomes, &disorder)
	t.judge(amiss{t.n - executed, "%d batches were not executed"}, amiss{t.n - actions, "%d actions are missing"}, amiss{t.n - outcomes, "%d transactions are missing"}, amiss{disorder, "%d batches went before their turn"})
	return t, err
}

// insertPairs is how many pairs there are at least: the median of nine is what S4.3 is judged by.
const insertPairs = 9

// batchInserts measures inserts at the front of a line of 100 batches and of one of 100,000, in turns. Each insert is
// taken back, so that the lines stay as long as they are.
func batchInserts(ctx context.Context, b *Bench) ([]*Result, error) {
	const few = 100
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	prefix := b.name()
	lines := []struct {
		name   string
		length int
		trials []*trial
	}{{prefix + "few", few, nil}, {prefix + "many", b.Batches, nil}}
	for _, l := range lines {
		if err := b.fillBatches(ctx, l.name, 1, l.length); err != nil {
			return nil, err
		}
	}
	if _, err := b.pool.Exec(ctx, `UPDATE postern.processor SET tick_interval = '0'`); err != nil {
		return nil, err
	}
	if _, err := b.pool.Exec(ctx, `VACUUM (ANALYZE) postern.processor, postern.batch, postern.batch_line, postern.batch_place`); err != nil {
		return nil, err
	}
	for i := range max(b.Runs, insertPairs) {
		for j := range lines {
			l := &lines[(i+j)%2]
			t, err := b.insertRun(ctx, l.name+"-1", l.length)
			if err != nil {
				return nil, err
			}
			b.told("batch-insert-"+count(l.length), i, t)
			l.trials = append(l.trials, t)
		}
	}
	var all []*Result
	for _, l := range lines {
		r := b.summary("batch-insert-"+count(l.length), "postern", l.trials)
		r.timed(l.trials, "insert", "middle")
		r.Settings["length"] = l.length
		if l.length != few {
			r.compare("time_to_100", l.trials, lines[0].trials, func(t *trial) float64 { return t.times["insert"].quantile(0.5).Seconds() })
		}
		all = append(all, r)
	}
	return all, nil
}

// insertRun inserts at the front of a line, over and over, and then a few times in its middle, which is the rank that
// is farthest from both ends.
func (b *Bench) insertRun(ctx context.Context, name string, length int) (*trial, error) {
	by := db.By{Context: b.ctxID, Actor: "bench", Via: "bench"}
	f := processor.Function{Domain: name, ContractAddress: benchType, MessageDetails: processor.MessageDetails{Message: processor.MessageShape{Name: "pay"}}}
	n := pgbatches.NewBatch{Actions: processor.Actions{NonAtomic: &processor.Subroutine{Functions: []processor.Function{f}}}, Priority: processor.Med,
		Messages: []processor.Message{{Msg: json.RawMessage(`{"pay":{}}`)}}}
	h, middle := &histogram{}, &histogram{}
	m, err := b.meter(ctx, nil)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	t := &trial{times: map[string]*histogram{"insert": h, "middle": middle}}
	insert := func(spot processor.Spot, h *histogram) error {
		began := time.Now()
		v, err := b.store.Batches.Insert(ctx, by, name, n, spot)
		h.add(time.Since(began))
		if err == nil {
			_, err = b.store.Batches.Evict(ctx, by, name, pgbatches.Eviction{ID: v.ID})
		}
		return err
	}
	for time.Since(start) < b.Length/5 || t.n < 20 {
		if err := insert(processor.Spot{}, h); err != nil {
			return nil, err
		}
		t.n++
	}
	t.took = time.Since(start)
	cost, err := m.stop(ctx)
	t.cost = cost
	for range 20 {
		if err := insert(processor.Spot{Position: int64(length) / 2}, middle); err != nil {
			return nil, err
		}
	}
	_, stands, standing := b.store.Batches.BatchesInLine(ctx, b.ctxID, name, processor.Med, processor.Range{From: 0, To: 1})
	if stands != int64(length) {
		t.wrong, t.bad = []string{fmt.Sprintf("%d stand in a line of %d", stands, length)}, 1
	}
	return t, errors.Join(err, standing)
}
