package batches_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/processor"
)

// plant is a processor "main" over a core with one node, whose worker the test plays.
type plant struct {
	*world
	node pg.Node
}

func newPlant(t *testing.T) *plant {
	w := newWorld(t)
	w.By.Actor = "owner"
	_, err := w.S.Batches.PutProcessor(w.Ctx, w.By, batches.Processor{Name: "main", Owner: "owner", TickInterval: time.Second}, 0)
	w.Must(err)
	w.Dispatcher("ADD", func(d *outbox.Dispatcher) { d.Capabilities = []string{"atomic"} })
	return &plant{w, w.Node("n")}
}

func (p *plant) as(actor string) db.By { by := p.By; by.Actor = actor; return by }

func amount(n int64) *int64 { return &n }

// adding is a subroutine of n functions; each of a non-atomic one is retried as logic says.
func adding(n int, atomic bool, logic *processor.RetryLogic) (a processor.Actions, messages []processor.Message) {
	sub := &processor.Subroutine{}
	for i := range n {
		f := processor.Function{Domain: "main", ContractAddress: "ADD", MessageDetails: processor.MessageDetails{Message: processor.MessageShape{Name: "add"}}}
		if !atomic {
			f.RetryLogic = logic
		}
		sub.Functions = append(sub.Functions, f)
		messages = append(messages, processor.Message{Msg: json.RawMessage(fmt.Sprintf(`{"add":{"i":%d}}`, i))})
	}
	if atomic {
		sub.RetryLogic = logic
		return processor.Actions{Atomic: sub}, messages
	}
	return processor.Actions{NonAtomic: sub}, messages
}

func retries(n int64, every time.Duration) *processor.RetryLogic {
	return &processor.RetryLogic{Times: processor.Times{Amount: &n}, Interval: processor.Interval{Seconds: amount(int64(every.Seconds()))}}
}

func (p *plant) enqueue(prio processor.Priority, n int, atomic bool, logic *processor.RetryLogic) *batches.Batch {
	p.T.Helper()
	a, m := adding(n, atomic, logic)
	v, err := p.S.Batches.Enqueue(p.Ctx, p.By, "main", batches.NewBatch{Actions: a, Messages: m, Priority: prio})
	p.Must(err)
	return v
}

func (p *plant) batch(id int64) *batches.Batch {
	p.T.Helper()
	v, err := p.S.Batches.Batch(p.Ctx, p.ID, "main", id)
	p.Must(err)
	return v
}

// line is the ids in one of the lines, from the head.
func (p *plant) line(prio processor.Priority) string {
	p.T.Helper()
	list, length, err := p.S.Batches.BatchesInLine(p.Ctx, p.ID, "main", prio, processor.Range{To: -1})
	p.Must(err)
	ids := []int64{}
	for _, v := range list {
		ids = append(ids, v.ID)
		if v.State != processor.Queued {
			p.T.Errorf("batch %d stands in line and is %s", v.ID, v.State)
		}
	}
	if int64(len(ids)) != length {
		p.T.Errorf("line %s has %d and says %d", prio, len(ids), length)
	}
	return fmt.Sprint(ids)
}

func (p *plant) ended(v *batches.Batch, want processor.Result) {
	p.T.Helper()
	got := p.batch(v.ID)
	if got.Result == nil || *got.Result != want || got.State != processor.Done {
		p.T.Errorf("batch %d is %s with %+v, want %+v", v.ID, got.State, got.Result, want)
	}
}

// S4.1, S4.3: ids rise over both lines, the record is InProcess, and the range is that of the line.
func TestABatchStandsInTheLineOfItsPriority(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	var last int64
	for i := range 8 {
		v := p.enqueue(processor.Priority(i%2), 1, false, nil)
		if v.ID <= last {
			t.Errorf("id %d after %d", v.ID, last)
		}
		last = v.ID
		got := p.batch(v.ID)
		if got.Result != nil || !got.CreatedAt.Equal(got.UpdatedAt) || !got.CreatedAt.Equal(p.Now) || got.Initiator != "owner" || !got.ByOwner {
			t.Errorf("%+v", got)
		}
	}
	if high, med := p.line(processor.High), p.line(processor.Med); high != "[1 3 5 7]" || med != "[2 4 6 8]" {
		t.Errorf("High %s, Med %s", high, med)
	}
	list, _, err := p.S.Batches.BatchesInLine(p.Ctx, p.ID, "main", processor.Med, processor.Range{From: 2, To: 4})
	p.Must(err)
	if len(list) != 2 || list[0].ID != 6 || list[1].ID != 8 {
		t.Errorf("[2, 4) is %v", list)
	}
	open, err := p.S.Batches.Batches(p.Ctx, p.ID, "main", batches.BatchFilter{Result: processor.InProcess, After: 3, Limit: 3})
	p.Must(err)
	if len(open) != 3 || open[0].ID != 4 {
		t.Errorf("%v", open)
	}
}

