package remotetest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// ServeHTTP logs the call, then meets it as scripted, else as a good worker does.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op, typ, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	typ, _ = url.PathUnescape(typ)
	body, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	if err != nil {
		panic(http.ErrAbortHandler) // the caller broke off
	}
	s := see(op, typ, r.Header.Clone(), body)

	f.mu.Lock()
	gone := f.gone
	reply := f.meet(&s)
	f.calls = append(f.calls, s)
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
	reply.send(w, r, gone)
}

// bring is a reply with its body made: ready to be sent without the lock.
type bring struct {
	answer
	header http.Header
	manner manner
	delay  time.Duration
}

// meet decides how to meet s, and executes it if that is so. The lock is held.
func (f *Fake) meet(s *Seen) bring {
	say := func(status int, v any) bring {
		b, _ := json.Marshal(v)
		return bring{answer: answer{status: status, body: b}}
	}
	reply, scripted := f.next(*s)
	switch s.Op {
	case OpDispatch:
		return f.dispatch(s, reply, scripted)
	case OpHealth:
		reply, scripted = HTTP(200, `{"ok":true}`), true
	}
	if scripted {
		return f.made(reply, *s)
	}
	switch s.Op {
	case OpStatus, OpBatch:
		switch {
		case f.flags.noStatus, s.Op == OpBatch && f.flags.noBatch:
			return say(404, "no status here")
		case f.flags.statusDown:
			return say(503, "down")
		case s.Op == OpStatus && s.Token != "":
			return say(200, f.statusOf(s.Token, true))
		case s.Op == OpStatus:
			return say(200, f.statusOf(s.Hash, false))
		}
		all := make([]map[string]any, len(s.Hashes))
		for i, h := range s.Hashes {
			all[i] = f.statusOf(h, false)
		}
		return say(200, map[string]any{"statuses": all})
	case OpOnSuccess, OpOnFailure:
		if !f.flags.noHooks {
			return say(200, map[string]any{})
		}
	case OpMaxRetries:
		if f.maxRetries != nil {
			return say(200, *f.maxRetries)
		}
	}
	return say(404, "no such path")
}

// dispatch meets a dispatch: a stale fence, a known token, then the script, then acceptance.
func (f *Fake) dispatch(s *Seen, reply Reply, scripted bool) bring {
	if f.flags.fencing && s.Line != "" {
		if s.Fence < f.fences[s.Line] {
			return bring{answer: answer{status: 409, body: []byte(`{"error":null}`)}}
		}
		f.fences[s.Line] = s.Fence
	}
	known, repeat := f.answers[s.Token]
	s.Repeat = repeat
	if repeat && !f.flags.noDedupe && (!scripted || reply.executes) {
		return bring{answer: known, manner: reply.manner, delay: reply.delay}
	}
	if !scripted {
		reply = Accept("")
	}
	b := f.made(reply, *s)
	if reply.executes {
		for _, h := range s.PreviousHashes {
			f.replaced[h] = true
		}
		f.executed[s.Token]++
		f.answers[s.Token] = b.answer
		var r struct{ Hash string }
		if json.Unmarshal(b.body, &r) == nil && r.Hash != "" {
			f.byHash[r.Hash] = s.Token
		}
	}
	return b
}

// made gives a reply its body.
func (f *Fake) made(r Reply, s Seen) bring {
	b := bring{answer: answer{status: r.status}, header: r.header, manner: r.manner, delay: r.delay}
	if r.body != nil {
		f.seq++
		b.body = r.body(s, f.seq)
	}
	return b
}

// statusOf says what is known of a hash or token, in the words of the contract.
func (f *Fake) statusOf(key string, token bool) map[string]any {
	hash := key
	if token {
		var r struct{ Hash string }
		_ = json.Unmarshal(f.answers[key].body, &r)
		hash = r.Hash
	}
	st, ok := f.statuses[key]
	if !ok && token && hash != "" {
		st, ok = f.statuses[hash]
	}
	_, accepted := f.byHash[hash]
	switch {
	case ok:
	case f.replaced[hash]:
		st.State = outbox.StatusUnknown
	case !accepted && !(token && f.executed[key] > 0):
		st.State = outbox.StatusUnknown
	case f.flags.includeAll:
		st = outbox.Status{State: outbox.StatusIncluded, BlockHeight: "1", Confirmations: 6}
	default:
		st.State = outbox.StatusPending
	}
	if st.Hash != "" {
		hash = st.Hash
	}
	m := map[string]any{"state": st.State, "nonce": st.Nonce, "block_height": nil, "failure_reason": nil}
	if hash != "" && st.State != outbox.StatusUnknown {
		m["hash"] = hash
	}
	if st.BlockHeight != "" {
		m["block_height"] = st.BlockHeight
	}
	if st.Done != nil {
		m["state"], m["done"] = "done", st.Done
	} else if st.Confirmations > 0 {
		m["confirmations"] = st.Confirmations
	}
	if st.FailureReason != "" {
		m["failure_reason"] = st.FailureReason
	}
	return m
}

// send brings b to the caller.
func (b bring) send(w http.ResponseWriter, r *http.Request, gone <-chan struct{}) {
	for k, v := range b.header {
		w.Header()[k] = v
	}
	if b.delay > 0 {
		select {
		case <-time.After(b.delay):
		case <-gone:
		}
	}
	switch b.manner {
	case hang:
		select {
		case <-r.Context().Done():
		case <-gone:
		}
		panic(http.ErrAbortHandler)
	case drop:
		panic(http.ErrAbortHandler)
	case huge:
		chunk := []byte(strings.Repeat("x", 64<<10))
		for range 1 << 30 / len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	case drip:
		b.drip(w, r, gone)
	case cutOff:
		w.Header().Set("Content-Length", strconv.Itoa(len(b.body)+1))
		w.WriteHeader(b.status)
		w.Write(b.body[:len(b.body)/2])
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(b.status)
		w.Write(b.body)
	}
}
