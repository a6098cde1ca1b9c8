package flow

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/machine/machinetest"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

func TestTheTablesAreSoundAndTheirNamesAreBound(t *testing.T) {
	var when, do []string
	for _, table := range Tables() {
		if err := table.Check(); err != nil {
			t.Error(err)
		}
		when, do = append(when, table.Guards()...), append(do, table.Effects()...)
	}
	same := func(named, bound []string) {
		t.Helper()
		named, bound = slices.Compact(slices.Sorted(slices.Values(named))), slices.Sorted(slices.Values(bound))
		if !slices.Equal(named, bound) {
			t.Errorf("the tables name %v, bound are %v", named, bound)
		}
	}
	same(when, slices.Concat(slices.Collect(maps.Keys(jobGuards)), slices.Collect(maps.Keys(tryGuards)),
		slices.Collect(maps.Keys(flowGuards))))
	same(do, slices.Concat(slices.Collect(maps.Keys(jobEffects)), slices.Collect(maps.Keys(tryEffects)),
		slices.Collect(maps.Keys(flowEffects))))
}

func TestThePageBesideTheCodeIsRenderedFromTheTables(t *testing.T) {
	machinetest.Page(t, Tables(), Meanings, *update)
}

// A try that its runner lost is offered again twice; the third time it has failed. Once its job is to stop, each end of
// it is final, and it is offered to no other.
func TestATryGoesAsItsTableSays(t *testing.T) {
	for _, c := range []struct {
		from TryState
		on   TryEvent
		f    TryFacts
		want string
	}{
		{Offered, TryClaimed, TryFacts{}, "Held fence"},
		{Held, TryFinished, TryFacts{Stopping: true}, "Finished record"},
		{Held, TryFailed, TryFacts{}, "Failed record"},
		{Held, TryFailed, TryFacts{Stopping: true}, "Failed record final"},
		{Held, TryTimedOut, TryFacts{Stopping: true}, "Failed record final"},
		{Held, TryLapsed, TryFacts{}, "Offered fence lapse"},
		{Held, TryLapsed, TryFacts{Lapses: 1}, "Offered fence lapse"},
		{Held, TryLapsed, TryFacts{Lapses: 2}, "Failed lapse record"},
		{Held, TryLapsed, TryFacts{Stopping: true}, "Failed record final"},
		{Held, TryUnheld, TryFacts{Lapses: 2}, "Offered fence"},
		{Held, TryStopOverdue, TryFacts{}, "Failed record final"},
		{Offered, TryWithdrawn, TryFacts{}, "Withdrawn record final"},
		{Offered, TrySent, TryFacts{}, "Sent"},
		{Sent, TryFinished, TryFacts{}, "Finished record"},
		{Sent, TryFailed, TryFacts{}, "Failed record final"},
		{Sent, TryLapsed, TryFacts{}, "illegal"},
		{Finished, TryFinished, TryFacts{}, "illegal"},
		{Offered, TryFinished, TryFacts{}, "illegal"},
	} {
		got := "illegal"
		if s, err := NextTry(c.from, c.on, c.f); err == nil {
			got = string(s.To)
			for _, x := range []struct {
				on   bool
				name string
			}{{s.RaiseFence, " fence"}, {s.CountLapse, " lapse"}, {s.Record, " record"}, {s.Final, " final"}} {
				if x.on {
					got += x.name
				}
			}
		}
		if got != c.want {
			t.Errorf("%s in %s (%+v): %s, want %s", c.on, c.from, c.f, got, c.want)
		}
	}
}

func TestTheEndOfATransactionIsAnEventOfItsJob(t *testing.T) {
	for _, from := range []JobStatus{JobDispatched, JobWaiting, JobStarted} {
		for _, e := range []End{{Done: true, Tried: true}, {Tried: true}, {Depended: true}, {}, {Done: true}} {
			on := e.Event(from)
			s, err := NextJob(from, on, false)
			if err != nil || !s.To.Ended() {
				t.Errorf("%+v in %s is %s: %v, %v", e, from, on, s.To, err)
			}
		}
	}
}

