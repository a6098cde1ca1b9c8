package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// world is all that runs.
type world struct {
	dir       string
	bin       string
	ttl       time.Duration
	pg        *postgres
	worker    *worker
	client    *client
	processes []*process
	counts    map[string]int // faults by kind
	troubles  []string       // of the harness itself
}

// result is the one line of JSON.
type result struct {
	Seed         uint64              `json:"seed"`
	Seconds      float64             `json:"seconds"`
	Faults       map[string]int      `json:"faults"`
	Posted       int                 `json:"posted"`
	Acknowledged int                 `json:"acknowledged"`
	Answers      map[int]int         `json:"answers"`
	Calls        int                 `json:"calls"`
	Again        int                 `json:"calls_again"`
	Stale        int                 `json:"stale_refused"`
	Asked        int                 `json:"asked"`
	Violations   map[string][]string `json:"violations"`
	Stalled      []string            `json:"stalled"`
	Verify       string              `json:"verify"`
	SettledAfter float64             `json:"settled_after_s"`
	Exits        map[string]int      `json:"exits"`
	Troubles     []string            `json:"troubles,omitempty"`
	Dir          string              `json:"dir,omitempty"`
}

func main() {
	seconds := flag.Int("seconds", 60, "how long things are broken")
	seed := flag.Uint64("seed", 1, "what fixes the schedule")
	rate := flag.Int("rate", 60, "posts a second")
	queues := flag.Int("queues", 40, "queues that are posted to")
	every := flag.Duration("every", 2*time.Second, "from one fault to the next, on average")
	names := flag.String("faults", "", "kinds of faults, with commas between (all): "+known())
	settle := flag.Duration("settle", 60*time.Second, "how long everything may take to end after the last fault")
	bin := flag.String("bin", "bin/postern", "the binary of Postern")
	keep := flag.Bool("keep", false, "keep logs and database also if nothing is wrong")
	flag.Parse()
	list, err := chosen(*names)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out, err := chaos(ctx, options{*seconds, *seed, *rate, *queues, *every, list, *settle, *bin})
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(3)
	}
	wrong := len(out.Violations) > 0 || len(out.Stalled) > 0 || out.Verify != ""
	if !wrong && !*keep {
		os.RemoveAll(out.Dir)
		out.Dir = ""
	}
	line, _ := json.Marshal(out)
	fmt.Println(string(line))
	if wrong {
		os.Exit(1)
	}
}

type options struct {
	seconds int
	seed    uint64
	rate    int
	queues  int
	every   time.Duration
	faults  []fault
	settle  time.Duration
	bin     string
}

func chaos(ctx context.Context, o options) (*result, error) {
	w, err := begin(ctx, o)
	if err != nil {
		return nil, err
	}
	defer w.end()
	began := time.Now()
	breaking, heal := context.WithTimeout(ctx, time.Duration(o.seconds)*time.Second)
	defer heal()
	posted := make(chan struct{})
	go func() { defer close(posted); w.client.run(breaking, o.rate, o.queues, o.settle) }()
	w.run(breaking, o.faults, o.seed, o.every)
	w.heal(ctx)
	healed := time.Now()
	<-posted
	w.awaitEnd(ctx, healed.Add(o.settle))
	return w.judge(ctx, o, began, healed)
}

// begin starts everything and tells Postern of the types.
func begin(ctx context.Context, o options) (*world, error) {
	dir, err := os.MkdirTemp("", "postern-chaos-")
	if err != nil {
		return nil, err
	}
	os.Chmod(dir, 0o755)
	w := &world{dir: dir, ttl: 3 * time.Second, counts: map[string]int{}}
	if w.bin, err = filepath.Abs(o.bin); err != nil {
		return nil, err
	}
	if w.pg, err = newPostgres(ctx, filepath.Join(dir, "pg")); err != nil {
		return nil, err
	}
	if w.worker, err = newWorker(filepath.Join(dir, "worker.jsonl")); err != nil {
		return nil, err
	}
	if err := w.postern("DATABASE_URL="+w.pg.url(), "migrate", "up"); err != nil {
		return nil, err
	}
	if err := w.postern("", "key", "draw", "--out", filepath.Join(dir, "root.key")); err != nil {
		return nil, err
	}
	key, err := os.ReadFile(filepath.Join(dir, "root.key"))
	if err != nil {
		return nil, err
	}
	var apis []string
	for i := range 5 {
		p, err := w.process(i)
		if err != nil {
			return nil, err
		}
		if p.api != "" {
			apis = append(apis, p.api)
		}
		w.processes = append(w.processes, p)
		p.start()
	}
	w.client = newClient(strings.TrimSpace(string(key)), apis)
	for _, p := range w.processes {
		if p.api != "" {
			if err := p.await(30 * time.Second); err != nil {
				return nil, err
			}
		}
	}
	return w, w.configure(ctx)
}

