package remotetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Reply is how the fake meets one call. Those that execute (Accept, Done, and After around them) are
// remembered under their token.
type Reply struct {
	name     string
	executes bool
	status   int
	header   http.Header
	body     func(s Seen, seq int) []byte
	manner   manner
	delay    time.Duration
}

// manner is how a reply is brought.
type manner int

const (
	plain  manner = iota
	hang          // read the request, never answer
	drop          // close the connection
	huge          // never end
	drip          // a byte whenever the client asks for one, never whole
	cutOff        // promise more than is sent, then close
)

func jsonReply(name string, executes bool, v any) Reply {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("remotetest: %s: %v", name, err)) // a test gave what JSON cannot say
	}
	return Reply{name: name, executes: executes, status: 200, body: func(Seen, int) []byte { return b }}
}

// Accept answers with a hash, "" for a fresh one.
func Accept(hash string) Reply {
	return Reply{name: "accept", executes: true, status: 200, body: func(s Seen, seq int) []byte {
		h := hash
		if h == "" {
			h = "5Jfake" + strconv.Itoa(seq)
		}
		return fmt.Appendf(nil, `{"hash":%q,"done":{},"error":null}`, h)
	}}
}

// Done answers that all is done, with v.
func Done(v any) Reply {
	return jsonReply("done", true, map[string]any{"hash": "", "done": v, "error": nil})
}

// Fail answers with error.code, a number or a string, and a message.
func Fail(code any, message string) Reply {
	return jsonReply("fail", false, map[string]any{"hash": "", "done": nil,
		"error": map[string]any{"code": code, "message": message}})
}

// FailWith answers with this error, for example {"class": "blocked", "until": ...}.
func FailWith(errObj map[string]any) Reply {
	return jsonReply("fail", false, map[string]any{"hash": "", "done": nil, "error": errObj})
}

// HTTP answers with a status and a body as it is.
func HTTP(status int, body string) Reply {
	return Reply{name: "http", status: status, body: func(Seen, int) []byte { return []byte(body) }}
}

// Body answers 200 with a body as it is.
func Body(body string) Reply { return HTTP(200, body) }

// Garbage answers 200 with what is no JSON.
func Garbage() Reply { return Body("\x00\xff{{{ not json") }

// Redirect answers 302 to a URL.
func Redirect(to string) Reply {
	return HTTP(302, "").With("Location", to)
}

// Hang reads the request and never answers: until the caller leaves, or the fake refuses.
func Hang() Reply { return Reply{name: "hang", manner: hang} }

// Drop reads the request and closes the connection without a word. Nothing was executed.
func Drop() Reply { return Reply{name: "drop", manner: drop} }

// Huge answers 200 and then 1 GiB.
func Huge() Reply { return Reply{name: "huge", status: 200, manner: huge} }

// Drip answers 200 at once and then a blank at a time, without end.
func Drip() Reply { return Reply{name: "drip", status: 200, manner: drip} }

// With adds a header to a reply.
func (r Reply) With(name, value string) Reply {
	r.header = r.header.Clone()
	if r.header == nil {
		r.header = http.Header{}
	}
	r.header.Add(name, value)
	return r
}

// Slow executes at once and answers after d.
func (r Reply) Slow(d time.Duration) Reply { r.delay = d; return r }

// ThenDrop executes like r and then closes the connection instead of answering: the answer is lost.
func (r Reply) ThenDrop() Reply { r.manner = drop; return r }

// ThenHang executes like r and then never answers.
func (r Reply) ThenHang() Reply { r.manner = hang; return r }

// ThenCut executes like r and then closes in the middle of the answer.
func (r Reply) ThenCut() Reply { r.manner = cutOff; return r }

// script is a list of replies for the calls that match.
type script struct {
	match   Match
	replies []Reply
}

// Script tells the fake how to meet the calls that m matches: one reply after another, the last of them
// from then on. A later script goes before an earlier one.
func (f *Fake) Script(m Match, replies ...Reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scripts = append(f.scripts, &script{match: m, replies: replies})
}

// Unscript drops all scripts.
func (f *Fake) Unscript() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scripts = nil
}

// next returns the scripted reply for a call, false if there is none. The lock is held.
func (f *Fake) next(s Seen) (Reply, bool) {
	for i := len(f.scripts) - 1; i >= 0; i-- {
		sc := f.scripts[i]
		if len(sc.replies) == 0 || !sc.match.fits(s) {
			continue
		}
		r := sc.replies[0]
		if len(sc.replies) > 1 {
			sc.replies = sc.replies[1:]
		}
		return r, true
	}
	return Reply{}, false
}
