package work_test

import (
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remotetest"
)

// S1.12: the worker that signs is told what the settings of its sender say, such as the leader cap and the gas coin of
// a channel, with each attempt and in hooks. A sender without attributes adds no member.
func TestACallSaysTheAttributesOfItsSender(t *testing.T) {
	h := newHouse(t)
	put := func(account, pool string, attributes string) {
		t.Helper()
		_, err := h.s.PutSender(h.ctx, h.by,
			pg.Sender{Account: account, Pool: pool, Attributes: json.RawMessage(attributes)}, 0)
		h.must(err)
	}
	const cap1 = `{"cap": "0xa1", "wallet": "w", "gas_coin": "0xb1"}`
	const cap2 = `{"cap": "0xa2"}`
	put("cap-1", leader.PoolOfResults, cap1)
	put("signer", "signers", cap2)
	put("plain", "p", `{}`)
	h.dispatcher(leader.TypeResult, func(d *outbox.Dispatcher) { d.Pool = leader.PoolOfResults })
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	h.dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "signers" })
	dispatch := func(typ string) remotetest.Match {
		return remotetest.Match{Op: remotetest.OpDispatch, Type: typ}
	}
	busy := remotetest.FailWith(map[string]any{"class": "retry", "code": "busy"})
	h.fake.Script(dispatch("S"), busy, remotetest.Drop(), remotetest.Done("ok"))
	h.fake.Script(dispatch(leader.TypeResult), remotetest.Done("ok"))
	h.fake.Script(dispatch("T"), remotetest.Done("ok"))
	said := &everyLine{}
	h.engine("one", func(p *parts) {
		p.Log = slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	ids := append(h.post("", leader.TypeResult, "r"), h.post("q", "T", "t")...)
	h.await(append(ids, h.post("s", "S", "s")...), time.Minute, outbox.DONE)
	told := map[string]string{leader.TypeResult: "cap-1 " + cap1, "S": "signer " + cap2, "T": "plain "}
	for typ, want := range told {
		for _, c := range h.fake.Calls(dispatch(typ)) {
			if got := c.Account + " " + string(c.Attributes); got != want {
				t.Errorf("attempt %d of %s is told %s, want %s", c.Attempt, typ, got, want)
			}
		}
	}
	hook := remotetest.Match{Op: string(outbox.OnSuccess), Type: "S"}
	h.within("the hook is told, too", func() bool {
		calls := h.fake.Calls(hook)
		return len(calls) > 0 && string(calls[0].Attributes) == cap2
	})
	if n := len(h.fake.Calls(dispatch("S"))); n < 2 {
		t.Errorf("%d calls of S, want several attempts", n)
	}
	secret := regexp.MustCompile(`0xa\d|0xb\d|gas_coin`)
	if log := said.text(); !strings.Contains(log, "cap-1") || secret.MatchString(log) {
		t.Errorf("want accounts in the log, and no attributes of theirs:\n%s", log)
	}
}

// everyLine is what a log said.
type everyLine struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *everyLine) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(line)
}

func (l *everyLine) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}
