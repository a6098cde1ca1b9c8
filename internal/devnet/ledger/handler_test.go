package ledger

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
)

// serve makes a ledger, its address and a client.
func serve(t *testing.T, cfg Config) (*Ledger, string, *devnet.Client) {
	t.Helper()
	l, err := Open(cfg)
	must(t, err)
	server := httptest.NewServer(l.Handler())
	t.Cleanup(server.Close)
	c := devnet.NewClient(server.URL, 5*time.Second)
	t.Cleanup(c.Close)
	return l, server.URL, c
}

func code(err error) string {
	var r *devnet.Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	var u *devnet.Unanswered
	if errors.As(err, &u) {
		return "unanswered"
	}
	return ""
}

func TestEverythingCanBeDoneOverHTTP(t *testing.T) {
	t.Parallel()
	l, url, c := serve(t, Config{})
	ctx := t.Context()
	if _, err := c.Account(ctx, address(0)); code(err) != devnet.CodeNoAccount {
		t.Errorf("an account without money: %v", err)
	}
	_, err := c.Faucet(ctx, address(0), 5000)
	must(t, err)
	s := sign(l, 0, 0, 3, func(tx *devnet.Tx) {
		tx.Calls = append(tx.Calls, devnet.Call{To: "my app", Method: "vote", Amount: 4})
	})
	st, err := c.Submit(ctx, s)
	if err != nil || st.State != devnet.Pending || st.Fee != 3 {
		t.Errorf("submitted: %+v, %v", st, err)
	}
	b, err := c.MakeBlock(ctx)
	if err != nil || b.Height != 1 || len(b.Transactions) != 1 || b.Final {
		t.Errorf("block %+v, %v", b, err)
	}
	all, err := c.Statuses(ctx, []string{"never", s.Hash()})
	if err != nil || all[0].State != devnet.Unknown || all[1].State != devnet.Included || all[1].Height != 1 {
		t.Errorf("statuses %+v, %v", all, err)
	}
	if a, err := c.App(ctx, "my app"); err != nil || a.Calls != 1 || a.Balance != 4 {
		t.Errorf("app %+v, %v", a, err)
	}
	if r, err := c.Reorg(ctx, 1); err != nil || len(r.Returned) != 1 {
		t.Errorf("reorg %+v, %v", r, err)
	}
	for range 4 {
		_, err := c.MakeBlock(ctx)
		must(t, err)
	}
	if e, err := c.Events(ctx, "", 50); err != nil || len(e.Events) != 2 || e.NextCursor != "2:"+s.Hash()+":1" {
		t.Errorf("events %+v, %v", e, err)
	}
	if b, err := c.Block(ctx, nil); err != nil || b.Height != 5 {
		t.Errorf("head %+v, %v", b, err)
	}
	if _, err := c.Block(ctx, new(uint64(6))); code(err) != devnet.CodeNotFound {
		t.Errorf("block 6: %v", err)
	}
	if h, err := c.Health(ctx); err != nil || h.Height != 5 || h.Reorgs != 1 || h.Sink != 3 || h.StateHash == "" {
		t.Errorf("health %+v, %v", h, err)
	}
	for path, want := range map[string]int{"/transactions/" + s.Hash(): 200, "/transactions/x": 404, "/blocks/x": 404,
		"/events?limit=1": 422, "/faults": 200, "/x": 404} {
		res, err := http.Get(url + path)
		must(t, err)
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("GET %s: %s, want %d", path, res.Status, want)
		}
	}
	for path, body := range map[string]string{"/transactions": "{",
		"/faucet": `{"address":"x","amount":"1"}`, "/reorg": `{"depth":3}`} {
		res, err := http.Post(url+path, "application/json", bytes.NewBufferString(body))
		must(t, err)
		res.Body.Close()
		if res.StatusCode < 400 || res.StatusCode > 499 {
			t.Errorf("POST %s with %s: %s, want 4xx", path, body, res.Status)
		}
	}
}

func TestFaultsHappen(t *testing.T) {
	t.Parallel()
	l, _, c := serve(t, Config{})
	ctx := t.Context()
	grant(t, l, 0, 5000)
	set := func(f devnet.Faults) {
		t.Helper()
		must(t, c.SetFaults(ctx, f))
	}
	set(devnet.Faults{Refuse: 1})
	if _, err := c.Submit(ctx, sign(l, 0, 0, 1)); code(err) != devnet.CodeUnavailable {
		t.Errorf("refuse: %v", err)
	}
	wants(t, l, sign(l, 0, 0, 1), devnet.Unknown, 0)
	set(devnet.Faults{Lose: 1})
	if _, err := c.Submit(ctx, sign(l, 0, 0, 1)); code(err) != "unanswered" {
		t.Errorf("lose: %v", err)
	}
	wants(t, l, sign(l, 0, 0, 1), devnet.Pending, 0)
	set(devnet.Faults{Wrong: 1})
	if _, err := c.Submit(ctx, sign(l, 0, 1, 1)); code(err) != "unanswered" {
		t.Errorf("wrong: %v", err)
	}
	if _, err := c.Account(ctx, address(0)); code(err) != "unanswered" {
		t.Errorf("wrong: %v", err)
	}
	if _, err := c.Statuses(ctx, []string{"x"}); code(err) != "unanswered" {
		t.Errorf("wrong: %v", err)
	}
	wants(t, l, sign(l, 0, 1, 1), devnet.Pending, 0)
	set(devnet.Faults{Drop: 1})
	blocks(t, l, 1)
	wants(t, l, sign(l, 0, 1, 1), devnet.Dropped, 0)
	set(devnet.Faults{Slow: "1h"})
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := c.Account(short, address(0)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("slow: %v", err)
	}
	for _, bad := range []devnet.Faults{{Drop: 2}, {Slow: "x"}, {ReorgDepth: 3}, {ReorgEvery: -1}} {
		if err := c.SetFaults(ctx, bad); code(err) != devnet.CodeInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestHaltAndReorgsFollowTheClock(t *testing.T) {
	t.Parallel()
	l := open(t)
	height := func() uint64 { return l.Health().Height }
	must(t, l.SetFaults(devnet.Faults{Halt: true}))
	must(t, l.tick())
	if height() != 0 {
		t.Errorf("a halted ledger is at height %d", height())
	}
	must(t, l.SetFaults(devnet.Faults{ReorgEvery: 5}))
	for range 20 {
		must(t, l.tick())
	}
	if h := l.Health(); h.Height != 20 || h.Reorgs != 4 {
		t.Errorf("after 20 blocks: %+v, want 4 reorgs", h)
	}
}

func TestABrokenJournalEndsTheLedger(t *testing.T) {
	t.Parallel()
	l, err := Open(Config{Data: t.TempDir()})
	must(t, err)
	grant(t, l, 0, 100)
	must(t, l.journal.Close())
	if _, err := l.Block(); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("a block without a journal: %v", err)
	}
	if _, _, err := l.Submit(sign(l, 0, 0, 1)); err == nil || l.Health().OK {
		t.Errorf("a submission to a broken ledger: %v", err)
	}
}
