package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"syscall"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/twin"
)

// request is one HTTP call to a worker, before the client has dressed it.
type request struct {
	method  string
	url     string
	below   string // what of the URL is below the worker's, such as dispatch/PAY: a part of the signature; "" never signs
	body    []byte
	header  http.Header // may be nil
	timeout time.Duration
	most    int             // bytes of an answer that are read; 0: maxAnswer
	read    func(io.Reader) // reads the body of a 2xx instead, of any size
}

// reply is what came of a request: an answer (status is set) or a failure (code is set).
type reply struct {
	status  int
	header  http.Header
	body    []byte // nil when it could not be read whole
	unread  string // why body is nil: a code
	sent    bool   // some byte of the request may have reached the worker
	signed  bool   // it carried a signature by the dispatcher's secret
	refused bool   // the guard refused the address: sent is false
	never   bool   // it is too large for the line that it was to go over: sent is false
	code    string // failure: "connection_refused", "timeout", ...
	message string
}

// exchange sends r once. A second time only over a kept connection that died before one byte was
// written: then the first time did not happen.
func (c *Client) exchange(ctx context.Context, r request) (p reply) {
	if c.observe != nil {
		seen := ctx
		defer func() {
			code := p.code
			if p.unread != "" {
				code = p.unread
			}
			c.observe(seen, Exchange{Method: r.method, URL: r.url, Status: p.status, Header: p.header, Body: p.body, Sent: p.sent, Code: code, Message: p.message})
		}()
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	r.header = r.signed(ctx, c.now())
	for {
		p, stale := c.once(ctx, r)
		if !stale {
			p.signed = r.header.Get("Webhook-Signature") != ""
			return p
		}
	}
}

// once sends r over one connection. stale: the connection was a kept one, and nothing was written.
func (c *Client) once(ctx context.Context, r request) (p reply, stale bool) {
	var conn *countingConn
	var before int64
	var got, reused bool
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		got, reused, conn = true, info.Reused, counting(info.Conn)
		if conn != nil {
			before = conn.written.Load() // earlier requests, or the TLS handshake
		}
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), r.method, r.url, nil)
	if err != nil {
		return reply{code: "bad_worker_url", message: "the worker URL cannot be parsed: want http(s)://host[:port][/path]"}, false
	}
	call := c.transport.RoundTrip
	switch web := req.URL.Scheme == "http" || req.URL.Scheme == "https"; {
	case outbox.IsMycelium(r.url):
		call = overMycelium{c.mycelium, r.most}.RoundTrip
	case !web || req.URL.Host == "":
		return reply{code: "bad_worker_url", message: "the worker URL has scheme " + quote(req.URL.Scheme) + " and host " + quote(req.URL.Host) + ": want http(s)://host[:port][/path]"}, false
	}
	c.dress(req, r)

	if twin.Planted("redirect_followed") {
		call = (&http.Client{Transport: c.transport}).Do
	}
	resp, err := call(req)
	if err != nil {
		var off *undelivered
		if errors.As(err, &off) {
			return reply{code: off.code, message: off.message, sent: off.sent, never: off.never}, false
		}
		// Once our time is up, the transport returns while its writer may still be at work: a request that has a
		// connection then may have been sent.
		p.sent = got && (ctx.Err() != nil || conn == nil || conn.written.Load() > before)
		if got && !p.sent && reused {
			return reply{}, true
		}
		p.refused = !p.sent && isRefusal(err)
		p.code, p.message = failure(err)
		return p, false
	}
	defer resp.Body.Close()
	p.sent, p.status, p.header = true, resp.StatusCode, resp.Header
	if p.status == 0 { // an answer all the same
		p.code, p.message = "answer_invalid", "the answer has the HTTP status "+quote(resp.Status)+", which is none"
		return p, false
	}
	if r.read != nil && ok2xx(p.status) {
		r.read(resp.Body)
		return p, false
	}
	p.body, p.unread = readAnswer(resp, r.most)
	return p, false
}

// dress puts headers and body on req.
func (c *Client) dress(req *http.Request, r request) {
	for k, v := range r.header {
		req.Header[k] = v
	}
	req.Header.Set("User-Agent", c.userAgent)
	req.Header.Set("Accept", "application/json")
	if u := req.URL.User; u != nil { // http.Client would do it; we stand below it
		pass, _ := u.Password()
		req.SetBasicAuth(u.Username(), pass)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
		req.ContentLength = int64(len(r.body))
		req.Body = io.NopCloser(bytes.NewReader(r.body))
		// Without GetBody, net/http never sends a request twice by itself, as it else does with one
		// that carries an Idempotency-Key. Whether to send again is decided above us (S2.10).
		req.GetBody = nil
	}
}

// readAnswer reads up to so many bytes, else says why not.
func readAnswer(resp *http.Response, most int) (body []byte, unread string) {
	if most == 0 {
		most = maxAnswer
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, "answer_invalid"
	}
	if resp.ContentLength > int64(most) {
		return nil, "answer_too_large"
	}
	size := int64(512)
	if resp.ContentLength > 0 {
		size = resp.ContentLength
	}
	buf := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	n, err := buf.ReadFrom(io.LimitReader(resp.Body, int64(most)+1))
	switch {
	case n > int64(most):
		return nil, "answer_too_large"
	case err != nil:
		code, _ := failure(err)
		return nil, code
	}
	return buf.Bytes(), ""
}

// counting finds our connection below TLS, nil if it is not there.
func counting(conn net.Conn) *countingConn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	cc, _ := conn.(*countingConn)
	return cc
}

// failure names what kept a call from being answered: a stable code and a sentence.
func failure(err error) (code, message string) {
	var dns *net.DNSError
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var timeout interface{ Timeout() bool }
	message = clipMessage(err.Error())
	switch {
	case isRefusal(err):
		return "address_refused", "the worker's address is not public (" + message + "): allow it with POSTERN_WORKER_ALLOW_CIDR or --worker-allow-cidr"
	case errors.Is(err, context.Canceled):
		return "cancelled", "the call was called off before the worker answered"
	case errors.As(err, &cert), errors.As(err, &record), errors.As(err, &alert):
		return "tls", "TLS with the worker failed: " + message
	case errors.As(err, &dns):
		return "dns", "the worker's name cannot be resolved: " + message
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection_refused", "nothing listens at the worker's address: " + message
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout", "the worker did not answer in time"
	case errors.As(err, &op) && op.Op == "dial":
		return "connection_failed", "the worker cannot be connected to: " + message
	}
	return "connection_lost", "the connection to the worker broke: " + message
}