func (w *world) configure(ctx context.Context) error {
	settings := `"worker_url":"` + w.worker.url() + `","timeouts":{"dispatch":"5s"},"retry":{"initial":"200ms","max_retries":50},` +
		`"inclusion":{"poll_every":"200ms"}`
	for path, body := range map[string]string{
		"/dispatchers/PAY": "{" + settings + "}", "/pools/p": `{}`,
		"/dispatchers/SIGN": "{" + settings + `,"pool":"p"}`,
		"/senders/a":        `{"pool":"p"}`, "/senders/b": `{"pool":"p"}`, "/senders/c": `{"pool":"p"}`,
	} {
		if err := w.client.put(ctx, path, body); err != nil {
			return err
		}
	}
	return nil
}

// process makes the first two processes serve and the others work, each with a proxy in front of the database.
func (w *world) process(i int) (*process, error) {
	x, err := newProxy(fmt.Sprintf("127.0.0.1:%d", w.pg.port))
	if err != nil {
		return nil, err
	}
	p := &process{name: fmt.Sprintf("work-%d", i-1), bin: w.bin, dir: w.dir, proxy: x, args: []string{"work"}}
	p.env = append(os.Environ(), fmt.Sprintf("DATABASE_URL=postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", x.port()),
		"POSTERN_LEASE_TTL="+w.ttl.String(), "POSTERN_WORKER_ALLOW_CIDR=127.0.0.0/8", "POSTERN_METRICS_LISTEN=off",
		"POSTERN_SHUTDOWN_GRACE=2s", "POSTERN_NODE_NAME="+p.name, "POSTERN_LOG_FORMAT=json")
	if i < 2 {
		listen := fmt.Sprintf("127.0.0.1:%d", freePort())
		p.name, p.args, p.api = fmt.Sprintf("serve-%d", i+1), []string{"serve", "--listen", listen}, "http://"+listen
		p.env = append(p.env, "POSTERN_BOOTSTRAP_KEY_FILE="+filepath.Join(w.dir, "root.key"))
	}
	return p, nil
}

// postern runs a command to its end.
func (w *world) postern(env string, args ...string) error {
	cmd := exec.Command(w.bin, args...)
	cmd.Env = append(os.Environ(), env)
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("postern %s: %w: %s", strings.Join(args, " "), err, all.String())
	}
	return nil
}

// any returns a process whose name begins so.
func (w *world) any(r *rand.Rand, prefix string) *process {
	var list []*process
	for _, p := range w.processes {
		if strings.HasPrefix(p.name, prefix) {
			list = append(list, p)
		}
	}
	return list[r.IntN(len(list))]
}

// some returns one process, all of a kind, or all.
func (w *world) some(r *rand.Rand) []*process {
	switch r.IntN(3) {
	case 0:
		return []*process{w.any(r, "")}
	case 1:
		return w.processes[2:]
	}
	return w.processes
}

func (w *world) note(err error) {
	if err != nil {
		w.troubles = append(w.troubles, err.Error())
	}
}

// heal undoes what a fault may have left.
func (w *world) heal(ctx context.Context) {
	if err := w.pg.await(ctx); err != nil {
		w.note(w.pg.start(ctx))
	}
	for _, p := range w.processes {
		p.signal(syscall.SIGCONT)
		p.proxy.slow(0)
	}
}

// awaitEnd waits until nothing is under way any more.
func (w *world) awaitEnd(ctx context.Context, until time.Time) {
	for time.Now().Before(until) && wait(ctx, time.Second) {
		if _, stalled, err := check(ctx, w.pg.url(), nil, nil); err == nil && len(stalled) == 0 {
			return
		}
	}
}

func (w *world) judge(ctx context.Context, o options, began, healed time.Time) (*result, error) {
	settled := time.Since(healed)
	for _, p := range w.processes {
		p.end()
	}
	if err := w.client.write(filepath.Join(w.dir, "client.jsonl")); err != nil {
		return nil, err
	}
	out := &result{Seed: o.seed, Seconds: healed.Sub(began).Seconds(), Faults: w.counts, Posted: len(w.client.posts), Answers: w.client.counts,
		SettledAfter: settled.Seconds(), Exits: map[string]int{}, Troubles: w.troubles, Dir: w.dir, Asked: w.worker.asked, Calls: len(w.worker.calls)}
	for _, p := range w.client.posts {
		if p.Acked {
			out.Acknowledged++
		}
	}
	for _, c := range w.worker.calls {
		switch c.Did {
		case "again":
			out.Again++
		case "stale":
			out.Stale++
		}
	}
	for _, p := range w.processes {
		for code, n := range p.exits {
			out.Exits[fmt.Sprint(code)] += n
		}
	}
	var err error
	if out.Violations, out.Stalled, err = check(ctx, w.pg.url(), w.client.posts, w.worker.calls); err != nil {
		return nil, err
	}
	if err := w.postern("DATABASE_URL="+w.pg.url(), "verify"); err != nil {
		out.Verify = err.Error()
	}
	return out, nil
}

func (w *world) end() {
	for _, p := range w.processes {
		if p.ended != nil {
			p.end()
		}
	}
	w.pg.stop(context.Background(), "immediate")
}
