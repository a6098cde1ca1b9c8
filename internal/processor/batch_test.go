package processor

import (
	"encoding/json"
	"flag"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/machine/machinetest"
)

func TestTheMachineIsSoundAndItsNamesAreBound(t *testing.T) {
	if err := Machine.Check(); err != nil {
		t.Error(err)
	}
	named := func(names []string, bound []string) {
		slices.Sort(bound)
		names = slices.Compact(slices.Sorted(slices.Values(names)))
		if !slices.Equal(names, bound) {
			t.Errorf("the table names %v, bound are %v", names, bound)
		}
	}
	named(Machine.Guards(), slices.Collect(maps.Keys(guards)))
	named(Machine.Effects(), slices.Collect(maps.Keys(effects)))
}

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

func TestThePageBesideTheCodeIsRenderedFromTheTable(t *testing.T) {
	machinetest.Page(t, Tables(), Meanings, *update)
}

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func number(n int64) *int64 { return &n }

func after(d time.Duration) *time.Time { t := noon.Add(d); return &t }

// three is a batch of three actions, non-atomic unless made so. Its second action is retried n times, and its third is
// confirmed.
func three(atomic bool, amount *int64, every Interval) Batch {
	logic := &RetryLogic{Times{amount}, every}
	functions := make([]Function, 3)
	b := Batch{ID: 7, State: Queued, Messages: make([]Message, 3)}
	for i := range b.Messages {
		b.Messages[i].Msg = json.RawMessage(`{"add":{"n":1}}`)
	}
	if atomic {
		b.Actions.Atomic = &Subroutine{Functions: functions, RetryLogic: logic}
	} else {
		functions[1].RetryLogic = logic
		functions[2].Callback = &Confirmation{ContractAddress: "oracle", CallbackMessage: json.RawMessage(`"ok"`)}
		b.Actions.NonAtomic = &Subroutine{Functions: functions}
	}
	return b
}

