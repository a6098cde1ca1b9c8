package batches_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/processor"
)

// within makes a domain with a limit of a second, and ticks a batch, whose limit is over.
func within(t *testing.T) (p *plant, v *batches.Batch) {
	t.Helper()
	p = newPlant(t)
	_, err := p.S.Batches.PutProcessor(p.Ctx, p.By, batches.Processor{
		Name:          "main",
		Owner:         "owner",
		DeliverWithin: time.Second,
	}, 0)
	p.Must(err)
	v = p.enqueue(processor.Med, 1, false, nil)
	_, err = p.S.Batches.Tick(p.Ctx, p.By, "main")
	p.Must(err)
	p.Later(2 * time.Second)
	return p, v
}

// calledSQL records a call of the one transaction there is, by its class, code, and whether nothing was done.
const calledSQL = `INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, class, code, nothing_done)
	SELECT queue_id, seq, day, 1, 1, 'dispatch', $1::text, $2::text, $3
	FROM postern.task`

// An execution that may have had an effect is no timeout: a batch that is sent again would be executed twice.
func TestOnlyWhatHadNoEffectIsNotDelivered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		class, code string
		nothing     any
		over        bool
	}{
		"no call":       {"", "", nil, true},
		"refused":       {"blocked", "connection_refused", true, true},
		"turned away":   {"blocked", "http_404", nil, true},
		"passed on":     {"blocked", "http_502", nil, false},
		"a call before": {"ambiguous", "timeout", nil, false},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			p, v := within(t)
			if c.class != "" {
				p.Exec(calledSQL, c.class, c.code, c.nothing)
			}
			p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
			want := processor.Executing
			if c.over {
				want = processor.Done
			}
			if got := p.batch(v.ID).State; got != want {
				t.Errorf("it is %s, want %s", got, want)
			}
			pgworld.HoldsTrue(t, p.Ctx, p.S.Pool())
		})
	}
}

// A worker is called, and the call ends without a clear answer, between the look at an execution and its cancel.
func TestAnExecutionWhoseCallIsOverMeanwhileIsNotCancelled(t *testing.T) {
	t.Parallel()
	p, v := within(t)
	other := p.Other()
	call := p.Begin(p.S.Pool())
	_, err := call.Exec(p.Ctx, `UPDATE postern.queue SET attempt = attempt + 1 WHERE phase = 'READY'`)
	p.Must(err)
	_, err = call.Exec(p.Ctx, calledSQL, "ambiguous", "timeout", nil)
	p.Must(err)
	said := make(chan string, 1)
	go func() { said <- fmt.Sprint(other.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main")) }()
	p.AwaitBlocked(other.PID)
	p.Must(call.Commit(p.Ctx))
	if got := <-said; got != "<nil>" || p.standing(v) != "Executing run 1 retries 0" {
		t.Errorf("%s; the batch is %s", got, p.standing(v))
	}
}
