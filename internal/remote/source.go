package remote

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/strict"
)

// pageTimeout is for one page: well within the lease of who asks for it.
const pageTimeout = 40 * time.Second

// Fetch asks a source for a page, and has its body read; or says why there is none. Nothing is sent twice that changes
// anything: a source is only read.
func (c *Client) Fetch(ctx context.Context, ask leader.Ask, read func(io.Reader)) *leader.Trouble {
	p := c.exchange(ctx, request{method: ask.Method, url: ask.URL, body: ask.Body,
		header: http.Header{}, timeout: pageTimeout,
		read: func(body io.Reader) { read(page{body}) }})
	switch {
	case p.code == "bad_worker_url":
		return &leader.Trouble{Text: p.message}
	case p.status == 0:
		trouble := leader.Unanswered(strings.ReplaceAll(p.message, "the worker", "the source"))
		trouble.Refused = p.refused
		return trouble
	case !ok2xx(p.status):
		return leader.Refused(p.status, http.StatusText(p.status), p.body)
	}
	return nil
}

// page is the body of one. If it breaks off while it is read, the error is a *leader.Trouble.
type page struct{ body io.Reader }

// Read reads it.
func (p page) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	if err != nil && err != io.EOF {
		code, _ := failure(err)
		err = &leader.Trouble{Retryable: true, Large: code == "timeout", Text: "the answer broke off: " + code}
	}
	return n, err
}

// Dial connects to a database of a source, where workers may live. A refused address is a *leader.Trouble.
func (c *Client) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.transport.DialContext(ctx, network, address)
	if err != nil && isRefusal(err) {
		_, text := failure(err)
		trouble := leader.Unanswered(strings.Replace(text, "the worker's", "the database's", 1))
		trouble.Refused = true
		return nil, trouble
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
	switch {
	case json.Valid(p.body):
		r.Body = p.body
	case strict.HTML(p.body):
		r.Code = leader.CodePage
	}
	return r
}
