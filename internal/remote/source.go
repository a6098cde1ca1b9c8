package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/leader"
)

// For one page of a source.
const (
	pageTimeout = 20 * time.Second
	maxPage     = 4 << 20 // bytes, unless more are asked for
)

// Fetch asks a source for a page: its body, or why there is none. Nothing is sent twice that changes anything:
// a source is only read.
func (c *Client) Fetch(ctx context.Context, ask leader.Ask) ([]byte, *leader.Trouble) {
	most := max(ask.Most, maxPage)
	p := c.exchange(ctx, request{method: ask.Method, url: ask.URL, body: ask.Body, header: http.Header{}, timeout: pageTimeout, most: most})
	switch {
	case p.refused || p.code == "bad_worker_url":
		return nil, &leader.Trouble{Text: p.message}
	case p.status == 0:
		return nil, leader.Refused(0, p.message)
	case !ok2xx(p.status):
		return nil, leader.Refused(p.status, http.StatusText(p.status))
	case p.unread == "answer_too_large":
		return nil, &leader.Trouble{Large: true, Text: fmt.Sprintf("the answer is larger than %d MiB", most>>20)}
	case p.body == nil:
		return nil, leader.Refused(0, "the answer broke off: "+p.unread)
	}
	return p.body, nil
}

// Dial connects to a database of a source, where workers may live. A refused address is a *leader.Trouble.
func (c *Client) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.transport.DialContext(ctx, network, address)
	if err != nil && isRefusal(err) {
		_, text := failure(err)
		return nil, &leader.Trouble{Text: strings.Replace(text, "the worker's", "the database's", 1)}
	}
	return conn, err
}

// Input fetches what a tool is to be given for an event (S1.4).
func (c *Client) Input(ctx context.Context, url string) leader.Reply {
	p := c.exchange(ctx, request{method: http.MethodGet, url: url, header: http.Header{}, timeout: pageTimeout})
	r := leader.Reply{Status: p.status, Code: p.code, Message: p.message, After: retryAfter(p.header, c.now())}
	if p.unread != "" {
		r.Code = p.unread
	}
	if json.Valid(p.body) {
		r.Body = p.body
	}
	return r
}
