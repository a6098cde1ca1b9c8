package work_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/work"
)

// serviceFunc is the service of a domain.
type serviceFunc func(remote.DomainCall) remote.DomainReply

func (f serviceFunc) Domain(_ context.Context, c remote.DomainCall) remote.DomainReply { return f(c) }

// A domain is removed while its service is asked to endorse for another node: no step waits for the answer, and so the
// process does not go round with it.
func TestAnAnswerForADomainThatIsRemovedIsDropped(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("TOK", nil)
	if _, err := h.s.Pool().Exec(h.ctx, `INSERT INTO postern.peer (context_id, name, url)
		VALUES ($1, 'bob', 'http://127.0.0.1:1/')`, h.by.Context); err != nil {
		t.Fatal(err)
	}
	s, now := h.store(), time.Now()
	s.SetNow(&now)
	set := domains.Default()
	set.Types, set.ServiceURL = []string{"TOK"}, "http://127.0.0.1:1"
	set.Nodes, set.Mode, set.Static = []string{"self", "bob"}, "STATIC", "bob"
	set.Heartbeat = outbox.Duration(time.Second)
	_, err := s.Domains.Put(h.ctx, h.by, "tok", set, 0)
	h.must(err)
	asked := 0
	service := serviceFunc(func(c remote.DomainCall) remote.DomainReply {
		asked++
		h.must(s.Domains.Remove(h.ctx, h.by, "tok"))
		return remote.DomainReply{Body: json.RawMessage(`{"endorsement": "e"}`)}
	})
	e := work.New(work.Config{Store: s, NodeName: "n", TTL: time.Hour, Log: slog.New(slog.DiscardHandler)})
	e.Add(work.NewDomains(e, service, work.NewPeers(e, work.PeersConfig{})).System())
	h.must(e.Manual(h.ctx))
	round := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(h.ctx, time.Minute)
		defer cancel()
		h.must(e.Round(ctx))
	}
	round()
	for range 3 { // it waits no longer for a greeting
		now = now.Add(time.Second)
		round()
	}
	made := json.RawMessage(`{"assembled": 1, "inputs": [], "outputs": [], "plan": []}`)
	word, err := json.Marshal(domains.Parcel{Domain: "tok", Made: made, Message: coord.Message{
		Kind: coord.EndorsementRequest, From: "bob", To: "self", Install: 1, Beat: 5, Generation: 1, Key: "k",
		ID: "0190c1e6-0000-7000-8000-000000000001", Name: "notary", Party: "nan@self", Hash: coord.HashOf(made)}})
	h.must(err)
	_, err = s.Domains.Arrive(h.ctx, h.by.Context, "bob", []json.RawMessage{word})
	h.must(err)
	round()
	if asked != 1 {
		t.Errorf("the service was asked %d times", asked)
	}
}
