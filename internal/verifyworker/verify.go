package verifyworker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
)

// Options say what to check.
type Options struct {
	URL     string          // of the worker
	Type    string          // of the transactions that it is sent
	Data    json.RawMessage // theirs; nil: {}
	Account string          // of the sender, "" for none
	Secret  []byte          // of the dispatcher: calls are signed with it; nil: they are not
	Timeout time.Duration   // of a call; 0: 30 s
	Wait    time.Duration   // for inclusion, and for a worker that is blocked; 0: 10 s
}

// verifier is one run.
type verifier struct {
	o      Options
	client *remote.Client
	plain  *http.Client // for what Postern never sends
	run    int64        // number of the first queue of this run

	mu      sync.Mutex
	queues  int64
	odd     []string // faults in the shape of answers, each once
	answers int
	status  bool // the worker has /status
}

// Run checks the worker. An error means that there is no report: the options are no good (Invalid), or no process
// listens at the URL (Retry, worker_unreachable).
func Run(ctx context.Context, o Options) (Report, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return Report{}, fault.New(fault.Invalid, "bad_worker_url", "the worker URL is %q: want http(s)://host[:port][/path]", fault.Clip(o.URL))
	}
	if o.Type == "" {
		return Report{}, fault.New(fault.Invalid, "bad_type", "the type is empty: want one that the worker takes")
	}
	if len(o.Data) == 0 {
		o.Data = json.RawMessage(`{}`)
	}
	if !json.Valid(o.Data) {
		return Report{}, fault.New(fault.Invalid, "bad_data", "the data is no JSON: want what the worker takes as txData.data")
	}
	o.URL = strings.TrimRight(o.URL, "/")
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Wait <= 0 {
		o.Wait = 10 * time.Second
	}
	ctx = remote.Signed(ctx, o.Secret)
	v := &verifier{o: o, run: rand.Int64N(1 << 43), status: true, plain: &http.Client{
		Timeout:       o.Timeout,
		Transport:     &http.Transport{Proxy: nil},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	// The user who runs this names the address: the client need not be kept from any.
	v.client = remote.New(remote.Config{UserAgent: "postern-verify-worker", Observe: v.observe,
		AllowCIDR: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}})
	defer v.client.Close()
	defer v.plain.CloseIdleConnections()
	if err := v.reach(ctx, u.Redacted()); err != nil {
		return Report{}, err
	}
	r := Report{URL: u.Redacted(), Type: o.Type, OK: true}
	accepted := true
	for _, c := range checks {
		if c.name == "signature" && len(o.Secret) == 0 {
			continue
		}
		f := notRun("no dispatch was accepted")
		if accepted || !c.needs {
			f = c.run(v, ctx)
		}
		if ctx.Err() != nil {
			return Report{}, ctx.Err()
		}
		done := Check{Name: c.name, Paragraph: c.paragraph, State: f.state, Found: f.found}
		if f.state == Failed {
			done.Cost = c.cost
			r.OK = false
			r.Failed++
			accepted = accepted && c.name != "dispatch"
		}
		r.Checks = append(r.Checks, done)
	}
	return r, nil
}

// reach finds out whether anybody listens.
func (v *verifier) reach(ctx context.Context, name string) error {
	var x remote.Exchange
	v.client.Status(watch(ctx, &x), v.o.URL, v.o.Type, "", "verify-nobody")
	if x.Status == 0 && !x.Sent {
		return fault.New(fault.Retry, "worker_unreachable", "%s cannot be called: %s", name, x.Message)
	}
	return ctx.Err()
}

// watchKey is the key of what watch puts into a context.
type watchKey struct{}

// watch makes a context whose call is written to x.
func watch(ctx context.Context, x *remote.Exchange) context.Context {
	return context.WithValue(ctx, watchKey{}, x)
}

func (v *verifier) observe(ctx context.Context, x remote.Exchange) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if into, ok := ctx.Value(watchKey{}).(*remote.Exchange); ok {
		*into = x
	}
	v.inspect(x)
}

// queue returns the number of a queue that nothing was sent in.
func (v *verifier) queue() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queues++
	return v.run + v.queues
}

// call makes a first dispatch, in a queue of its own.
func (v *verifier) call() remote.Call { return v.callIn(v.queue(), 1) }

func (v *verifier) callIn(queue, seq int64) remote.Call {
	now := time.Now()
	return remote.Call{
		BaseURL: v.o.URL, Type: v.o.Type, ID: outbox.ID{Queue: queue, Seq: seq, Day: outbox.DayOf(now), Salt: outbox.SaltOf(now, "")},
		Queue: fmt.Sprintf("verify-%x", queue), Data: v.o.Data, State: outbox.DISPATCHING, PostedAt: now, Account: v.o.Account,
		SenderState: "BLOCKED", Attempt: 1, Fence: 1, Line: outbox.Line{Queue: queue}, Position: seq,
		Timeout: v.o.Timeout,
	}
}

// send dispatches once.
func (v *verifier) send(ctx context.Context, c remote.Call) (a outbox.Answer, x remote.Exchange) {
	a = v.client.Dispatch(watch(ctx, &x), c)
	return a, x
}

// accept dispatches and wants it accepted or done; a worker that says that it is blocked is asked again for
// a while, as Postern would.
func (v *verifier) accept(ctx context.Context, c remote.Call) (outbox.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, v.o.Wait+v.o.Timeout)
	defer cancel()
	until := time.Now().Add(v.o.Wait)
	for {
		a, x := v.send(ctx, c)
		if a.Class == "" {
			return a.Result, nil
		}
		if a.Class != outbox.ClassBlocked || x.Status == 0 || time.Now().After(until) || !pause(ctx) {
			return a.Result, errors.New(told(a, x))
		}
	}
}

// told says how a dispatch was answered, as one sentence.
func told(a outbox.Answer, x remote.Exchange) string {
	switch {
	case a.Class == "" && a.Result.Hash != "":
		return "it was accepted with hash " + a.Result.Hash
	case a.Class == "":
		return "it was done"
	case x.Status == 0:
		return fmt.Sprintf("%s, which counts as %s", a.Message, a.Class)
	}
	return fmt.Sprintf("HTTP %d counts as %s (code %s): %s", x.Status, a.Class, a.Code, a.Message)
}

// pause waits a moment before the same is asked again; false: ctx ended.
func pause(ctx context.Context) bool {
	t := time.NewTimer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
