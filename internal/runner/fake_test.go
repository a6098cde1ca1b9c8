package runner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/flow"
)

// server is a FAKE of the server's side, with rows in memory behind real HTTP. It keeps the promises of wire.go, and it
// can lose answers. It goes away when the real one is there.
type server struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	ttl      time.Duration
	epoch    int64
	instance string
	seen     time.Time
	fence    int64
	rows     []*row
	calls    map[string]int
	lose     map[string]int // answers to lose, by the last part of the path
	down     bool           // no call is answered
	deaf     string         // calls of this name are not answered
	paused   bool
	denies   int // the status with which it refuses every call; 0: it does not
	late     []string
	claims   int
	changed  sync.Cond
}

// row is one try.
type row struct {
	job    Job
	state  string // Offered, Held, Finished, Failed
	epoch  int64
	heldAt time.Time
	absent int // calls in a row that did not name it
	stop   bool
	lines  []Line
	body   string // that ended it
	fail   FailRequest
	finish FinishRequest
}

func newServer(t *testing.T) *server {
	s := &server{
		t:     t,
		ttl:   15 * time.Second,
		fence: time.Now().UnixMilli(),
		calls: map[string]int{},
		lose:  map[string]int{},
	}
	s.changed.L = &s.mu
	mux := http.NewServeMux()
	handle := func(path string, f func(r *http.Request, body []byte) (int, any)) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, f) })
	}
	handle(PathRegister, s.register)
	handle(PathClaim, s.claim)
	handle(PathRenew, s.renew)
	handle(PathLog, s.log)
	handle(PathFinish, s.end)
	handle(PathFail, s.end)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *server) serve(w http.ResponseWriter, r *http.Request, f func(*http.Request, []byte) (int, any)) {
	verb := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	body := new(strings.Builder)
	if _, err := fmt.Fprint(body, readAll(r)); err != nil {
		return
	}
	s.mu.Lock()
	s.calls[verb]++
	if s.down || s.deaf == verb {
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	status, answer := s.denies, any("unauthenticated")
	if status == 0 {
		status, answer = f(r, []byte(body.String()))
	}
	lost := s.lose[verb] > 0 && status < 300 && (verb != "claim" || status == 200)
	if lost {
		s.lose[verb]--
	}
	lost = lost || s.down
	s.changed.Broadcast()
	s.mu.Unlock()
	if lost {
		panic(http.ErrAbortHandler) // the connection is closed without an answer
	}
	if status >= 400 {
		w.Header().Set("Content-Type", "application/problem+json")
		answer = map[string]any{"code": answer, "status": status, "detail": fmt.Sprint(answer)}
	}
	w.WriteHeader(status)
	if status != http.StatusNoContent {
		json.NewEncoder(w).Encode(answer)
	}
}

func readAll(r *http.Request) string {
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := r.Body.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return b.String()
		}
	}
}

func (s *server) register(_ *http.Request, body []byte) (int, any) {
	var in RegisterRequest
	s.read(body, &in)
	if s.instance != "" && s.instance != in.Instance && time.Since(s.seen) < s.ttl && !in.Takeover {
		return 409, CodeRunnerLive
	}
	if len(in.ScriptTypes) == 0 || in.Slots == 0 || in.Isolation == "" {
		return 422, "invalid"
	}
	s.fence++
	s.epoch, s.instance, s.seen = s.fence, in.Instance, time.Now()
	for _, r := range s.rows {
		s.offer(r)
	}
	return 200, RegisterAnswer{s.epoch, s.ttl.String()}
}

// offer hands out anew what is held.
func (s *server) offer(r *row) {
	if r.state == "Held" {
		s.fence++
		r.state, r.job.Fence = "Offered", s.fence
	}
}

func (s *server) read(body []byte, v any) {
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		s.t.Errorf("%T: %v in %s", v, err, body)
	}
}

// beat compares what a runner says that it holds with the rows.
func (s *server) beat(epoch int64, holds []Hold) (lost, absent []Hold, refused string) {
	if epoch != s.epoch {
		return nil, nil, CodeStaleEpoch
	}
	if holds == nil {
		s.t.Error("holds is null")
	}
	s.seen = time.Now()
	lost, absent = []Hold{}, []Hold{}
	for _, h := range holds {
		r := s.find(h.Try)
		if r == nil || r.state != "Held" || r.job.Fence != h.Fence || r.epoch != epoch {
			lost = append(lost, h)
		}
	}
	for _, r := range s.rows {
		h := Hold{r.job.Try, r.job.Fence}
		switch {
		case r.state != "Held" || slices.Contains(holds, h):
			r.absent = 0
		case r.absent > 0 && time.Since(r.heldAt) > 5*time.Second:
			absent = append(absent, h)
		default:
			r.absent++
		}
	}
	return lost, absent, ""
}

func (s *server) find(id string) *row {
	for _, r := range s.rows {
		if r.job.Try == id {
			return r
		}
	}
	return nil
}

