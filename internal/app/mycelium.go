package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/mycelium"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/safe"
)

const (
	couriers     = 600                    // requests from the network at a time: more than may wait for news
	courierHeld  = 300                    // of them those of one key
	courierEach  = 24                     // of these those being answered, beside those that wait for news
	courierTurn  = 20 * time.Second       // for one of a key to have its turn: its caller waits no longer than 30 s
	courierEvery = 100 * time.Millisecond // how often the node is asked for the next one
	courierRetry = time.Second            // after the node has not answered
	courierMost  = 4 << 20                // bytes of one message: a node takes requests of 2 MiB
	courierPop   = 10 * time.Second       // for the node to hand one over
	courierReply = 30 * time.Second       // for the node to take an answer
	courierPlay  = 2 * time.Minute        // for the handler to answer
)

// courier takes requests of peers from the local node of a Mycelium network, has the API of this process answer them,
// and sends the answers back.
//
// A message that is taken is gone from the node. A process that dies before it has replied loses the request, or its
// answer: the caller gets none in its time, and asks by token or brings the same message again, as after any call whose
// answer was lost. Nothing has to be kept here.
//
// The node is asked again and again without a wait, where its API offers to wait 30 s for a message. While a released
// node waits it answers nothing else, so that each push and each reply over it would stand for as long.
type courier struct {
	node  *mycelium.Node
	door  http.Handler
	log   *slog.Logger
	slots chan struct{}

	mu    sync.Mutex
	over  bool
	each  map[string]*ofKey
	plays sync.WaitGroup
}

// ofKey is what is under way for one key.
type ofKey struct {
	held  int
	turns chan struct{}
}

func newCourier(at string, door http.Handler, log *slog.Logger) *courier {
	over := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
	}
	return &courier{
		node:  mycelium.New(at, over),
		door:  door,
		log:   log,
		slots: make(chan struct{}, couriers),
		each:  map[string]*ofKey{},
	}
}

// run takes messages until ctx ends. It takes none without a slot for it, so that the node keeps what is too much.
func (c *courier) run(ctx context.Context) {
	away := false
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case c.slots <- struct{}{}:
		}
		took, err := c.take(ctx)
		if took && err == nil {
			continue
		}
		if !took {
			<-c.slots
		}
		rest := courierEvery
		if err != nil {
			rest = courierRetry
		}
		if (err != nil) != away {
			if away = err != nil; away {
				c.log.Warn("no requests come from the Mycelium node", "error", err)
			} else {
				c.log.Info("the Mycelium node answers again")
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
}

// take has one message answered, which then holds the slot. A request to the node is not broken off when the process
// begins to stop: the message that it has handed over would be lost.
func (c *courier) take(ctx context.Context) (took bool, err error) {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return false, nil
	}
	c.plays.Add(1)
	c.mu.Unlock()
	defer func() {
		if !took {
			c.plays.Done()
		}
	}()
	ctx = context.WithoutCancel(ctx)
	popping, cancel := context.WithTimeout(ctx, courierPop)
	defer cancel()
	m, err := c.node.Pop(popping, courierMost)
	if errors.Is(err, mycelium.ErrTooLarge) || errors.Is(err, mycelium.ErrNoReply) { // from a stranger: it is gone
		<-c.slots
		c.plays.Done()
		return true, nil
	}
	if m == nil || err != nil {
		return false, err
	}
	go safe.Run("mycelium request", func() {
		defer func() {
			<-c.slots
			c.plays.Done()
		}()
		c.serve(ctx, m)
	})
	return true, nil
}

// enter counts one more request of a key; leave takes that back. nil: the key has as many under way as it may.
func (c *courier) enter(key string) (of *ofKey, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of = c.each[key]
	if of == nil {
		of = &ofKey{turns: make(chan struct{}, courierEach)}
		c.each[key] = of
	}
	if of.held >= courierHeld {
		return nil, nil
	}
	of.held++
	return of, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if of.held--; of.held == 0 {
			delete(c.each, key)
		}
	}
}

