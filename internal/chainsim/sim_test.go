package chainsim_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/chainsim"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// start runs a chain with a block each `every`, 0 for none but by hand.
func start(t *testing.T, every time.Duration) (*chainsim.Sim, string) {
	t.Helper()
	sim := chainsim.New(chainsim.Config{BlockEvery: every, Seed: 7})
	server := httptest.NewServer(sim.Handler())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = sim.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended; server.Close() })
	return sim, server.URL
}

func TestTheChainIsAWorker(t *testing.T) {
	t.Parallel()
	remotetest.Exercise(t, func(t *testing.T) string {
		_, url := start(t, 20*time.Millisecond)
		return url
	})
}

func call(url string, seq int64, simulate string) remote.Call {
	c := remotetest.Call(url, seq)
	c.Data = json.RawMessage(`{"simulate":` + simulate + `}`)
	return c
}

func state(t *testing.T, client *remote.Client, url, hash string) outbox.Status {
	t.Helper()
	return client.Status(t.Context(), url, "SEND_CLAIM_VOTE", "", hash)
}

func TestAnAccountHasNoGapsAndABlockHoldsWhatIsDueInOrder(t *testing.T) {
	t.Parallel()
	sim, url := start(t, 0)
	client := remotetest.Client(t)
	late := client.Dispatch(t.Context(), call(url, 1, `{"include_after_blocks":3}`)).Result
	soon := client.Dispatch(t.Context(), call(url, 2, `{"include_after_blocks":1}`)).Result
	if late.Nonce != "0" || soon.Nonce != "1" {
		t.Fatalf("nonces %q and %q, want 0 and 1", late.Nonce, soon.Nonce)
	}
	sim.Block()
	sim.Block()
	if st := state(t, client, url, soon.Hash); st.State != outbox.StatusPending {
		t.Errorf("nonce 1 went before nonce 0: %+v", st)
	}
	sim.Block()
	sim.Block()
	for _, hash := range []string{late.Hash, soon.Hash} {
		if st := state(t, client, url, hash); st.State != outbox.StatusIncluded || st.BlockHeight != "4" || st.Confirmations != 2 {
			t.Errorf("got %+v, want included in block 4 with 2 confirmations", st)
		}
	}
}

func TestAReplacementNeedsAHigherFeeAndKeepsTheNonce(t *testing.T) {
	t.Parallel()
	sim, url := start(t, 0)
	client := remotetest.Client(t)
	one := call(url, 1, `{"never":true}`)
	first := client.Dispatch(t.Context(), one).Result
	if first.Fee != "100000000" {
		t.Errorf("first fee %q, want the chain's", first.Fee)
	}
	two := one
	two.Attempt, two.PreviousHashes, two.Nonce, two.Fee = 2, []string{first.Hash}, first.Nonce, first.Fee
	if a := client.Dispatch(t.Context(), two); a.Class != outbox.ClassRetry || a.Code != "20203" {
		t.Errorf("the same fee: %+v, want error 20203", a)
	}
	two.Attempt, two.Fee, two.Data = 3, "110000000", json.RawMessage(`{"simulate":{"include_after_blocks":1}}`)
	second := client.Dispatch(t.Context(), two).Result
	if second.Nonce != first.Nonce || second.Hash == first.Hash {
		t.Errorf("replaced %+v by %+v", first, second)
	}
	sim.Block()
	if st := state(t, client, url, first.Hash); st.State != outbox.StatusUnknown {
		t.Errorf("the replaced one: %+v, want unknown", st)
	}
	if st := state(t, client, url, second.Hash); st.State != outbox.StatusIncluded {
		t.Errorf("the replacement: %+v, want included", st)
	}
	two.Attempt, two.PreviousHashes, two.Fee = 4, []string{first.Hash, second.Hash}, "120000000"
	if third := client.Dispatch(t.Context(), two).Result; third.Hash != second.Hash {
		t.Errorf("a replacement of what is in a block: %+v, want its hash %s", third, second.Hash)
	}
	if n := sim.Stats().Included[one.ID.String()]; n != 1 {
		t.Errorf("included %d times", n)
	}
}

func TestWhatIsStuckForEverDoesNotBlockTheNextOfItsAccount(t *testing.T) {
	t.Parallel()
	sim, url := start(t, 0)
	client := remotetest.Client(t)
	stuck := client.Dispatch(t.Context(), call(url, 1, `{"never":true}`)).Result
	next := client.Dispatch(t.Context(), call(url, 2, `{"include_after_blocks":1}`)).Result
	sim.Block()
	if st := state(t, client, url, next.Hash); st.State != outbox.StatusIncluded {
		t.Errorf("got %+v", st)
	}
	if st := state(t, client, url, stuck.Hash); st.State != outbox.StatusUnknown {
		t.Errorf("got %+v", st)
	}
}

func TestALostAnswerIsKnownByItsToken(t *testing.T) {
	t.Parallel()
	_, url := start(t, 0)
	client := remotetest.Client(t)
	c := call(url, 1, `{"lose_answer":{"times":1}}`)
	if a := client.Dispatch(t.Context(), c); a.Class != outbox.ClassAmbiguous {
		t.Fatalf("got %+v, want ambiguous", a)
	}
	st := client.Status(t.Context(), url, c.Type, c.ID.Token(1), "")
	if st.State != outbox.StatusPending || st.Hash == "" {
		t.Errorf("got %+v, want pending with its hash", st)
	}
	if a := client.Dispatch(t.Context(), c); a.Result.Hash != st.Hash {
		t.Errorf("sent again: %+v, want the hash %s", a, st.Hash)
	}
}
