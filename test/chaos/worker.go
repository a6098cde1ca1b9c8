package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// call is one line of the worker's log: written and synced before the call is answered.
type call struct {
	At      time.Time `json:"at"`   // when it began
	Done    time.Time `json:"done"` // when it was decided what to do
	Token   string    `json:"token"`
	UID     string    `json:"uid"`
	Queue   string    `json:"queue"`
	Sender  string    `json:"sender,omitempty"`
	Attempt int       `json:"attempt"`
	Fence   int64     `json:"fence"`
	N       int       `json:"n"`
	Mode    string    `json:"mode,omitempty"` // how the worker behaved when it began, "" for well
	// done, sent, reverted, failed, rejected: executed; sent and reverted are answered with a hash, which is included
	// later, or fails. again: answered from memory. stale: refused. asked: a question about a token, polled: one about
	// a hash, whether it is included by now; Said is its answer. told: a callback. nothing: it came, and was not
	// executed. page: the worker does not know of it, since a page of what stands before it is the answer.
	Did   string `json:"did"`
	Said  string `json:"said,omitempty"`
	Nonce int    `json:"nonce,omitempty"` // under which the sender executed it, counted from 1
	// What a callback tells, and under which id: Token.
	ID       string `json:"id,omitempty"` // of the transaction
	Event    string `json:"event,omitempty"`
	State    string `json:"state,omitempty"`
	Position int64  `json:"position,omitempty"`
	// Acts are what it wants besides: messages of a batch, an event to be told of, or a call of a tool.
	Acts []string `json:"acts,omitempty"`
}

// asks says whether it is a question.
func (c call) asks() bool { return c.Did == "asked" || c.Did == "polled" }

// executed says whether this call did what it was to do.
func (c call) executed() bool {
	return c.Did == "done" || c.hashed() || c.Did == "failed" || c.Did == "rejected"
}

// hashed says whether this call was executed and has a hash, by which its end is asked for.
func (c call) hashed() bool { return c.Did == "sent" || c.Did == "reverted" }

// worker keeps its contract: a token is executed once, a lower fence is refused, /status tells what is known. It can be
// made to behave otherwise in how it answers, never in what it does.
type worker struct {
	listener net.Listener
	mu       sync.Mutex
	file     *os.File
	calls    []call
	did      map[string]string // by token
	nonces   map[string]int    // by token, of what a sender did
	polls    map[string]int    // by token, of its hash
	next     map[string]int    // by sender
	fences   map[string]int64  // by queue, or by the transaction of none
	mode     string
	odd      int // calls that met one
	settings workerSettings
	lingers  workerSettings // for a while, besides
	canary   int            // requests to an address that only a redirect names

	syncing   sync.Mutex // before mu
	synced    int        // of calls, how many are on the disk
	unwritten error      // why the log lacks something
}

// workerSettings are what a scenario wants of the worker all along.
type workerSettings struct {
	Takes     time.Duration // each call, besides the few milliseconds
	StatusLag time.Duration // each answer to a question
	TellLag   time.Duration // each answer to a callback
}

func newWorker(path string, s workerSettings) (*worker, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &worker{listener: l, file: f, did: map[string]string{}, nonces: map[string]int{}, next: map[string]int{},
		polls: map[string]int{}, fences: map[string]int64{}, settings: s}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /dispatch/{type}", w.dispatch)
	mux.HandleFunc("POST /status/{type}", w.status)
	mux.HandleFunc("POST /told", w.told)
	w.tool(mux)
	mux.HandleFunc("GET /health", func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(200) })
	mux.HandleFunc("/canary/", func(http.ResponseWriter, *http.Request) {
		w.mu.Lock()
		w.canary++
		w.mu.Unlock()
	})
	go http.Serve(l, mux)
	return w, nil
}

func (w *worker) url() string { return "http://" + w.listener.Addr().String() }

