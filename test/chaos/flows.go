package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The load flows: one installation of two processes, real runners that reach it through proxies, and flows of twenty
// jobs each. Every script says to the ledger when it begins and when it ends, and waits until that is synced.

const (
	flowJobs  = 20
	runnerTTL = 3 * time.Second
	fewOpen   = 5 // flows that end once nothing is broken any more
	failsWith = 3 // the exit code of a script that fails on purpose
	// flowFaults are the kinds that break flows unless others are named.
	flowFaults = "runner-kill,runner-stop,runner-freeze,runner-unheard,runner-cut,kill-work,freeze,crash,immediate," +
		"restart,terminate,cut,one-way-in,commit-lost,commit-cut"
)

// flows is what there is besides the processes where flows are posted.
type flows struct {
	ledger   *ledger
	n        int
	sendAway func(job, env map[string]any) // makes a job one of the other installation; nil: there is none

	mu    sync.Mutex
	posts []*flowPost
}

// flowPost is one flow as it was posted.
type flowPost struct {
	ref     int
	body    []byte
	id      string
	at      time.Time // when it was acknowledged
	tries   int
	unknown int
	bad     string
}

// said is one line of the ledger: what one execution of a script says of itself.
type said struct {
	At      time.Time       `json:"at"`
	What    string          `json:"what"` // start, failed, finish
	Job     string          `json:"job"`
	Attempt string          `json:"attempt"`
	Token   string          `json:"token"`
	Nonce   string          `json:"nonce"`            // of this execution
	Inputs  json.RawMessage `json:"inputs,omitempty"` // with start
}

// ledger is a file to which scripts append, each over a connection of its own.
type ledger struct {
	listener net.Listener
	mu       sync.Mutex
	file     *os.File
	lines    []said
}

func newLedger(path string) (*ledger, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	l := &ledger{file: f}
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.listener.Accept()
			if err != nil {
				return
			}
			go l.hear(c)
		}
	}()
	return l, nil
}

func (l *ledger) port() int { return l.listener.Addr().(*net.TCPAddr).Port }

// begunSince lists the jobs that have begun since a time, at whatever installation.
func (l *ledger) begunSince(from time.Time) (jobs []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.lines {
		if s.What == "start" && s.At.After(from) {
			jobs = append(jobs, s.Job)
		}
	}
	return jobs
}

// hear writes what one execution says, syncs it, and answers with the nonce of the execution.
func (l *ledger) hear(c net.Conn) {
	defer c.Close()
	nonce := ""
	for lines := bufio.NewScanner(c); lines.Scan(); {
		words := strings.SplitN(lines.Text(), " ", 5)
		if len(words) < 4 {
			return
		}
		s := said{At: time.Now(), What: words[0], Job: words[1], Attempt: words[2], Token: words[3]}
		if len(words) == 5 && json.Valid([]byte(words[4])) {
			s.Inputs = json.RawMessage(words[4])
		}
		l.mu.Lock()
		if nonce == "" {
			nonce = fmt.Sprintf("n%d", len(l.lines))
		}
		s.Nonce = nonce
		line, _ := json.Marshal(s)
		l.file.Write(append(line, '\n'))
		l.file.Sync()
		l.lines = append(l.lines, s)
		l.mu.Unlock()
		if _, err := fmt.Fprintln(c, nonce); err != nil {
			return
		}
	}
}

// script is that of every job. The ledger answers each line; nothing that it has not synced goes on.
const script = `exec 3<>/dev/tcp/127.0.0.1/$LEDGER || exit 9
say() { printf '%s\n' "$1 $POSTERN_JOB $POSTERN_ATTEMPT $POSTERN_TOKEN $2" >&3; IFS= read -r NONCE <&3 || exit 9; }
say start "$(<"$POSTERN_INPUTS")"
IFS= read -r -t "$TAKES" _ <&3
if [ "$FAILS" = 1 ] && [ "$POSTERN_ATTEMPT" = 1 ]; then say failed; exit 3; fi
printf '{"nonce":"%s"}' "$NONCE" > "$POSTERN_RESULT"
say finish
`