// S4.5, row by row.
func TestABatchGoesAsItsTableSays(t *testing.T) {
	seconds, blocks := Interval{Seconds: number(10)}, Interval{Blocks: number(5)}
	in := func(b Batch, s State, index, retries int) Batch {
		b.State, b.Index, b.Retries = s, index, retries
		return b
	}
	open := three(false, number(2), seconds)
	whole := three(true, number(2), blocks)
	free := three(true, nil, seconds)
	plain := func(b Batch) Batch { b.Actions.Atomic = &Subroutine{Functions: b.Actions.Atomic.Functions}; return b }
	lasts := func(b Batch) Batch { b.TTL = after(time.Microsecond); return b }
	late := func(b Batch) Batch { b.Expiration = after(-time.Microsecond); return b }
	for _, c := range []struct {
		name  string
		b     Batch
		on    Event
		f     Facts
		to    State
		move  Move
		index int
		want  Result
	}{
		{"enqueued", in(open, "", 0, 0), Enqueued, Facts{}, Queued, Back, 0, Result{}},
		{"enqueued too late", late(in(open, "", 0, 0)), Enqueued, Facts{}, Done, Away, 0, Result{Kind: Expired}},
		{"inserted", in(open, "", 0, 0), Inserted, Facts{}, Queued, AtSpot, 0, Result{}},
		{"inserted too late", late(in(open, "", 0, 0)), Inserted, Facts{}, Done, Away, 0, Result{Kind: Expired}},
		{"ticked", open, Ticked, Facts{}, Executing, Away, 0, Result{}},
		{"ticked too late", late(in(open, Queued, 1, 0)), Ticked, Facts{}, Done, Away, 1, Result{Kind: Expired, N: 1}},
		{"ticked too late, atomic", late(whole), Ticked, Facts{}, Done, Away, 0, Result{Kind: Expired}},
		{"succeeded with more left", in(open, Executing, 0, 0), Succeeded, Facts{}, Queued, Back, 1, Result{}},
		{"succeeded, to be confirmed", in(open, Executing, 2, 0), Succeeded, Facts{}, WaitingCallback, Away, 2, Result{}},
		{"succeeded, atomic", in(whole, Executing, 0, 1), Succeeded, Facts{}, Done, Away, 0, Result{Kind: Executed}},
		{"failed with retries left", in(open, Executing, 1, 1), Failed, Facts{Error: "no"}, Queued, Back, 1, Result{}},
		{"failed for good", in(open, Executing, 1, 2), Failed, Facts{Error: "no"}, Done, Away, 1, Result{Kind: PartiallyExecuted, N: 1, Reason: "no"}},
		{"failed without retry logic", in(open, Executing, 0, 0), Failed, Facts{Error: "no"}, Done, Away, 0, Result{Kind: Rejected, Reason: "no"}},
		{"failed for good, atomic", in(whole, Executing, 0, 2), Failed, Facts{Error: "no"}, Done, Away, 0, Result{Kind: Rejected, Reason: "no"}},
		{"failed without retry logic, atomic", plain(in(whole, Executing, 0, 0)), Failed, Facts{Error: "no"}, Done, Away, 0, Result{Kind: Rejected, Reason: "no"}},
		{"failed, retried for ever", in(free, Executing, 0, 9999), Failed, Facts{}, Queued, Back, 0, Result{}},
		{"confirmed", in(open, WaitingCallback, 2, 0), CallbackReceived, Facts{}, Done, Away, 2, Result{Kind: Executed}},
		{"wrongly confirmed", in(open, WaitingCallback, 2, 0), CallbackReceived, Facts{Wrong: true}, Done, Away, 2,
			Result{Kind: PartiallyExecuted, N: 2, Reason: "Invalid callback message received"}},
		{"never confirmed", in(open, WaitingCallback, 2, 0), CallbackDeadline, Facts{}, Done, Away, 2,
			Result{Kind: PartiallyExecuted, N: 2, Reason: "callback timed out"}},
		{"expired while waiting", late(in(open, WaitingCallback, 2, 0)), Expiry, Facts{}, Done, Away, 2, Result{Kind: Expired, N: 2}},
		{"evicted", in(open, Queued, 1, 0), Evicted, Facts{}, Done, Away, 1, Result{Kind: RemovedByOwner}},
		{"executed elsewhere", in(open, Executing, 0, 0), Returned, Facts{Result: Result{Kind: Executed}}, Done, Away, 0, Result{Kind: Executed}},
		{"executed elsewhere in part", in(open, Executing, 0, 0), Returned, Facts{Result: Result{Kind: PartiallyExecuted, N: 2, Reason: "no"}}, Done, Away, 2,
			Result{Kind: PartiallyExecuted, N: 2, Reason: "no"}},
		{"expired elsewhere", in(open, Executing, 0, 0), Returned, Facts{Result: Result{Kind: Expired, N: 1}}, Done, Away, 0, Result{Kind: Expired, N: 1}},
		{"more than all of it was executed elsewhere", in(open, Executing, 0, 0), Returned, Facts{Result: Result{Kind: PartiallyExecuted, N: 3}}, Done, Away, 0,
			Result{Kind: UnexpectedError, Reason: `the result "partially_executed" (3 of 3) that came back is none`}},
		{"a timeout elsewhere that nobody here can end", in(open, Executing, 0, 0), Returned, Facts{Result: Result{Kind: Timeout, Retriable: true}}, Done, Away, 0,
			Result{Kind: UnexpectedError, Reason: `the result "timeout" (0 of 3) that came back is none`}},
		{"not delivered", lasts(in(open, Executing, 0, 0)), Undelivered, Facts{}, TimedOut, Away, 0, Result{Kind: Timeout, Retriable: true}},
		{"not delivered, without ttl", in(open, Executing, 0, 0), Undelivered, Facts{}, Done, Away, 0, Result{Kind: Timeout}},
		{"away with retries left", in(open, Executing, 1, 1), Unreached, Facts{Away: noon}, Queued, Back, 1, Result{}},
		{"away without retry logic", in(open, Executing, 0, 0), Unreached, Facts{Away: noon}, Queued, Back, 0, Result{}},
		{"away for good", in(open, Executing, 1, 2), Unreached, Facts{Error: "away"}, Done, Away, 1,
			Result{Kind: PartiallyExecuted, N: 1, Reason: "away"}},
		{"sent again", lasts(in(open, TimedOut, 0, 0)), Retried, Facts{}, Queued, Back, 0, Result{}},
		{"sent again too late", in(open, TimedOut, 0, 0), Retried, Facts{}, Done, Away, 0, Result{Kind: Timeout}},
		{"not sent again", in(open, TimedOut, 0, 0), TTLOver, Facts{}, Done, Away, 0, Result{Kind: Timeout}},
		{"evicted while it may be sent again", lasts(in(open, TimedOut, 0, 0)), Evicted, Facts{}, Done, Away, 0, Result{Kind: RemovedByOwner}},
		{"evicted while waiting", in(open, WaitingCallback, 2, 0), Evicted, Facts{}, Done, Away, 2, Result{Kind: RemovedByOwner}},
	} {
		c.f.Now = noon
		st, err := c.b.Decide(c.on, c.f)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got Result
		if st.Result != nil {
			got = *st.Result
		}
		if st.State != c.to || st.Move != c.move || st.Index != c.index || got != c.want {
			t.Errorf("%s: %s, move %d, index %d, %+v; want %s, %d, %d, %+v", c.name, st.State, st.Move, st.Index, got, c.to, c.move, c.index, c.want)
		}
		if (st.Result != nil) != (st.State == Done || st.State == TimedOut) {
			t.Errorf("%s: a result comes with the end: %+v in %s", c.name, st.Result, st.State)
		}
	}
	for _, on := range []Event{Evicted, Ticked, CallbackReceived} {
		if _, err := in(open, Executing, 0, 0).Decide(on, Facts{Now: noon}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("%s of what is being executed: %v", on, err)
		}
	}
}

