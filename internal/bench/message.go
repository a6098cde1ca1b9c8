package bench

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/remote/signature"
)

// Messages go from 32 actors to another installation, 50 of each actor, over a line with or without a delay.
const (
	messageActors = 32
	messagesEach  = 50
	lineDelay     = 25 * time.Millisecond // in each direction
)

// messageSteady measures how long messages take that are posted at a steady rate, below what messageRuns measures.
func messageSteady(ctx context.Context, b *Bench) ([]*Result, error) {
	each := max(1, int(b.MessageRate*b.Length.Seconds())/messageActors)
	pace := time.Duration(float64(messageActors) / b.MessageRate * float64(time.Second))
	return b.messages(ctx, "messages-steady", messageLoad{each, pace})
}

// messageLoad is how many messages each actor posts, and how long it takes from one to the next; 0: no longer than its
// post takes.
type messageLoad struct {
	each int
	pace time.Duration
}

// messageRuns measures how many messages a second reach another installation, which has a database of its own, and how
// long each takes from its post until the answer that it is stored there: over the loopback, and with a line between.
func messageRuns(ctx context.Context, b *Bench) (all []*Result, err error) {
	return b.messages(ctx, "messages", messageLoad{each: messagesEach})
}

// messages measures a load over the loopback, and over a line.
func (b *Bench) messages(ctx context.Context, name string, l messageLoad) (all []*Result, err error) {
	far, drop, err := b.fork(ctx, "far")
	if err != nil {
		return nil, err
	}
	defer drop()
	for _, delay := range []time.Duration{0, lineDelay} {
		var trials []*trial
		for i := range b.Runs {
			t, err := b.messageRun(ctx, far, delay, l)
			if err != nil {
				return all, err
			}
			b.told(fmt.Sprintf("%s, %s of line", name, 2*delay), i, t)
			trials = append(trials, t)
		}
		r := b.summary(name, "postern", trials)
		r.timed(trials, "delivery")
		r.Settings["actors"], r.Settings["messages_of_each"] = messageActors, l.each
		if l.pace > 0 {
			r.Settings["posts_a_second"] = b.MessageRate
		}
		r.Settings["line_ms"] = (2 * delay).Milliseconds()
		all = append(all, r)
	}
	return all, nil
}

// messageRun starts both installations, makes them known to each other, and has each actor post one message after the
// other.
func (b *Bench) messageRun(ctx context.Context, other *Bench, delay time.Duration, l messageLoad) (_ *trial,
	err error) {
	var at [2]*Process
	for i, of := range []*Bench{b, other} {
		if err := of.reset(ctx); err != nil {
			return nil, err
		}
		if at[i], err = of.launch(ctx, RoleBoth); err != nil {
			return nil, err
		}
		defer at[i].Stop()
		if err := at[i].Go(); err != nil {
			return nil, err
		}
		if err := ready(ctx, at[i].URL); err != nil {
			return nil, err
		}
	}
	line, err := newLine(at[1].URL, delay)
	if err != nil {
		return nil, err
	}
	defer line.Close()
	senders, to, err := meetFar(ctx, at[0].URL, at[1].URL, "http://"+line.Addr().String())
	if err != nil {
		return nil, err
	}
	m, err := b.meter(ctx, map[string]*Process{RoleBoth: at[0]})
	if err != nil {
		return nil, err
	}
	if err := post(ctx, at[0].URL, senders, to, l); err != nil {
		return nil, err
	}
	t := &trial{n: messageActors * l.each, times: map[string]*histogram{"delivery": {}}}
	if err := b.delivered(ctx, t); err != nil {
		return nil, err
	}
	if t.cost, err = m.stop(ctx); err != nil {
		return nil, err
	}
	var stored int
	err = other.pool.QueryRow(ctx, `SELECT count(*) FROM postern.message`).Scan(&stored)
	t.judge(amiss{t.n - stored, "%d messages are not at the other installation"})
	return t, err
}

