package ledger

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"testing"

	"github.com/postern-dev/postern/internal/devnet"
)

// keys are the accounts of the tests.
var keys = func() (all []ed25519.PrivateKey) {
	for i := range 4 {
		seed := make([]byte, ed25519.SeedSize)
		seed[0] = byte(i + 1)
		all = append(all, ed25519.NewKeyFromSeed(seed))
	}
	return all
}()

func address(i int) devnet.Address { return devnet.AddressOf(keys[i]) }

// open makes a ledger in memory.
func open(t *testing.T) *Ledger {
	t.Helper()
	l, err := Open(Config{})
	must(t, err)
	return l
}

func must(t interface {
	Helper()
	Fatal(...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sign makes a transaction of account i that transfers 10 to account i+1, changed by change.
func sign(l *Ledger, i int, nonce, fee uint64, change ...func(*devnet.Tx)) devnet.Signed {
	tx := devnet.Tx{Chain: l.chain, From: address(i), Nonce: nonce, Fee: fee, Calls: []devnet.Call{{To: string(address((i + 1) % len(keys))), Amount: 10}}}
	for _, f := range change {
		f(&tx)
	}
	s, err := devnet.Sign(tx, keys[i])
	if err != nil {
		panic(err)
	}
	return s
}

func submit(t *testing.T, l *Ledger, s devnet.Signed) devnet.Status {
	t.Helper()
	st, _, err := l.Submit(s)
	must(t, err)
	return st
}

// wants checks what is known of a transaction.
func wants(t *testing.T, l *Ledger, s devnet.Signed, state devnet.State, confirmations uint64) devnet.Status {
	t.Helper()
	st := l.Statuses([]string{s.Hash()})[0]
	if st.State != state || st.Confirmations != confirmations {
		t.Errorf("transaction of nonce %d is %s with %d confirmations (%s), want %s with %d", st.Nonce, st.State, st.Confirmations, st.Reason, state, confirmations)
	}
	return st
}

// refused checks that a submission is refused with a code.
func refused(t *testing.T, l *Ledger, s devnet.Signed, code string) *devnet.Refusal {
	t.Helper()
	_, _, err := l.Submit(s)
	var r *devnet.Refusal
	if !errors.As(err, &r) || r.Code != code {
		t.Errorf("got %v, want a refusal with code %s", err, code)
		return &devnet.Refusal{}
	}
	return r
}

func blocks(t *testing.T, l *Ledger, n int) {
	t.Helper()
	for range n {
		_, err := l.Block()
		must(t, err)
	}
}

func grant(t *testing.T, l *Ledger, i int, amount uint64) {
	t.Helper()
	_, err := l.Grant(address(i), amount)
	must(t, err)
}

func balance(l *Ledger, i int) uint64 { a, _ := l.Account(address(i)); return a.Balance }

func TestATransferIsPendingThenIncludedThenFinal(t *testing.T) {
	t.Parallel()
	l := open(t)
	grant(t, l, 0, 1000)
	s := sign(l, 0, 0, 5)
	if st := submit(t, l, s); st.State != devnet.Pending {
		t.Errorf("submitted: %+v", st)
	}
	if _, taken, err := l.Submit(s); taken || err != nil {
		t.Errorf("the same again: taken %v, %v", taken, err)
	}
	blocks(t, l, 1)
	wants(t, l, s, devnet.Included, 1)
	if a, _ := l.Account(address(0)); a.Nonce != 1 || a.FinalNonce != 0 || a.Balance != 985 {
		t.Errorf("payer %+v", a)
	}
	blocks(t, l, 2)
	if st := wants(t, l, s, devnet.Included, 3); !st.Final() {
		t.Errorf("three deep: %+v", st)
	}
	if a, _ := l.Account(address(0)); a.FinalNonce != 1 {
		t.Errorf("payer %+v", a)
	}
	if h := l.Health(); h.Sink != 5 || h.Granted != 1000 || balance(l, 1) != 10 {
		t.Errorf("health %+v, payee %d", h, balance(l, 1))
	}
}

func TestAHigherFeeReplacesUnderTheSameNonce(t *testing.T) {
	t.Parallel()
	l := open(t)
	grant(t, l, 0, 1000)
	low, little, enough := sign(l, 0, 0, 100), sign(l, 0, 0, 109), sign(l, 0, 0, 110)
	submit(t, l, low)
	if r := refused(t, l, little, devnet.CodeFeeTooLow); r.LeastFee != 110 {
		t.Errorf("refusal %+v", r)
	}
	submit(t, l, enough)
	if st := wants(t, l, low, devnet.Dropped, 0); st.ReplacedBy != enough.Hash() {
		t.Errorf("replaced %+v", st)
	}
	blocks(t, l, 1)
	wants(t, l, enough, devnet.Included, 1)
	if r := refused(t, l, low, devnet.CodeNonceUsed); r.NextNonce != 1 {
		t.Errorf("refusal %+v", r)
	}
}

func TestWhatCannotBeDoneIsRefusedAtTheDoor(t *testing.T) {
	t.Parallel()
	l := open(t)
	refused(t, l, sign(l, 0, 0, 1), devnet.CodeNoAccount)
	grant(t, l, 0, 100)
	refused(t, l, sign(l, 0, 0, 91), devnet.CodeInsufficient)
	refused(t, l, sign(l, 0, nonceMost, 1), devnet.CodeNonceFar)
	refused(t, l, sign(l, 0, 0, 1, func(tx *devnet.Tx) { tx.Chain = "other" }), devnet.CodeWrongChain)
	refused(t, l, sign(l, 0, 0, 0), devnet.CodeInvalid)
	s := sign(l, 0, 0, 1)
	s.Signature = sign(l, 1, 0, 1).Signature
	refused(t, l, s, devnet.CodeInvalid)
}

func TestAGapWaits(t *testing.T) {
	t.Parallel()
	l := open(t)
	grant(t, l, 0, 1000)
	second, first := sign(l, 0, 1, 1), sign(l, 0, 0, 1)
	submit(t, l, second)
	blocks(t, l, 2)
	wants(t, l, second, devnet.Pending, 0)
	if a, _ := l.Account(address(0)); a.NextNonce != 0 || a.Pool != 1 {
		t.Errorf("account %+v", a)
	}
	submit(t, l, first)
	blocks(t, l, 1)
	wants(t, l, first, devnet.Included, 1)
	wants(t, l, second, devnet.Included, 1)
}

func TestACallThatRevertsPaysItsFeeAndDoesNothing(t *testing.T) {
	t.Parallel()
	l := open(t)
	grant(t, l, 0, 1000)
	atomic := sign(l, 0, 0, 5, func(tx *devnet.Tx) {
		tx.Calls = append(tx.Calls, devnet.Call{To: "app", Method: "vote", Amount: 7}, devnet.Call{To: "app", Method: "revert", Args: []byte(`"no"`)})
	})
	before := l.state.hash()
	submit(t, l, atomic)
	blocks(t, l, 1)
	if st := wants(t, l, atomic, devnet.Failed, 1); st.Reason != "call 3 of 3: reverted: no" {
		t.Errorf("reason %q", st.Reason)
	}
	if a, _ := l.Account(address(0)); a.Balance != 995 || a.Nonce != 1 {
		t.Errorf("account %+v", a)
	}
	if _, ok := l.App("app"); ok || balance(l, 1) != 0 {
		t.Error("a call of a transaction that failed was done")
	}
	_, err := l.Reorg(1, []string{atomic.Hash()})
	must(t, err)
	if l.state.hash() != before {
		t.Error("a failure that a reorg took out left something")
	}
}

func TestMoneySpentInBetweenFailsOnChain(t *testing.T) {
	t.Parallel()
	l := open(t)
	grant(t, l, 0, 100)
	first := sign(l, 0, 0, 1, func(tx *devnet.Tx) { tx.Calls[0].Amount = 90 })
	second := sign(l, 0, 1, 1, func(tx *devnet.Tx) { tx.Calls[0].Amount = 50 })
	submit(t, l, first)
	submit(t, l, second)
	blocks(t, l, 1)
	wants(t, l, first, devnet.Included, 1)
	if st := wants(t, l, second, devnet.Failed, 1); st.Reason != "insufficient funds: 50 is more than the 8 there are" {
		t.Errorf("reason %q", st.Reason)
	}
}

func TestFatesComeTrue(t *testing.T) {
	t.Parallel()
	l := open(t)
	for i := range keys {
		grant(t, l, i, 1000)
	}
	wish := func(i int, f devnet.Fate) devnet.Signed {
		s := sign(l, i, 0, 1, func(tx *devnet.Tx) { tx.Fate = &f })
		submit(t, l, s)
		return s
	}
	after, never, vanish, revert := wish(0, devnet.Fate{After: 3}), wish(1, devnet.Fate{Never: true}), wish(2, devnet.Fate{Vanish: true}), wish(3, devnet.Fate{Revert: "as you wish"})
	blocks(t, l, 2)
	wants(t, l, after, devnet.Pending, 0)
	wants(t, l, vanish, devnet.Dropped, 0)
	if st := wants(t, l, revert, devnet.Failed, 2); st.Reason != "as you wish" {
		t.Errorf("reason %q", st.Reason)
	}
	blocks(t, l, 1)
	wants(t, l, after, devnet.Included, 1)
	wants(t, l, never, devnet.Pending, 0)
	submit(t, l, sign(l, 1, 0, 2))
	wants(t, l, never, devnet.Dropped, 0)
}

func TestAReorgReturnsWhatItTookOut(t *testing.T) {
	t.Parallel()
	l := open(t)
	grant(t, l, 0, 1000)
	final := sign(l, 0, 0, 1)
	submit(t, l, final)
	blocks(t, l, 2)
	returned, lost := sign(l, 0, 1, 1), sign(l, 0, 2, 1)
	submit(t, l, returned)
	submit(t, l, lost)
	blocks(t, l, 1)
	was, _ := l.BlockAt(3, false)
	out, err := l.Reorg(1, []string{lost.Hash()})
	must(t, err)
	if len(out.Returned) != 1 || out.Returned[0] != returned.Hash() || len(out.Lost) != 1 || out.Height != 3 {
		t.Errorf("reorg %+v", out)
	}
	if is, _ := l.BlockAt(3, false); is.Hash == was.Hash || is.Parent != was.Parent || len(is.Transactions) != 0 {
		t.Errorf("block 3 was %+v and is %+v", was, is)
	}
	wants(t, l, final, devnet.Included, 3)
	wants(t, l, returned, devnet.Pending, 0)
	wants(t, l, lost, devnet.Dropped, 0)
	blocks(t, l, 1)
	wants(t, l, returned, devnet.Included, 1)
	submit(t, l, lost) // a lost transaction may be sent again
	blocks(t, l, 1)
	wants(t, l, lost, devnet.Included, 1)
	if _, err := l.Reorg(3, nil); err == nil {
		t.Error("a reorg of depth 3 took out what was final")
	}
}

func TestEventsAreThoseOfFinalBlocksAndTheCursorIsInclusive(t *testing.T) {
	t.Parallel()
	l := open(t)
	grant(t, l, 0, 10000)
	for i := range 5 {
		submit(t, l, sign(l, 0, uint64(i), 1, func(tx *devnet.Tx) {
			tx.Memo = fmt.Sprint("m", i)
			tx.Calls = append(tx.Calls, devnet.Call{To: "app", Method: "vote", Args: []byte(`{"n":1}`)})
		}))
		blocks(t, l, 1)
	}
	if e, err := l.Events("", 50); err != nil || len(e.Events) != 6 { // two blocks may yet be taken out
		t.Errorf("%d events, %v, want 6", len(e.Events), err)
	}
	blocks(t, l, 2)
	var ids []string
	cursor := ""
	for more := true; more; {
		e, err := l.Events(cursor, 3)
		must(t, err)
		for i, ev := range e.Events {
			if cursor != "" && i == 0 {
				if ev.ID != ids[len(ids)-1] {
					t.Errorf("the page after %s begins with %s", cursor, ev.ID)
				}
				continue
			}
			ids = append(ids, ev.ID)
			if want := []string{"transfer", "vote"}[ev.Index]; ev.Type != want || ev.Memo != fmt.Sprint("m", ev.Checkpoint-1) {
				t.Errorf("event %+v", ev)
			}
		}
		cursor, more = e.NextCursor, e.HasMore
	}
	if len(ids) != 10 {
		t.Errorf("read %d events, want 10", len(ids))
	}
	for _, bad := range []string{"1:x:0", "x", "9:9:9"} {
		if _, err := l.Events(bad, 50); err == nil {
			t.Errorf("cursor %q was taken", bad)
		}
	}
}
