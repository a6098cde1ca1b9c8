package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// call is one line of the worker's log: written and synced before the call is answered.
type call struct {
	At      time.Time `json:"at"`
	Token   string    `json:"token"`
	UID     string    `json:"uid"`
	Queue   string    `json:"queue"`
	Sender  string    `json:"sender"`
	Attempt int       `json:"attempt"`
	Fence   int64     `json:"fence"`
	N       int       `json:"n"`
	Did     string    `json:"did"` // done, sent, failed, again (from memory), stale
}

// worker keeps its contract: a token is executed once, a lower fence is refused, /status tells what is known.
type worker struct {
	listener net.Listener
	mu       sync.Mutex
	file     *os.File
	calls    []call
	did      map[string]string // by token
	fences   map[string]int64  // by queue
	slow     time.Duration
	asked    int
}

func newWorker(path string) (*worker, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &worker{listener: l, file: f, did: map[string]string{}, fences: map[string]int64{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /dispatch/{type}", w.dispatch)
	mux.HandleFunc("POST /status/{type}", w.status)
	mux.HandleFunc("GET /health", func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(200) })
	go http.Serve(l, mux)
	return w, nil
}

func (w *worker) url() string { return "http://" + w.listener.Addr().String() }

func (w *worker) dispatch(out http.ResponseWriter, r *http.Request) {
	var body struct {
		TxData struct {
			UID  string          `json:"uid"`
			Data struct{ N int } `json:"data"`
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
	c := call{At: time.Now(), Token: body.Postern.Token, UID: body.TxData.UID, Queue: body.Sender.Queue, Sender: body.Sender.AccountID,
		Attempt: body.Postern.Attempt, Fence: body.Postern.Fence, N: body.TxData.Data.N}
	w.mu.Lock()
	slow := w.slow
	w.mu.Unlock()
	time.Sleep(time.Duration(2+roll(c.Token, 20))*time.Millisecond + slow)
	w.mu.Lock()
	defer w.mu.Unlock()
	status, answer := 200, ""
	switch before, known := w.did[c.Token]; {
	case c.Queue != "" && c.Fence < w.fences[c.Queue]:
		c.Did, status = "stale", 409
		answer = `{"error":{"code":"stale_fence","message":"a higher fence came","class":"ambiguous"}}`
	case known:
		c.Did, answer = "again", w.say(before, c.Token)
	case c.Attempt == 1 && roll(c.UID+"retry", 20) == 0:
		c.Did = "failed"
		answer = w.say("failed", c.Token)
	case roll(c.UID+"sent", 10) == 0:
		c.Did = "sent"
		answer = w.say("sent", c.Token)
	default:
		c.Did = "done"
		answer = w.say("done", c.Token)
	}
	if c.Did != "stale" && c.Queue != "" {
		w.fences[c.Queue] = max(w.fences[c.Queue], c.Fence)
	}
	if c.Did == "done" || c.Did == "sent" || c.Did == "failed" {
		w.did[c.Token] = c.Did
	}
	line, _ := json.Marshal(c)
	w.file.Write(append(line, '\n'))
	w.file.Sync()
	w.calls = append(w.calls, c)
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	fmt.Fprint(out, answer)
}

func (w *worker) say(did, token string) string {
	switch did {
	case "failed":
		return `{"error":{"code":"not_yet","message":"try again","class":"retry"}}`
	case "sent":
		return fmt.Sprintf(`{"hash":%q,"done":null,"error":null}`, "0x"+token)
	default:
		return `{"done":{"ok":true}}`
	}
}

func (w *worker) status(out http.ResponseWriter, r *http.Request) {
	var q struct{ Token, Hash string }
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(out, err.Error(), 400)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	token := q.Token
	if q.Hash != "" {
		token = strings.TrimPrefix(q.Hash, "0x")
	}
	answer := `{"state":"unknown"}`
	switch w.did[token] {
	case "failed":
		answer = `{"state":"failed","failure_reason":"try again"}`
	case "sent":
		answer = fmt.Sprintf(`{"state":"included","hash":%q,"block_height":"7","failure_reason":null}`, "0x"+token)
	case "done":
		answer = fmt.Sprintf(`{"state":"included","hash":%q,"block_height":"7","failure_reason":null}`, "0x"+token)
	}
	out.Header().Set("Content-Type", "application/json")
	fmt.Fprint(out, answer)
}

// roll draws a number below n that the text fixes.
func roll(text string, n uint32) int {
	h := fnv.New32a()
	h.Write([]byte(text))
	return int(h.Sum32() % n)
}
