package main

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// fault is a kind of fault: it breaks something and heals it again.
type fault struct {
	name  string
	what  string
	do    func(context.Context, *world, *rand.Rand)
	skip  func(*world) string // why this machine cannot have it; nil or "": it can
	apart bool                // it wants a run of its own: see failover.go and restore.go, or another load: flows.go
}

// faults are all kinds, in the order of what they break.
var faults = []fault{
	{name: "kill-work", what: "SIGKILL of a process that works", do: killWork},
	{name: "kill-serve", what: "SIGKILL of a process that serves the API", do: killServe},
	{name: "stop", what: "SIGTERM of a process", do: stop},
	{name: "freeze", what: "SIGSTOP for one to two and a half leases, then SIGCONT", do: freeze},
	{name: "rolling", what: "each process stopped and started in turn, as an upgrade does it", do: rolling},

	{name: "restart", what: "fast restart of PostgreSQL", do: restart("fast")},
	{name: "immediate", what: "immediate restart of PostgreSQL", do: restart("immediate")},
	{name: "crash", what: "SIGKILL of the postmaster, and recovery", do: crash},
	{name: "terminate", what: "all sessions terminated, several times", do: terminate},
	// apart, since all of the server's looks at its clock wait for one another in libfaketime: it is slow beside others
	{name: "clock", what: "the database's clock jumps an hour ahead", do: clockJumps(time.Hour), skip: noFaketime,
		apart: true},
	// by which what waits for a time waits for an hour more: it stands still for longer than a run allows
	{name: "clock-back", what: "the database's clock jumps an hour back", do: clockJumps(-time.Hour), skip: noFaketime,
		apart: true},
	{name: "clock-node", what: "the clock of a process jumps by an hour, forwards or back", do: clockNode,
		skip: noNodeClock},
	{name: "disk-full", what: "no room for data", do: diskFull("data"), skip: noDisks},
	{name: "disk-full-wal", what: "no room for the write-ahead log", do: diskFull("wal"), skip: noDisks},

	{name: "cut", what: "all connections of a process reset", do: cut},
	{name: "one-way-in", what: "the answers to a process are lost", do: oneWay(false, true)},
	{name: "one-way-out", what: "the requests of a process are lost", do: oneWay(true, false)},
	{name: "black-hole", what: "established connections answer no more, new ones do", do: blackHole},
	{name: "drop", what: "no connection of a process answers, new ones neither", do: drop},
	{name: "slow", what: "answers of the database delayed by 10 to 200 ms", do: slow},
	{name: "commit-cut", what: "connections reset right before a commit gets to the server", do: breakCommits(false)},
	{name: "commit-lost", what: "connections reset behind a commit, before its answer", do: breakCommits(true)},

	{name: "worker-slow", what: "the worker takes a second", do: workerDoes("slow", 3*time.Second)},
	{name: "worker-hang", what: "the worker answers after its call was given up", do: workerDoes("hang", time.Second)},
	{name: "worker-lie", what: "answers that the contract does not know, of calls that were executed or not", do: workerDoes("lie", 3*time.Second)},
	{name: "worker-html", what: "a page in HTML in the worker's place", do: workerDoes("html", 2*time.Second)},
	{name: "worker-redirect", what: "redirects in the worker's place", do: workerDoes("redirect", 2*time.Second)},
	{name: "worker-away", what: "connections to the worker are closed at once", do: workerDoes("away", 2*time.Second)},

	{name: "worker-cut", what: "all connections to the worker reset, ten times", do: wayCut(ofWorker)},
	{name: "worker-deaf", what: "calls do not get to the worker", do: wayDrops(ofWorker, true, false)},
	{name: "worker-unheard", what: "the answers of the worker are lost", do: wayDrops(ofWorker, false, true)},
	{name: "api-cut", what: "all connections of clients to a process reset, ten times", do: wayCut(ofClients)},
	{name: "api-deaf", what: "requests of clients do not get to a process", do: wayDrops(ofClients, true, false)},
	{name: "api-unheard", what: "the answers of a process to clients are lost",
		do: wayDrops(ofClients, false, true)},

	{name: "lock", what: "a stranger holds locks on hot tables, idle in transaction", do: lock},
	{name: "snapshot", what: "a stranger has written and holds an old snapshot", do: snapshot},
	{name: "pool", what: "strangers take all connections of the database", do: pool},
	{name: "river-delete", what: "all rows of River deleted", do: riverDelete},
	{name: "river-double", what: "all rows of River doubled", do: riverDouble},
	{name: "poison-posts", what: "bodies that no parser likes", do: poisonPosts},
	{name: "poison-rows", what: "staged rows that no drain likes", do: poisonRows},
	{name: "idle", what: "idle connections to the API", do: idle},
	{name: "drip", what: "connections that send a byte now and then", do: drip},

	{name: "runner-kill", what: "SIGKILL of a runner", do: runnerKill, apart: true},
	{name: "runner-stop", what: "SIGTERM of a runner", do: runnerStop, apart: true},
	{name: "runner-freeze", what: "SIGSTOP of a runner for longer than its ttl, then SIGCONT", do: runnerFreeze,
		apart: true},
	{name: "runner-unheard", what: "the answers to a runner are lost", do: runnerUnheard, apart: true},
	{name: "runner-cut", what: "all connections of a runner reset", do: runnerCut, apart: true},

	{name: "line-cut", what: "all connections between two installations reset", do: lineCut, apart: true},
	{name: "line-drop", what: "nothing passes between two installations", do: lineDrops(true, true), apart: true},
	{name: "line-one-way-in", what: "answers of the other installation are lost", do: lineDrops(false, true),
		apart: true},
	{name: "line-one-way-out", what: "requests to the other installation are lost", do: lineDrops(true, false),
		apart: true},
	{name: "line-slow", what: "answers of the other installation delayed by 20 to 420 ms",
		do: lineDoes(5*time.Second, lineSlow), apart: true},
	{name: "line-double", what: "each request to the other installation comes twice",
		do: lineDoes(8*time.Second, lineDoubles), apart: true},
	{name: "line-late", what: "a third of the requests to the other installation are held for up to five seconds",
		do: lineDoes(8*time.Second, lineHolds), apart: true},
	{name: "restore-near", what: "an old backup takes the place of the database of the first installation",
		do: restoreOf(false), apart: true},
	{name: "restore-far", what: "an old backup takes the place of that of the second", do: restoreOf(true),
		apart: true},

	{name: "kill-node", what: "all processes of an installation die again and again for some seconds", do: killNode,
		apart: true},
	{name: "endorser-slow", what: "endorsements take a second or two", do: endorserSlow, apart: true},
	{name: "reorg", what: "the ledger takes its last two blocks out", do: reorg, apart: true},

	{name: "failover", what: "the primary dies, its synchronous standby is promoted, the old primary comes back", do: failover, apart: true},
	{name: "standby-away", what: "commits wait for a standby that is away, and the wait is cancelled", do: standbyAway, apart: true},
	{name: "restore", what: "an old backup takes the place of the database", do: restore, apart: true},
}