// meetFar makes two installations known to each other, and actors to both.
func meetFar(ctx context.Context, near, far, door string) (keys []ed25519.PrivateKey, to message.Audience, err error) {
	const secret = "whsec_YmVuY2gtYmVuY2gtYmVuY2gtYmVuY2gtYmVuY2gh"
	for range messageActors {
		public, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			return nil, to, err
		}
		keys = append(keys, key)
		for _, at := range []string{near, far} {
			var made struct{ ID string }
			if err := call(ctx, nil, http.MethodPost, at+"/actors", map[string]any{"public_keys": []string{
				base64.StdEncoding.EncodeToString(public)}}, &made); err != nil {
				return nil, to, err
			}
			if err := call(ctx, nil, http.MethodPut, at+"/contexts/default/members/"+made.ID,
				map[string]any{"roles": []string{"admin"}}, nil); err != nil {
				return nil, to, err
			}
		}
	}
	to = message.Audience{Context: "default", Peer: "near"}
	if err := call(ctx, nil, http.MethodPut, far+"/peers/near", map[string]any{"secret": secret}, nil); err != nil {
		return nil, to, err
	}
	if err := call(ctx, nil, http.MethodPut, near+"/peers/far", map[string]any{"secret": secret,
		"url": door + "/contexts/default/peers/near"}, nil); err != nil {
		return nil, to, err
	}
	var said struct{ Installation string }
	err = call(ctx, nil, http.MethodPost, near+"/peers/far/check", nil, &said)
	to.Installation = said.Installation
	return keys, to, err
}

// post has each actor post its messages, one after the other.
func post(ctx context.Context, near string, keys []ed25519.PrivateKey, to message.Audience, l messageLoad) error {
	var wg sync.WaitGroup
	failed := make(chan error, len(keys))
	began := time.Now()
	for k, key := range keys {
		wg.Go(func() {
			for i := range l.each {
				turn := float64(i) + float64(k)/float64(len(keys)) // actors do not begin at one time
				time.Sleep(time.Until(began.Add(time.Duration(turn * float64(l.pace)))))
				envelope, err := message.Write(message.Signed{Audience: to, CreatedAt: time.Now().UTC(),
					Type: message.Chat, Body: fmt.Sprint(i)}, key)
				if err == nil {
					err = call(ctx, key, http.MethodPost, near+"/messages", map[string]any{
						"to": map[string]string{"peer": "far"}, "envelope": json.RawMessage(envelope)}, nil)
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// delivered waits until all messages are, and notes how long that took each.
func (b *Bench) delivered(ctx context.Context, t *trial) error {
	for began := time.Now(); ; {
		var open int
		if err := b.pool.QueryRow(ctx, `SELECT count(*) FROM postern.message WHERE delivered_at IS NULL`).
			Scan(&open); err != nil {
			return err
		}
		if open == 0 {
			break
		}
		if time.Since(began) > stuck {
			return fmt.Errorf("%d messages were not delivered within %s", open, stuck)
		}
		time.Sleep(20 * time.Millisecond)
	}
	var seconds float64
	var took []float64
	err := b.pool.QueryRow(ctx, `SELECT extract(epoch FROM max(delivered_at) - min(created_at))::float8,
			array_agg(extract(epoch FROM delivered_at - created_at)::float8)
		FROM postern.message`).Scan(&seconds, &took)
	t.took = time.Duration(seconds * float64(time.Second))
	for _, s := range took {
		t.times["delivery"].add(time.Duration(s * float64(time.Second)))
	}
	return err
}

// messageClient keeps a connection for each actor.
var messageClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: messageActors}}

// call makes one request, signed by a key if there is one.
func call(ctx context.Context, key ed25519.PrivateKey, method, at string, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != nil {
		if err := (signature.Signer{Key: key}).Sign(req.Header, method, at, text, time.Now()); err != nil {
			return err
		}
	}
	res, err := messageClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err
	case res.StatusCode/100 != 2:
		return fmt.Errorf("%s %s answers %s: %.300s", method, at, res.Status, b)
	case out == nil:
		return nil
	}
	return json.Unmarshal(b, out)
}

// newLine passes on connections to a server, and holds up what goes over it by a delay in each direction.
func newLine(server string, delay time.Duration) (net.Listener, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", strings.TrimPrefix(u.Host, "//"))
			if err != nil {
				near.Close()
				continue
			}
			go late(far, near, delay)
			go late(near, far, delay)
		}
	}()
	return l, nil
}

// late copies what comes from one end to the other, each piece after a delay.
func late(to, from net.Conn, delay time.Duration) {
	type piece struct {
		due  time.Time
		data []byte
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			data := make([]byte, 32<<10)
			n, err := from.Read(data)
			if n > 0 {
				pieces <- piece{time.Now().Add(delay), data[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	to.Close()
	from.Close()
}