func TestWhatCannotBeMeantIsRefused(t *testing.T) {
	good := Spec{Script: "1", ScriptType: "python", Timeout: time.Second}
	ref := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		change  func(*Spec)
		pointer string
	}{
		"ref -1":          {func(s *Spec) { s.Ref = ref(-1) }, "/ref"},
		"ref 2^32":        {func(s *Spec) { s.Ref = ref(1 << 32) }, "/ref"},
		"no script":       {func(s *Spec) { s.Script = "" }, "/script"},
		"257 KiB":         {func(s *Spec) { s.Script = strings.Repeat("x", 257<<10) }, "/script"},
		"NUL":             {func(s *Spec) { s.Script = "a\x00b" }, "/script"},
		"timeout 0":       {func(s *Spec) { s.Timeout = 0 }, "/timeout"},
		"timeout -1":      {func(s *Spec) { s.Timeout = -time.Second }, "/timeout"},
		"retries 256":     {func(s *Spec) { s.Retries = 256 }, "/retries"},
		"A=B":             {func(s *Spec) { s.Env = map[string]string{"A=B": ""} }, "/env_vars"},
		"LD_PRELOAD":      {func(s *Spec) { s.Env = map[string]string{"LD_PRELOAD": "x"} }, "/env_vars/LD_PRELOAD"},
		"PATH":            {func(s *Spec) { s.Env = map[string]string{"PATH": "x"} }, "/env_vars/PATH"},
		"POSTERN_X":       {func(s *Spec) { s.Env = map[string]string{"POSTERN_X": "x"} }, "/env_vars/POSTERN_X"},
		"a long queue":    {func(s *Spec) { s.Queue = strings.Repeat("q", 201) }, "/queue"},
		"a queue a/b":     {func(s *Spec) { s.Queue = "a/b" }, "/queue"},
		"a queue of ours": {func(s *Spec) { s.Queue = "peer:far:dev" }, "/queue"},
		"129 KiB of env": {func(s *Spec) {
			s.Env = map[string]string{"A": strings.Repeat("x", 129<<10)}
		}, "/env_vars"},
	} {
		s := good
		c.change(&s)
		f := fault.As(s.Validate(""))
		if f == nil || f.Fields[0].Pointer != c.pointer {
			t.Errorf("%s: %v, want it at %s", name, f, c.pointer)
		}
	}
	if err := good.Validate(""); err != nil {
		t.Error(err)
	}
}

