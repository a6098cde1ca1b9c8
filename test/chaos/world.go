package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// world is all that runs.
type world struct {
	dir       string
	bin       string
	ttl       time.Duration
	pg        *postgres // that takes writes
	other     *postgres // its standby; nil where no failover is to come
	worker    *worker
	client    *client
	processes []*process
	runners   []*process // of the load flows
	flows     *flows     // nil but for the load flows
	systems   *systems   // nil but for the load systems
	ways      ways
	pair      *pair    // nil but for the load peers
	domain    *domain  // of the first installation of the load domains
	others    []*world // and its other installations, of each
	standing  []standing
	before    usage

	life   context.Context
	behind sync.WaitGroup // what runs besides the faults
	idle   int            // connections of a flood
	drips  int

	mu       sync.Mutex
	counts   map[string]int    // faults by kind
	nothing  string            // why the fault that is under way has broken nothing; "": it has
	skipped  map[string]string // kinds that this machine cannot have, and why
	storms   int               // sessions were all terminated
	troubles []string          // of the harness itself
	times    map[string][]time.Duration
	late     map[string]int
	failed   map[string]int // faults by kind that have broken nothing
	largest  map[string]int
	wrong    map[string][]string // violations that show while faults happen
	quiet    []quiet             // in which the worker may not be called
	thawed   []thaw              // in which a process that was frozen may call late
	probes   int
	found    int             // by an operator, of what was held
	said     map[string]bool // and what ended by that
	lastOpen string          // what a look at what has not ended found last, and when
	draining string          // what was open past the limit, and grew less

	clockBin string // the program whose clock can be moved
	noClock  string // why there is none
}

type span struct{ from, to time.Time }

// thaw is the time of a lease behind the moment at which a process that stood still goes on.
type thaw struct {
	process string
	span
}

// begin starts everything and tells Postern of the types.
func begin(ctx context.Context, o options) (w *world, err error) {
	dir, err := os.MkdirTemp("", "postern-chaos-")
	if err != nil {
		return nil, err
	}
	os.Chmod(dir, 0o755)
	w = &world{dir: dir, ttl: 3 * time.Second, life: ctx, counts: map[string]int{}, skipped: map[string]string{},
		failed: map[string]int{},
		times:  map[string][]time.Duration{}, late: map[string]int{}, largest: map[string]int{},
		wrong: map[string][]string{}, said: map[string]bool{},
		idle: o.idle, drips: o.drips}
	defer func(made *world) {
		if err != nil {
			made.end(endsWithin)
		}
	}(w)
	if w.bin, err = filepath.Abs(o.bin); err != nil {
		return nil, err
	}
	if o.has("clock-node") {
		if w.clockBin, err = buildClock(ctx, w.bin); err != nil {
			w.noClock = err.Error()
		}
	}
	if err = w.startPostgres(ctx, o); err != nil {
		return nil, err
	}
	if w.worker, err = newWorker(filepath.Join(dir, "worker.jsonl"), o.worker); err != nil {
		return nil, err
	}
	if w.ways.worker, _, err = wayTo(w.worker.url()); err != nil {
		return nil, err
	}
	if err = w.startPostern(ctx, o.processes()); err != nil {
		return nil, err
	}
	if err = w.configure(ctx); err != nil {
		return nil, err
	}
	switch {
	case o.load == "flows":
		err = w.startFlows(ctx, o)
	case o.load == "peers":
		err = w.startPair(ctx, o)
	case o.load == "domains":
		err = w.startDomain(ctx, o)
	case o.load == "systems":
		err = w.startSystems(ctx)
	case !o.bare:
		err = w.leaveStanding(ctx)
	}
	if err != nil {
		return nil, err
	}
	wait(ctx, time.Second)
	w.before = w.usage(ctx)
	return w, nil
}

// startPostgres starts a server, and its standby where one is needed.
func (w *world) startPostgres(ctx context.Context, o options) (err error) {
	want := wants{disks: o.has("disk-full", "disk-full-wal"), clock: o.has("clock", "clock-back"), settings: o.settings}
	if w.pg, err = newPostgres(ctx, filepath.Join(w.dir, "pg"), want); err != nil {
		return err
	}
	if o.has("failover", "standby-away") {
		if w.other, err = findPostgres(filepath.Join(w.dir, "pg-2")); err != nil {
			return err
		}
		return w.follow(ctx)
	}
	return nil
}

