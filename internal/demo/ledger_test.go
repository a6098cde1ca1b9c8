package demo

import (
	"crypto/ed25519"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/devnet/ledger"
)

// The real ledger decides: two accounts call one app, first in two blocks, then in one.
func TestTwoTransactionsOfOneAppInABlockAreNamed(t *testing.T) {
	t.Parallel()
	l, err := ledger.Open(ledger.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	door := httptest.NewServer(l.Handler())
	defer door.Close()
	r := &run{ledger: devnet.NewClient(door.URL, 10*time.Second), byUID: map[string]*life{}}
	defer r.ledger.Close()
	sample := Sample{Transaction: Post{Data: []byte(`{"zkAppAddress": "B62a"}`)}}
	r.byUID["one"], r.byUID["two"] = &life{sample, Transaction{ID: "1"}}, &life{sample, Transaction{ID: "2"}}
	head, err := r.ledger.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	call := func(id string, nonce uint64) {
		t.Helper()
		key := ed25519.NewKeyFromSeed([]byte(strings.Repeat(id, ed25519.SeedSize)))
		from := devnet.AddressOf(key)
		if nonce == 0 {
			if _, err := l.Grant(from, 1000); err != nil {
				t.Fatal(err)
			}
		}
		signed, err := devnet.Sign(devnet.Tx{
			Chain: head.Chain,
			From:  from,
			Nonce: nonce,
			Fee:   1,
			Calls: []devnet.Call{{To: "B62a", Method: "vote"}},
			Memo:  id + ".1",
		}, key)
		if err == nil {
			_, err = r.ledger.Submit(t.Context(), signed)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	block := func() (out Ledger) {
		t.Helper()
		b, err := r.ledger.MakeBlock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return Ledger{Height: b.Height}
	}
	call("1", 0)
	block()
	call("2", 0)
	out := block()
	if differ, err := r.onePerBlock(t.Context(), &out); err != nil || len(differ) != 0 || out.Landed != 2 {
		t.Errorf("%d landed, each in a block of its own, and %v is said (%v)", out.Landed, differ, err)
	}
	call("1", 1)
	call("2", 1)
	out = block()
	differ, err := r.onePerBlock(t.Context(), &out)
	if err != nil || len(differ) != 1 || differ[0].UID != "B62a" || out.Landed != 4 ||
		!strings.Contains(differ[0].How, "in block 3:") {
		t.Errorf("two landed in one block, and %v is said (%v)", differ, err)
	}
}
