package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// poisons are requests that are wrong, or look so. What is answered has to be a refusal that names what is wrong; a
// success, where the body is only odd; or, while something else is broken, something that can be repeated.
func poisons(r *rand.Rand) map[string]string {
	deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
	of := func(data string) string { return `{"queue": "poison", "type": "PAY", "data": ` + data + `}` }
	return map[string]string{
		"deep":     of(deep),
		"deep[]":   of(strings.Repeat("[", 100000)),
		"nul":      of(`{"a": "\u0000"}`),
		"utf8":     of("\"\xff\xfe\xc0\""),
		"lone":     of(`"\ud800"`),
		"huge":     of(`{"n": 1e999999, "m": -0.1e-99999}`),
		"digits":   of(`{"n": ` + strings.Repeat("9", 20000) + `}`),
		"large":    of(`"` + strings.Repeat("x", 2<<20) + `"`),
		"cut":      `{"queue": "poison", "type": "PAY", "data": {`,
		"twice":    `{"queue": "poison", "queue": "other", "type": "PAY", "data": {}}`,
		"type":     `{"queue": "poison", "type": "PAY\u0000", "data": {}}`,
		"queue":    `{"queue": "` + strings.Repeat("q", 10000) + `", "type": "PAY", "data": {}}`,
		"retries":  `{"queue": "poison", "type": "PAY", "data": {}, "max_retries": 99999999999999999999}`,
		"array":    `[]`,
		"nothing":  ``,
		"random":   fmt.Sprintf("%x", r.Uint64()),
		"callback": `{"queue": "poison", "type": "PAY", "data": {}, "callback": {"url": "gopher://[::1]:1/"}}`,
	}
}

func poisonPosts(ctx context.Context, w *world, r *rand.Rand) {
	bodies, answered := poisons(r), 0
	for _, name := range slices.Sorted(maps.Keys(bodies)) {
		body := bodies[name]
		uid := fmt.Sprintf("poison-%s-%d", name, r.Uint32())
		status, answer := w.client.send(ctx, w.client.apis[r.IntN(len(w.client.apis))], uid, []byte(body))
		if status > 0 {
			answered++
		}
		if status >= 500 && !retryable(answer) {
			w.client.fault("poison %s is answered %d %.200s", name, status, answer)
		}
	}
	// a batch that never ends, and one that says it is zipped
	for _, encoding := range []string{"", "gzip"} {
		endless := io.LimitReader(zeros{}, 64<<20)
		q, err := http.NewRequestWithContext(ctx, "POST", w.client.apis[0]+"/transactions:batch", endless)
		if err != nil {
			continue
		}
		q.Header.Set("Authorization", "Bearer "+w.client.key)
		q.Header.Set("Content-Type", "application/json")
		if encoding != "" {
			q.Header.Set("Content-Encoding", encoding)
		}
		if a, err := w.client.http.Do(q); err == nil {
			a.Body.Close()
			answered++
			if a.StatusCode < 400 {
				w.client.fault("an endless body is answered %d", a.StatusCode)
			}
		}
	}
	if answered == 0 {
		w.missed("nothing was answered")
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	copy(b, bytes.Repeat([]byte{' '}, len(b)))
	return len(b), nil
}

// connections opens n connections to the API.
func (w *world) connections(ctx context.Context, n int) (list []net.Conn) {
	var dialer net.Dialer
	for i := range n {
		c, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(w.ways.direct[i%len(w.ways.direct)], "http://"))
		if err != nil {
			break
		}
		list = append(list, c)
	}
	return list
}

// idle opens connections on which nothing is asked, and keeps them for some seconds.
func idle(ctx context.Context, w *world, _ *rand.Rand) {
	list := w.connections(ctx, w.idle)
	w.most("idle connections", len(list))
	if len(list) == 0 {
		w.missed("no connection was taken")
	}
	w.background(func(ctx context.Context) {
		wait(ctx, 8*time.Second)
		for _, c := range list {
			c.Close()
		}
	})
	wait(ctx, 3*time.Second)
}

// drip sends a request a byte at a time, on many connections.
func drip(ctx context.Context, w *world, _ *rand.Rand) {
	list := w.connections(ctx, w.drips)
	w.most("dripping connections", len(list))
	if len(list) == 0 {
		w.missed("no connection was taken")
	}
	w.background(func(ctx context.Context) {
		request := "POST /transactions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + w.client.key +
			"\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat(" ", 1000)
		for i := 0; i < 80 && wait(ctx, 100*time.Millisecond); i++ {
			for _, c := range list {
				c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
				fmt.Fprint(c, request[i*4:i*4+4])
			}
		}
		for _, c := range list {
			c.Close()
		}
	})
	wait(ctx, 3*time.Second)
}
