package devnetworker

import (
	"fmt"
	"testing"

	"github.com/postern-dev/postern/internal/devnet"
)

// The account "us" signs an attempt with the token x.2 and a fee of 110. Its first free nonce is 7; nonces up to 5 are
// final. decide says what the attempt does.
func TestDecide(t *testing.T) {
	t.Parallel()
	us := devnet.Account{Address: "us", FinalNonce: 5, Nonce: 6, NextNonce: 7}
	known := func(hash string, state devnet.State, nonce uint64, more ...func(*devnet.Status)) devnet.Status {
		st := devnet.Status{Hash: hash, State: state, From: "us", Nonce: nonce, Fee: 100}
		for _, f := range more {
			f(&st)
		}
		return st
	}
	deep := func(n uint64) func(*devnet.Status) { return func(st *devnet.Status) { st.Confirmations = n } }
	others := func(st *devnet.Status) { st.From = "them" }
	dear := func(st *devnet.Status) { st.Fee = 101 }
	for _, tc := range []struct {
		name  string
		token string // of the intents; "" for what only the caller remembers
		known []devnet.Status
		want  string
	}{
		{"nothing before", "x.1", nil, "send 7"},
		{"included", "x.1", []devnet.Status{known("a", devnet.Included, 3, deep(1))}, "take a"},
		{"included, after one that was replaced", "x.1", []devnet.Status{known("a", devnet.Dropped, 6), known("b", devnet.Included, 6, deep(1))}, "take b"},
		{"pending: replaced", "x.1", []devnet.Status{known("a", devnet.Pending, 6)}, "send 6"},
		{"pending, and one that it replaced", "x.1", []devnet.Status{known("a", devnet.Dropped, 6), known("b", devnet.Pending, 6)}, "send 6"},
		{"pending and cannot be outbid", "x.1", []devnet.Status{known("a", devnet.Pending, 6, dear)}, "take a"},
		{"pending under this token", "x.2", []devnet.Status{known("a", devnet.Pending, 6)}, "take a"},
		{"pending of another account", "x.1", []devnet.Status{known("a", devnet.Pending, 6, others)}, "take a"},
		{"failed for good", "x.1", []devnet.Status{known("a", devnet.Failed, 4, deep(3))}, "send 7"},
		{"failed, but a reorg could undo it", "x.1", []devnet.Status{known("a", devnet.Failed, 5, deep(2))}, "wait"},
		{"failed under this token", "x.2", []devnet.Status{known("a", devnet.Failed, 4, deep(3))}, "take a"},
		{"lost at the next nonce", "x.1", []devnet.Status{known("a", devnet.Dropped, 7)}, "send 7"},
		{"lost above a gap", "x.1", []devnet.Status{known("a", devnet.Dropped, 9)}, "send 9, gaps [7 8]"},
		{"lost, and its nonce is used for good", "x.1", []devnet.Status{known("a", devnet.Dropped, 4)}, "send 7"},
		{"lost, and its nonce is used for now", "x.1", []devnet.Status{known("a", devnet.Dropped, 5)}, "wait"},
		{"never arrived, under this token", "x.2", []devnet.Status{known("a", devnet.Unknown, 7)}, "send 7, again"},
		{"never arrived, under the token before", "x.1", []devnet.Status{known("a", devnet.Unknown, 7)}, "send 7"},
		{"lost by another account", "x.1", []devnet.Status{known("a", devnet.Unknown, 3, others)}, "kill a"},
		{"only the caller remembers it, and it is pending", "", []devnet.Status{known("a", devnet.Pending, 6)}, "send 6"},
		{"only the caller remembers it, and it was dropped", "", []devnet.Status{known("a", devnet.Dropped, 7)}, "send 7"},
		{"nobody knows it", "", []devnet.Status{known("a", devnet.Unknown, 0)}, "send 7"},
	} {
		earlier := make([]*intent, len(tc.known))
		for i, st := range tc.known {
			if tc.token != "" {
				earlier[i] = &intent{token: tc.token, hash: st.Hash, tx: devnet.Tx{Chain: "c", From: st.From, Nonce: st.Nonce}}
			}
		}
		p := decide("x.2", "c", 110, us, earlier, tc.known)
		got := ""
		switch {
		case p.take != nil:
			got = "take " + p.take.Hash
		case p.wait != "":
			got = "wait"
		case p.kill != nil:
			got = "kill " + p.kill.hash
		default:
			if got = fmt.Sprint("send ", p.send.nonce); p.send.again != nil {
				got += ", again"
			}
			if len(p.send.gaps) > 0 {
				got += fmt.Sprint(", gaps ", p.send.gaps)
			}
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
	gone := []*intent{{token: "x.1", tx: devnet.Tx{Chain: "old", From: "us", Nonce: 9}}}
	if p := decide("x.2", "c", 110, us, gone, []devnet.Status{known("a", devnet.Unknown, 9)}); p.send == nil || p.send.nonce != 7 {
		t.Errorf("an attempt on a ledger that is no more: %+v", p)
	}
}
