package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/sandbox"
)

// try is one job under one fence, from its claim until the server knows its end.
type try struct {
	runner *Runner
	job    Job
	since  time.Time
	log    *slog.Logger
	before *try // the same try under an earlier fence: it must be gone first
	lines  *lines
	gone   chan struct{} // nothing of it is left

	ctx     context.Context // ends when it is lost
	lost    context.CancelFunc
	mu      sync.Mutex
	why     string // it was lost
	stopped bool
	ended   bool // the script has, or it could not be started
	process *sandbox.Process
}

func newTry(r *Runner, j Job, before *try) *try {
	t := &try{
		runner: r,
		job:    j,
		since:  time.Now(),
		log:    r.log.With("try", j.Try, "fence", j.Fence, "job", j.Job, "attempt", j.Attempt),
		before: before,
		gone:   make(chan struct{}),
	}
	t.ctx, t.lost = context.WithCancel(context.Background())
	t.lines = newLines(t)
	return t
}

func (t *try) hold() Hold { return Hold{t.job.Try, t.job.Fence} }

// lose kills the script; nothing is told about it any more. It does not wait. Where the script has ended already, its
// end is told as before: the server takes it if this is still the holder, and else keeps it as late.
func (t *try) lose(why string) {
	t.mu.Lock()
	ended := t.ended
	t.mu.Unlock()
	if !ended {
		t.drop(why)
	}
}

// drop loses the try in any case.
func (t *try) drop(why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why == "" {
		t.why = why
		t.log.Warn("lost", "because", why)
	}
	t.lost()
	if t.process != nil {
		t.process.Kill()
	}
}

// whyLost says why the try was lost; "": it was not.
func (t *try) whyLost() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.why
}

// stop asks the script to end. Its end is told as any other.
func (t *try) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stopped {
		t.stopped = true
		t.log.Info("is to stop")
	}
	if t.process != nil {
		t.process.Stop()
	}
}

// run executes the job and tells its end.
func (t *try) run() {
	r := t.runner
	defer close(t.gone)
	defer r.release(t)
	defer t.lost()
	if t.before != nil {
		<-t.before.gone
		t.before = nil
	}
	select {
	case <-t.ctx.Done():
		return
	case slot := <-r.slots:
		defer func() { r.slots <- slot }()
		o := t.execute(slot)
		t.mu.Lock()
		t.ended = true
		t.mu.Unlock()
		t.log.Info("ended", "code", o.Code, "wall", o.Usage.Wall, "cpu", o.Usage.CPU)
		t.lines.finish()
		t.tell(o)
	}
}

// execute runs the script to its end.
func (t *try) execute(slot int) sandbox.Outcome {
	j := t.job
	if err := t.fetchInputs(); err != nil {
		return t.outcome(err)
	}
	t.log.Info("starts", "script_type", j.ScriptType, "slot", slot, "timeout", j.Timeout)
	p, err := t.runner.config.Box.Start(j.script(slot), t.lines.add)
	if err != nil {
		return t.outcome(err)
	}
	t.mu.Lock()
	t.process = p
	if t.why != "" {
		p.Kill()
	} else if t.stopped {
		p.Stop()
	}
	t.mu.Unlock()
	return p.Wait()
}

func (t *try) outcome(err error) sandbox.Outcome { return unstarted(err, t.runner.level()) }

// unstarted is the outcome of a script that could not be started.
func unstarted(err error, level sandbox.Level) sandbox.Outcome {
	o := sandbox.Outcome{Code: sandbox.CodeSandbox, Error: err.Error(), Level: level}
	var f *sandbox.Failure
	if errors.As(err, &f) {
		o.Code = f.Code
	}
	return o
}

// fetchInputs reads the inputs where they were too large for the claim.
func (t *try) fetchInputs() error {
	if !t.job.Omitted {
		return nil
	}
	r := t.runner
	err := r.repeat(t.ctx, "inputs", refused, func() error {
		return r.call(t.ctx, time.Minute, http.MethodGet, path(PathInputs, t.job.Job), 0, nil, &t.job.Inputs)
	})
	if err != nil {
		return fmt.Errorf("the inputs cannot be read: %w", err)
	}
	return nil
}

// tell tells the end until the server has recorded it, or says that it belongs to another holder. The bytes are made
// once, so that the server knows a repetition.
func (t *try) tell(o sandbox.Outcome) {
	to, body := PathFinish, t.finishBody(o)
	if o.Code != "" {
		to, body = PathFail, t.failBody(o)
	}
	err := t.report(to, body)
	if code(err) != "" && !lostBy(err) && t.ctx.Err() == nil {
		// The server will never take this: then a failure without anything of the script's own is the end. A try whose
		// end is not told would be executed again and again.
		t.log.Warn("what the script left is refused", "error", err)
		plain := sandbox.Outcome{Level: o.Level, Code: o.Code}
		plain.Error = "the server refused what the script left: " + err.Error()
		if plain.Code == "" {
			plain.Code, plain.Error = sandbox.CodeBadResult, "the server refused the result: "+err.Error()
		}
		err = t.report(PathFail, t.failBody(plain))
	}
	switch {
	case err == nil:
	case lostBy(err):
		t.log.Warn("the end came too late: another holder has the try", "error", err)
	case t.ctx.Err() == nil:
		t.log.Error("the server refuses the end of this try", "error", err)
	}
}

func (t *try) report(to string, body json.RawMessage) error {
	r := t.runner
	return r.repeat(t.ctx, to, refused, func() error {
		return r.post(t.ctx, 15*time.Second, path(to, t.job.Try), t.job.Fence, body, &EndAnswer{})
	})
}

// refused says whether the server will not take a call, however often it is repeated.
func refused(err error) bool {
	p := problem(err)
	return p != nil && !later(p)
}

// lostBy says whether a refusal means that the try has another holder, or that the server does not know it.
func lostBy(err error) bool {
	c := code(err)
	return c == CodeStaleFence || c == CodeNotFound
}

func (t *try) finishBody(o sandbox.Outcome) json.RawMessage {
	return encode(FinishRequest{Result: o.Result, Isolation: string(o.Level), Usage: usage(o.Usage)})
}

func (t *try) failBody(o sandbox.Outcome) json.RawMessage {
	return encode(FailRequest{
		Code:      o.Code,
		Error:     o.Error,
		ExitCode:  o.Exit,
		Partial:   o.Partial,
		Final:     o.Code == sandbox.CodeBadEnvironment,
		Isolation: string(o.Level),
		Usage:     usage(o.Usage),
	})
}

func usage(u sandbox.Usage) Usage {
	return Usage{
		WallMS:      u.Wall.Milliseconds(),
		CPUMS:       u.CPU.Milliseconds(),
		MaxRSSKiB:   u.MaxRSS >> 10,
		OutputBytes: u.Output,
	}
}

// encode cannot fail: the wire types hold nothing that JSON cannot write.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return b.Bytes()
}
