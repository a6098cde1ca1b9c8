package batches_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/processor"
)

// gated closes the gates of all types for a minute from $1.
const gated = `UPDATE postern.dispatcher SET gate_failures = 1, gate_until = $1::timestamptz + interval '1 min'`

// away closes the gate of ADD for a minute, and ticks a batch that is retried without limit.
func away(t *testing.T) (p *plant, v *batches.Batch) {
	t.Helper()
	p = newPlant(t)
	v = p.enqueue(processor.Med, 1, false, &processor.RetryLogic{Interval: processor.Interval{Seconds: amount(1)}})
	p.Exec(gated, p.Now)
	_, err := p.S.Batches.Tick(p.Ctx, p.By, "main")
	p.Must(err)
	return p, v
}

func (p *plant) standing(v *batches.Batch) string {
	p.T.Helper()
	b := p.batch(v.ID)
	return fmt.Sprint(b.State, " run ", b.Runs, " retries ", b.Retries)
}

// Two processes see that the contract of a batch is away: its execution is taken back once, and is one try.
func TestTwoTakeBackOneExecution(t *testing.T) {
	t.Parallel()
	p, v := away(t)
	other := p.Another(2)
	said, waited := p.Beside(
		func() error { return p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main") },
		func() string { return fmt.Sprint(other.Batches.AdvanceProcessor(p.Ctx, p.ID, "main")) })
	p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
	if got := p.standing(v); !waited || said != "<nil>" || got != "Queued run 1 retries 1" {
		t.Errorf("waited %v: %s; the batch is %s", waited, said, got)
	}
	if until := p.batch(v.ID).CooldownUntil; until == nil || until.Before(p.Now.Add(time.Minute)) {
		t.Errorf("it cools until %v, while the gate is closed for a minute from %v", until, p.Now)
	}
	pgworld.HoldsTrue(t, p.Ctx, p.S.Pool())
}

// A node claims the execution as the probe of the gate while another process, whose look is older, takes it back.
func TestAnExecutionThatIsCalledMeanwhileIsNotTakenBack(t *testing.T) {
	t.Parallel()
	p, v := away(t)
	other := p.Another(2)
	was := p.Now
	other.SetNow(&was)
	p.Later(2 * time.Minute) // the gate is open for a probe
	var lease []string
	said, waited := p.Beside(
		func() error {
			for _, l := range p.Claim(p.node, pgworld.Everything()) {
				lease = append(lease, l.Task.UID)
			}
			return nil
		},
		func() string { return fmt.Sprint(other.Batches.AdvanceProcessor(p.Ctx, p.ID, "main")) })
	if got := p.standing(v); !waited || said != "<nil>" || len(lease) != 1 || got != "Executing run 1 retries 0" {
		t.Errorf("waited %v: %s, claimed %v; the batch is %s", waited, said, lease, got)
	}
	pgworld.HoldsTrue(t, p.Ctx, p.S.Pool())
}

// An execution that is taken back is not claimed by a node that is as late.
func TestAnExecutionThatIsTakenBackIsNotCalled(t *testing.T) {
	t.Parallel()
	p, v := away(t)
	other := p.Another(2)
	late := p.Now.Add(2 * time.Minute)
	other.SetNow(&late)
	said, _ := p.Beside(
		func() error { return p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main") },
		func() string {
			leases, _, err := other.Claim(p.Ctx, p.node, pgworld.Everything())
			return fmt.Sprint(len(leases), err)
		})
	p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
	if got := p.standing(v); said != "0 <nil>" || got != "Queued run 1 retries 1" {
		t.Errorf("claimed %s; the batch is %s", said, got)
	}
}

// An execution waits in the core while something else holds it up than an absent worker, or may have had an effect.
func TestOnlyAnAbsentWorkerSendsABatchToTheBack(t *testing.T) {
	t.Parallel()
	const over = `UPDATE postern.dispatcher SET gate_failures = 1, gate_until = $1::timestamptz - interval '1 s'`
	for name, c := range map[string]struct {
		plant string
		now   bool // with the time as its argument
		back  bool
	}{
		"gate closed":   {gated, true, true},
		"gate over":     {over, true, false},
		"type paused":   {`UPDATE postern.dispatcher SET paused = true`, false, false},
		"senders away":  {``, false, true},
		"one sender is": {``, false, false},
		"a call before": {gated, true, false},
		"turned away":   {gated, true, true},
		"passed on":     {gated, true, false},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			p := newPlant(t)
			if strings.Contains(name, "sender") {
				p.Dispatcher("ADD", func(d *outbox.Dispatcher) { d.Pool = "p" })
				p.Sender("p", "a1", "a2")
				p.Exec(`UPDATE postern.sender
					SET blocked_until = $1::timestamptz + interval '1 min', block_reason = 'worker_unreachable'
					WHERE $2 OR account = 'a1'`, p.Now, name == "senders away")
			}
			v := p.enqueue(processor.Med, 1, false, retries(5, time.Second))
			_, err := p.S.Batches.Tick(p.Ctx, p.By, "main")
			p.Must(err)
			switch {
			case c.now:
				p.Exec(c.plant, p.Now)
			case c.plant != "":
				p.Exec(c.plant)
			}
			code, called := map[string]string{
				"a call before": "timeout",
				"turned away":   "http_404",
				"passed on":     "http_502",
			}[name]
			if called {
				p.Exec(`INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, class, code)
					SELECT queue_id, seq, day, 1, 1, 'dispatch',
						CASE $1::text WHEN 'timeout' THEN 'ambiguous' ELSE 'blocked' END, $1::text
					FROM postern.task`, code)
			}
			p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
			due, _, err := p.S.Batches.ProcessorsDue(p.Ctx)
			p.Must(err)
			if back := p.batch(v.ID).State == processor.Queued; back != c.back {
				t.Errorf("to the back: %v, due %v", back, due)
			}
		})
	}
}