// linger has it take longer from now on, besides what its scenario wants.
func (w *worker) linger(s workerSettings) {
	w.mu.Lock()
	w.lingers = s
	w.mu.Unlock()
}

// takes is how long a call takes besides the few milliseconds, and an answer to a question about a token: while it
// lingers one about a hash does not, as each sender would wait for that.
func (w *worker) takes() (call, status time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settings.Takes + w.lingers.Takes, w.settings.StatusLag + w.lingers.StatusLag
}

// behave changes how it answers: "" is well.
func (w *worker) behave(mode string) {
	w.mu.Lock()
	w.mode = mode
	w.mu.Unlock()
}

// behaves returns the mode that a call meets.
func (w *worker) behaves() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mode != "" {
		w.odd++
	}
	return w.mode
}

// misbehaved is how many calls have met another mode than "".
func (w *worker) misbehaved() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.odd
}

// log writes a line. The caller holds the lock, and lets it go before it syncs.
func (w *worker) log(c call) {
	line, _ := json.Marshal(c)
	if _, err := w.file.Write(append(line, '\n')); err != nil {
		w.unwritten = err
	}
	w.calls = append(w.calls, c)
}

// logged reads the log back: what is judged is on the disk.
func (w *worker) logged() (calls []call, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, err := os.Open(w.file.Name())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := json.NewDecoder(f); ; {
		var c call
		if err := lines.Decode(&c); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	if len(calls) != len(w.calls) || w.unwritten != nil {
		return nil, fmt.Errorf("the log of the worker has %d of %d calls: %w", len(calls), len(w.calls), w.unwritten)
	}
	return calls, nil
}

// sync waits until all that the caller has logged is on the disk: one sync for all that came meanwhile.
func (w *worker) sync() {
	w.mu.Lock()
	mine := len(w.calls)
	w.mu.Unlock()
	w.syncing.Lock()
	defer w.syncing.Unlock()
	if w.synced >= mine {
		return
	}
	w.mu.Lock()
	all := len(w.calls)
	w.mu.Unlock()
	if err := w.file.Sync(); err != nil {
		w.mu.Lock()
		w.unwritten = err
		w.mu.Unlock()
	}
	w.synced = all
}

// executed says whether a transaction was executed well.
func (w *worker) executed(uid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.calls,
		func(c call) bool { return c.UID == uid && (c.Did == "done" || c.Did == "sent") })
}

// lied says whether a call of a transaction was answered with a lie.
func (w *worker) lied(uid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.calls,
		func(c call) bool { return c.UID == uid && c.Mode == "lie" && c.Did != "stale" })
}

// instead answers in the worker's place, as what stands before it would, and says whether it did. gateway is a page that
// leaves open what the worker behind it has done.
func (w *worker) instead(mode string, out http.ResponseWriter, r *http.Request) bool {
	switch mode {
	case "gateway":
		out.Header().Set("Content-Type", "text/html")
		out.WriteHeader(http.StatusBadGateway)
		fmt.Fprint(out, "<html><h1>502 Bad Gateway</h1></html>")
	case "html":
		out.Header().Set("Content-Type", "text/html")
		fmt.Fprint(out, "<html><h1>Welcome to nginx!</h1></html>")
	case "redirect":
		http.Redirect(out, r, w.url()+"/canary"+r.URL.Path, http.StatusFound)
	case "away":
		if h, ok := out.(http.Hijacker); ok {
			if c, _, err := h.Hijack(); err == nil {
				c.Close()
			}
		}
	default:
		return false
	}
	return true
}

// before says what stands before the worker makes of a call: how it answers in its place, "" if it does not, and
// whether the worker has the call all the same. A page with 200 says that it has not (worker contract, 5.6); behind a
// redirect, a page of a gateway and a connection that breaks half of them were executed.
func before(mode, token string) (instead string, reached bool) {
	switch mode {
	case "html":
		if roll(token+"page", 101) < 50 {
			return mode, false
		}
		mode = "gateway"
	case "redirect", "away":
	default:
		return "", true
	}
	return mode, roll(token+"behind", 101) < 50
}