func killWork(ctx context.Context, w *world, r *rand.Rand) { w.kill(ctx, w.any(r, "work")) }

func killServe(_ context.Context, w *world, r *rand.Rand) { w.hit(w.any(r, "serve"), syscall.SIGKILL) }

// hit sends a process a signal. One that is just started anew is not hit, and has broken nothing. One that is told to
// end has to.
func (w *world) hit(p *process, s syscall.Signal) bool {
	before := p.starts()
	if !p.signal(s) {
		w.missed(p.name + " did not run")
		return false
	}
	if s == syscall.SIGTERM {
		w.background(func(ctx context.Context) { w.awaitAnew(ctx, p, before, endsWithin) })
	}
	return true
}

// hitProxies does something to the connections of processes, and to how many is what do returns.
func (w *world) hitProxies(list []*process, do func(*proxy) int) {
	met := 0
	for _, p := range list {
		p.eachProxy(func(x *proxy) { met += do(x) })
	}
	if met == 0 {
		w.missed("there was no connection")
	}
}

func stop(ctx context.Context, w *world, r *rand.Rand) {
	p := w.any(r, "")
	released := w.released(ctx, p)
	if w.hit(p, syscall.SIGTERM) {
		w.measure(ctx, "stop", time.Now(), released)
	}
}

