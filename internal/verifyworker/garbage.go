package verifyworker

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/strict"
)

// do sends what Postern never would, and returns the HTTP status and up to 64 KiB of the answer.
func (v *verifier) do(ctx context.Context, method, path string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, v.o.URL+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := v.plain.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, _ = io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, answer, nil
}

// refused says whether an answer to garbage is a refusal: 4xx, or 200 with an error as to any dispatch.
func refused(status int, answer []byte) bool {
	var raw struct {
		Error json.RawMessage `json:"error"`
	}
	if status == http.StatusOK {
		return strict.Read(answer, &raw) == nil && set(raw.Error)
	}
	return status >= 400 && status < 500
}

func (v *verifier) garbage(ctx context.Context) finding {
	for _, g := range []struct{ what, path, body string }{
		{"a call that does not exist", "/no-such-call/" + v.o.Type, "{}"},
		{"a dispatch without a body", "/dispatch/" + v.o.Type, ""},
		{"a dispatch that is no JSON", "/dispatch/" + v.o.Type, "\x00\xff{{{ not json"},
		{"a dispatch that is cut off", "/dispatch/" + v.o.Type, `{"txData":{"uid":"verify`},
		{"a dispatch that is a list", "/dispatch/" + v.o.Type, `[1,2,3]`},
		{"a dispatch that names nothing", "/dispatch/" + v.o.Type, `{}`},
	} {
		status, answer, err := v.do(ctx, http.MethodPost, g.path, []byte(g.body))
		if err != nil {
			return failed("%s is not answered: %s", g.what, err)
		}
		if !refused(status, answer) {
			return failed("%s is answered with HTTP %d, want 4xx or an error", g.what, status)
		}
	}
	return v.alive(ctx, "six kinds of garbage are refused")
}

func (v *verifier) oversized(ctx context.Context) finding {
	const size = 16 << 20
	body := append([]byte(`{"txData":`), blanks(size)...)
	switch status, answer, err := v.do(ctx, http.MethodPost, "/dispatch/"+v.o.Type, append(body, '}')); {
	case err != nil: // it hung up before it had read all of it
		return v.alive(ctx, "16 MiB are refused: the worker hangs up")
	case !refused(status, answer):
		return failed("a body of 16 MiB is answered with HTTP %d, want 413 or another 4xx", status)
	default:
		return v.alive(ctx, "16 MiB are refused")
	}
}

// alive wants the worker to go on working.
func (v *verifier) alive(ctx context.Context, found string) finding {
	if _, err := v.accept(ctx, v.call()); err != nil {
		return failed("afterwards it accepts nothing any more: %s", err)
	}
	return ok("%s", found)
}

// errors sends data that no handler can want, and looks at the error.
func (v *verifier) errors(ctx context.Context) finding {
	c := v.call()
	c.Data = []byte(`null`)
	a, x := v.send(ctx, c)
	if a.Class == "" {
		c = v.call()
		c.Data = []byte(`["postern verify-worker: this is not what you expect"]`)
		a, x = v.send(ctx, c)
	}
	switch {
	case a.Class == "":
		return notRun("it takes any data: no error was to be had from it")
	case x.Status == 0:
		return failed("data that it cannot want (%s): %s", c.Data, told(a, x))
	case a.Class == outbox.ClassAmbiguous, a.Class == outbox.ClassBlocked:
		return failed("data that it cannot want (%s): %s; want class rejected", c.Data, told(a, x))
	case a.Class == outbox.ClassRetry:
		return failed("data that it can never want (%s): %s; want class rejected, or code 500", c.Data, told(a, x))
	}
	return ok("data that it cannot want is rejected, with code %s", a.Code)
}
