package runner

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/postern-dev/postern/api/client"
	"github.com/postern-dev/postern/internal/sandbox"
)

// Config is what a runner is made of.
type Config struct {
	Name     string
	Instance string // a UUID of this process
	API      *client.Client
	Box      *sandbox.Box
	Types    []string          // script types whose interpreter is here
	Missing  map[string]string // by type: why it cannot be executed here
	Slots    int
	Takeover bool
	Version  string
	Wait     time.Duration // how long a claim waits at the server [30s]
	Drain    time.Duration // how long scripts may go on when the runner is to end [30s]
	Log      *slog.Logger
}

// Runner executes jobs of one server.
type Runner struct {
	config Config
	log    *slog.Logger
	slots  chan int      // those that are free
	freed  chan struct{} // a try has ended
	hurry  chan struct{} // register now

	mu      sync.Mutex
	epoch   int64 // 0: not registered
	ttl     time.Duration
	renewed time.Time   // when the last call began that the server has taken as a heartbeat
	lapse   *time.Timer // kills what could not be renewed in time
	denied  time.Time   // since when the server says that this key may not do this; zero: it does not
	end     context.CancelCauseFunc
	held    map[string]*try
	lost    map[Hold]lost // of this epoch
	tries   sync.WaitGroup
}

// lost is what is known of a try that was killed here. The server may hand it out again under the same fence: where it
// has not noticed that the runner was silent, it takes its answer to the claim for lost.
type lost struct {
	lines int // that have numbers
	why   string
}

// New makes a runner. Run starts it.
func New(c Config) *Runner {
	if c.Wait == 0 {
		c.Wait = 30 * time.Second
	}
	if c.Drain == 0 {
		c.Drain = 30 * time.Second
	}
	r := &Runner{
		config: c,
		log:    c.Log,
		slots:  make(chan int, c.Slots),
		freed:  make(chan struct{}, 1),
		hurry:  make(chan struct{}, 1),
		held:   map[string]*try{},
	}
	for slot := range c.Slots {
		r.slots <- slot
	}
	r.lapse = time.AfterFunc(time.Hour, r.lapsed)
	r.lapse.Stop()
	return r
}

// Run registers and executes jobs until ctx ends. Then it claims no more, lets the scripts that run come to their end
// for the time of Drain, kills what is left, and gives that back to the server. It returns an error where the server
// refuses to register it, or has refused its key for longer than its ttl, so that its scripts are killed: an operator
// has to mend that, and the system that starts the process sees that it does not run.
func (r *Runner) Run(ctx context.Context) error {
	defer r.lapse.Stop()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	r.end = end
	if err := r.register(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	alive, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	var loops sync.WaitGroup
	loops.Go(func() { r.renewLoop(alive) })
	r.claimLoop(ctx)
	r.drain(alive)
	over()
	loops.Wait()
	if err := (&denial{}); errors.As(context.Cause(ctx), &err) {
		return err.error
	}
	return nil
}

// denial is why a runner ends by itself.
type denial struct{ error }

// refuse ends the runner, since the server refuses what it cannot do without.
func (r *Runner) refuse(err error) {
	r.log.Error("the server refuses this runner, which ends", "error", err)
	r.end(&denial{err})
}

// deny notes that the server refuses the key of this runner, or says that it may not do this. Where it has said so for
// longer than the ttl the runner ends: no operator has mended it while its scripts were still its own.
func (r *Runner) deny(err error) {
	if p := problem(err); p == nil || p.Status != http.StatusUnauthorized && p.Status != http.StatusForbidden {
		return
	}
	r.mu.Lock()
	if r.denied.IsZero() {
		r.denied = time.Now()
		r.log.Error("the server refuses this runner: it ends, unless that is mended within its ttl", "ttl", r.ttl,
			"error", err)
	}
	over := time.Since(r.denied) > r.ttl
	r.mu.Unlock()
	if over {
		r.refuse(err)
	}
}

// register begins an epoch. It is repeated until it succeeds, ctx ends, or the server refuses it: for good, or until
// somebody mends its key or its role. Another process that is alive under the name is waited for.
func (r *Runner) register(ctx context.Context) error {
	began := time.Now()
	c := r.config
	var answer RegisterAnswer
	request := RegisterRequest{
		Instance:    c.Instance,
		Takeover:    c.Takeover,
		ScriptTypes: c.Types,
		Missing:     c.Missing,
		Slots:       c.Slots,
		Isolation:   string(r.level()),
		Version:     c.Version,
	}
	err := r.repeat(ctx, "register", func(err error) bool {
		p := problem(err)
		denied := p != nil && (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden)
		return denied || refused(err) && code(err) != CodeRunnerLive
	}, func() error {
		began = time.Now()
		return r.post(ctx, 15*time.Second, path(PathRegister, c.Name), 0, request, &answer)
	})
	if err != nil {
		return err
	}
	ttl, err := readTTL(answer.TTL)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch, r.lost = answer.Epoch, map[Hold]lost{}
	r.beat(began, ttl)
	r.log.Info("registered", "runner", c.Name, "epoch", r.epoch, "ttl", ttl, "types", c.Types, "isolation", r.level())
	return nil
}

func (r *Runner) level() sandbox.Level {
	level, _ := r.config.Box.Level()
	return level
}

// beat notes that a call which began then was a heartbeat. r.mu is locked.
func (r *Runner) beat(began time.Time, ttl time.Duration) {
	if ttl > 0 {
		r.ttl = ttl
	}
	r.denied = time.Time{}
	if began.After(r.renewed) {
		r.renewed = began
	}
	r.lapse.Reset(time.Until(r.renewed.Add(r.ttl - margin(r.ttl))))
}

// margin is how long before the end of the ttl the scripts are killed, so that none runs beside the next holder's.
func margin(ttl time.Duration) time.Duration { return min(2*time.Second, ttl/4) }

// lapsed kills what the server may hand to others from now on. Nothing is reported about it.
func (r *Runner) lapsed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A call may have succeeded between the timer and this lock.
	if left := time.Until(r.renewed.Add(r.ttl - margin(r.ttl))); left > 0 {
		r.lapse.Reset(left)
		return
	}
	if len(r.held) > 0 {
		r.log.Warn("no heartbeat was answered in time: all scripts are killed", "ttl", r.ttl, "held", len(r.held))
	}
	for _, t := range r.held {
		t.lose("no heartbeat was answered in time")
	}
}