// A batch whose worker is away cools as its retry logic says, but at least as long as the worker is left alone.
func TestAnAwayWorkerIsLeftAloneAtLeast(t *testing.T) {
	away := *after(time.Minute)
	for seconds, want := range map[int64]time.Time{10: away, 600: *after(10 * time.Minute)} {
		b := three(true, nil, Interval{Seconds: &seconds})
		b.State = Executing
		st, err := b.Decide(Unreached, Facts{Now: noon, Away: away})
		if err != nil || st.Retries != 1 || !st.CooldownUntil.Equal(want) || st.Delivered {
			t.Errorf("%d s: %+v %v, want until %v", seconds, st, err, want)
		}
	}
	b := three(true, nil, Interval{Blocks: number(5)})
	b.State = Executing
	st, err := b.Decide(Unreached, Facts{Now: noon, Height: 100, Away: away})
	if err != nil || *st.CooldownHeight != 105 || !st.CooldownUntil.Equal(away) {
		t.Errorf("%+v %v", st, err)
	}
}

func TestACooldownIsATimeOrAHeight(t *testing.T) {
	for _, c := range []struct {
		every      Interval
		during, at Facts
	}{
		{Interval{Seconds: number(10)}, Facts{Now: noon.Add(10*time.Second - 1)}, Facts{Now: noon.Add(10 * time.Second)}},
		{Interval{Blocks: number(5)}, Facts{Now: noon.Add(time.Hour), Height: 104}, Facts{Now: noon, Height: 105}},
	} {
		b := three(true, nil, c.every)
		b.State = Executing
		st, err := b.Decide(Failed, Facts{Now: noon, Height: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []struct {
			facts Facts
			to    State
		}{{c.during, Queued}, {c.at, Executing}} {
			if next, err := st.Batch.Decide(Ticked, f.facts); err != nil || next.State != f.to {
				t.Errorf("%+v at %+v: %s %v, want %s", c.every, f.facts, next.State, err, f.to)
			}
		}
	}
	b := three(false, nil, Interval{Seconds: number(10)})
	b.State, b.Index, b.Retries, b.CooldownUntil = Executing, 1, 3, after(0)
	if st, err := b.Decide(Succeeded, Facts{Now: noon}); err != nil || st.Retries != 0 || st.CooldownUntil != nil {
		t.Errorf("the next action begins with retries %d, cooldown %v: %v", st.Retries, st.CooldownUntil, err)
	}
}

func TestTheWorkerIsGivenTheMessageWithItsExecution(t *testing.T) {
	b := three(false, nil, Interval{})
	for index, want := range map[int]string{0: `{"add":{"n":1}}`, 2: `{"add":{"execution_id":7,"n":1}}`} {
		b.Index = index
		if got := string(b.Payload()); got != want {
			t.Errorf("action %d: %s, want %s", index, got, want)
		}
	}
	b = three(true, nil, Interval{})
	if got, want := string(b.Payload()), `[{"add":{"n":1}},{"add":{"n":1}},{"add":{"n":1}}]`; got != want {
		t.Errorf("atomic: %s, want %s", got, want)
	}
}

func TestACallIsBurnedByWhatWasDone(t *testing.T) {
	for _, k := range ResultKinds {
		want := k == Executed || k == PartiallyExecuted || k == RemovedByOwner
		if (Result{Kind: k}).Burns() != want {
			t.Errorf("%s burns its call: want %v", k, want)
		}
	}
}

func TestJSONIsTheSameWhateverItsSpelling(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"n": 1e2, "a": [1.0, -0]}`, `{"a":[1,0],"n":100}`, true},
		{`123456789012345678901234567890`, `1.2345678901234567890123456789E+29`, true},
		{`1e-3`, `0.001`, true},
		{`1`, `-1`, false},
		{`12`, `120`, false},
		{`1e999999999999`, `1e99999999999`, false},
		{`1`, `"1"`, false},
		{`{"a":null}`, `{}`, false},
		{`[1,2]`, `[2,1]`, false},
		{`"\u0041"`, `"A"`, true},
	} {
		if Same(json.RawMessage(c.a), json.RawMessage(c.b)) != c.same {
			t.Errorf("%s and %s: want same %v", c.a, c.b, c.same)
		}
	}
}