func (s *server) claim(r *http.Request, body []byte) (int, any) {
	var in ClaimRequest
	s.read(body, &in)
	wait, _ := time.ParseDuration(r.URL.Query().Get("wait"))
	until := time.Now().Add(wait)
	stop := time.AfterFunc(wait, func() { s.mu.Lock(); s.changed.Broadcast(); s.mu.Unlock() })
	defer stop.Stop()
	defer func(end func() bool) { end() }(contextEnds(r, s))
	lost, absent, refused := s.beat(in.Epoch, in.Holds)
	for {
		switch {
		case refused != "":
			return 409, refused
		case s.paused:
			return 409, CodeRunnerPaused
		}
		jobs := []Job{}
		for _, h := range absent {
			jobs = append(jobs, s.find(h.Try).job) // its answer was lost
		}
		for _, r := range s.rows {
			if r.state == "Offered" && len(jobs) < in.Max {
				s.fence++
				r.state, r.job.Fence, r.epoch, r.heldAt, r.absent = "Held", s.fence, in.Epoch, time.Now(), 0
				jobs = append(jobs, r.job)
			}
		}
		if len(jobs)+len(lost) > 0 {
			s.claims += len(jobs)
			return 200, ClaimAnswer{jobs, lost}
		}
		if !time.Now().Before(until) || r.Context().Err() != nil {
			return 204, nil
		}
		s.changed.Wait()
		if in.Epoch != s.epoch {
			refused = CodeStaleEpoch
		}
	}
}

func contextEnds(r *http.Request, s *server) func() bool {
	done := make(chan struct{})
	go func() {
		select {
		case <-r.Context().Done():
			s.mu.Lock()
			s.changed.Broadcast()
			s.mu.Unlock()
		case <-done:
		}
	}()
	return func() bool { close(done); return true }
}

func (s *server) renew(_ *http.Request, body []byte) (int, any) {
	var in RenewRequest
	s.read(body, &in)
	lost, absent, refused := s.beat(in.Epoch, in.Holds)
	if refused != "" {
		return 409, refused
	}
	for _, h := range absent {
		s.offer(s.find(h.Try))
	}
	stop := []Hold{}
	for _, h := range in.Holds {
		if r := s.find(h.Try); r != nil && r.stop && r.job.Fence == h.Fence {
			stop = append(stop, h)
		}
	}
	return 200, RenewAnswer{s.ttl.String(), lost, stop}
}

// held is the row that a call is about.
func (s *server) held(r *http.Request) (*row, int64, int, string) {
	fence, err := strconv.ParseInt(r.Header.Get(HeaderFence), 10, 64)
	row := s.find(r.PathValue("id"))
	switch {
	case err != nil:
		return nil, 0, 428, "fence_required"
	case row == nil:
		return nil, 0, 404, CodeNotFound
	case row.job.Fence != fence:
		s.late = append(s.late, r.URL.Path)
		return nil, 0, 409, CodeStaleFence
	}
	return row, fence, 0, ""
}

func (s *server) log(r *http.Request, body []byte) (int, any) {
	var in LogRequest
	s.read(body, &in)
	row, _, status, refused := s.held(r)
	if refused != "" {
		return status, refused
	}
	if len(in.Lines) > 1000 {
		return 422, "invalid"
	}
	for _, l := range in.Lines {
		if l.N == len(row.lines)+1 {
			row.lines = append(row.lines, l)
		} else if l.N > len(row.lines) {
			s.t.Errorf("line %d comes behind %d", l.N, len(row.lines))
		}
	}
	return 204, nil
}

func (s *server) end(r *http.Request, body []byte) (int, any) {
	row, _, status, refused := s.held(r)
	if refused != "" {
		return status, refused
	}
	if row.state != "Held" {
		if row.body != string(body) {
			s.t.Errorf("another body for the same end:\n%s\n%s", row.body, body)
			return 409, "wrong_state"
		}
		return 200, EndAnswer{false}
	}
	var left struct{ Result, Partial json.RawMessage }
	_ = json.Unmarshal(body, &left) // members of either call
	for _, raw := range []json.RawMessage{left.Result, left.Partial} {
		if _, err := flow.CheckResult("result", raw); err != nil {
			return 422, "invalid"
		}
	}
	row.body, row.state = string(body), "Failed"
	if strings.HasSuffix(r.URL.Path, "/finish") {
		row.state = "Finished"
		s.read(body, &row.finish)
	} else {
		s.read(body, &row.fail)
	}
	return 200, EndAnswer{true}
}

// add offers a script.
func (s *server) add(script string, change ...func(*Job)) *row {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.rows) + 1
	r := &row{state: "Offered", job: Job{
		Try:        fmt.Sprintf("00000000-0000-0000-0000-%012d", n),
		Job:        fmt.Sprintf("job-%d", n),
		Context:    "default",
		Token:      fmt.Sprintf("tx-%d.1", n),
		Attempt:    1,
		ScriptType: "python",
		Script:     script,
		Timeout:    120,
		Env:        map[string]string{"POSTERN_ATTEMPT": "1"},
	}}
	for _, f := range change {
		f(&r.job)
	}
	s.rows = append(s.rows, r)
	s.changed.Broadcast()
	return r
}

// sees waits until a condition holds of the rows.
func (s *server) sees(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		good := ok()
		s.mu.Unlock()
		if good {
			return
		}
		if time.Now().After(end) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, r := range s.rows {
				s.t.Logf("%s: %s fence %d, %+v %+v", r.job.Job, r.state, r.job.Fence, r.finish, r.fail)
			}
			s.t.Fatalf("after a minute still not: %s (calls %v)", what, slices.Sorted(maps.Keys(s.calls)))
		}
	}
}

func (r *row) text() string {
	var b strings.Builder
	for _, l := range r.lines {
		b.WriteString(cmp.Or(l.Stream, "?") + ":" + l.Text + "\n")
	}
	return b.String()
}