// flowBody is the n-th flow: a chain, or diamonds; each diamond has a job that splits and three that join.
func (f *flows) flowBody(n int) []byte {
	var jobs []map[string]any
	for ref := 1; ref <= flowJobs; ref++ {
		needs := []int{}
		switch {
		case ref == 1:
		case n%2 == 0:
			needs = append(needs, ref-1)
		case ref%4 == 1:
			needs = append(needs, ref-3, ref-2, ref-1)
		default:
			needs = append(needs, (ref-1)/4*4+1)
		}
		takes := 0.02 + float64(roll(fmt.Sprint(n, ".", ref), 300))/1000
		if roll(fmt.Sprint("long", n, ".", ref), 20) == 0 {
			takes += 2
		}
		fails := "0"
		if (n*flowJobs+ref)%10 == 0 {
			fails = "1"
		}
		env := map[string]any{"FAILS": fails, "TAKES": fmt.Sprintf("%.3f", takes)}
		job := map[string]any{"ref": ref, "script": script, "script_type": "bash", "timeout": 60, "retries": 20,
			"network": true, "dependends": needs, "env_vars": env}
		if f.sendAway != nil && roll(fmt.Sprint("away", n, ".", ref), 2) == 0 {
			env["LEDGER"] = fmt.Sprint(f.ledger.port()) // what the flow gives to its jobs does not go there
			f.sendAway(job, env)
		}
		jobs = append(jobs, job)
	}
	b, _ := json.Marshal(map[string]any{"ref": n, "start": true, "jobs": jobs,
		"env_vars": map[string]string{"LEDGER": fmt.Sprint(f.ledger.port())}})
	return b
}

// startFlows opens the ledger and starts the runners.
func (w *world) startFlows(ctx context.Context, o options) (err error) {
	w.flows = &flows{n: o.flows}
	if w.flows.ledger, err = newLedger(filepath.Join(w.dir, "ledger.jsonl")); err != nil {
		return err
	}
	return w.startRunners(ctx, o, 0)
}

// startRunners makes the script type and starts the runners. before are those of another installation, whose users of
// scripts are others.
func (w *world) startRunners(ctx context.Context, o options, before int) error {
	if _, err := w.client.ask(ctx, "PUT", "/dispatchers/job.bash", `{"worker_url":"run:"}`); err != nil {
		return err
	}
	for i := range o.runners {
		name := fmt.Sprintf("runner-%d", i+1)
		body := fmt.Sprintf(`{"slots":4,"script_types":["bash"],"ttl":"%s"}`, runnerTTL)
		if _, err := w.client.ask(ctx, "PUT", "/runners/"+name, body); err != nil {
			return err
		}
		x, err := newProxy(strings.TrimPrefix(w.ways.direct[i%len(w.ways.direct)], "http://"))
		if err != nil {
			return err
		}
		p := &process{name: name, bin: w.bin, dir: w.dir, proxies: []*proxy{x}}
		p.args = []string{"runner", "--name", name, "--types", "bash", "--slots", "4", "--interpreter",
			"bash=/bin/bash {file}", "--state", filepath.Join(w.dir, name), "--drain", "2s",
			"--first-uid", fmt.Sprint(64000 + 10*(before+i))}
		if !o.box {
			p.args = append(p.args, "--isolation", "off")
		}
		p.env = append(os.Environ(), "POSTERN_LOG_FORMAT=json", "POSTERN_API_KEY="+w.client.key, "POSTERN_CONTEXT=default",
			fmt.Sprintf("POSTERN_URL=http://127.0.0.1:%d", x.port()))
		w.runners = append(w.runners, p)
		p.start()
	}
	for end := time.Now().Add(time.Minute); ; wait(ctx, 100*time.Millisecond) {
		n, err := w.query(ctx, `SELECT count(*)::text FROM postern.runner WHERE epoch > 0`)
		if err == nil && n == fmt.Sprint(o.runners) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s of %d runners have registered: see %s", n, o.runners, w.dir)
		}
	}
}

