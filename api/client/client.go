// Package client calls Postern over HTTP: a method per operation of the contract, api/openapi.yaml, from
// which client.gen.go is generated. It needs nothing but the standard library.
//
//	c := client.New("http://127.0.0.1:8080")
//	a, err := c.PostTransaction(ctx, &client.PostTransactionParams{IdempotencyKey: "order-4711", Wait: "30s"},
//		&client.TransactionInput{Queue: &queue, Type: "PAY", Data: json.RawMessage(`{"cents": 1}`)})
//
// A request that is refused comes as *Problem, whose code and retryable are stable. A request without an answer comes
// as the error of net/http, and may have happened or not: send it again with the same Idempotency-Key.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"
)

// Client calls one Postern. Its fields are set before the first call; then it may be used by many.
type Client struct {
	URL     string       // of the API, such as http://127.0.0.1:8080
	HTTP    *http.Client // nil for http.DefaultClient; calls that wait take up to 60 s
	Key     string       // sent as Authorization: Bearer, if there is one
	Context string       // the tenant, sent as Postern-Context; "" leaves it to the key
	Agent   string       // sent as User-Agent, if there is one

	// Sign adds the signature of an actor to a request, which is complete but for it; nil: none is signed.
	Sign func(r *http.Request, body []byte) error
}

// New makes a client of the API at a URL.
func New(url string) *Client { return &Client{URL: strings.TrimRight(url, "/")} }

// Answer is what came for a call that was not refused.
type Answer[T any] struct {
	Status int         // 200 to 299, or 304
	Header http.Header // such as Location, ETag, Idempotent-Replay
	Body   T           // zero for 204 and 304
}

// Operation is one call of the contract.
type Operation struct {
	Name    string // of the method of Client: ListTransactions
	Method  string // GET
	Path    string // /transactions/{id}
	Summary string
	Query   []string // the parameters that it takes in the query
}

// Error is the sentence of a problem: it names the field, the value and what would be right.
func (p *Problem) Error() string { return p.Detail }

// Do sends a request with the client's credentials and returns the answer as it came, whatever its
// status; its body is the caller's to close. body may be nil. header may be nil.
func (c *Client) Do(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range map[string]string{"Postern-Context": c.Context, "User-Agent": c.Agent} {
		if value != "" && req.Header.Get(name) == "" {
			req.Header.Set(name, value)
		}
	}
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	res, err := c.send(req)
	if err == nil && c.Sign != nil && resent(res) {
		res.Body.Close()
		return c.send(req)
	}
	return res, err
}

// send signs a request and sends it.
func (c *Client) send(req *http.Request) (*http.Response, error) {
	signed, err := c.sign(req)
	if err != nil {
		return nil, err
	}
	if c.HTTP != nil {
		return c.HTTP.Do(signed)
	}
	return http.DefaultClient.Do(signed)
}

// resent says whether a request was refused since its signature was used before, and may be sent once more, signed
// anew. Where a connection ends before the answer has begun, net/http sends a GET, or a request with an
// Idempotency-Key, again on another one, with the same signature: the server may have handled it the first time, and
// refuses the second.
func resent(res *http.Response) bool {
	sent := res.Request
	if res.StatusCode != http.StatusUnauthorized ||
		sent.Method != http.MethodGet && sent.Header.Get("Idempotency-Key") == "" {
		return false
	}
	body := res.Body
	b, err := io.ReadAll(io.LimitReader(body, 1<<20))
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(b), body), body}
	p := &Problem{}
	return err == nil && json.Unmarshal(b, p) == nil && p.Code == "replayed_signature"
}

// sign returns a copy of a request that Sign has signed. It reads the body for that.
func (c *Client) sign(req *http.Request) (signed *http.Request, err error) {
	if c.Sign == nil {
		return req, nil
	}
	var body []byte
	if req.GetBody != nil { // it may have been sent before
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
	if req.Body != nil {
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req.ContentLength = int64(len(body))
	}
	signed = req.Clone(req.Context())
	return signed, c.Sign(signed, body)
}

// Refused returns what a response with a status of 400 or above says, as *Problem where it is one, and
// closes it. nil: it is no refusal, and still open.
func Refused(res *http.Response) error {
	if res.StatusCode < 400 {
		return nil
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return err
	}
	p := &Problem{}
	if media, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";"); media != "application/problem+json" || json.Unmarshal(b, p) != nil {
		return fmt.Errorf("%s %s answered %s without a problem document: is it Postern that listens there?",
			res.Request.Method, res.Request.URL, res.Status)
	}
	return p
}

// ask is the body of every generated method.
func ask[T any](ctx context.Context, c *Client, method, path string, params, body any) (*Answer[T], error) {
	res, err := stream(ctx, c, method, path, params, body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	a := &Answer[T]{Status: res.StatusCode, Header: res.Header}
	if res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified {
		return a, nil
	}
	if err := json.NewDecoder(res.Body).Decode(&a.Body); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the answer to %s %s cannot be read: %w", method, path, err)
	}
	return a, nil
}

// stream returns an answer that was not refused, unread.
func stream(ctx context.Context, c *Client, method, path string, params, body any) (*http.Response, error) {
	query, header := encode(params)
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	var sent io.Reader
	if v := reflect.ValueOf(body); v.IsValid() && !v.IsNil() {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(b)
	}
	res, err := c.Do(ctx, method, path, header, sent)
	if err != nil {
		return nil, err
	}
	return res, Refused(res)
}

// encode turns parameters into a query and headers. It leaves out parameters with a zero value.
func encode(params any) (url.Values, http.Header) {
	query, header := url.Values{}, http.Header{}
	v := reflect.ValueOf(params)
	if !v.IsValid() || v.IsNil() {
		return query, header
	}
	for f, field := range v.Elem().Fields() {
		if field.IsZero() {
			continue
		}
		if name := f.Tag.Get("header"); name != "" {
			header.Set(name, plain(field))
			continue
		}
		name, comma, _ := strings.Cut(f.Tag.Get("query"), ",")
		switch {
		case field.Kind() != reflect.Slice:
			query.Set(name, plain(field))
		case comma != "":
			var list []string
			for i := range field.Len() {
				list = append(list, plain(field.Index(i)))
			}
			query.Set(name, strings.Join(list, ","))
		default:
			for i := range field.Len() {
				query.Add(name, plain(field.Index(i)))
			}
		}
	}
	return query, header
}

// plain writes a value as a query or header holds it.
func plain(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if t, ok := v.Interface().(time.Time); ok {
		return t.Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v.Interface())
}

// segment makes a name a part of a path.
func segment(name string) string { return url.PathEscape(name) }
