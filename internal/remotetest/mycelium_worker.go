package remotetest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
)

// Serves plays the requests that come to the node against the worker at an address, until the end of the test. It reads
// and writes messages by itself, so that it shares no code with the callers.
func (n *MyceliumNode) Serves(worker string) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	n.net.t.Cleanup(func() {
		cancel()
		all.Wait()
	})
	all.Go(func() {
		for {
			l, ok := n.take(ctx, []byte("postern"), true, false)
			if !ok {
				return
			}
			all.Go(func() {
				if payload := n.play(ctx, worker, l.data); payload != nil {
					n.net.deliver(letter{id: l.id, src: n.Key, dst: l.src, data: payload}, true)
				}
			})
		}
	})
}

// play makes one request, and returns its answer as a payload; nil: there is none.
func (n *MyceliumNode) play(ctx context.Context, worker string, payload []byte) []byte {
	var call struct {
		Method, Path string
		Headers      http.Header
		Body         []byte
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(&call); err != nil {
		n.net.t.Errorf("a message is no request: %v: %.200q", err, payload)
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, call.Method, worker+call.Path, bytes.NewReader(call.Body))
	if err != nil {
		n.net.t.Errorf("a message is no request: %v: %.200q", err, payload)
		return nil
	}
	req.Header = call.Headers
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil
	}
	answer, _ := json.Marshal(map[string]any{"status": res.StatusCode, "headers": res.Header, "body": body})
	return answer
}
