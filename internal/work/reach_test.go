package work_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/remote"
)

// said is a log that can be read while it is written.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

// lines are those that have all of some words.
func (s *said) lines(words ...string) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(s.b.String()) {
		has := true
		for _, w := range words {
			has = has && strings.Contains(line, w)
		}
		if has {
			out = append(out, line)
		}
	}
	return out
}

func TestANodeThatStartsWarnsOfEachAddressThatItMayNotCall(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("OPEN", func(d *outbox.Dispatcher) { d.WorkerURL = "http://93.184.215.14/" })
	h.dispatcher("SHUT", nil)
	h.dispatcher("NAMED", func(d *outbox.Dispatcher) { d.WorkerURL = "http://worker.internal:8000/" })
	h.dispatcher("OTHERS", func(d *outbox.Dispatcher) { d.WorkerURL = "http://10.7.7.7/" })
	h.dispatcher("INSIDE", func(d *outbox.Dispatcher) { d.WorkerURL = "noop:" })
	_, err := h.s.PutSender(h.ctx, h.by, pg.Sender{Account: "acct", Pool: "p", WorkerURL: "http://10.1.2.3/"}, 0)
	h.must(err)
	hear := outbox.Subscription{Name: "hear", Kind: "webhook", URL: "http://192.168.1.1/", OnError: "skip"}
	_, err = h.s.Deliveries.PutSubscription(h.ctx, h.by, hear, bytes.Repeat([]byte("s"), 32), 0)
	h.must(err)
	notes := domains.Default()
	notes.Types, notes.Nodes, notes.ServiceURL = []string{"OPEN"}, []string{"self"}, "http://10.6.6.6/"
	_, err = h.s.Domains.Put(h.ctx, h.by, "notes", notes, 0)
	h.must(err)
	log := &said{}
	lookup := func(_ context.Context, _, host string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.9.8.7")}, nil
	}
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Lookup: lookup})
	defer client.Close()
	stop := h.engine("a", func(p *parts) {
		p.Log = slog.New(slog.NewTextHandler(log, nil))
		p.Reach, p.Types = client.Reach(), []string{"OPEN", "SHUT", "NAMED", "INSIDE"}
	})
	const flag = "--worker-allow-cidr"
	for end := time.Now().Add(soon); len(log.lines(flag)) < 4 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	for _, want := range [][]string{
		{"dispatchers/SHUT", "127.0.0.1", "level=WARN"},
		{"dispatchers/NAMED", "worker.internal", "10.9.8.7", "level=WARN"},
		{"subscriptions/hear", "192.168.1.1", "POSTERN_WORKER_ALLOW_CIDR", "level=WARN"},
		{"domains/notes", "10.6.6.6", "level=WARN"},
	} {
		if n := len(log.lines(append(want, flag)...)); n != 1 {
			t.Errorf("%d lines have %q", n, want)
		}
	}
	if all := log.lines(flag); len(all) != 4 {
		t.Errorf("%q", all)
	}
	nodes, err := h.s.Nodes(h.ctx, nil, 0, 10)
	h.must(err)
	if len(nodes) != 1 || strings.Join(nodes[0].AllowCIDR, ",") != "10.1.0.0/16" {
		t.Errorf("the row of the node says %+v", nodes)
	}
}
