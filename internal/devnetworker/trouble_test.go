package devnetworker_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/devnet/ledger"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
)

// losing does every submission and answers none of them, nor any status.
func losing(l *ledger.Ledger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/transactions") {
			if r.URL.Path == "/transactions" {
				l.Handler().ServeHTTP(&deaf{}, r)
			}
			panic(http.ErrAbortHandler)
		}
		l.Handler().ServeHTTP(w, r)
	})
}

// deaf is an answer that does not arrive.
type deaf struct{ header http.Header }

func (d *deaf) Header() http.Header         { d.header = http.Header{}; return d.header }
func (d *deaf) Write(b []byte) (int, error) { return len(b), nil }
func (d *deaf) WriteHeader(int)             {}

// The transaction arrived and the answer did not: it must not be sent once more, and asking finds it.
func TestASubmissionWithoutAnAnswerIsAmbiguous(t *testing.T) {
	t.Parallel()
	b := still(t)
	b.swap(losing(b.ledger))
	b.send(b.call(1), outbox.ClassAmbiguous)
	b.wants(b.byToken(b.call(1)), outbox.StatusUnreachable)
	b.restart()
	b.swap(b.ledger.Handler())
	st := b.wants(b.byToken(b.call(1)), outbox.StatusPending)
	if a := b.send(b.call(1), ""); a.Result.Hash != st.Hash {
		t.Errorf("asked %+v, sent again %+v", st, a)
	}
	b.received(10)
}

// It never arrived: the same token sends the very same bytes.
func TestASubmissionThatNeverArrivedGoesOutAgain(t *testing.T) {
	t.Parallel()
	b := still(t)
	b.swap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/transactions") {
			panic(http.ErrAbortHandler)
		}
		b.ledger.Handler().ServeHTTP(w, r)
	}))
	b.send(b.call(1), outbox.ClassAmbiguous)
	b.restart()
	b.swap(b.ledger.Handler())
	b.wants(b.byToken(b.call(1)), outbox.StatusUnknown)
	b.send(b.call(1), "")
	b.received(10)
}

// Blocked gives the sender back: another account may sign next, and only one of them does well.
func TestAnotherAccountTakesOverWhatWasNotSent(t *testing.T) {
	t.Parallel()
	b := still(t)
	b.send(b.call(2, func(c *remote.Call) { c.Account = "bob"; c.Data = json.RawMessage(`{"to":"alice","amount":1}`) }), "")
	must(t, b.ledger.SetFaults(devnet.Faults{Refuse: 1}))
	b.send(b.call(1), outbox.ClassBlocked)
	must(t, b.ledger.SetFaults(devnet.Faults{}))
	b.send(b.call(1, func(c *remote.Call) { c.Account = "bob"; c.Data = json.RawMessage(`{"to":"alice","amount":10}`) }), "")
	b.blocks(4)
	if got := b.account("alice").Balance; got != 1_000_011 {
		t.Errorf("alice has %d", got)
	}
	if n := b.account("alice").Nonce; n != 0 {
		t.Errorf("alice signed %d transactions", n)
	}
}

// A transaction that one account may have sent is made impossible before another account signs.
func TestAnotherAccountKillsWhatMayHaveBeenSent(t *testing.T) {
	t.Parallel()
	b := still(t)
	b.swap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/transactions") {
			panic(http.ErrAbortHandler)
		}
		b.ledger.Handler().ServeHTTP(w, r)
	}))
	b.send(b.call(1), outbox.ClassAmbiguous)
	b.swap(b.ledger.Handler())
	other := b.call(1, func(c *remote.Call) { c.Account = "bob"; c.Data = json.RawMessage(`{"to":"alice","amount":10}`) })
	b.send(other, outbox.ClassBlocked)
	b.blocks(1)
	b.send(other, outbox.ClassBlocked)
	b.blocks(2)
	b.send(other, "")
	b.blocks(4)
	if alice, bob := b.account("alice"), b.account("bob"); alice.Nonce != 1 || bob.Nonce != 1 || bob.Balance != 1_000_000-10-100 {
		t.Errorf("alice %+v, bob %+v: want one transaction of each, and nothing but fees spent by alice", alice, bob)
	}
}

