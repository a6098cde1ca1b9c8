package remotetest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"
)

// Limits of a node.
const (
	topicChars = 340     // of base64, which are 255 bytes
	bodyMost   = 2 << 20 // bytes of a request, the default of its server
)

var (
	hexKey = regexp.MustCompile(`^[0-9a-f]{64}$`)
	hexID  = regexp.MustCompile(`^[0-9a-f]{16}$`)
)

// api serves what of the API is about messages.
func (n *MyceliumNode) api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/messages", n.pop)
	mux.HandleFunc("POST /api/v1/messages", n.push)
	mux.HandleFunc("POST /api/v1/messages/reply/{id}", n.reply)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n.refuse(w, 404, "%s %s is not in the API", r.Method, r.URL.Path)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		instead := n.instead
		n.mu.Unlock()
		if instead == nil || !instead(w, r) {
			mux.ServeHTTP(w, r)
		}
	})
}

// refuse answers a request that no caller should make.
func (n *MyceliumNode) refuse(w http.ResponseWriter, status int, format string, args ...any) {
	n.net.t.Errorf("the Mycelium node refuses a request: "+format, args...)
	http.Error(w, fmt.Sprintf(format, args...), status)
}

// lock waits until no other request has the node.
func (n *MyceliumNode) lock(ctx context.Context) (unlock func()) {
	select {
	case n.turn <- struct{}{}:
		return func() { <-n.turn }
	case <-ctx.Done():
		return nil
	}
}

// query reads the query: only these names, each once.
func (n *MyceliumNode) query(w http.ResponseWriter, r *http.Request, names ...string) (url.Values, bool) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		n.refuse(w, 400, "query %q: %v", r.URL.RawQuery, err)
		return nil, false
	}
	for name, values := range q {
		known := false
		for _, k := range names {
			known = known || k == name
		}
		if !known || len(values) != 1 {
			n.refuse(w, 400, "query %q has %d of %q", r.URL.RawQuery, len(values), name)
			return nil, false
		}
	}
	return q, true
}

// seconds reads a number of the query, 0 where it is not there.
func seconds(q url.Values, name string) (time.Duration, error) {
	if !q.Has(name) {
		return 0, nil
	}
	s, err := strconv.ParseUint(q.Get(name), 10, 32)
	return time.Duration(s) * time.Second, err
}

// pop is popMessage: 200 with a message, which is gone from the queue, or 204.
func (n *MyceliumNode) pop(w http.ResponseWriter, r *http.Request) {
	q, ok := n.query(w, r, "peek", "timeout", "topic")
	if !ok {
		return
	}
	wait, err := seconds(q, "timeout")
	topic, bad := base64.StdEncoding.DecodeString(q.Get("topic"))
	if err != nil || bad != nil || len(q.Get("topic")) > topicChars {
		n.refuse(w, 400, "query %q: %v %v", r.URL.RawQuery, err, bad)
		return
	}
	unlock := n.lock(r.Context())
	if unlock == nil {
		return
	}
	defer unlock()
	n.mu.Lock()
	n.taking++
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), max(wait, time.Millisecond))
	defer cancel()
	l, ok := n.take(ctx, topic, q.Has("topic"), q.Get("peek") == "true")
	if !ok {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	n.inbound(w, l)
}

// inbound is InboundMessage.
func (n *MyceliumNode) inbound(w http.ResponseWriter, l letter) {
	v := map[string]any{"id": l.id, "srcIp": overlay(l.src), "srcPk": l.src, "dstIp": overlay(l.dst), "dstPk": l.dst,
		"payload": l.data}
	if len(l.topic) > 0 {
		v["topic"] = l.topic
	}
	respond(w, http.StatusOK, v)
}

// overlay is an address in the range of the network.
func overlay(key string) string { return fmt.Sprintf("4%s:%s::1", key[:2], key[2:6]) }

func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// body reads PushMessageBody, with no other field, and a key in dst.
func (n *MyceliumNode) body(w http.ResponseWriter, r *http.Request) (l letter, ok bool) {
	if r.Header.Get("Content-Type") != "application/json" {
		n.refuse(w, 415, "Content-Type %q", r.Header.Get("Content-Type"))
		return l, false
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, bodyMost+1))
	if err != nil {
		return l, false // the caller broke off
	}
	if len(text) > bodyMost { // not the caller's fault: it cannot know
		http.Error(w, "length limit exceeded", http.StatusRequestEntityTooLarge)
		return l, false
	}
	var b struct {
		Dst     *struct{ Pk string }
		Topic   *string
		Payload *string
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil || b.Dst == nil || b.Payload == nil {
		n.refuse(w, 422, "body %.200q: %v", text, err)
		return l, false
	}
	l.dst = b.Dst.Pk
	if b.Topic != nil {
		if l.topic, err = base64.StdEncoding.DecodeString(*b.Topic); err != nil || len(*b.Topic) > topicChars {
			n.refuse(w, 400, "topic %q: %v", *b.Topic, err)
			return l, false
		}
	}
	if l.data, err = base64.StdEncoding.DecodeString(*b.Payload); err != nil || !hexKey.MatchString(l.dst) {
		n.refuse(w, 422, "payload %.200q to %q: %v", *b.Payload, l.dst, err)
		return l, false
	}
	l.src = n.Key
	return l, true
}

// push is pushMessage: 200 with the reply, 408 with the id when the time for one is over, and 201 with the id where
// none is waited for.
func (n *MyceliumNode) push(w http.ResponseWriter, r *http.Request) {
	q, ok := n.query(w, r, "reply_timeout")
	if !ok {
		return
	}
	wait, err := seconds(q, "reply_timeout")
	if err != nil {
		n.refuse(w, 400, "query %q: %v", r.URL.RawQuery, err)
		return
	}
	l, ok := n.body(w, r)
	if !ok {
		return
	}
	l.id = drawn(8)
	unlock := n.lock(r.Context())
	if unlock == nil {
		return
	}
	reply := make(chan letter, 1)
	n.mu.Lock()
	n.pushed++
	if q.Has("reply_timeout") {
		n.replies[l.id] = reply
	}
	n.mu.Unlock()
	n.net.deliver(l, false)
	unlock()
	id := map[string]any{"id": l.id}
	if !q.Has("reply_timeout") {
		respond(w, http.StatusCreated, id)
		return
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case got := <-reply:
		n.inbound(w, got)
		return
	case <-timeout.C:
		respond(w, http.StatusRequestTimeout, id)
	case <-r.Context().Done():
	}
	n.mu.Lock()
	delete(n.replies, l.id)
	n.mu.Unlock()
}

// reply is pushMessageReply: 204. The topic of a reply is empty, whatever the body says.
func (n *MyceliumNode) reply(w http.ResponseWriter, r *http.Request) {
	if _, ok := n.query(w, r); !ok {
		return
	}
	l, ok := n.body(w, r)
	if !ok {
		return
	}
	l.id, l.topic = r.PathValue("id"), nil
	unlock := n.lock(r.Context())
	if unlock == nil {
		return
	}
	defer unlock()
	n.mu.Lock()
	src, taken := n.taken[l.id]
	delete(n.taken, l.id)
	n.mu.Unlock()
	if !hexID.MatchString(l.id) || !taken || src != l.dst {
		n.refuse(w, 400, "a reply to %q of %q: that was not taken here, or is of %q", l.id, l.dst, src)
		return
	}
	n.net.deliver(l, true)
	w.WriteHeader(http.StatusNoContent)
}