// S4.3, S4.9: at the front, in the middle, at the end; everybody is removed; the other line does not notice.
func TestAnOwnerInsertsAndEvictsAnywhere(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	a, m := adding(1, false, nil)
	p.enqueue(processor.High, 1, false, nil)
	p.Must(func() error { _, err := p.S.Batches.PauseProcessor(p.Ctx, p.By, "main", true); return err }())
	insert := func(spot processor.Spot) error {
		_, err := p.S.Batches.Insert(p.Ctx, p.By, "main", batches.NewBatch{Actions: a, Messages: m, Priority: processor.Med}, spot)
		return err
	}
	for _, at := range []int64{0, 0, 1, 3} { // ids 2 3 4 5
		p.Must(insert(processor.Spot{Position: at}))
	}
	p.Must(insert(processor.Spot{After: 4})) // id 6
	if got := p.line(processor.Med); got != "[3 4 6 2 5]" {
		t.Errorf("Med is %s", got)
	}
	if err := insert(processor.Spot{Position: 6}); fault.KindOf(err) != fault.Invalid || fault.As(err).Detail != "Index out of bounds" {
		t.Error(err)
	}
	for i, position := range []int64{2, 0, 2, 1, 0} {
		v, err := p.S.Batches.Evict(p.Ctx, p.By, "main", batches.Eviction{Priority: processor.Med, Position: position})
		p.Must(err)
		if want := []int64{6, 3, 5, 2, 4}[i]; v.ID != want {
			t.Errorf("evicted %d, want %d", v.ID, want)
		}
		p.ended(v, processor.Result{Kind: processor.RemovedByOwner})
	}
	for _, e := range []batches.Eviction{{Priority: processor.Med}, {Priority: processor.High, Position: 1}} {
		if _, err := p.S.Batches.Evict(p.Ctx, p.By, "main", e); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%+v: %v", e, err)
		}
	}
	if got := p.line(processor.High); got != "[1]" {
		t.Errorf("High is %s", got)
	}
	if _, err := p.S.Batches.Evict(p.Ctx, p.By, "main", batches.Eviction{ID: 6}); fault.CodeOf(err) != "wrong_state" {
		t.Errorf("evicted twice: %v", err)
	}
	if _, err := p.S.Batches.Evict(p.Ctx, p.By, "main", batches.Eviction{ID: 999}); fault.KindOf(err) != fault.NotFound {
		t.Error(err)
	}
	history, err := p.S.Batches.BatchHistory(p.Ctx, p.ID, "main", 6)
	p.Must(err)
	if len(history) != 2 || history[0].Event != processor.Inserted || history[1].To != processor.Done || history[1].Actor != "owner" {
		t.Errorf("%+v", history)
	}
}

// S4.9: every other actor is refused.
func TestOnlyTheOwnerAndAuthorizationsReachTheLines(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	a, m := adding(1, false, nil)
	p.enqueue(processor.Med, 1, false, nil)
	n := batches.NewBatch{Actions: a, Messages: m}
	_, enqueued := p.S.Batches.Enqueue(p.Ctx, p.as("eve"), "main", n)
	_, inserted := p.S.Batches.Insert(p.Ctx, p.as("eve"), "main", n, processor.Spot{})
	_, evicted := p.S.Batches.Evict(p.Ctx, p.as("eve"), "main", batches.Eviction{Priority: processor.Med})
	_, paused := p.S.Batches.PauseProcessor(p.Ctx, p.as("eve"), "main", true)
	for _, err := range []error{enqueued, inserted, evicted, paused} {
		if fault.KindOf(err) != fault.Forbidden || fault.As(err).Detail != "Only authorization module can execute this action" {
			t.Error(err)
		}
	}
	if got := p.line(processor.Med); got != "[1]" {
		t.Errorf("Med is %s", got)
	}
}

