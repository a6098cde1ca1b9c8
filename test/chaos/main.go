package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// result is the one line of JSON.
type result struct {
	Seed         uint64              `json:"seed"`
	Seconds      float64             `json:"seconds"`
	Faults       map[string]int      `json:"faults"` // that broke something
	Failed       map[string]int      `json:"faults_that_broke_nothing,omitempty"`
	Skipped      map[string]string   `json:"skipped,omitempty"` // faults that this machine cannot have, and why
	Storms       int                 `json:"terminate_storms"`
	Commits      int                 `json:"commits_broken"`
	Posted       int                 `json:"posted"`
	Acknowledged int                 `json:"acknowledged"`
	Staged       int                 `json:"acknowledged_in_sql"` // of these
	Unknown      int                 `json:"unknown"`             // answers that were lost, or say so
	Clashes      int                 `json:"other_bodies_answered"`
	Answers      map[int]int         `json:"answers"`
	Ended        map[string]int      `json:"ended"`
	Calls        int                 `json:"calls"`
	Again        int                 `json:"double_invocations"`
	Asked        int                 `json:"asked"`           // about a token: it may have been called or not
	Pending      int                 `json:"polls_too_early"` // about a hash that is not included yet
	Reverted     int                 `json:"hashes_that_failed"`
	Stale        int                 `json:"stale_calls_refused"`  // by the worker
	Late         int                 `json:"stale_writes_refused"` // by the fence in the row
	Exempt       int                 `json:"calls_exempt"`         // from the checks of fences and senders
	MostExempt   int                 `json:"calls_exempt_at_once"` // behind one freeze
	Unaware      int                 `json:"calls_unaware"`        // of a restore, by processes that had just begun
	Violations   map[string][]string `json:"violations"`
	Stalled      []string            `json:"stalled_queues"`
	Standing     int                 `json:"standing_on_purpose"`
	Found        int                 `json:"held_and_found_out"`
	Verify       string              `json:"verify"`
	SettledAfter float64             `json:"settled_after_s"`
	LastOpen     string              `json:"last_seen_open,omitempty"` // after how long something still was, and what
	Draining     string              `json:"still_draining,omitempty"` // past the limit, a backlog that grew less all along
	Recovery     map[string]recovery `json:"recovery"`
	Before       usage               `json:"before"`
	After        usage               `json:"after"`
	Largest      map[string]int      `json:"largest,omitempty"`
	Exits        map[string]int      `json:"exits"`
	Alone        map[string]int      `json:"exits_alone,omitempty"` // of these, ends without a signal of ours
	Troubles     []string            `json:"troubles,omitempty"`
	Dir          string              `json:"dir,omitempty"`
	Flows        *flowCounts         `json:"flows,omitempty"`
	Systems      *systemCounts       `json:"systems,omitempty"`
	Pair         *pairCounts         `json:"peers,omitempty"`
	Domain       *domainCounts       `json:"domains,omitempty"`

	times map[string][]time.Duration // of Recovery
	late  map[string]int
}

// wrong says whether anything was found.
func (r *result) wrong() bool { return len(r.Violations) > 0 || len(r.Stalled) > 0 || r.Verify != "" }

// options are what a run is started with.
type options struct {
	seconds  int
	seed     uint64
	rate     int
	queues   int
	every    time.Duration
	faults   []fault
	schedule []planned
	settle   time.Duration
	bin      string
	idle     int
	drips    int
	settings string // of PostgreSQL
	worker   workerSettings
	load     string        // transactions, flows, systems, peers or domains
	flows    int           // of the loads flows and peers: how many
	open     int           // and how many of them are open at a time
	runners  int           // and how many runners
	box      bool          // and whether their scripts are in a sandbox
	back     time.Duration // of the load peers: how old the backup is that is restored
	brief    bool          // and whether nothing is broken any more after the seconds
	bare     bool          // nothing is left standing
	plain    bool          // nothing is sent twice
}

// has says whether the schedule has one of these kinds.
func (o *options) has(names ...string) bool {
	return slices.ContainsFunc(o.schedule, func(p planned) bool { return slices.Contains(names, p.kind.name) })
}

// hasFlows says whether flows are posted.
func (o *options) hasFlows() bool { return o.load == "flows" || o.load == "peers" }