// overdue says whether the server may have given to others what is held. r.mu is locked.
func (r *Runner) overdue() bool { return time.Since(r.renewed) > r.ttl-margin(r.ttl) }

// tooLate is overdue for what has not locked r.mu.
func (r *Runner) tooLate() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.overdue()
}

// forget ends the epoch: another process has the name, or the server does not know it.
func (r *Runner) forget(epoch int64, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.epoch != epoch {
		return
	}
	r.epoch = 0
	select {
	case r.hurry <- struct{}{}:
	default:
	}
	r.log.Warn("the epoch is over: all scripts are killed", "epoch", epoch, "because", why, "held", len(r.held))
	for _, t := range r.held {
		t.lose(why)
	}
}

// holding is what is held now, and the epoch under which.
func (r *Runner) holding() (epoch int64, holds []Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	holds = []Hold{}
	for _, t := range r.held {
		holds = append(holds, t.hold())
	}
	return r.epoch, holds
}

// drain waits for the scripts that run, and gives back what does not end in time.
func (r *Runner) drain(ctx context.Context) {
	over := make(chan struct{})
	go func() {
		r.tries.Wait()
		close(over)
	}()
	_, holds := r.holding()
	if len(holds) > 0 {
		r.log.Info("waits for the scripts that run", "held", len(holds), "at most", r.config.Drain)
	}
	select {
	case <-over:
		return
	case <-time.After(r.config.Drain):
	}
	r.mu.Lock()
	var youngest time.Time
	for _, t := range r.held {
		if t.since.After(youngest) {
			youngest = t.since
		}
		t.drop("the runner ends")
	}
	r.mu.Unlock()
	<-over
	r.giveBack(ctx, youngest)
}

// giveBack tells the server twice that nothing is held, the second time more than 5 s after it handed out the youngest
// try: it then offers those tries anew, without counting a lapse.
func (r *Runner) giveBack(ctx context.Context, youngest time.Time) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for _, at := range []time.Time{time.Now(), youngest.Add(6 * time.Second)} {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(at)):
		}
		if err := r.renew(ctx); err != nil {
			r.log.Warn("what was given up comes back to the server only at the end of the ttl", "error", err)
			return
		}
	}
	r.log.Info("gave back what did not end in time")
}