// turn waits until a request may be answered beside the others of its key. A question that waits for news takes no turn
// of those that bring something: with many contexts such questions alone would have them all.
func (of *ofKey) turn(r *http.Request) (end func(), ok bool) {
	if strings.HasSuffix(r.URL.Path, "/"+remote.PeerFollow) {
		return func() {}, true
	}
	late := time.NewTimer(courierTurn)
	defer late.Stop()
	select {
	case of.turns <- struct{}{}:
		return func() { <-of.turns }, true
	case <-late.C:
	case <-r.Context().Done(): // this process ends
	}
	return nil, false
}

// serve answers one message.
func (c *courier) serve(ctx context.Context, m *mycelium.Message) {
	answer := said(http.StatusServiceUnavailable, "too many requests of this key are under way")
	if of, leave := c.enter(m.SrcPk); of != nil {
		answer = c.play(ctx, m, of)
		leave()
	}
	if answer == nil {
		return
	}
	err := c.reply(ctx, m, answer)
	var refused *mycelium.Refusal
	if errors.As(err, &refused) && refused.Status == http.StatusRequestEntityTooLarge {
		err = c.reply(ctx, m, said(http.StatusBadGateway, "the answer is larger than what the Mycelium node takes"))
	}
	if err != nil { // the caller asks again
		c.log.Warn("an answer did not go to the Mycelium node", "key", m.SrcPk, "error", err)
	}
}

func (c *courier) reply(ctx context.Context, m *mycelium.Message, a *mycelium.Answer) error {
	payload, err := json.Marshal(a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, courierReply)
	defer cancel()
	return c.node.Reply(ctx, m, payload)
}

// play has the door answer a request; nil: it broke off, and there is no answer.
func (c *courier) play(ctx context.Context, m *mycelium.Message, of *ofKey) (a *mycelium.Answer) {
	ctx, cancel := context.WithTimeout(ctx, courierTurn+courierPlay)
	defer cancel()
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler { //nolint:errorlint // thrown as it is
			panic(v)
		}
	}()
	var call mycelium.Call
	if json.Unmarshal(m.Payload, &call) != nil {
		return said(http.StatusBadRequest, "the message is no request: want {method, path, headers, body} in JSON")
	}
	r, err := call.Request(ctx)
	if err != nil {
		return said(http.StatusBadRequest, "the message is no request: "+err.Error())
	}
	end, ok := of.turn(r)
	if !ok {
		return said(http.StatusServiceUnavailable, "too many requests of this key are being answered")
	}
	defer end()
	r.RemoteAddr = m.SrcPk
	w := &played{header: http.Header{}}
	c.door.ServeHTTP(w, r)
	if w.status == 0 { // it was given up, and may have been done
		return said(http.StatusServiceUnavailable, "this was not answered in time")
	}
	return &mycelium.Answer{Status: w.status, Headers: w.sent, Body: w.body.Bytes()}
}

// said is an answer that comes from here.
func said(status int, detail string) *mycelium.Answer {
	body, _ := json.Marshal(map[string]any{"status": status, "detail": detail}) // texts and numbers never fail
	header := http.Header{"Content-Type": {"application/problem+json"}}
	return &mycelium.Answer{Status: status, Headers: header, Body: body}
}

// end waits until what was taken is answered, and takes nothing more; an error: ctx has ended before. A courier that is
// nil has nothing.
func (c *courier) end(ctx context.Context) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	done := make(chan struct{})
	go safe.Run("mycelium end", func() {
		c.plays.Wait()
		c.node.Close()
		close(done)
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// played is an answer in memory.
type played struct {
	header, sent http.Header
	status       int
	body         bytes.Buffer
}

// Header is what the handler writes.
func (p *played) Header() http.Header { return p.header }

// WriteHeader keeps the status, and the header as it is now.
func (p *played) WriteHeader(status int) {
	if p.status == 0 && status >= 200 {
		p.status, p.sent = status, maps.Clone(p.header)
	}
}

// Write keeps a part of the body.
func (p *played) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	return p.body.Write(b)
}
