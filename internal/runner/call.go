package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/api/client"
	"github.com/postern-dev/postern/internal/backoff"
)

// path puts a name or an id into the path of a call.
func path(pattern, name string) string {
	open, end := strings.IndexByte(pattern, '{'), strings.IndexByte(pattern, '}')
	return pattern[:open] + url.PathEscape(name) + pattern[end+1:]
}

// post makes one call. body is a value, or a json.RawMessage that is sent as it is. fence 0 sends none. out may be nil.
// 204 leaves out as it is. The error is a *client.Problem where the server refuses.
func (r *Runner) post(ctx context.Context, limit time.Duration, path string, fence int64, body, out any) error {
	b, ok := body.(json.RawMessage)
	if !ok {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return err
		}
	}
	return r.call(ctx, limit, http.MethodPost, path, fence, bytes.NewReader(b), out)
}

func (r *Runner) call(
	ctx context.Context, limit time.Duration, method, path string, fence int64, body io.Reader, out any,
) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	header := http.Header{}
	if fence != 0 {
		header.Set(HeaderFence, strconv.FormatInt(fence, 10))
	}
	res, err := r.config.API.Do(ctx, method, path, header, body)
	if err != nil {
		return err
	}
	if err := client.Refused(res); err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNoContent || out == nil {
		_, err := io.Copy(io.Discard, res.Body)
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s answered %s: is it Postern that listens there?", method, path, res.Status)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 128<<20)).Decode(out); err != nil {
		return fmt.Errorf("the answer to %s %s cannot be read: %w", method, path, err)
	}
	return nil
}

// problem is the refusal in an error, or nil.
func problem(err error) *client.Problem {
	var p *client.Problem
	errors.As(err, &p)
	return p
}

// code is the code of a refusal, or "".
func code(err error) string {
	if p := problem(err); p != nil {
		return p.Code
	}
	return ""
}

// later says whether a refusal may be none later: the server says so, or an operator can mend it (a key, a role).
func later(p *client.Problem) bool {
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusUnauthorized, http.StatusForbidden:
		return true
	}
	return p.Retryable || p.Status >= 500
}

// repeat makes a call until it succeeds, ctx ends, or final says of its error that it will not succeed.
func (r *Runner) repeat(ctx context.Context, what string, final func(error) bool, call func() error) error {
	for n := 1; ; n++ {
		err := call()
		if err == nil || final(err) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		rest := backoff.FullJitter(backoff.Doubling(n, 200*time.Millisecond, 5*time.Second), rand.Float64())
		rest += 100 * time.Millisecond
		r.log.Warn("call again", "call", what, "in", rest.Round(time.Millisecond), "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rest):
		}
	}
}
