package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/mycelium"
	"github.com/postern-dev/postern/internal/outbox"
)

// Codes of calls over a Mycelium network that brought no answer.
const (
	codeNoNode  = "no_mycelium"
	codeAway    = "mycelium_away"
	codeRefused = "mycelium_refused"
	codeUnclear = "mycelium_unclear"
	codeLarge   = "too_large_for_mycelium"
)

// newMycelium is the local node of a Mycelium network. The operator of this process named its address, so that the
// guard of workers is not asked; the bytes that it is sent are counted as those to a worker.
func newMycelium(at string) *mycelium.Node {
	return mycelium.New(at, &http.Transport{
		Proxy: nil,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return newCountingConn(conn), nil
		},
		MaxIdleConnsPerHost:    128,
		IdleConnTimeout:        idleTimeout,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	})
}

// overMycelium carries the requests to mycelium: URLs. An error that is no *undelivered is one of the connection to the
// node, and means what it means of one to a worker: where some byte was written, the node may have passed it on.
type overMycelium struct {
	node *mycelium.Node // nil: this process has none
	most int            // bytes of the body of an answer; 0: maxAnswer
}

// undelivered is why the network brought no answer.
type undelivered struct {
	code, message string
	sent          bool // the worker may have got the request
	never         bool // it will never be taken: it is too large
}

// Error is the sentence.
func (u *undelivered) Error() string { return u.message }

// unclearReply is where something came back that is no answer: the worker may have acted.
func unclearReply(message string) *undelivered {
	return &undelivered{code: codeUnclear, message: message, sent: true}
}

// RoundTrip sends a request as a message, and takes the reply to it for the answer.
func (o overMycelium) RoundTrip(req *http.Request) (*http.Response, error) {
	at, _, _ := strings.Cut(req.URL.String(), "?")
	to, err := outbox.ParseMycelium(at)
	switch {
	case err != nil:
		return nil, &undelivered{code: "bad_worker_url", message: "the worker URL cannot be called: " + err.Error()}
	case o.node == nil:
		return nil, &undelivered{code: codeNoNode, message: "the worker is called over a Mycelium node, and this " +
			"process knows of none: start it with --mycelium (POSTERN_MYCELIUM), such as http://127.0.0.1:8989"}
	case o.most == 0:
		o.most = maxAnswer
	}
	payload, err := mycelium.Written(req, to.Path)
	if err != nil {
		return nil, err
	}
	if size := mycelium.Pushed(payload); size > mycelium.MostPushed {
		return nil, tooLarge(size)
	}
	wait := defaultTimeout
	if until, ok := req.Context().Deadline(); ok {
		wait = time.Until(until)
	}
	connected := false
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected = true }})
	got, err := o.node.Push(ctx, to.Key, payload, wait, mycelium.Wire(maxHeader, o.most))
	switch {
	case err != nil && !connected && req.Context().Err() == nil:
		return nil, &undelivered{code: codeAway,
			message: "the Mycelium node of this process cannot be connected to: " + clipMessage(err.Error())}
	case statusOf(err) == http.StatusRequestEntityTooLarge:
		return nil, tooLarge(mycelium.Pushed(payload))
	case err != nil:
		return nil, fromNode(err)
	case got.SrcPk != to.Key:
		return nil, unclearReply("the reply over Mycelium came from the key " + got.SrcPk + ", which was not called")
	}
	return answerOf(got.Payload, req)
}

func tooLarge(size int) *undelivered {
	return &undelivered{code: codeLarge, never: true, message: "the request has " + strconv.Itoa(size) +
		" bytes as a message, and a Mycelium node takes " + strconv.Itoa(mycelium.MostPushed)}
}

// statusOf is the status of an answer of the node that brings no message, or 0.
func statusOf(err error) int {
	var refusal *mycelium.Refusal
	if errors.As(err, &refusal) {
		return refusal.Status
	}
	return 0
}

// fromNode says what an answer of the node means that brings no reply. By 408 it says that its time for one is over; by
// 4xx else that it did not take the message. What it answers otherwise says nothing of the message.
func fromNode(err error) error {
	var refusal *mycelium.Refusal
	switch {
	case errors.Is(err, mycelium.ErrTooLarge):
		return &undelivered{code: "answer_too_large", message: "the worker's answer over Mycelium is too large",
			sent: true}
	case errors.Is(err, mycelium.ErrNoReply):
		return unclearReply(err.Error())
	case !errors.As(err, &refusal):
		return err // the connection broke
	case refusal.Status == http.StatusRequestTimeout:
		return &undelivered{code: "timeout", message: "the worker did not answer in time: no reply came over Mycelium",
			sent: true}
	case refusal.Status == http.StatusCreated:
		return unclearReply("the Mycelium node took the message, and waited for no reply")
	case refusal.Status >= 400 && refusal.Status < 500:
		return &undelivered{code: codeRefused, message: clipMessage(refusal.Error())}
	}
	return unclearReply(clipMessage(refusal.Error()))
}

// answerOf reads the payload of a reply. It is as foreign as any answer of a worker.
func answerOf(payload []byte, req *http.Request) (*http.Response, error) {
	var a mycelium.Answer
	if err := json.Unmarshal(payload, &a); err != nil {
		return nil, unclearReply("the reply over Mycelium is no answer: want {status, headers, body} in JSON")
	}
	if a.Status < 200 || a.Status > 999 {
		a.Status = 0 // as of an answer over HTTP that has none
	}
	header, size := http.Header{}, 0
	for name, values := range a.Headers {
		for _, v := range values {
			header.Add(name, v)
			size += len(name) + len(v)
		}
	}
	if size > maxHeader {
		return nil, unclearReply("the header of the answer over Mycelium has more than " + strconv.Itoa(maxHeader) +
			" bytes")
	}
	return &http.Response{
		StatusCode:    a.Status,
		Status:        strconv.Itoa(a.Status),
		Header:        header,
		Body:          io.NopCloser(bytes.NewReader(a.Body)),
		ContentLength: int64(len(a.Body)),
		Request:       req,
	}, nil
}
