package devnetworker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/devnetworker"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
)

// still is a bench whose blocks are made by the test.
func still(t *testing.T) *bench {
	return newBench(t, 0, devnetworker.Config{}, "alice", "bob")
}

func TestATransferGoesOutAndIsIncluded(t *testing.T) {
	t.Parallel()
	b := still(t)
	a := b.send(b.call(1), "")
	if a.Result.Nonce != "0" || a.Result.Fee != "100" {
		t.Errorf("answer %+v", a.Result)
	}
	b.wants(b.byHash(a.Result.Hash), outbox.StatusPending)
	b.blocks(2)
	if st := b.wants(b.byToken(b.call(1)), outbox.StatusIncluded); st.Confirmations != 2 || st.Hash != a.Result.Hash {
		t.Errorf("status %+v", st)
	}
	b.received(10)
}

func TestARetryReplacesUnderTheSameNonce(t *testing.T) {
	t.Parallel()
	b := still(t)
	first := b.call(1)
	one := b.send(first, "")
	second := again(first, one, "110")
	two := b.send(second, "")
	if two.Result.Nonce != one.Result.Nonce || two.Result.Hash == one.Result.Hash {
		t.Errorf("first %+v, second %+v", one.Result, two.Result)
	}
	b.wants(b.byHash(one.Result.Hash), outbox.StatusUnknown)
	if late := b.send(first, ""); late.Result.Hash != one.Result.Hash {
		t.Errorf("the first token came late and was answered %+v", late.Result)
	}
	b.received(10)
}

// Where neither Postern nor the worker's answer named a fee, the attempt says by how much more than the first to offer.
func TestARetryWithoutAFeeOffersMoreByItsFactor(t *testing.T) {
	t.Parallel()
	b := still(t)
	c := b.call(1, func(c *remote.Call) { c.Fee, c.FeeFactor = "", "1" })
	first := b.send(c, "")
	var fees []string
	for attempt, factor := range []string{"1", "1.1", "1.21", "2"} {
		c.FeeFactor = factor
		a := first
		if attempt > 0 {
			c = again(c, first, "")
			a = b.send(c, "")
		}
		if a.Result.Nonce != first.Result.Nonce {
			t.Errorf("attempt %d has nonce %s, want %s", attempt+1, a.Result.Nonce, first.Result.Nonce)
		}
		fees = append(fees, a.Result.Fee)
	}
	if got := strings.Join(fees, " "); got != "1000 1100 1210 2000" {
		t.Errorf("it offers %s", got)
	}
	b.received(10)
}

func TestARetryThatCannotOutbidStaysWithWhatIsPending(t *testing.T) {
	t.Parallel()
	b := still(t)
	one := b.send(b.call(1), "")
	second := again(b.call(1), one, "109")
	if two := b.send(second, ""); two.Result.Hash != one.Result.Hash {
		t.Errorf("first %+v, second %+v", one.Result, two.Result)
	}
	b.restart()
	if st := b.wants(b.byToken(second), outbox.StatusPending); st.Hash != one.Result.Hash {
		t.Errorf("the second token is remembered as %+v", st)
	}
	b.received(10)
}

func TestARetryOfWhatIsIncludedSendsNothing(t *testing.T) {
	t.Parallel()
	b := still(t)
	one := b.send(b.call(1), "")
	b.blocks(1)
	if two := b.send(again(b.call(1), one, "110"), ""); two.Result.Hash != one.Result.Hash {
		t.Errorf("first %+v, second %+v", one.Result, two.Result)
	}
	b.received(10)
}

func TestADroppedTransactionIsSentAgainUnderItsNonce(t *testing.T) {
	t.Parallel()
	b := still(t)
	one := b.send(b.call(1, func(c *remote.Call) {
		c.Data = json.RawMessage(`{"to":"bob","amount":10,"simulate":{"vanish":{"times":1}}}`)
	}), "")
	b.blocks(1)
	b.wants(b.byHash(one.Result.Hash), outbox.StatusUnknown)
	if two := b.send(again(b.call(1), one, "110"), ""); two.Result.Nonce != one.Result.Nonce {
		t.Errorf("first %+v, second %+v", one.Result, two.Result)
	}
	b.received(10)
}

