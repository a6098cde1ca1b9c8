package remote

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
)

// NoopURL is the worker URL of a worker that is built in: it does nothing and is done at once. For
// benchmarks, and for trying Postern without a worker.
const NoopURL = "noop:"

// Mux sends calls to "noop:" nowhere, questions about jobs to Jobs, and all others to Next.
type Mux struct {
	Next Worker
	Jobs Jobs // nil: this process knows of none
}

// Jobs says what became of the jobs that were offered to runners. Their dispatch is a part of the engine.
type Jobs interface {
	// Status is that of Worker, by the token or the hash of one try.
	Status(ctx context.Context, byToken, byHash string) outbox.Status
	// StatusBatch is that of Worker.
	StatusBatch(ctx context.Context, hashes []string) []outbox.Status
}

var _ Worker = Mux{}

func isNoop(baseURL string) bool { return strings.HasPrefix(baseURL, NoopURL) }

// isTool is the worker of tool calls, which is a part of the engine: here are only the questions that it does not
// answer.
func isTool(baseURL string) bool { return baseURL == leader.ToolURL }

func isRun(baseURL string) bool { return baseURL == flow.WorkerURL }

// isPeer is the worker of what goes to peers, which is a part of the engine, too. It is asked about nothing: the peer
// knows what it has, and the same call may be made again.
func isPeer(baseURL string) bool { return baseURL == outbox.PeerURL }

// noJobs is the answer of a process that knows of no jobs.
var noJobs = outbox.Status{State: outbox.StatusUnreachable, Message: "this process knows of no jobs"}

// builtIn says whether a worker is a part of Postern.
func builtIn(baseURL string) bool {
	return isNoop(baseURL) || isTool(baseURL) || isRun(baseURL) || isPeer(baseURL)
}

// Dispatch answers done {"noop": true} for "noop:"; see Worker.
func (m Mux) Dispatch(ctx context.Context, c Call) outbox.Answer {
	if isNoop(c.BaseURL) {
		return outbox.Answer{Result: outbox.Result{Done: json.RawMessage(`{"noop":true}`)}, StartedAt: time.Now()}
	}
	if isTool(c.BaseURL) {
		return outbox.Answer{Class: outbox.ClassBlocked, Code: "no_tools",
			Message: "this process calls no tools", StartedAt: time.Now()}
	}
	if isRun(c.BaseURL) {
		const none = "this process offers no jobs"
		return outbox.Answer{Class: outbox.ClassBlocked, Code: "no_jobs", Message: none, StartedAt: time.Now()}
	}
	if isPeer(c.BaseURL) {
		const none = "this process calls no peers"
		return outbox.Answer{Class: outbox.ClassBlocked, Code: "no_peers", Message: none, StartedAt: time.Now()}
	}
	return m.Next.Dispatch(ctx, c)
}

// Status answers unknown for "noop:", which did nothing, and for what goes to peers: sending again does no harm; see
// Worker.
func (m Mux) Status(ctx context.Context, baseURL, typ, byToken, byHash string) outbox.Status {
	if isNoop(baseURL) || isPeer(baseURL) {
		return outbox.Status{State: outbox.StatusUnknown}
	}
	if isTool(baseURL) {
		return outbox.Status{State: outbox.StatusUnsupported}
	}
	switch {
	case isRun(baseURL) && m.Jobs == nil:
		return noJobs
	case isRun(baseURL):
		return m.Jobs.Status(ctx, byToken, byHash)
	}
	return m.Next.Status(ctx, baseURL, typ, byToken, byHash)
}

// Alive says that "noop:" is; see Worker.
func (m Mux) Alive(ctx context.Context, baseURL, typ string, mute bool) error {
	if builtIn(baseURL) {
		return nil
	}
	return m.Next.Alive(ctx, baseURL, typ, mute)
}

// StatusBatch answers unknown as Status does; see Worker.
func (m Mux) StatusBatch(ctx context.Context, baseURL, typ string, hashes []string) []outbox.Status {
	if isNoop(baseURL) || isPeer(baseURL) {
		return all(hashes, outbox.Status{State: outbox.StatusUnknown})
	}
	if isTool(baseURL) {
		return all(hashes, outbox.Status{State: outbox.StatusUnsupported})
	}
	switch {
	case isRun(baseURL) && m.Jobs == nil:
		return all(hashes, noJobs)
	case isRun(baseURL):
		return m.Jobs.StatusBatch(ctx, hashes)
	}
	return m.Next.StatusBatch(ctx, baseURL, typ, hashes)
}

// Hook answers Missing for "noop:", which has no hooks; see Worker.
func (m Mux) Hook(ctx context.Context, c Call, hook outbox.Hook, result,
	errObj json.RawMessage, token string) HookAnswer {
	if builtIn(c.BaseURL) {
		return HookAnswer{Missing: true, StartedAt: time.Now()}
	}
	return m.Next.Hook(ctx, c, hook, result, errObj, token)
}

// MaxRetries says nothing for "noop:"; see Worker.
func (m Mux) MaxRetries(ctx context.Context, baseURL, typ string) (*int, error) {
	if builtIn(baseURL) {
		return nil, nil
	}
	return m.Next.MaxRetries(ctx, baseURL, typ)
}