// breakFlows is a run: flows are posted over at least the time of the run, with few open at a time, and things are
// broken until all but fewOpen have ended; in a brief run for its time alone. healed is called once nothing is broken
// any more, and returns from when on all is to end, and what is closed once nothing else is posted.
func (w *world) breakFlows(ctx context.Context, o options,
	healed func() (time.Time, <-chan struct{})) (*result, error) {
	began := time.Now()
	breaking, heal := context.WithCancel(ctx)
	if o.brief {
		breaking, heal = context.WithTimeout(ctx, time.Duration(o.seconds)*time.Second)
	}
	defer heal()
	broken := make(chan struct{})
	go func() { defer close(broken); w.run(breaking, o.schedule) }()
	for n := range o.flows {
		at := time.Duration(o.seconds) * time.Second * time.Duration(n) / time.Duration(o.flows)
		wait(ctx, time.Until(began.Add(at)))
		w.awaitRoom(ctx, o.open)
		w.postFlow(ctx, n)
	}
	if !o.brief {
		w.awaitRoom(ctx, fewOpen)
	}
	wait(ctx, time.Until(began.Add(time.Duration(o.seconds)*time.Second)))
	heal()
	<-broken
	w.heal(ctx)
	from, posted := healed()
	over := w.over(posted)
	w.awaitEnd(ctx, from, o.settle, over)
	<-over
	settled := time.Since(from)
	return w.judge(ctx, o, from.Sub(began), settled)
}

// awaitRoom waits until fewer flows are open than may be.
func (w *world) awaitRoom(ctx context.Context, most int) {
	for {
		n, err := w.query(ctx, `SELECT CASE WHEN count(*) < $1 THEN 'few' ELSE '' END FROM postern.flow
			WHERE ended_at IS NULL`, most)
		if err == nil && n != "" || !wait(ctx, 200*time.Millisecond) {
			return
		}
	}
}

// postFlow posts the n-th flow.
func (w *world) postFlow(ctx context.Context, n int) {
	p := &flowPost{ref: n, body: w.flows.flowBody(n)}
	w.flows.mu.Lock()
	w.flows.posts = append(w.flows.posts, p)
	w.flows.mu.Unlock()
	w.sendFlow(ctx, p)
}

// sendFlow posts a flow until it is acknowledged. The actor who signed the jobs that go away posts their flow.
func (w *world) sendFlow(ctx context.Context, p *flowPost) {
	for {
		url := w.client.apis[(p.ref+p.tries)%len(w.client.apis)] + "/flows"
		var status int
		var answer []byte
		if w.pair != nil {
			status, answer = w.pair.actors[0].ask(ctx, w.client, url, p.body)
		} else {
			status, answer = w.client.say(ctx, url, string(p.body), "")
		}
		var told struct{ ID, Code string }
		json.Unmarshal(answer, &told)
		w.flows.mu.Lock()
		p.tries++
		switch {
		case status == 200 || status == 201:
			p.id, p.at = told.ID, time.Now()
		case status == 0 || told.Code == "commit_unknown":
			p.unknown++
		case !retryable(answer):
			p.bad = fmt.Sprintf("%d %.300s", status, answer)
		}
		over := p.id != "" || p.bad != ""
		w.flows.mu.Unlock()
		if over || !wait(ctx, 200*time.Millisecond) {
			return
		}
	}
}

// anyRunner returns one of the runners.
func (w *world) anyRunner(r *rand.Rand) *process { return w.runners[r.IntN(len(w.runners))] }

func runnerKill(_ context.Context, w *world, r *rand.Rand) { w.hit(w.anyRunner(r), syscall.SIGKILL) }

func runnerStop(_ context.Context, w *world, r *rand.Rand) { w.hit(w.anyRunner(r), syscall.SIGTERM) }

func runnerFreeze(ctx context.Context, w *world, r *rand.Rand) {
	p := w.anyRunner(r)
	if !w.hit(p, syscall.SIGSTOP) {
		return
	}
	wait(ctx, runnerTTL+time.Duration(r.Int64N(int64(runnerTTL))))
	p.signal(syscall.SIGCONT)
}

func runnerUnheard(ctx context.Context, w *world, r *rand.Rand) {
	p := w.anyRunner(r)
	w.hitProxies([]*process{p}, func(x *proxy) int { return x.drop(false, true) })
	wait(ctx, time.Duration(500+r.Int64N(2*int64(runnerTTL/time.Millisecond)))*time.Millisecond)
	p.eachProxy((*proxy).heal)
}

func runnerCut(_ context.Context, w *world, r *rand.Rand) {
	w.hitProxies([]*process{w.anyRunner(r)}, (*proxy).cut)
}
