package demo

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/devnet/ledger"
	"github.com/postern-dev/postern/internal/outbox"
)

func TestBalancesAreHeldAgainstTheOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		say               string
		before, now, want map[devnet.Address]int64
		differ            []string
	}{
		{"nothing moved and nothing should have", map[devnet.Address]int64{"a": 7}, map[devnet.Address]int64{"a": 7}, nil, nil},
		{"what was there before counts for nothing", map[devnet.Address]int64{"a": 7}, map[devnet.Address]int64{"a": 17}, map[devnet.Address]int64{"a": 10}, nil},
		{"paid twice", nil, map[devnet.Address]int64{"a": 20, "b": 5}, map[devnet.Address]int64{"a": 10, "b": 5}, []string{"a received 20, the outcomes say 10"}},
		{"never paid", nil, map[devnet.Address]int64{"a": 0}, map[devnet.Address]int64{"a": 10}, []string{"a received 0, the outcomes say 10"}},
		{"paid though not DONE", nil, map[devnet.Address]int64{"a": 10}, nil, []string{"a received 10, the outcomes say 0"}},
		{"paid away", map[devnet.Address]int64{"a": 10}, map[devnet.Address]int64{"a": 0}, nil, []string{"a received -10, the outcomes say 0"}},
	} {
		var differ []string
		for _, d := range unbalanced(c.before, c.now, c.want) {
			differ = append(differ, d.UID+" "+d.How)
		}
		if !slices.Equal(differ, c.differ) {
			t.Errorf("%s: %q, want %q", c.say, differ, c.differ)
		}
	}
}

func TestTheSampleTransfersCanBeHeldAgainstBalances(t *testing.T) {
	t.Parallel()
	all, err := Samples("x")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range all {
		switch _, ok, err := s.Transaction.transfer(); {
		case err != nil:
			t.Error(err)
		case ok:
			n++
		}
	}
	if n != 6 {
		t.Errorf("%d samples are transfers, want 6", n)
	}
	for _, data := range []string{`{}`, `{"to": "bob", "amount": "1"}`, `{"to": "dn` + strings.Repeat("0", 64) + `"}`, `[]`} {
		if _, _, err := (Post{Type: "TRANSFER", Data: json.RawMessage(data)}).transfer(); err == nil {
			t.Errorf("the data %s names an account and an amount", data)
		}
	}
}

// The real ledger decides: here one account gets a unit too much, by a grant.
func TestAnAccountThatGotTooMuchIsNamed(t *testing.T) {
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
	if r.samples, err = Samples("x"); err != nil {
		t.Fatal(err)
	}
	if r.before, err = r.balances(t.Context()); err != nil {
		t.Fatal(err)
	}
	var last devnet.Address
	for _, s := range r.samples {
		r.order = append(r.order, s.Transaction.UID)
		r.byUID[s.Transaction.UID] = &life{sample: s, tx: Transaction{State: s.Expect.State}}
		if m, ok, _ := s.Transaction.transfer(); ok && s.Expect.State == outbox.DONE {
			last = m.To
			if _, err := l.Grant(m.To, uint64(m.Amount)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var out Ledger
	if differ, err := r.received(t.Context(), &out); err != nil || len(differ) != 0 || out.Transfers != 5 || out.Moved != 1234 {
		t.Errorf("each account has what it should, and %v is said with %v (%v)", out, differ, err)
	}
	if _, err := l.Grant(last, 1); err != nil {
		t.Fatal(err)
	}
	if differ, err := r.received(t.Context(), &Ledger{}); err != nil || len(differ) != 1 || differ[0].UID != string(last) {
		t.Errorf("%s has one too much, and %v is said (%v)", last, differ, err)
	}
}
