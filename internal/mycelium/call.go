package mycelium

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Topic is that of messages which are requests.
const Topic = "postern"

// Call is a request, as the payload of a message has it in JSON.
type Call struct {
	Method  string      `json:"method"`
	Path    string      `json:"path"` // with its query
	Headers http.Header `json:"headers"`
	Body    []byte      `json:"body"` // base64
}

// Answer is what comes back, as the payload of a reply has it in JSON.
type Answer struct {
	Status  int         `json:"status"`
	Headers http.Header `json:"headers"`
	Body    []byte      `json:"body"` // base64
}

// Wire is how many bytes of a node carry so many of a header and a body: both layers are base64.
func Wire(header, body int) int64 {
	const around = 4 << 10 // keys, addresses, names of fields
	inner := 2*header + base64.StdEncoding.EncodedLen(body) + around
	return int64(base64.StdEncoding.EncodedLen(inner) + around)
}

// Written is a request as the payload of a message; path is where it goes at the other end, without the query.
func Written(r *http.Request, path string) ([]byte, error) {
	c := Call{Method: r.Method, Path: path, Headers: r.Header}
	if c.Path == "" {
		c.Path = "/"
	}
	if r.URL.RawQuery != "" {
		c.Path += "?" + r.URL.RawQuery
	}
	if r.Body != nil {
		var err error
		if c.Body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	return json.Marshal(c)
}

// personal are headers by which somebody is known, or that belong to a connection: a request from the network has none.
var personal = []string{"Authorization", "Cookie", "Origin", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host",
	"X-Forwarded-Proto", "X-Real-Ip", "Host", "Connection", "Upgrade", "Transfer-Encoding", "Content-Length"}

// mostHeaders is how many bytes of headers a request has, as over HTTP.
const mostHeaders = 16 << 10

// Request is a call that came, as a handler of this process sees it.
func (c *Call) Request(ctx context.Context) (*http.Request, error) {
	if !strings.HasPrefix(c.Path, "/") {
		return nil, errors.New("want a path that begins with /")
	}
	at, err := url.ParseRequestURI(c.Path)
	if err != nil {
		return nil, errors.New("want a path, rightly escaped")
	}
	r, err := http.NewRequestWithContext(ctx, c.Method, "/", bytes.NewReader(c.Body))
	if err != nil {
		return nil, errors.New("want a method")
	}
	r.URL, r.RequestURI, r.Host = at, c.Path, "localhost"
	size := 0
	for name, values := range c.Headers {
		for _, v := range values {
			r.Header.Add(name, v)
			size += len(name) + len(v)
		}
	}
	if size > mostHeaders {
		return nil, fmt.Errorf("want headers of at most %d bytes", mostHeaders)
	}
	for _, name := range personal {
		r.Header.Del(name)
	}
	return r, nil
}
