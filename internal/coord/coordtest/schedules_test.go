package coordtest_test

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/coord/coordtest"
	"github.com/postern-dev/postern/internal/machine/machinetest"
)

var (
	seed  = flag.Uint64("seed", 0, "the one schedule to play, and to tell what happens in it")
	runs  = flag.Uint64("runs", 0, "how many schedules to play, from -from on; 0: as many as fit a test run")
	kind  = flag.String("kind", "", "perfect, boundary, late, lossy, quiet, forged, restored, guarded: all are so")
	first = flag.Uint64("from", 1, "the first schedule to play")
)

// slow says that the race detector is in the program, which makes it slower tenfold, and finds nothing in it: one
// schedule has one goroutine.
var slow bool

// few is how many schedules a test plays.
func few(many, few uint64) uint64 {
	if slow || testing.Short() {
		return few
	}
	return many
}

// play plays schedules on all processors and returns what each broke. With -v it says each ten seconds how far it is.
func play(from, runs uint64, fault coord.Fault, change func(*coordtest.Plan)) map[uint64][]string {
	var next atomic.Uint64
	var mu sync.Mutex
	var all sync.WaitGroup
	broken := map[uint64][]string{}
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for {
				n := next.Add(1) - 1
				if n >= runs {
					return
				}
				plan := coordtest.Draw(from + n)
				if change != nil {
					change(&plan)
				}
				if b := coordtest.New(from+n, plan, fault).Run(); len(b) > 0 {
					mu.Lock()
					broken[from+n] = b
					mu.Unlock()
				}
			}
		})
	}
	said := time.NewTicker(10 * time.Second)
	defer said.Stop()
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	for {
		select {
		case <-over:
			return broken
		case <-said.C:
			if testing.Verbose() {
				mu.Lock()
				fmt.Printf("%d of %d schedules, %d broke a promise\n", min(next.Load(), runs), runs, len(broken))
				mu.Unlock()
			}
		}
	}
}

func report(t *testing.T, broken map[uint64][]string) {
	t.Helper()
	shown := 0
	for n, all := range broken {
		if shown++; shown > 10 {
			break
		}
		t.Errorf("%s: %s", coordtest.Command(n, ""), all[0])
	}
	if len(broken) > 0 {
		t.Errorf("%d schedules broke a promise", len(broken))
	}
}

func perfect(p *coordtest.Plan) {
	p.Perfect, p.Restores, p.Timeouts, p.Forger, p.Reorgs = true, "none", false, false, false
}

// kinds make schedules to be of one kind.
var kinds = map[string]func(*coordtest.Plan){
	"perfect":  perfect,
	"boundary": boundary,
	"late":     late,
	"lossy":    lossy,
	"quiet":    quiet,
	"forged":   forged,
	"restored": restored,
	"guarded":  guarded,
}

func TestOnAPerfectWireAllGetReceipts(t *testing.T) {
	report(t, play(1, few(200, 20), "", perfect))
}

// One number is one schedule: played again, it is the same to the last word.
func TestAScheduleIsTheSameEachTime(t *testing.T) {
	for n := uint64(1); n <= few(40, 8); n++ {
		var told [2]strings.Builder
		for i := range told {
			w := coordtest.New(n, coordtest.Draw(n), "")
			w.Trace = func(format string, args ...any) { fmt.Fprintf(&told[i], format+"\n", args...) }
			w.Run()
		}
		if told[0].String() != told[1].String() {
			t.Errorf("schedule %d is not the same twice", n)
		}
	}
}

// Schedules among 100,000 that once broke a promise. In two an originator that lost the failure of an intent, and had
// begun it anew elsewhere since, was told of that failure for ever. In the others the core of a store that was restored
// sent what another node had overtaken, or its word had a domain go on that waited for the others. In 23047 and 74356
// an intent was cancelled while its store waited to know what it had lost, and its permit was among that.
//
// In 2430, drawn with restarts, two nodes whose heights lay more than a range apart gave the seat up for one another.
func TestSchedulesThatOnceBrokeAPromise(t *testing.T) {
	for _, n := range []uint64{11747, 12479, 23047, 23099, 74356, 87709, 88241, 95199, 99194} {
		plan := coordtest.Draw(n)
		plan.Restarts, plan.Serves = 0, false // as they were drawn then
		for _, b := range coordtest.New(n, plan, "").Run() {
			t.Errorf("%d: %s", n, b)
		}
	}
	for _, b := range coordtest.New(2430, coordtest.Draw(2430), "").Run() {
		t.Errorf("2430: %s", b)
	}
}

// The schedules come to every state of the tables, and to nine of ten moves: nothing else is tried. The others need two
// rare things at once.
func TestTheSchedulesComeToEveryState(t *testing.T) {
	visited := map[string]bool{}
	for n := uint64(1); n <= 600; n++ {
		w := coordtest.New(n, coordtest.Draw(n), "")
		w.Run()
		maps.Copy(visited, w.Visited)
	}
	moves, missed := 0, 0
	for _, table := range coord.Tables() {
		for _, state := range table.States() {
			if state != table.Initial && !slices.ContainsFunc(slices.Collect(maps.Keys(visited)), func(m string) bool {
				return strings.HasPrefix(m, table.Name+": ") && strings.HasSuffix(m, " -> "+state)
			}) {
				t.Errorf("no schedule comes to %s of %s", state, table.Name)
			}
		}
		for _, m := range machinetest.Edges(table) {
			if m.From == m.To {
				continue
			}
			if moves++; !visited[table.Name+": "+m.From+" -> "+m.To] {
				missed++
				t.Logf("no schedule comes to %s: %s -> %s", table.Name, m.From, m.To)
			}
		}
	}
	if missed*10 > moves {
		t.Errorf("the schedules miss %d of %d moves", missed, moves)
	}
}

func TestSchedules(t *testing.T) {
	start := time.Now()
	if *seed != 0 {
		plan := coordtest.Draw(*seed)
		if change := kinds[*kind]; change != nil {
			change(&plan)
		}
		w := coordtest.New(*seed, plan, "")
		w.Trace = func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
		fmt.Printf("%+v\n", w.Plan)
		for _, b := range w.Run() {
			t.Error(b)
		}
		return
	}
	n := *runs
	if n == 0 {
		n = few(2000, 60)
	}
	report(t, play(*first, n, "", kinds[*kind]))
	t.Logf("%d schedules in %s", n, time.Since(start))
}
