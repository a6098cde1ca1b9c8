package verifyworker

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/postern-dev/postern/internal/outbox"
)

func (v *verifier) health(ctx context.Context) finding {
	status, _, err := v.do(ctx, http.MethodGet, "/health", nil)
	switch {
	case err != nil:
		return failed("GET /health is not answered: %s", err)
	case missing(status):
		return notOffered("no /health: it can only be watched from outside")
	case status != http.StatusOK:
		return failed("GET /health answers HTTP %d, want 200", status)
	}
	return ok("GET /health answers 200")
}

func missing(status int) bool {
	return status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented
}

func (v *verifier) hooks(ctx context.Context) finding {
	var absent []string
	for _, hook := range []outbox.Hook{outbox.OnSuccess, outbox.OnFailure} {
		c := v.call()
		r, err := v.accept(ctx, c)
		if err != nil {
			return failed("before the hook: %s", err)
		}
		c.Hash, c.State = r.Hash, outbox.DONE
		result, _ := json.Marshal(map[string]any{"hash": r.Hash, "done": r.Done})
		var errObj json.RawMessage
		if hook == outbox.OnFailure {
			c.State, errObj = outbox.FAILED,
				json.RawMessage(`{"class":"retry","code":"20205","message":"not included in time"}`)
		}
		token := c.ID.HookToken(c.PostedAt, hook)
		for n := range 2 {
			a := v.client.Hook(ctx, c, hook, result, errObj, token)
			if a.Missing && n == 0 {
				absent = append(absent, string(hook))
				break
			}
			if !a.OK {
				return failed("%s, time %d with the same token: %s", hook, n+1, a.Message)
			}
		}
	}
	if len(absent) == 2 {
		return notOffered("no hooks: the worker is told of no end")
	}
	if len(absent) == 1 {
		return ok("taken twice; it has no %s", absent[0])
	}
	return ok("both are taken, twice with one token")
}

func (v *verifier) maxRetries(ctx context.Context) finding {
	n, err := v.client.MaxRetries(ctx, v.o.URL, v.o.Type)
	switch {
	case err != nil:
		return failed("%s", strings.TrimPrefix(err.Error(), "the worker cannot be asked for max_retries: "))
	case n == nil:
		return notOffered("no /max-retries: the dispatcher's setting rules")
	}
	return ok("%d", *n)
}