// An atomic batch names several contracts where one worker promises to execute them all at once, and is told which.
func TestAnAtomicBatchNamesSeveralContractsOfOneWorker(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	a, m := adding(2, true, nil)
	put := func() error {
		_, err := p.S.Batches.Enqueue(p.Ctx, p.By, "main", batches.NewBatch{Actions: a, Messages: m})
		return err
	}
	a.Atomic.Functions[1].ContractAddress = "PAY"
	for _, c := range []struct {
		change func(*outbox.Dispatcher)
		said   string
	}{
		{nil, "executes nothing atomically"},
		{func(d *outbox.Dispatcher) {
			d.Capabilities, d.WorkerURL = []string{"atomic"}, "http://127.0.0.1:2/"
		}, "another worker"},
		{func(d *outbox.Dispatcher) { d.Capabilities, d.Pool = []string{"atomic"}, "p" }, "another worker or pool"},
		{func(d *outbox.Dispatcher) { d.Capabilities = []string{"atomic"} }, ""},
	} {
		p.Dispatcher("PAY", c.change)
		err := put()
		f := fault.As(err)
		if c.said == "" && err != nil || c.said != "" && (err == nil || !strings.Contains(f.Detail, c.said) ||
			f.Fields[0].Pointer != "/actions_config/atomic/functions/1/contract_address") {
			t.Errorf("%v, want %q", err, c.said)
		}
	}
	p.ticks(pgworld.Done(), `executed 1 [`+
		`{"contract_address":"ADD","msg":{"add":{"i":0}}},`+
		`{"contract_address":"PAY","msg":{"add":{"i":1}}}]`)
}

// A batch that is turned away again and again, by what stands before its worker and closes no gate, is tried as often
// as a gate would be probed: each try is a transaction.
func TestABatchThatIsTurnedAwayIsTriedLessAndLessOften(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	v := p.enqueue(processor.Med, 1, false, nil)
	var apart []string
	for range 7 {
		_, err := p.S.Batches.Tick(p.Ctx, p.By, "main")
		p.Must(err)
		for _, l := range p.Claim(p.node, pgworld.Everything()) {
			p.Blocks(l)
		}
		p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
		b := p.batch(v.ID)
		if b.State != processor.Queued || b.CooldownUntil == nil {
			t.Fatalf("it is %s, and cools until %v", b.State, b.CooldownUntil)
		}
		apart = append(apart, b.CooldownUntil.Sub(p.Now).String())
		p.Later(b.CooldownUntil.Sub(p.Now) + time.Millisecond)
	}
	p.Same(apart, "1s", "2s", "4s", "8s", "16s", "30s", "30s")
	pgworld.HoldsTrue(t, p.Ctx, p.S.Pool())
}