// kill ends a process at once, and measures until nothing is left of what it had.
func (w *world) kill(ctx context.Context, p *process) {
	released := w.released(ctx, p)
	if w.hit(p, syscall.SIGKILL) {
		w.measure(ctx, "kill", time.Now(), released)
	}
}

// beforeFreeze is how long calls take right before a freeze, and whileFrozen how long an answer to a question until its
// end. So a process has calls in hand when it is stopped, and what it writes of them once it goes on comes while their
// queues are in question: a quick worker leaves nothing to write late, or has told the next process all before that, and
// a program without fences passes.
const (
	beforeFreeze = 700 * time.Millisecond
	whileFrozen  = 4 * time.Second
)

// freeze stops a process for longer than its lease. Its first calls behind that may be late. While it stands it calls
// nothing, and a call that it sent before gets to the worker before another process has its queue.
func freeze(ctx context.Context, w *world, r *rand.Rand) {
	p := w.any(r, "work")
	w.worker.linger(workerSettings{Takes: beforeFreeze, StatusLag: whileFrozen})
	defer w.worker.linger(workerSettings{})
	wait(ctx, beforeFreeze)
	had := w.released(ctx, p)
	for end := time.Now().Add(2 * time.Second); had == nil && time.Now().Before(end) && wait(ctx, 100*time.Millisecond); {
		had = w.released(ctx, p)
	}
	before, err := w.lives(ctx, p)
	if !w.hit(p, syscall.SIGSTOP) {
		return
	}
	w.worker.linger(workerSettings{StatusLag: whileFrozen})
	wait(ctx, w.ttl+time.Duration(r.Int64N(int64(w.ttl*3/2)))) // beyond the lease
	goes := time.Now()
	p.signal(syscall.SIGCONT)
	w.thawed = append(w.thawed, thaw{p.name, span{goes, time.Now().Add(w.ttl)}})
	if had == nil || err != nil {
		w.missed(p.name + " had no queue")
		return
	}
	wait(ctx, time.Second) // as others may be about to bury it
	if after, err := w.lives(ctx, p); err != nil || after == before {
		w.missed(p.name + " was not taken for dead")
	}
}

// countLate is how many writes came under a fence that was over, and were refused. A number that cannot be read is not 0.
func (w *world) countLate(ctx context.Context, c *pgx.Conn) (n int) {
	if err := c.QueryRow(ctx, `SELECT count(*) FROM postern.attempt WHERE step = 'late'`).Scan(&n); err != nil {
		w.violate("stale writes are refused", "they cannot be counted: %v", err)
	}
	return n
}

// lives tells how often a process was taken for dead.
func (w *world) lives(ctx context.Context, p *process) (string, error) {
	return w.query(ctx, `SELECT coalesce(string_agg(concat_ws(' ', node_id, epoch, dead_at), ',' ORDER BY node_id), '')
		FROM postern.node WHERE name = $1`, p.name)
}

// rolling stops each process in turn, and waits until it is there again. No release has been made, so that what comes
// is the same program.
func rolling(ctx context.Context, w *world, _ *rand.Rand) {
	met := 0
	for _, p := range w.processes {
		if !w.anew(ctx, p) {
			continue
		}
		if met++; p.api != "" {
			w.must(p.await(20 * time.Second))
		}
	}
	if met == 0 {
		w.missed("no process ran")
	}
}

