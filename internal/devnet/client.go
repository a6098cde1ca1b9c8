package devnet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client calls a ledger. An error is a *Refusal where the ledger answered with one, else an *Unanswered.
type Client struct {
	base string
	http *http.Client
}

// NewClient makes a client of the ledger at base. timeout is that of one call.
func NewClient(base string, timeout time.Duration) *Client {
	return &Client{base: strings.TrimRight(base, "/"), http: &http.Client{Timeout: timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Second}}}
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Unanswered is a call to which there was no answer that could be understood. Unless Unsent, it may have
// been done.
type Unanswered struct {
	Unsent bool
	Err    error
}

// Error returns the sentence.
func (u *Unanswered) Error() string { return "the ledger did not answer: " + u.Err.Error() }

// Unwrap returns the cause.
func (u *Unanswered) Unwrap() error { return u.Err }

// Submit sends a signed transaction. An answer for another hash is no answer.
func (c *Client) Submit(ctx context.Context, s Signed) (st Status, err error) {
	if err = c.call(ctx, http.MethodPost, "/transactions", s, &st); err == nil && st.Hash != s.Hash() {
		err = &Unanswered{Err: fmt.Errorf("it was sent %s and answered for %q", s.Hash(), st.Hash)}
	}
	return st, err
}

// Status asks after a transaction; one that the ledger never saw is Unknown.
func (c *Client) Status(ctx context.Context, hash string) (Status, error) {
	all, err := c.Statuses(ctx, []string{hash})
	if err != nil {
		return Status{}, err
	}
	return all[0], nil
}

// Statuses asks after many transactions; the answers stand in the order of hashes.
func (c *Client) Statuses(ctx context.Context, hashes []string) ([]Status, error) {
	all := make([]Status, 0, len(hashes))
	for len(all) < len(hashes) {
		part := hashes[len(all):min(len(all)+1000, len(hashes))]
		var answer struct {
			Items []Status `json:"items"`
		}
		if err := c.call(ctx, http.MethodPost, "/transactions:status", map[string]any{"hashes": part}, &answer); err != nil {
			return nil, err
		}
		for i, h := range part {
			if len(answer.Items) != len(part) || answer.Items[i].Hash != h || !answer.Items[i].State.known() {
				return nil, &Unanswered{Err: fmt.Errorf("it was asked after %d hashes and answered something else", len(part))}
			}
		}
		all = append(all, answer.Items...)
	}
	return all, nil
}

// known says whether s is one of the states.
func (s State) known() bool {
	switch s {
	case Pending, Included, Failed, Dropped, Unknown:
		return true
	}
	return false
}

// Account asks after an account.
func (c *Client) Account(ctx context.Context, a Address) (out Account, err error) {
	if err = c.call(ctx, http.MethodGet, "/accounts/"+string(a), nil, &out); err == nil && out.Address != a {
		err = &Unanswered{Err: fmt.Errorf("it was asked after account %s and answered for %q", a, out.Address)}
	}
	return out, err
}

// App asks after an app.
func (c *Client) App(ctx context.Context, name string) (out App, err error) {
	return out, c.call(ctx, http.MethodGet, "/apps/"+url.PathEscape(name), nil, &out)
}

// Faucet grants money to an account.
func (c *Client) Faucet(ctx context.Context, a Address, amount uint64) (out Account, err error) {
	if err = c.call(ctx, http.MethodPost, "/faucet", map[string]any{"address": a, "amount": fmt.Sprint(amount)}, &out); err == nil && out.Address != a {
		err = &Unanswered{Err: fmt.Errorf("it was asked to grant to %s and answered for %q", a, out.Address)}
	}
	return out, err
}

// Health asks which ledger answers. Without the id of a chain it is no answer.
func (c *Client) Health(ctx context.Context) (out Health, err error) {
	if err = c.call(ctx, http.MethodGet, "/health", nil, &out); err == nil && out.Chain == "" {
		err = &Unanswered{Err: errors.New("it has no chain")}
	}
	return out, err
}

// Block asks for a block, the last one with height nil.
func (c *Client) Block(ctx context.Context, height *uint64) (out Block, err error) {
	which := "head"
	if height != nil {
		which = fmt.Sprint(*height)
	}
	return out, c.call(ctx, http.MethodGet, "/blocks/"+which, nil, &out)
}

// MakeBlock has a block made now.
func (c *Client) MakeBlock(ctx context.Context) (out Block, err error) {
	return out, c.call(ctx, http.MethodPost, "/blocks", nil, &out)
}

// Reorg takes the last blocks out. Transactions that lose names do not return to the pool.
func (c *Client) Reorg(ctx context.Context, depth int, lose ...string) (out Reorged, err error) {
	return out, c.call(ctx, http.MethodPost, "/reorg", map[string]any{"depth": depth, "lose": lose}, &out)
}

// SetFaults says what goes wrong from now on.
func (c *Client) SetFaults(ctx context.Context, f Faults) error {
	return c.call(ctx, http.MethodPut, "/faults", f, nil)
}

// Events reads a page of the event log, from the beginning with cursor "".
func (c *Client) Events(ctx context.Context, cursor string, limit int) (out Events, err error) {
	q := url.Values{"cursor": {cursor}, "limit": {fmt.Sprint(limit)}}
	return out, c.call(ctx, http.MethodGet, "/events?"+q.Encode(), nil, &out)
}

// call does one call.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		var op *net.OpError
		return &Unanswered{Unsent: errors.As(err, &op) && op.Op == "dial", Err: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return &Unanswered{Err: err}
	}
	if res.StatusCode >= 400 {
		var problem struct {
			Error Refusal `json:"error"`
		}
		if json.Unmarshal(text, &problem) != nil || problem.Error.Code == "" {
			return &Unanswered{Err: fmt.Errorf("%s %s: %s", method, path, res.Status)}
		}
		problem.Error.Status = res.StatusCode
		return &problem.Error
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return &Unanswered{Err: fmt.Errorf("%s %s: %w", method, path, err)}
	}
	return nil
}