func TestWhatHasExpiredAlreadyIsNotQueued(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	a, m := adding(2, true, nil)
	over := p.Now.Add(-time.Second)
	v, err := p.S.Batches.Enqueue(p.Ctx, p.By, "main", batches.NewBatch{Actions: a, Messages: m, Priority: processor.Med, Expiration: &over})
	p.Must(err)
	p.ended(v, processor.Result{Kind: processor.Expired})
	if got := p.line(processor.Med); got != "[]" {
		t.Errorf("Med is %s", got)
	}
	a.Atomic.ExpirationTime = amount(60) // what its actions say counts where nothing else is said, also for an owner
	if v, err = p.S.Batches.Enqueue(p.Ctx, p.By, "main", batches.NewBatch{Actions: a, Messages: m, Priority: processor.Med}); err != nil || v.Expiration == nil || !v.Expiration.Equal(p.Now.Add(time.Minute)) {
		t.Errorf("%v %+v", err, v)
	}
}

func (p *plant) authorize(label string, change func(*processor.Authorization)) {
	p.T.Helper()
	a := processor.DefaultAuthorization()
	a.Label, a.Mode.Permissionless = label, true
	a.Actions, _ = adding(1, false, nil)
	if change != nil {
		change(&a)
	}
	_, err := p.S.Batches.PutAuthorization(p.Ctx, p.By, a, 0)
	p.Must(err)
}

func (p *plant) send(actor, label string) (*batches.Batch, error) {
	_, m := adding(1, false, nil)
	return p.S.Batches.Send(p.Ctx, p.as(actor), label, m, 0, db.Once{})
}

func (p *plant) count(label, actor string) (running int, spent int64) {
	p.T.Helper()
	a, err := p.S.Batches.Authorization(p.Ctx, p.ID, label, actor)
	p.Must(err)
	return a.Running, a.Spent
}

// S4.12, S4.13: a batch holds a call of its authorization; its end spends the call or gives it back.
func TestACallIsHeldAndBurnedOrGivenBack(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.authorize("pay", func(a *processor.Authorization) {
		a.Mode = processor.Mode{Limits: map[string]int64{"ann": 2}}
		a.Actions.NonAtomic.ExpirationTime = amount(60)
	})
	if _, err := p.send("ann", "nothing"); fault.KindOf(err) != fault.NotFound || fault.As(err).Detail != "Authorization with label nothing does not exist" {
		t.Error(err)
	}
	v, err := p.send("ann", "pay")
	p.Must(err)
	if got := p.batch(v.ID); got.Label != "pay" || got.ByOwner || got.Expiration == nil || !got.Expiration.Equal(p.Now.Add(time.Minute)) {
		t.Errorf("%+v", got)
	}
	if _, err := p.send("ann", "pay"); fault.CodeOf(err) != "concurrency_limit" {
		t.Errorf("a second one at once: %v", err)
	}
	a, m := adding(1, false, nil)
	mine, err := p.S.Batches.Insert(p.Ctx, p.By, "main", batches.NewBatch{Actions: a, Messages: m, Priority: processor.Med, Label: "pay"}, processor.Spot{})
	p.Must(err) // the owner is not held back, and counts
	if running, spent := p.count("pay", "ann"); running != 2 || spent != 1 {
		t.Errorf("%d run, %d spent", running, spent)
	}
	for _, v := range []*batches.Batch{mine, v} {
		_, err = p.S.Batches.Evict(p.Ctx, p.By, "main", batches.Eviction{ID: v.ID})
		p.Must(err)
	}
	if running, spent := p.count("pay", "ann"); running != 0 || spent != 1 {
		t.Errorf("after RemovedByOwner %d run, %d spent: want the call burned", running, spent)
	}
	_, err = p.send("ann", "pay")
	p.Must(err)
	p.Later(time.Hour)
	_, err = p.S.Batches.Tick(p.Ctx, p.By, "main")
	p.Must(err)
	if running, spent := p.count("pay", "ann"); running != 0 || spent != 1 {
		t.Errorf("after Expired %d run, %d spent: want the call given back", running, spent)
	}
	_, err = p.send("ann", "pay")
	p.Must(err)
	_, err = p.S.Batches.Evict(p.Ctx, p.By, "main", batches.Eviction{Priority: processor.Med})
	p.Must(err)
	if _, err = p.send("ann", "pay"); fault.CodeOf(err) != "call_limit" {
		t.Errorf("a third call of two: %v", err)
	}
}