// anew stops a process and waits until it is started again, and says whether it was.
func (w *world) anew(ctx context.Context, p *process) bool {
	before := p.starts()
	return p.signal(syscall.SIGTERM) && w.awaitAnew(ctx, p, before, endsWithin)
}

// endsWithin is for how long a process may go on that was told to end: Kubernetes kills it then unless it is told
// otherwise. Its grace is 2 s. It has to end also behind a black hole, without a database, and with what is left of
// this time once it was frozen.
const endsWithin = 30 * time.Second

// awaitAnew waits until a process that was told to end is started again, and says whether it was.
func (w *world) awaitAnew(ctx context.Context, p *process, before int, within time.Duration) bool {
	for end := time.Now().Add(within); p.starts() == before; {
		if time.Now().After(end) {
			w.violate("every process ends when it is told to", "%s has not ended %s after a SIGTERM", p.name, within)
			return false
		}
		if !wait(ctx, 50*time.Millisecond) {
			return false
		}
	}
	return true
}

func cut(_ context.Context, w *world, r *rand.Rand) {
	w.hitProxies([]*process{w.any(r, "")}, (*proxy).cut)
}

func oneWay(requests, answers bool) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, r *rand.Rand) {
		p := w.any(r, "")
		w.hitProxies([]*process{p}, func(x *proxy) int { return x.drop(requests, answers) })
		wait(ctx, time.Duration(1000+r.Int64N(4000))*time.Millisecond)
		p.eachProxy((*proxy).heal)
		w.measure(ctx, "one-way", time.Now(), w.answers(p))
	}
}

func blackHole(ctx context.Context, w *world, r *rand.Rand) {
	list := w.some(r)
	w.hitProxies(list, func(x *proxy) int { return x.hole(true, true) })
	for _, p := range list {
		w.measure(ctx, "black-hole", time.Now(), w.answers(p))
	}
	wait(ctx, 3*time.Second)
}

func drop(ctx context.Context, w *world, r *rand.Rand) {
	p := w.any(r, "")
	w.hitProxies([]*process{p}, func(x *proxy) int { return x.drop(true, true) })
	wait(ctx, time.Duration(1+r.Int64N(6))*time.Second)
	p.eachProxy((*proxy).heal)
	w.measure(ctx, "drop", time.Now(), w.answers(p))
}

func slow(ctx context.Context, w *world, r *rand.Rand) {
	p := w.any(r, "")
	delay := time.Duration(10+r.Int64N(200)) * time.Millisecond
	w.hitProxies([]*process{p}, func(x *proxy) int { return x.slow(delay) })
	wait(ctx, 3*time.Second)
	p.eachProxy(func(x *proxy) { x.slow(0) })
}

func breakCommits(lose bool) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, r *rand.Rand) {
		before := w.brokenCommits()
		for _, p := range w.some(r) {
			p.eachProxy(func(x *proxy) { x.breakCommits(1+r.IntN(5), lose) })
		}
		wait(ctx, 2*time.Second)
		for _, p := range w.processes {
			p.eachProxy(func(x *proxy) { x.breakCommits(0, false) })
		}
		if w.brokenCommits() == before {
			w.missed("no commit came")
		}
	}
}

func workerDoes(mode string, d time.Duration) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, _ *rand.Rand) {
		before := w.worker.misbehaved()
		w.worker.behave(mode)
		wait(ctx, d)
		w.worker.behave("")
		if w.worker.misbehaved() == before {
			w.missed("nothing was called")
		}
	}
}

// brokenCommits is how many commits the proxies of this installation have broken.
func (w *world) brokenCommits() (n int) {
	for _, p := range w.processes {
		p.eachProxy(func(x *proxy) { n += x.brokenSoFar() })
	}
	return n
}
