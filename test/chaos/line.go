package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// line is the way from one installation to the processes of another. Its front loses and delays bytes; behind that it
// knows requests, which it may send twice, or late.
type line struct {
	front   *proxy
	server  *http.Server
	targets []string // URLs; each request goes to the next one
	client  http.Client
	next    atomic.Uint64

	mu      sync.Mutex
	doubles bool
	holds   bool // each third request for up to five seconds
	doubled int
	held    int

	brought []time.Time // when calls came that bring messages
	harmed  time.Time   // when the last fault of the line began or ended
}

func newLine(targets []string) (*line, error) {
	l := &line{targets: targets, client: http.Client{Timeout: time.Minute, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.server = &http.Server{Handler: l}
	go l.server.Serve(at)
	l.front, err = newProxy(at.Addr().String())
	return l, err
}

// ServeHTTP passes a request on. One that is held up, or comes twice, gets there also if its sender has given it up.
func (l *line) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	n := l.next.Add(1)
	l.mu.Lock()
	if strings.HasSuffix(r.URL.Path, "/messages") {
		l.brought = append(l.brought, time.Now())
	}
	double, hold := l.doubles, l.holds && n%3 == 0
	if double {
		l.doubled++
	}
	if hold {
		l.held++
	}
	l.mu.Unlock()
	if hold {
		time.Sleep(time.Duration(roll(fmt.Sprint("held", n), 5000)) * time.Millisecond)
	}
	ctx := context.WithoutCancel(r.Context())
	if double {
		go l.send(ctx, r, body, n+1)
	}
	status, header, answer := l.send(ctx, r, body, n)
	for name, values := range header {
		out.Header()[name] = values
	}
	out.WriteHeader(status)
	out.Write(answer)
}

// send sends a request to the n-th target, or to the next one that takes the connection.
func (l *line) send(ctx context.Context, r *http.Request, body []byte, n uint64) (int, http.Header, []byte) {
	for i := range l.targets {
		target := l.targets[(n+uint64(i))%uint64(len(l.targets))]
		q, err := http.NewRequestWithContext(ctx, r.Method, target+r.URL.RequestURI(), bytes.NewReader(body))
		if err != nil {
			break
		}
		q.Header = r.Header.Clone()
		a, err := l.client.Do(q)
		if err != nil && strings.Contains(err.Error(), "connection refused") {
			continue
		}
		if err != nil {
			break
		}
		defer a.Body.Close()
		answer, err := io.ReadAll(a.Body)
		if err != nil {
			break
		}
		return a.StatusCode, a.Header, answer
	}
	return http.StatusBadGateway, nil, []byte("the line is bad")
}

// set says what it does with requests.
func (l *line) set(doubles, holds bool) {
	l.mu.Lock()
	l.doubles, l.holds = doubles, holds
	l.mu.Unlock()
}

// heal lets everything pass again.
func (l *line) heal() {
	l.set(false, false)
	l.front.heal()
}

// lineDoes breaks the line for some seconds.
func lineDoes(most time.Duration, how func(*line, *rand.Rand)) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, r *rand.Rand) {
		l := w.anyLine(r)
		if l == nil {
			w.missed("there is no line")
			return
		}
		before := l.touched()
		l.isHarmed()
		how(l, r)
		wait(ctx, time.Second+time.Duration(r.Int64N(int64(most))))
		l.heal()
		l.isHarmed()
		if l.touched() == before {
			w.missed("nothing came along the line")
		}
	}
}

func (l *line) isHarmed() {
	l.mu.Lock()
	l.harmed = time.Now()
	l.mu.Unlock()
}

// broughtSince counts the calls that brought messages since a time, of an installation that was restored before. Where
// a fault of the line was there since then, it may have held up what was sent earlier: none is counted.
func (l *line) broughtSince(restored, since time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.brought {
		if at.After(since) && l.harmed.Before(restored) {
			n++
		}
	}
	return n
}

// touched is how much has come to harm in it so far: requests that came twice or late, and bytes in its front.
func (l *line) touched() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doubled + l.held + l.front.touchedSoFar()
}

func lineDrops(requests, answers bool) func(context.Context, *world, *rand.Rand) {
	return lineDoes(8*time.Second, func(l *line, _ *rand.Rand) { l.front.drop(requests, answers) })
}

func lineCut(_ context.Context, w *world, r *rand.Rand) {
	if l := w.anyLine(r); l == nil || l.front.cut() == 0 {
		w.missed("there is no line, or no connection in it")
	}
}

// anyLine returns one of the lines between installations; nil: there is none.
func (w *world) anyLine(r *rand.Rand) *line {
	switch {
	case w.pair != nil:
		return w.pair.line
	case w.domain != nil:
		return w.domain.lines[r.IntN(len(w.domain.lines))]
	}
	return nil
}

func lineSlow(l *line, r *rand.Rand) {
	l.front.slow(time.Duration(20+r.Int64N(400)) * time.Millisecond)
}

func lineDoubles(l *line, _ *rand.Rand) { l.set(true, false) }

func lineHolds(l *line, _ *rand.Rand) { l.set(false, true) }