// startPostern migrates the database, draws a key and starts the processes.
func (w *world) startPostern(ctx context.Context, names []string) error {
	url := fmt.Sprintf("postgres://postern@127.0.0.1:%d/postern?sslmode=disable", w.pg.port)
	if out, err := w.postern("DATABASE_URL="+url, "migrate", "up"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	keyFile := filepath.Join(w.dir, "root.key")
	if out, err := w.postern("", "key", "draw", "--out", keyFile); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return err
	}
	var apis []string
	for _, name := range names {
		p, err := w.process(name)
		if err != nil {
			return err
		}
		if p.api != "" {
			x, url, err := wayTo(p.api)
			if err != nil {
				return err
			}
			apis = append(apis, url)
			w.ways.apis, w.ways.direct = append(w.ways.apis, x), append(w.ways.direct, p.api)
		}
		w.processes = append(w.processes, p)
		p.start()
	}
	if w.client, err = newClient(strings.TrimSpace(string(key)), apis, filepath.Join(w.dir, "client.jsonl")); err != nil {
		return err
	}
	w.client.database = func() string { return w.pg.url() }
	w.client.told = w.toWorker() + "/told"
	for _, p := range w.processes {
		if p.api != "" {
			if err := p.await(60 * time.Second); err != nil {
				return err
			}
		}
	}
	return nil
}

// configure makes the types of the client.
func (w *world) configure(ctx context.Context) error {
	settings := `"worker_url":"` + w.toWorker() + `","timeouts":{"dispatch":"5s"},"retry":{"initial":"200ms","max_retries":50},` +
		`"inclusion":{"poll_every":"200ms"}`
	for _, one := range [][2]string{
		{"/dispatchers/PAY", "{" + settings + "}"},
		{"/pools/p", `{}`},
		{"/dispatchers/SIGN", "{" + settings + `,"pool":"p"}`},
		{"/senders/a", `{"pool":"p"}`},
		{"/senders/b", `{"pool":"p"}`},
		{"/senders/c", `{"pool":"p"}`},
	} {
		if _, err := w.client.ask(ctx, "PUT", one[0], one[1]); err != nil {
			return err
		}
	}
	return nil
}

// process makes one that does what its name says: it serves, works, or both. It has a proxy in front of each server of
// the database.
func (w *world) process(name string) (*process, error) {
	p := &process{name: name, bin: w.bin, dir: w.dir, args: []string{"work"}, metrics: fmt.Sprintf("127.0.0.1:%d", freePort())}
	var hosts, ports []string
	for _, pg := range []*postgres{w.pg, w.other} {
		if pg == nil {
			continue
		}
		x, err := newProxy(fmt.Sprintf("127.0.0.1:%d", pg.port))
		if err != nil {
			return nil, err
		}
		p.proxies = append(p.proxies, x)
		hosts, ports = append(hosts, "127.0.0.1"), append(ports, fmt.Sprint(x.port()))
	}
	var list []string
	for i := range hosts {
		list = append(list, hosts[i]+":"+ports[i])
	}
	url := "postgres://postern@" + strings.Join(list, ",") + "/postern?sslmode=disable"
	if w.other != nil {
		url += "&target_session_attrs=read-write"
	}
	p.env = append(os.Environ(), "DATABASE_URL="+url, "POSTERN_LEASE_TTL="+w.ttl.String(), "POSTERN_WORKER_ALLOW_CIDR=127.0.0.0/8",
		"POSTERN_METRICS_LISTEN="+p.metrics, "POSTERN_SHUTDOWN_GRACE=2s", "POSTERN_NODE_NAME="+p.name, "POSTERN_LOG_FORMAT=json")
	if strings.HasPrefix(name, "serve") {
		listen := fmt.Sprintf("127.0.0.1:%d", freePort())
		p.args, p.api = []string{"serve", "--listen", listen}, "http://"+listen
		if strings.HasSuffix(name, "work") {
			p.args = append(p.args, "--work")
		}
		p.env = append(p.env, "POSTERN_BOOTSTRAP_KEY_FILE="+filepath.Join(w.dir, "root.key"))
	}
	return p, nil
}

// postern runs a command to its end.
func (w *world) postern(env string, args ...string) (string, error) {
	cmd := exec.Command(w.bin, args...)
	cmd.Env = append(os.Environ(), env)
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	if err := cmd.Run(); err != nil {
		return all.String(), fmt.Errorf("postern %s: %w: %s", strings.Join(args, " "), err, all.String())
	}
	return all.String(), nil
}

// any returns a process whose name says so.
func (w *world) any(r *rand.Rand, what string) *process {
	var list []*process
	for _, p := range w.processes {
		if strings.Contains(p.name, what) {
			list = append(list, p)
		}
	}
	return list[r.IntN(len(list))]
}

// some returns one process, all that only work, or all.
func (w *world) some(r *rand.Rand) []*process {
	switch r.IntN(3) {
	case 0:
		return []*process{w.any(r, "")}
	case 1:
		return w.processes[2:]
	}
	return w.processes
}

