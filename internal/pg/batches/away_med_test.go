package batches_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/processor"
)

// closed closes the gate of ADD for a minute from $1.
const closed = gated + ` WHERE type = 'ADD'`

// pay puts a batch of one action of PAY into a line, and again is its retry logic.
func (p *plant) pay(prio processor.Priority, again *processor.RetryLogic) *batches.Batch {
	p.T.Helper()
	a, m := adding(1, false, again)
	a.NonAtomic.Functions[0].ContractAddress = "PAY"
	v, err := p.S.Batches.Enqueue(p.Ctx, p.By, "main", batches.NewBatch{Actions: a, Messages: m, Priority: prio})
	p.Must(err)
	return v
}

// starving names the batch that keeps Med waiting, 0 for none, as the processor shows it.
func (p *plant) starving() int64 {
	p.T.Helper()
	main, err := p.S.Batches.Processor(p.Ctx, p.ID, "main")
	p.Must(err)
	if main.Starving == nil {
		return 0
	}
	return main.Starving.By
}

// Med waits for a batch of High that could run, or that cools after a failure (S4.10), and not for those whose contract
// is away: neither while they cool, nor afterwards while the gate of their type is closed. Why says the same of both.
func TestMedGoesWhileTheContractsOfHighAreAway(t *testing.T) {
	t.Parallel()
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprint("fair_", fair), func(t *testing.T) {
			t.Parallel()
			p := newPlant(t)
			main := batches.Processor{Name: "main", Owner: "owner", Fair: fair}
			_, err := p.S.Batches.PutProcessor(p.Ctx, p.By, main, 0)
			p.Must(err)
			p.Dispatcher("PAY", nil)
			p.Exec(closed, p.Now)
			for range 2 {
				p.enqueue(processor.High, 1, false, retries(9, time.Second))
			}
			for range 3 {
				p.pay(processor.Med, nil)
			}
			p.ticks(pgworld.Done(), "executed 1 ", "executed 2 ")
			away := func() {
				t.Helper()
				w := p.why(1, "worker_unreachable")
				if b := w.Blockers[0]; !strings.Contains(b.Detail, "other batches go on") ||
					!b.Next.At.Equal(p.Now.Add(time.Minute)) {
					t.Errorf("%+v", w)
				}
				p.why(3, "no_tick")
				if by := p.starving(); by != 0 {
					t.Errorf("batch %d keeps Med waiting", by)
				}
			}
			away()
			p.ticks(pgworld.Done(), `executed 3 {"add":{"i":0}}`)
			p.Later(2 * time.Minute)
			p.Exec(closed, p.Now) // by a probe that failed
			p.why(4, "no_tick")
			w := p.why(1, "worker_unreachable")
			if !w.Blockers[0].Next.At.Equal(p.Now.Add(time.Minute)) {
				t.Errorf("%+v", w)
			}
			p.ticks(pgworld.Done(), `executed 4 {"add":{"i":0}}`)
			p.Later(time.Minute) // for which the gate was closed
			p.why(5, "high_first")
			for _, id := range []int{1, 2, 5} {
				p.ticks(pgworld.Done(), fmt.Sprintf(`executed %d {"add":{"i":0}}`, id))
			}
		})
	}
}

// A batch of High that cools after a failure keeps Med waiting, also where the batches before it are away, and why
// names it.
func TestMedWaitsForWhatFailedBehindWhatIsAway(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.Dispatcher("PAY", nil)
	p.pay(processor.High, retries(1, time.Minute))
	p.ticks(refusing("no"), `executed 1 {"add":{"i":0}}`)
	p.Exec(closed, p.Now)
	p.enqueue(processor.High, 1, false, retries(9, time.Second))
	p.ticks(pgworld.Done(), "rotated 1", "executed 2 ", "rotated 1")
	p.pay(processor.Med, nil)
	starves := func(by string, n int) {
		t.Helper()
		w := p.why(3, by)
		if b := w.Blockers[0]; b.Object != fmt.Sprint("/processors/main/batches/", n) {
			t.Errorf("%+v", b)
		}
	}
	starves("starving", 1)
	if by := p.starving(); by != 1 {
		t.Errorf("batch %d keeps Med waiting, want 1", by)
	}
	p.ticks(pgworld.Done(), "rotated 2", "rotated 1", "rotated 2")
	p.Later(time.Minute)
	starves("high_first", 1)
	p.Exec(closed, p.Now)
	p.ticks(pgworld.Done(), `executed 1 {"add":{"i":0}}`, `executed 3 {"add":{"i":0}}`)
}

// What a due tick ends counts in the line to which the same commit puts it back.
func TestADueTickSeesWhatItPutBackBesideWhatIsAway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer outbox.Answer
		want   int64
	}{
		"it failed": {refusing("no"), 2}, // it keeps Med waiting
		"it ended":  {pgworld.Done(), 3},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			p := newPlant(t)
			p.Dispatcher("PAY", nil)
			main := batches.Processor{Name: "main", Owner: "owner", TickInterval: time.Second}
			_, err := p.S.Batches.PutProcessor(p.Ctx, p.By, main, 0)
			p.Must(err)
			p.pay(processor.High, retries(1, time.Minute))
			p.enqueue(processor.High, 1, false, retries(9, time.Second))
			p.pay(processor.Med, nil)
			p.Exec(closed, p.Now)
			p.Later(time.Second)
			due := func() batches.Ticked {
				t.Helper()
				out, err := p.S.Batches.TickDue(p.Ctx, p.By, "main")
				p.Must(err)
				p.Later(time.Second)
				return out
			}
			due()
			p.Exec(`UPDATE postern.batch
				SET left_alone = true, cooldown_until = $1::timestamptz + interval '1 min'
				WHERE batch_id = 2`, p.Now)
			p.execute(c.answer)
			if out := due(); out.Batch.ID != c.want {
				t.Errorf("%s %d, want %d", out.Outcome, out.Batch.ID, c.want)
			}
			pgworld.HoldsTrue(t, p.Ctx, p.S.Pool())
		})
	}
}