func (w *worker) dispatch(out http.ResponseWriter, r *http.Request) {
	mode := w.behaves()
	var body struct {
		TxData struct {
			UID  string `json:"uid"`
			Data json.RawMessage
		} `json:"txData"`
		Sender struct {
			AccountID string `json:"accountId"`
			Queue     string `json:"queue"`
		} `json:"sender"`
		Postern struct {
			Token   string `json:"token"`
			Attempt int    `json:"attempt"`
			Fence   int64  `json:"fence"`
		} `json:"postern"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(out, err.Error(), 400)
		return
	}
	var data struct {
		N    int
		Fail bool
	}
	json.Unmarshal(body.TxData.Data, &data)
	c := call{At: time.Now(), Token: body.Postern.Token, UID: body.TxData.UID, Queue: body.Sender.Queue, Sender: body.Sender.AccountID,
		Attempt: body.Postern.Attempt, Fence: body.Postern.Fence, N: data.N,
		Mode: mode}
	acts, rejects := actsOf(body.TxData.Data)
	c.Acts = acts
	takes, _ := w.takes()
	pause := time.Duration(2+roll(c.Token, 20))*time.Millisecond + takes
	switch mode {
	case "slow":
		pause += time.Second
	case "hang":
		pause += 7 * time.Second
	}
	instead, reached := before(mode, c.Token)
	if instead == "" || reached {
		time.Sleep(pause)
	}
	w.mu.Lock()
	var status int
	var answer string
	switch {
	case reached:
		status, answer = w.execute(&c, data.Fail, rejects, mode == "lie" && roll(c.Token+"skip", 2) == 0)
	case instead == "html":
		c.Did = "page"
	default:
		c.Did = "nothing"
	}
	if mode == "lie" && c.Did != "stale" {
		answer = lies[roll(c.Token+fmt.Sprint(len(w.calls)), uint32(len(lies)))]
	}
	c.Done = time.Now()
	w.log(c)
	w.mu.Unlock()
	w.sync()
	if w.instead(instead, out, r) {
		return
	}
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	fmt.Fprint(out, answer)
}

// lies are answers that the contract does not know. None of them says that something ended.
var lies = []string{
	``, `{`, `null`, `[]`, `{}`, `"done"`, `{"hash": 17}`, `{"hash": null, "done": null, "error": null}`,
	`{"error": {"class": "sideways", "message": "?"}}`, `{"error": "no"}`, `{"hash": "` + strings.Repeat("f", 3<<20) + `"}`,
}

// execute does what a call wants, unless it was done before, is stale, or the worker only pretends.
func (w *worker) execute(c *call, fails, rejects, pretends bool) (status int, answer string) {
	line := c.Queue
	if line == "" {
		line = "uid:" + c.UID
	}
	switch before, known := w.did[c.Token]; {
	case c.Fence < w.fences[line]:
		c.Did = "stale"
		return 409, `{"error":{"code":"stale_fence","message":"a higher fence came","class":"ambiguous"}}`
	case known:
		c.Did, answer = "again", w.say(before, c.Token)
	case pretends:
		c.Did = "nothing"
	case rejects:
		c.Did = "rejected"
	case fails || c.Attempt == 1 && roll(c.UID+"retry", 20) == 0 && !c.tells():
		c.Did = "failed"
	case roll(c.UID+"sent", 10) == 0 && c.Attempt == 1 && roll(c.UID+"reverts", 5) == 0 && !c.tells():
		c.Did = "reverted"
	case roll(c.UID+"sent", 10) == 0:
		c.Did = "sent"
	default:
		c.Did = "done"
	}
	w.fences[line] = max(w.fences[line], c.Fence)
	if c.executed() {
		w.did[c.Token] = c.Did
		if c.Sender != "" && (c.Did == "done" || c.Did == "sent") {
			w.next[c.Sender]++
			c.Nonce, w.nonces[c.Token] = w.next[c.Sender], w.next[c.Sender]
		}
		answer = w.say(c.Did, c.Token)
	}
	return 200, answer
}

func (w *worker) say(did, token string) string {
	switch did {
	case "rejected":
		return `{"error":{"code":"no","message":"this message is to be rejected","class":"rejected"}}`
	case "failed":
		return `{"error":{"code":"not_yet","message":"try again","class":"retry"}}`
	case "sent", "reverted":
		return fmt.Sprintf(`{"hash":%q,"nonce":%s,"done":null,"error":null}`, "0x"+token, w.nonce(token))
	default:
		return `{"done":{"ok":true},"nonce":` + w.nonce(token) + `}`
	}
}

// nonce is the one of a token, in JSON.
func (w *worker) nonce(token string) string {
	if n := w.nonces[token]; n > 0 {
		return fmt.Sprintf(`"%d"`, n)
	}
	return "null"
}

func (w *worker) status(out http.ResponseWriter, r *http.Request) {
	if w.instead(w.behaves(), out, r) {
		return
	}
	var q struct{ Token, Hash string }
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(out, err.Error(), 400)
		return
	}
	lag := w.settings.StatusLag
	if q.Hash == "" {
		_, lag = w.takes()
	}
	time.Sleep(lag)
	w.mu.Lock()
	token, did := q.Token, "asked"
	if q.Hash != "" {
		token, did = strings.TrimPrefix(q.Hash, "0x"), "polled"
	}
	if did == "polled" {
		w.polls[token]++
	}
	said, answer := w.knows(token)
	w.log(call{At: time.Now(), Token: token, Did: did, Said: said})
	w.mu.Unlock()
	w.sync()
	out.Header().Set("Content-Type", "application/json")
	fmt.Fprint(out, answer)
}

// knows is what the worker says of a token, and its answer in JSON. A hash is pending for up to three polls.
func (w *worker) knows(token string) (said, answer string) {
	did, hash := w.did[token], fmt.Sprintf(`"hash":%q`, "0x"+token)
	switch {
	case did == "rejected":
		return "failed", `{"state":"failed","failure_reason":"this message is to be rejected","class":"rejected"}`
	case did == "failed":
		return "failed", `{"state":"failed","failure_reason":"try again"}`
	case (did == "sent" || did == "reverted") && w.polls[token] <= roll(token+"pending", 4):
		return "pending", `{"state":"pending",` + hash + `}`
	case did == "reverted":
		return "failed", `{"state":"failed",` + hash + `,"failure_reason":"it was reverted"}`
	case did == "sent" || did == "done":
		return "included", fmt.Sprintf(`{"state":"included",%s,"nonce":%s,"block_height":"7","failure_reason":null}`, hash,
			w.nonce(token))
	}
	return "unknown", `{"state":"unknown"}`
}

// told takes a callback. A page in its place, which is a 200, has taken it.
func (w *worker) told(out http.ResponseWriter, r *http.Request) {
	if mode := w.behaves(); w.instead(mode, out, r) && mode != "html" {
		return
	}
	c := call{At: time.Now(), Did: "told", Token: r.Header.Get("webhook-id")}
	var body struct {
		Type string
		Data struct {
			ID, UID, Queue, State string
			Position              int64
		}
	}
	json.NewDecoder(r.Body).Decode(&body)
	c.ID, c.UID, c.Queue, c.State = body.Data.ID, body.Data.UID, body.Data.Queue, body.Data.State
	c.Event, c.Position = body.Type, body.Data.Position
	time.Sleep(w.settings.TellLag)
	w.mu.Lock()
	c.Done = time.Now()
	w.log(c)
	w.mu.Unlock()
	w.sync()
}

// roll draws a number below n that the text fixes.
func roll(text string, n uint32) int {
	h := fnv.New32a()
	h.Write([]byte(text))
	return int(h.Sum32() % n)
}