func TestAResultIsAnObjectOfStrings(t *testing.T) {
	for in, want := range map[string]string{
		`{"n": "3"}`:     `{"n":"3"}`,
		``:               `{}`,
		`null`:           `{}`,
		`{"n": 3}`:       "invalid",
		`["a"]`:          "invalid",
		`{"n": null}`:    "invalid",
		`{"n": {"a":1}}`: "invalid",
	} {
		out, err := CheckResult("result", json.RawMessage(in))
		got := string(out)
		if err != nil {
			got = fault.CodeOf(err)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestWhatATransactionCarriesIsRead(t *testing.T) {
	for data, want := range map[string]string{
		`{"script": "print(1)", "timeout": 5}`:      "print(1) 5s",
		`{"script": "print(1)"}`:                    "print(1) 10m0s",
		`{"script": ""}`:                            "script is empty",
		`{"script": 1}`:                             "its data is not that of a job",
		`{"script": "1", "env_vars": {"LD_A": ""}}`: "env_vars: LD_A",
		`{"script": "1", "timeout": 9999999999}`:    "timeout 0",
	} {
		s, why := CarriedIn(json.RawMessage(data))
		got := why
		if why == "" {
			got = fmt.Sprint(s.Script, " ", s.Timeout)
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", data, got, want)
		}
	}
}

func TestAFlowGoesAsItsTableSays(t *testing.T) {
	for _, c := range []struct {
		from Status
		on   Event
		f    Facts
		to   Status
		do   string
	}{
		{"", FlowCreated, Facts{}, FlowDispatched, ""},
		{FlowDispatched, FlowReleased, Facts{}, FlowStarted, ""},
		{FlowDispatched, FlowReleased, Facts{Jobs: 2}, FlowWaiting, "post"},
		{FlowDispatched, FlowReleased, Facts{Jobs: 2, Open: 1}, FlowDispatched, "post"},
		{FlowWaiting, FlowBegun, Facts{Jobs: 2}, FlowStarted, ""},
		{FlowStarted, FlowAdvanced, Facts{Jobs: 2, Finished: 1}, FlowStarted, ""},
		{FlowStarted, FlowAdvanced, Facts{Jobs: 2, Finished: 2}, FlowFinished, "aggregate"},
		{FlowStarted, FlowFailed, Facts{Jobs: 2, Finished: 2}, FlowError, "abort"},
		{FlowDispatched, FlowCancelled, Facts{Jobs: 2}, FlowError, "abort"},
	} {
		s, err := Next(c.from, c.on, c.f)
		if err != nil || s.To != c.to || s.Post != (c.do == "post") || s.Aggregate != (c.do == "aggregate") ||
			s.Abort != (c.do == "abort") {
			t.Errorf("%s in %s with %+v: %+v %v", c.on, c.from, c.f, s, err)
		}
	}
	for _, from := range []Status{FlowFinished, FlowError} {
		if _, err := Next(from, FlowCancelled, Facts{}); err == nil {
			t.Errorf("%s is no end", from)
		}
	}
}

// graph is jobs by their refs, each with what it depends on.
func graph(edges ...[]int64) (jobs []Spec) {
	for _, e := range edges {
		jobs = append(jobs, Spec{Ref: &e[0], Dependends: e[1:]})
	}
	return jobs
}

func TestOnlyAGraphWithoutCirclesMakesAFlow(t *testing.T) {
	many := make([][]int64, MaxJobs+1)
	wide := []int64{2000}
	for i := range many {
		many[i] = []int64{int64(i)}
		if i <= MaxNeeds {
			wide = append(wide, int64(i))
		}
	}
	for _, c := range []struct {
		jobs []Spec
		code string
		at   string
		text string
	}{
		{graph([]int64{1}, []int64{2, 1}, []int64{3, 1}, []int64{4, 2, 3}), "", "", ""},
		{graph([]int64{2, 1}, []int64{1}), "", "", ""},
		{graph([]int64{1, 7000}), "", "", ""},
		{graph([]int64{1, 1}), "dependency_cycle", "/jobs/0/dependends/0", "1 -> 1"},
		{graph([]int64{1, 3}, []int64{2, 1}, []int64{3, 2}), "dependency_cycle", "/jobs/0/dependends",
			"1 -> 3 -> 2 -> 1"},
		{graph([]int64{1, 99}), "unknown_dependency", "/jobs/0/dependends/0", "job 99"},
		{graph([]int64{1}, []int64{1}), "invalid", "/jobs/1/ref", "ref 1"},
		{graph([]int64{7000}), "invalid", "/jobs/0/ref", "ref 7000"},
		{graph([]int64{2}, []int64{1, 2, 2}), "invalid", "/jobs/1/dependends/1", "twice"},
		{[]Spec{{}}, "invalid", "/jobs/0/ref", "missing"},
		{graph(append(many[:MaxNeeds+1:MaxNeeds+1], wide)...), "invalid", "/jobs/65/dependends", "65"},
		{graph(many...), "invalid", "/jobs", "1002"},
	} {
		err := CheckGraph("/jobs", c.jobs, map[int64]bool{7000: true}, 0)
		f := fault.As(err)
		switch {
		case err == nil && c.code == "":
		case err == nil || f.Code != c.code || f.Fields[0].Pointer != c.at || !strings.Contains(f.Detail, c.text):
			t.Errorf("%d jobs, the first %+v: %v, want %s at %s", len(c.jobs), c.jobs[0], err, c.code, c.at)
		}
	}
}