// A failure that a reorg may still undo is not one, else both attempts would do well.
func TestAFailureIsToldWhenItIsFinal(t *testing.T) {
	t.Parallel()
	b := still(t)
	fails := b.call(1, func(c *remote.Call) {
		c.Data = json.RawMessage(`{"to":"bob","amount":10,"simulate":{"fail_in_block":{"times":1,"reason":"no luck"}}}`)
	})
	one := b.send(fails, "")
	b.blocks(2)
	b.wants(b.byHash(one.Result.Hash), outbox.StatusPending)
	if a := b.send(again(fails, one, "110"), outbox.ClassBlocked); a.Until.IsZero() {
		t.Errorf("answer %+v", a)
	}
	b.blocks(1)
	if st := b.wants(b.byHash(one.Result.Hash), outbox.StatusFailed); st.FailureReason != "no luck" {
		t.Errorf("status %+v", st)
	}
	if two := b.send(again(fails, one, "110"), ""); two.Result.Nonce != "1" {
		t.Errorf("second %+v", two.Result)
	}
	b.received(10)
}

func TestAReorgTakesAnInclusionBackAndTheRetryReplacesIt(t *testing.T) {
	t.Parallel()
	b := still(t)
	one := b.send(b.call(1), "")
	b.blocks(1)
	b.wants(b.byHash(one.Result.Hash), outbox.StatusIncluded)
	_, err := b.ledger.Reorg(1, nil)
	must(t, err)
	b.wants(b.byHash(one.Result.Hash), outbox.StatusPending)
	b.blocks(1)
	_, err = b.ledger.Reorg(1, []string{one.Result.Hash})
	must(t, err)
	b.wants(b.byHash(one.Result.Hash), outbox.StatusUnknown)
	two := b.send(again(b.call(1), one, "110"), "")
	if two.Result.Nonce != "0" {
		t.Errorf("second %+v", two.Result)
	}
	b.received(10)
}

// A reorg that loses a transaction leaves a gap of nonces. The worker fills it, so that later ones can be included.
func TestAGapOfNoncesIsFilled(t *testing.T) {
	t.Parallel()
	b := still(t)
	done := b.send(b.call(1), "")
	next := b.send(b.call(2), "")
	b.blocks(1)
	_, err := b.ledger.Reorg(1, []string{done.Result.Hash, next.Result.Hash})
	must(t, err)
	two := b.send(again(b.call(2), next, "110"), "")
	if two.Result.Nonce != "1" {
		t.Errorf("second %+v", two.Result)
	}
	b.received(10)
	if n := b.account("alice").Nonce; n != 2 {
		t.Errorf("alice's nonce is %d, want 2", n)
	}
}

func TestTokensAndFencesSurviveARestart(t *testing.T) {
	t.Parallel()
	b := still(t)
	c := b.call(1, func(c *remote.Call) { c.Fence = 5 })
	one := b.send(c, "")
	refused := b.call(2, func(c *remote.Call) { c.Fence, c.Account = 5, "nobody" })
	b.send(refused, outbox.ClassRejected)
	b.restart()
	if two := b.send(c, ""); two.Result.Hash != one.Result.Hash {
		t.Errorf("before the restart %+v, after it %+v", one.Result, two.Result)
	}
	b.wants(b.byToken(c), outbox.StatusPending)
	b.wants(b.byToken(refused), outbox.StatusFailed)
	b.send(b.call(3, func(c *remote.Call) { c.Fence = 4 }), outbox.ClassAmbiguous) // 409
	b.wants(b.byToken(b.call(3)), outbox.StatusUnknown)
	b.received(10)
}

func TestErrorsHaveTheirClass(t *testing.T) {
	t.Parallel()
	b := still(t)
	_, err := devnetworker.Keystore{Dir: b.cfg.Keys}.Create("poor")
	must(t, err)
	seq := int64(10)
	for name, tc := range map[string]struct {
		change func(*remote.Call)
		class  outbox.Class
		code   string
		says   string
	}{
		"no key":         {func(c *remote.Call) { c.Account = "nobody" }, outbox.ClassRejected, "500", "ACCOUNT_NOT_FOUND"},
		"no account":     {func(c *remote.Call) { c.Account = "" }, outbox.ClassRejected, "500", "ACCOUNT_NOT_FOUND"},
		"no money":       {func(c *remote.Call) { c.Account = "poor" }, outbox.ClassRejected, "500", "ACCOUNT_NOT_FOUND"},
		"a path":         {func(c *remote.Call) { c.Account = "../alice" }, outbox.ClassRejected, "500", "ACCOUNT_NOT_FOUND"},
		"too much":       {func(c *remote.Call) { c.Data = json.RawMessage(`{"to":"bob","amount":"2000000"}`) }, outbox.ClassRejected, "500", "INSUFFICIENT_FUNDS"},
		"no amount":      {func(c *remote.Call) { c.Data = json.RawMessage(`{"to":"bob","amount":"x"}`) }, outbox.ClassRejected, "500", "PREPARE_TRANSACTION_FAILED"},
		"to nobody":      {func(c *remote.Call) { c.Data = json.RawMessage(`{"to":"carol","amount":"1"}`) }, outbox.ClassRejected, "500", "PREPARE_TRANSACTION_FAILED"},
		"data of a kind": {func(c *remote.Call) { c.Data = json.RawMessage(`{"calls":7}`) }, outbox.ClassRejected, "500", "PREPARE_TRANSACTION_FAILED"},
	} {
		seq++
		if a := b.send(b.call(seq, tc.change), tc.class); a.Code != tc.code || !strings.Contains(a.Message, tc.says) {
			t.Errorf("%s: code %s, %s", name, a.Code, a.Message)
		}
	}
	if n := b.account("alice").NextNonce; n != 0 {
		t.Errorf("alice's next nonce is %d after errors, want 0", n)
	}
	must(t, b.ledger.SetFaults(devnet.Faults{Refuse: 1}))
	b.send(b.call(1), outbox.ClassBlocked)
	b.wants(b.byHash("x"), outbox.StatusUnreachable)
	must(t, b.ledger.SetFaults(devnet.Faults{Wrong: 1}))
	b.send(b.call(1), outbox.ClassBlocked)
	b.wants(b.byHash("x"), outbox.StatusUnreachable)
	b.door.Close()
	b.send(b.call(1), outbox.ClassBlocked)
	b.wants(b.byHash("x"), outbox.StatusUnreachable)
}

