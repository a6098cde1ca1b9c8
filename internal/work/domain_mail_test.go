package work_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/work"
)

// refuses is a way to a peer that does not let some bodies through, as a proxy does, or all of them.
type refuses struct {
	mu    sync.Mutex
	all   bool
	calls []string // what they bring
}

func (r *refuses) call(_ context.Context, c remote.PeerCall) (a remote.PeerAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	said := c.Verb
	for n := range 9 {
		if bytes.Contains(c.Body, fmt.Appendf(nil, `"reason":"%d`, n)) {
			said += fmt.Sprint(" ", n)
		}
	}
	r.calls = append(r.calls, said)
	if r.all || bytes.Contains(c.Body, []byte("poison")) {
		a.Class, a.Code, a.Status = outbox.ClassBlocked, "peer_http_413", http.StatusRequestEntityTooLarge
		return a
	}
	a.Installation, a.Status = "there", http.StatusOK
	return a
}

// One message that a peer, or what stands before it, does not read holds up none of those that go there in the same
// call. It is dropped if the peer answers at all: else the way is what refuses, and all is kept.
func TestAMessageThatIsNotReadHoldsUpNoOther(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("TOK", nil)
	_, err := h.s.Pool().Exec(h.ctx, `WITH bob AS (
			INSERT INTO postern.peer (context_id, name, url) VALUES ($1, 'bob', 'http://127.0.0.1:1/')
			RETURNING peer_id)
		INSERT INTO postern.peer_secret (peer_id, secret) SELECT peer_id, 'secret' FROM bob`, h.by.Context)
	h.must(err)
	s := h.store()
	set := domains.Default()
	set.Types, set.ServiceURL = []string{"TOK"}, "http://127.0.0.1:1"
	set.Nodes, set.Mode, set.Static = []string{"self", "bob"}, "STATIC", "bob"
	_, err = s.Domains.Put(h.ctx, h.by, "tok", set, 0)
	h.must(err)
	way := &refuses{all: true}
	e := work.New(work.Config{Store: s, NodeName: "n", TTL: time.Hour, Log: slog.New(slog.DiscardHandler)})
	d := work.NewDomains(e, nil, work.NewPeers(e, work.PeersConfig{Call: way.call}))
	for n := range 5 {
		reason := fmt.Sprint(n)
		if n == 2 {
			reason += " poison"
		}
		_, err := s.Pool().Exec(h.ctx, `INSERT INTO postern.coord_out (domain_id, node, slot, beat, message, makers, at)
			SELECT d.domain_id, 'bob', $1, $2, json_build_object('kind', 'Heartbeat', 'from', 'self', 'to', 'bob',
				'beat', $2::bigint, 'reason', $1::text), '{}', clock_timestamp()
			FROM postern.domain d`, reason, n+1)
		h.must(err)
	}
	left := func() (n int) {
		h.must(s.Pool().QueryRow(h.ctx, `SELECT count(*) FROM postern.coord_out`).Scan(&n))
		return n
	}
	sends := func(until func() bool) (calls []string) {
		t.Helper()
		for end := time.Now().Add(soon); !until(); time.Sleep(10 * time.Millisecond) {
			_, err := d.SendOnce(h.ctx)
			h.must(err)
			if time.Now().After(end) {
				t.Fatalf("%d messages are left behind the calls %q", left(), way.calls)
			}
		}
		way.mu.Lock()
		defer way.mu.Unlock()
		calls, way.calls = way.calls, nil
		return calls
	}
	calls := sends(func() bool { way.mu.Lock(); defer way.mu.Unlock(); return len(way.calls) > 1 })
	if left() != 5 || !slices.Equal(calls[:2], []string{"coord 0 1 2 3 4", "hello"}) {
		t.Errorf("on a way that refuses all, %d are left behind the calls %q", left(), calls)
	}
	way.mu.Lock()
	way.all = false
	way.mu.Unlock()
	calls = sends(func() bool { return left() == 0 })
	if got := strings.Join(calls, ", "); !strings.HasSuffix(got,
		"coord 0 1 2 3 4, hello, coord 0, coord 1, coord 2, hello, coord 3, coord 4") {
		t.Error("the calls are", got)
	}
}