// The ledger was thrown away. Transactions that were sent to it are no obstacle on the new one.
func TestANewLedgerIsNoticed(t *testing.T) {
	t.Parallel()
	b := still(t)
	one := b.send(b.call(1), "")
	b.send(b.call(2), "")
	fresh, err := ledger.Open(ledger.Config{})
	must(t, err)
	for _, name := range []string{"alice", "bob"} {
		_, err := fresh.Grant(b.account(name).Address, 1_000_000)
		must(t, err)
	}
	b.ledger = fresh
	b.swap(fresh.Handler())
	b.wants(b.byHash(one.Result.Hash), outbox.StatusUnknown)
	if two := b.send(again(b.call(1), one, "110"), ""); two.Result.Nonce != "0" {
		t.Errorf("on the new ledger: %+v", two)
	}
	b.received(10)
}

// Without its journal a worker goes by what its caller remembers and the ledger knows.
func TestAWorkerWithoutItsJournalDoesNotSendTwice(t *testing.T) {
	t.Parallel()
	b := still(t)
	one := b.send(b.call(1), "")
	b.stop()
	must(t, os.Remove(filepath.Join(b.cfg.Data, "worker.journal")))
	b.start()
	two := b.send(again(b.call(1), one, "110"), "")
	if two.Result.Nonce != one.Result.Nonce {
		t.Errorf("first %+v, second %+v", one.Result, two.Result)
	}
	b.received(10)
}

// A late copy of the first attempt, which the worker never saw, executes nothing after the second.
func TestAnAttemptThatWasOvertakenIsStale(t *testing.T) {
	t.Parallel()
	b := still(t)
	second := b.call(1, func(c *remote.Call) { c.Attempt = 2 })
	b.send(second, "")
	b.send(b.call(1), outbox.ClassAmbiguous) // 409
	b.received(10)
}

func TestManyAtOnceGetEachTheirNonce(t *testing.T) {
	t.Parallel()
	b := still(t)
	var wg sync.WaitGroup
	for seq := range int64(20) {
		for range 2 { // each twice, at the same time
			wg.Go(func() {
				c := b.call(seq+1, func(c *remote.Call) { c.ID.Queue += seq })
				if a := b.client.Dispatch(t.Context(), c); a.Class != "" {
					t.Errorf("dispatch %d: %+v", seq, a)
				}
			})
		}
	}
	wg.Wait()
	b.received(200)
	if n := b.account("alice").Nonce; n != 20 {
		t.Errorf("alice signed %d transactions", n)
	}
}

func TestInsufficientFundsForAHigherFeeIsARetry(t *testing.T) {
	t.Parallel()
	b := still(t)
	most := func(c *remote.Call) { c.Data = json.RawMessage(`{"to":"bob","amount":"999890"}`) }
	one := b.send(b.call(1, most), "")
	if a := b.send(again(b.call(1, most), one, "200"), outbox.ClassRetry); a.Code != "20203" {
		t.Errorf("answer %+v", a)
	}
	b.received(999890)
}

// While an earlier attempt is out, a missing key is no reason to say that it never happens.
func TestAKeyThatIsGoneOnARetryBlocks(t *testing.T) {
	t.Parallel()
	b := still(t)
	one := b.send(b.call(1), "")
	key := filepath.Join(b.cfg.Keys, "alice.key")
	must(t, os.Rename(key, key+".away"))
	b.send(again(b.call(1), one, "110"), outbox.ClassBlocked)
	must(t, os.Rename(key+".away", key))
	b.send(again(b.call(1), one, "110"), "")
	b.received(10)
}

// Two calls of an old owner are on their way in when the new owner's comes: neither goes out any more.
func TestACallThatWaitedWhileAHigherFenceCameExecutesNothing(t *testing.T) {
	t.Parallel()
	b := still(t)
	alice := b.account("alice").Address
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	b.swap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/accounts/"+string(alice) {
			entered <- struct{}{}
			<-leave
		}
		b.ledger.Handler().ServeHTTP(w, r)
	}))
	var wg sync.WaitGroup
	for seq := range int64(2) { // one is at the ledger, one waits for the account
		wg.Go(func() {
			if a := b.client.Dispatch(t.Context(), b.call(seq+1)); a.Class != outbox.ClassAmbiguous || a.Code != "http_409" {
				t.Errorf("an old owner's call: %+v", a)
			}
		})
	}
	<-entered
	b.send(b.call(3, func(c *remote.Call) {
		c.Fence, c.Account, c.Data = 2, "bob", json.RawMessage(`{"to":"carol.app","method":"x","calls":[]}`)
	}), "")
	close(leave)
	wg.Wait()
	if n := b.account("alice").NextNonce; n != 0 {
		t.Errorf("%d transactions of old owners went out", n)
	}
}
