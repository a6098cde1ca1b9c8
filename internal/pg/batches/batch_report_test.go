package batches_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/processor"
)

func TestReportsTellOfProcessorsAndBatches(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue(processor.Med, 2, false, nil)
	p.enqueue(processor.Med, 1, true, nil)
	p.enqueue(processor.High, 1, false, nil)
	p.confirmed(nil)
	a, m := adding(1, false, nil)
	_, err := p.S.Batches.Insert(p.Ctx, p.By, "main", batches.NewBatch{Actions: a, Messages: m, Priority: processor.Med}, processor.Spot{})
	p.Must(err)
	p.ticks(refusing("no"), `executed 3 {"add":{"i":0}}`)
	p.ticks(pgworld.Done(), `executed 5 {"add":{"i":0}}`, `executed 1 {"add":{"i":0}}`, `executed 2 [{"add":{"i":0}}]`, `executed 4 {"add":{"execution_id":4,"i":0}}`)
	p.enqueue(processor.Med, 1, false, nil)
	p.Same(p.Lines(`SELECT concat_ws(' ', context, processor, paused, high, med, executing, waiting_callbacks) FROM report.processors`), "default main f 0 2 1")
	p.Same(p.Lines(`SELECT concat_ws(' ', priority, id, state, functions, done, retries, result, result_n, nullif(result_reason, '')) FROM report.batches ORDER BY priority, place, id`),
		"High 3 Done 1 0 0 rejected 0 no", "Med 1 Queued 2 1 0 0", "Med 6 Queued 1 0 0 0", "Med 2 Done 1 1 0 executed 0", "Med 4 Waiting_Callback 2 0 0 0", "Med 5 Done 1 1 0 executed 0")
}