func TestAKeyThatOthersMayReadIsNotUsed(t *testing.T) {
	t.Parallel()
	b := still(t)
	openKey(t, b.cfg.Keys, "alice")
	if a := b.send(b.call(1), outbox.ClassBlocked); !strings.Contains(a.Message, "want 0600") {
		t.Errorf("answer %+v", a)
	}
}

// After on-failure nothing of the transaction happens any more, and the sender's next one is not stuck.
func TestWhatWasGivenUpDoesNotHappen(t *testing.T) {
	t.Parallel()
	b := still(t)
	never := b.call(1, func(c *remote.Call) {
		c.Data = json.RawMessage(`{"to":"bob","amount":10,"simulate":{"never":true}}`)
	})
	a := b.send(never, "")
	for range 2 {
		if h := b.client.Hook(t.Context(), never, outbox.OnFailure, nil, nil, never.ID.HookToken(never.PostedAt, outbox.OnFailure)); !h.OK {
			t.Errorf("hook %+v", h)
		}
	}
	b.wants(b.byHash(a.Result.Hash), outbox.StatusUnknown)
	b.send(b.call(2), "")
	b.received(10)
}

func TestAtomicCallsAreAllOrNone(t *testing.T) {
	t.Parallel()
	b := still(t)
	calls := func(last string) func(*remote.Call) {
		return func(c *remote.Call) {
			c.Type = "ATOMIC"
			c.Data = json.RawMessage(fmt.Sprintf(`{"calls":[{"to":"bob","amount":"7"},{"to":"app","method":"set","args":{"a":1}},%s]}`, last))
		}
	}
	fails := b.send(b.call(1, calls(`{"to":"app","method":"revert","args":"no"}`)), "")
	b.blocks(3)
	if st := b.wants(b.byHash(fails.Result.Hash), outbox.StatusFailed); st.FailureReason != "call 3 of 3: reverted: no" {
		t.Errorf("status %+v", st)
	}
	if _, ok := b.ledger.App("app"); ok {
		t.Error("a call of a transaction that failed was done")
	}
	b.send(b.call(2, calls(`{"to":"bob","amount":1}`)), "")
	b.received(8)
	if app, _ := b.ledger.App("app"); app.Calls != 1 {
		t.Errorf("app %+v", app)
	}
}

func TestTheFiveTypesCallTheirApp(t *testing.T) {
	t.Parallel()
	b := still(t)
	for i, typ := range devnetworker.Types {
		b.send(b.call(int64(i+1), func(c *remote.Call) {
			c.Type, c.Data = typ, json.RawMessage(`{"zkAppAddress":"B62q","claimUid":"1","n":1,"simulate":{"include_after_blocks":1}}`)
		}), "")
	}
	b.blocks(4)
	if app, _ := b.ledger.App("B62q"); app.Calls != 5 {
		t.Errorf("app %+v", app)
	}
	e, err := b.ledger.Events("", 50)
	must(t, err)
	if len(e.Events) != 5 || e.Events[1].Type != "send_claim_vote" || string(e.Events[1].Args) != `{"claimUid":"1","n":1,"zkAppAddress":"B62q"}` {
		t.Errorf("events %+v", e.Events)
	}
}