// note keeps what went wrong with the harness itself.
func (w *world) note(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.troubles = append(w.troubles, err.Error())
}

// missed says of the fault that is under way that it has broken nothing, and why.
func (w *world) missed(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nothing = why
}

// brokeNothing returns why the last fault has broken nothing, and forgets it.
func (w *world) brokeNothing() (why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	why, w.nothing = w.nothing, ""
	return why
}

// missedAt says of the fault that is under way that it has broken nothing, if that was said at another installation.
func (w *world) missedAt(at *world) {
	if at == w {
		return
	}
	if why := at.brokeNothing(); why != "" {
		w.missed(why)
	}
}

// violate keeps a violation that shows at once.
func (w *world) violate(invariant, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong[invariant] = append(w.wrong[invariant], fmt.Sprintf(format, args...))
}

// heal undoes what a fault may have left. Behind that each process has to work again.
func (w *world) heal(ctx context.Context) {
	if err := w.pg.await(ctx, 5*time.Second); err != nil {
		w.note(w.pg.start(ctx))
	}
	w.worker.behave("")
	w.ways.heal()
	for _, p := range slices.Concat(w.processes, w.runners) {
		p.signal(syscall.SIGCONT)
		p.eachProxy((*proxy).heal)
	}
	for _, p := range w.processes {
		w.measure(ctx, "all", time.Now(), w.answers(p))
	}
	if w.pair != nil {
		w.pair.far.heal(ctx)
		w.pair.line.heal()
	}
	if w.domain != nil {
		w.domain.heal(ctx)
	}
}

// findOut is the operator who looks at the worker after what is held, since its answers were lies until the retries
// were used up, and says what came of it. Before that /why has to name what it is held for.
func (w *world) findOut(ctx context.Context) {
	if some, err := w.query(ctx, `SELECT 'held' FROM postern.mark WHERE kind = 'unknown' LIMIT 1`); err != nil || some == "" {
		return // the view below reads every row
	}
	held, err := w.query(ctx, `SELECT coalesce(string_agg(t.id || ' ' || t.uid, ','), '')
		FROM postern.transactions t
		CROSS JOIN LATERAL postern.id_place(t.id::text) p
		JOIN postern.mark m ON (m.queue_id, m.seq, m.kind) = (p.queue_id, p.seq, 'unknown')`)
	if err != nil || held == "" {
		return
	}
	for _, one := range strings.Split(held, ",") {
		id, uid, _ := strings.Cut(one, " ")
		w.checkHeld(ctx, id, uid)
		lever := "was-not-done"
		if w.worker.executed(uid) {
			lever = "was-done"
		}
		_, err := w.client.ask(ctx, "POST", "/transactions/"+id+"/"+lever, `{"reason":"looked at the worker"}`)
		if err != nil {
			w.note(err)
			continue
		}
		w.mu.Lock()
		w.found++
		w.said[uid] = true
		w.mu.Unlock()
	}
}

// checkHeld: what waits for a word of an operator has a /why that says so, and a worker that has lied about it. Nothing
// else makes an outcome unknown here: the worker answers each question, and a restore makes none of its answers a lie.
func (w *world) checkHeld(ctx context.Context, id, uid string) {
	const invariant = "what is held could not be known"
	y, err := w.why(ctx, w.client.apis[0], id)
	switch {
	case err != nil:
		w.violate(invariant, "%s is held, and /why does not tell: %v", uid, err)
	case !terminal[y.State] && !y.Moving && !y.names("outcome_unknown"):
		w.violate(invariant, "%s is held, and /why names %v", uid, y.Blockers)
	}
	if !w.worker.lied(uid) {
		w.violate(invariant, "%s is held, and no call of it was answered with a lie", uid)
	}
}

// end ends everything, and returns the processes that did not end within a time when they were told to.
func (w *world) end(within time.Duration) (hung []string) {
	if w.pair != nil {
		hung = w.pair.far.end(within)
	}
	if w.domain != nil {
		hung = append(hung, w.domain.end(within)...)
	}
	hung = append(hung, endAll(slices.Concat(w.runners, w.processes), within)...)
	for _, pg := range []*postgres{w.pg, w.other} {
		if pg != nil {
			pg.stop(context.Background(), "immediate")
			pg.unmount()
		}
	}
	return hung
}

// endAll ends processes, one after the other, and returns the logs of those that had to be killed.
func endAll(list []*process, within time.Duration) (hung []string) {
	for _, p := range list {
		if p.ended != nil && !p.end(within) {
			hung = append(hung, filepath.Join(p.dir, p.name+".log"))
		}
	}
	return hung
}