func TestAnAuthorizationIsPutOnceAndReplacedWithItsVersion(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.authorize("pay", nil)
	a := processor.DefaultAuthorization()
	a.Label, a.Mode.Permissionless = "pay", true
	a.Actions, _ = adding(2, true, nil)
	_, err := p.S.Batches.PutAuthorization(p.Ctx, p.By, a, 0)
	if fault.KindOf(err) != fault.Conflict || fault.As(err).Detail != "Authorization with label pay already exists" {
		t.Error(err)
	}
	_, err = p.S.Batches.PutAuthorization(p.Ctx, p.By, a, 1)
	p.Must(err)
	for _, c := range []struct{ domain, contract, want string }{
		{"other", "ADD", `domain "other" is no processor: PUT /processors/other first`},
		{"main", "SUB", `type "SUB" executes nothing atomically`},
	} {
		for i := range a.Actions.Atomic.Functions {
			a.Actions.Atomic.Functions[i].Domain, a.Actions.Atomic.Functions[i].ContractAddress = c.domain, c.contract
		}
		if _, err := p.S.Batches.PutAuthorization(p.Ctx, p.By, a, 2); fault.KindOf(err) != fault.Invalid || len(fault.As(err).Detail) < len(c.want) || fault.As(err).Detail[:len(c.want)] != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	_, err = p.S.Batches.EnableAuthorization(p.Ctx, p.By, "pay", false)
	p.Must(err)
	if _, err := p.send("ann", "pay"); fault.KindOf(err) != fault.Forbidden {
		t.Error(err)
	}
	p.Must(p.S.Batches.RemoveAuthorization(p.Ctx, p.By, "pay"))
	p.authorize("pay", nil)
	_, err = p.send("ann", "pay")
	p.Must(err)
	if err := p.S.Batches.RemoveAuthorization(p.Ctx, p.By, "pay"); fault.CodeOf(err) != "in_use" {
		t.Error(err)
	}
}

// Two who send at once: the last place below a limit is given once, and so is a label.
func TestTheLastPlaceIsGivenOnce(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	o := p.Other()
	p.authorize("pay", func(a *processor.Authorization) {
		a.Mode = processor.Mode{Limits: map[string]int64{"ann": 1}}
		a.MaxConcurrent = 5
	})
	_, m := adding(1, false, nil)
	a := processor.DefaultAuthorization()
	a.Label, a.Mode.Permissionless = "fresh", true
	a.Actions, _ = adding(1, false, nil)
	for want, do := range map[string]func(s *stores.Store) error{
		"call_limit": func(s *stores.Store) error {
			_, err := s.Batches.Send(p.Ctx, p.as("ann"), "pay", m, 0, db.Once{})
			return err
		},
		"in_use": func(s *stores.Store) error { _, err := s.Batches.PutAuthorization(p.Ctx, p.By, a, 0); return err },
	} {
		held, finish := pgworld.Hold(p.S, 1)
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- do(p.S) }()
		<-held
		go func() { second <- do(o.S) }()
		p.AwaitBlocked(o.PID)
		finish(nil)
		pgworld.OK(t, <-first)
		if err := <-second; fault.CodeOf(err) != want {
			t.Errorf("the second said %v, want %s", err, want)
		}
	}
	if running, spent := p.count("pay", "ann"); running != 1 || spent != 1 {
		t.Errorf("%d run, %d spent", running, spent)
	}
}

// A batch that ends in a dry run is not counted.
func TestADryRunCountsNoBatch(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	v := p.enqueue(processor.Med, 1, true, nil)
	left := 0
	p.S.Batches.BatchLeft = func(processor.State, time.Duration) { left++ }
	dry, end := p.S.DryRun(p.Ctx)
	_, err := p.S.Batches.Evict(dry, p.By, "main", batches.Eviction{ID: v.ID})
	end()
	if err != nil || left != 0 {
		t.Errorf("a dry run: %d batches were counted, %v", left, err)
	}
	if _, err := p.S.Batches.Evict(p.Ctx, p.By, "main", batches.Eviction{ID: v.ID}); err != nil || left != 1 {
		t.Errorf("%d batches were counted, %v", left, err)
	}
}