// processes are the names of those of Postern. An installation that executes flows has two.
func (o *options) processes() []string {
	if o.hasFlows() || o.load == "domains" {
		return []string{"serve-1-work", "serve-2-work"}
	}
	return []string{"serve-1", "serve-2-work", "work-1", "work-2", "work-3"}
}

func main() {
	var o options
	flag.IntVar(&o.seconds, "seconds", 60, "how long things are broken")
	flag.Uint64Var(&o.seed, "seed", 1, "what fixes the schedule")
	flag.IntVar(&o.rate, "rate", 60, "posts a second")
	flag.IntVar(&o.queues, "queues", 40, "queues that are posted to")
	flag.StringVar(&o.load, "load", "transactions", "what is posted: transactions, flows of jobs for real runners, systems: batches and events in two contexts, peers: flows and messages between two installations, or domains: intents of three installations that share a domain")
	flag.IntVar(&o.flows, "flows", 500, "with -load flows and peers: flows of 20 jobs; things are broken until all are posted")
	flag.IntVar(&o.open, "open", 8, "with -load flows and peers: how many flows are open at a time")
	flag.IntVar(&o.runners, "runners", 3, "with -load flows and peers: runners of each installation, of four slots each")
	flag.BoolVar(&o.box, "box", true, "with -load flows and peers: scripts run in a sandbox; false: where the kernel gives none")
	flag.DurationVar(&o.back, "back", 2*time.Minute, "with -load peers: how old the backup is that restore-near and restore-far put in place")
	flag.DurationVar(&o.every, "every", 2*time.Second, "from one fault to the next, on average")
	names := flag.String("faults", "", "kinds of faults, with commas between (all that can be mixed): "+known())
	without := flag.String("without", "", "kinds of faults that are left out, with commas between")
	flag.DurationVar(&o.settle, "settle", 60*time.Second, "how long everything may take to end after the last fault")
	flag.StringVar(&o.bin, "bin", "bin/postern", "the binary of Postern")
	flag.IntVar(&o.idle, "idle", 1000, "connections of the fault idle")
	flag.IntVar(&o.drips, "drips", 100, "connections of the fault drip")
	runs := flag.Int("runs", 1, "how many runs, each with the next seed; their sum is the last line")
	keep := flag.Bool("keep", false, "keep logs and database also if nothing is wrong")
	only := flag.Bool("schedule", false, "print the schedule, and do nothing")
	twinsToo := flag.String("twins", "", "run the scenarios of these twins (all, short, or names with commas between) and say which are caught; -bin has the tag twin")
	control := flag.Bool("control", true,
		"with -twins: run each scenario again without its fault, which must not be found then")
	table := flag.String("table", "", "file that -twins writes its table into")
	flag.Parse()
	var err error
	if !slices.Contains([]string{"transactions", "flows", "systems", "peers", "domains"}, o.load) {
		fail(2, fmt.Errorf("-load %q: want transactions, flows, systems, peers or domains", o.load))
	}
	if o.faults, err = chosenFor(o.load, *names, *without); err != nil {
		fail(2, err)
	}
	o.schedule = o.plan()
	if *only {
		print(os.Stdout, o.schedule)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *twinsToo != "" {
		if err := runTwins(ctx, o.bin, *twinsToo, *table, *control); err != nil {
			fail(1, err)
		}
		return
	}
	if wrong := runAll(ctx, o, *runs, *keep); wrong > 0 {
		os.Exit(1)
	}
}

func fail(code int, err error) {
	fmt.Fprintln(os.Stderr, "chaos:", err)
	os.Exit(code)
}

// chaos is one run.
func chaos(ctx context.Context, o options) (out *result, err error) {
	w, err := begin(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if hung := w.end(endsWithin); out != nil {
			out.checkEnd(hung)
		}
	}()
	w.client.doubly = !o.plain
	w.client.changes = !o.plain && !o.has("restore") // which may have taken back what has the key
	began := time.Now()
	switch o.load {
	case "flows":
		posted := make(chan struct{})
		close(posted)
		return w.breakFlows(ctx, o, func() (time.Time, <-chan struct{}) { return time.Now(), posted })
	case "peers":
		return w.breakPair(ctx, o)
	}
	breaking, heal := context.WithTimeout(ctx, time.Duration(o.seconds)*time.Second)
	defer heal()
	posted := make(chan struct{})
	life, enough := context.WithCancel(ctx)
	defer enough()
	go func() {
		defer close(posted)
		if w.systems != nil {
			w.systems.run(breaking, life, w.client, max(1, o.rate/20))
			return
		}
		if w.domain != nil {
			w.domain.run(breaking, life, max(1, o.rate/20))
			return
		}
		w.client.run(breaking, life, o.rate, o.queues)
	}()
	w.run(breaking, o.schedule)
	wait(breaking, time.Until(began.Add(time.Duration(o.seconds)*time.Second)))
	w.heal(ctx)
	healed := time.Now()
	defer time.AfterFunc(o.settle, enough).Stop()
	over := w.over(posted)
	w.awaitEnd(ctx, healed, o.settle, over)
	<-over
	settled := time.Since(healed)
	out, err = w.judge(ctx, o, healed.Sub(began), settled)
	if err != nil {
		before := strings.Join(w.troubles, "; ")
		err = fmt.Errorf("%w (logs: %s; what the harness could not do before: %s)", err, w.dir, before)
	}
	return out, err
}

// judge reads what everybody wrote, and says what is wrong.
func (w *world) judge(ctx context.Context, o options, took, settled time.Duration) (*result, error) {
	c, err := pgx.Connect(ctx, w.pg.url())
	if err != nil {
		return nil, err
	}
	defer c.Close(ctx)
	rows, err := readRows(ctx, c)
	if err != nil {
		return nil, err
	}
	out := w.count(ctx, c, rows)
	out.Seed, out.Seconds, out.SettledAfter = o.seed, seconds(took), seconds(settled)
	out.LastOpen, out.Draining = w.lastOpen, w.draining
	out.Violations = w.wrong
	say := func(invariant, format string, args ...any) {
		if list := out.Violations[invariant]; len(list) < 20 {
			out.Violations[invariant] = append(list, fmt.Sprintf(format, args...))
		}
	}
	for _, f := range w.client.faults {
		say("every answer is right", "%s", f)
	}
	later, err := readLater(ctx, c)
	if err != nil {
		return nil, err
	}
	if w.flows != nil {
		if err := w.judgeFlows(ctx, c, out, say); err != nil {
			return nil, err
		}
		return out, w.judgeAll(ctx, c, out, say)
	}
	if w.domain != nil {
		if err := w.judgeDomain(ctx, out, say); err != nil {
			return nil, err
		}
		return out, w.judgeAll(ctx, c, out, say)
	}
	if w.systems != nil {
		if err := w.judgeSystems(ctx, c, out, say); err != nil {
			return nil, err
		}
		return out, w.judgeAll(ctx, c, out, say)
	}
	calls, err := w.worker.logged()
	if err != nil {
		return nil, err
	}
	e := &evidence{later: later, posts: w.client.posts, calls: calls, rows: rows, quiet: w.quiet,
		late: w.thawed, said: w.said, clocks: o.has("clock", "clock-back"),
		unordered: o.has("restore", "failover", "standby-away", "clock-back")}
	if err = e.read(ctx, c); err != nil {
		return nil, err
	}
	e.check(say)
	out.Exempt, out.MostExempt = e.checkLate(say)
	out.Unaware = e.unaware
	out.Stalled = w.checkStanding(ctx, w.client.apis[0], rows, say)
	if w.worker.canary > 0 {
		say("no redirect is followed", "%d requests", w.worker.canary)
	}
	out.checkFaults(len(w.counts), say)
	return out, w.judgeAll(ctx, c, out, say)
}

// judgeAll says what is wrong under any load.
func (w *world) judgeAll(ctx context.Context, c *pgx.Conn, out *result, say found) error {
	if err := checkSQL(ctx, c, say); err != nil {
		return err
	}
	if err := checkStaged(ctx, c, w.client.posts, say); err != nil {
		return err
	}
	out.checkBaseline(say)
	out.checkProcesses(say)
	url := fmt.Sprintf("DATABASE_URL=postgres://postern@127.0.0.1:%d/postern?sslmode=disable", w.pg.port)
	if _, err := w.postern(url, "verify"); err != nil {
		out.Verify = err.Error()
	}
	w.checkLogs(say)
	return nil
}

// checkFaults: many kinds of faults leave a trace.
func (out *result) checkFaults(kinds int, say found) {
	if kinds > 5 && out.Unknown+out.Late+out.Stale+out.Asked == 0 {
		say("faults do something", "%d kinds of faults, and nothing was unknown, late or asked about", kinds)
	}
	if n := out.Faults["freeze"]; n >= 20 && out.Late == 0 {
		say("stale writes are refused", "%d processes were frozen beyond their leases, and none has written late", n)
	}
}

// checkBaseline: no process keeps goroutines, connections or memory once all has ended.
func (out *result) checkBaseline(say found) {
	u, was := out.After, out.Before
	if len(u.Unread) > 0 || u.MemoryMiB > 400 ||
		u.Goroutines > 2*was.Goroutines+500 || u.Connections > 2*was.Connections+20 {
		say("everything returns to its baseline", "%+v, before it was %+v", u, was)
	}
}

// checkProcesses: none has panicked, none ends by itself without need, and each one went on behind each fault.
func (out *result) checkProcesses(say found) {
	restored := false
	for kind := range out.Faults {
		restored = restored || strings.HasPrefix(kind, "restore") || kind == "failover" || kind == "standby-away"
	}
	for end, n := range out.Alone {
		if !mayEnd(end, restored) {
			say("no process ends by itself", "%d with %s", n, end)
		}
	}
	if n := out.Exits["2"]; n > 0 {
		say("no process panics", "%d ended with exit code 2", n)
	}
	for kind, n := range out.late {
		say("every process works in the end", "%d did not within %s of %q", n, within, kind)
	}
}

// checkEnd: each process has ended by itself at the end of the run.
func (out *result) checkEnd(hung []string) {
	const invariant = "every process ends when it is told to"
	for _, log := range hung {
		out.Violations[invariant] = append(out.Violations[invariant],
			fmt.Sprintf("it had to be killed %s after a SIGTERM: %s", endsWithin, log))
	}
}

// checkLogs: no log has the secret that everything is asked with, or tells of a panic.
func (w *world) checkLogs(say found) {
	logs, _ := filepath.Glob(filepath.Join(w.dir, "*.log"))
	ofPostgres, _ := filepath.Glob(filepath.Join(w.dir, "*", "log"))
	logs = append(logs, ofPostgres...)
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if strings.Contains(string(text), w.client.key) {
			say("no secret is logged", "%s has the key", path)
		}
		if filepath.Base(path) == "log" { // of PostgreSQL, which panics where its disk is full
			continue
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "panic:") || strings.Contains(line, "fatal error:") {
				say("no process panics", "%s: %.300s", path, line)
			}
		}
	}
}

// count fills in what is only counted.
func (w *world) count(ctx context.Context, c *pgx.Conn, rows []row) *result {
	out := &result{Faults: w.counts, Failed: w.failed, Skipped: w.skipped, Storms: w.storms,
		Posted: len(w.client.posts), Answers: w.client.counts, Ended: map[string]int{},
		Exits: map[string]int{}, Alone: map[string]int{},
		Troubles: w.troubles, Dir: w.dir, Standing: len(w.standing), Found: w.found,
		Recovery: recoveries(w.times, w.late), Before: w.before,
		times: w.times, late: w.late, After: w.usage(ctx), Largest: w.largest}
	for _, p := range w.client.posts {
		out.Unknown += p.Unknown
		if p.Acked {
			out.Acknowledged++
		}
		if p.Acked && p.Staged {
			out.Staged++
		}
		if p.Clash != nil {
			out.Clashes++
		}
	}
	for _, r := range rows {
		out.Ended[r.state]++
	}
	for _, c := range w.worker.calls {
		switch c.Did {
		case "asked":
			out.Asked++
			continue
		case "polled", "told":
			if c.Said == "pending" {
				out.Pending++
			}
			continue
		case "reverted":
			out.Reverted++
		case "again":
			out.Again++
		case "stale":
			out.Stale++
		}
		out.Calls++
	}
	out.ended(w)
	out.Late = w.countLate(ctx, c)
	return out
}

// ended adds how the processes of an installation have ended, and how many commits its proxies broke.
func (r *result) ended(w *world) {
	for _, p := range w.processes {
		p.mu.Lock()
		for code, n := range p.exits {
			r.Exits[fmt.Sprint(code)] += n
		}
		for _, end := range p.alone {
			r.Alone[end]++
		}
		p.mu.Unlock()
		p.eachProxy(func(x *proxy) { r.Commits += x.broken })
	}
}
