package devnet

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"
)

func TestASignedTransactionOpensAndAChangedOneDoesNot(t *testing.T) {
	t.Parallel()
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	tx := Tx{Chain: "c", From: AddressOf(key), Nonce: 3, Fee: 10, Memo: "<m>",
		Calls: []Call{{To: "app", Method: "vote", Amount: 5, Args: json.RawMessage(`{"a": "<1>"}`)}}}
	s, err := Sign(tx, key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Open()
	if err != nil || got.From != tx.From || got.Nonce != 3 || got.Memo != "<m>" || got.Cost() != 15 {
		t.Errorf("opened %+v, %v", got, err)
	}
	if again, _ := Sign(got, key); again.Hash() != s.Hash() || again != s {
		t.Errorf("signed again: %+v, want the same as %+v", again, s)
	}
	for name, bad := range map[string]Signed{
		"another nonce":     {strings.Replace(s.Body, `"nonce":3`, `"nonce":4`, 1), s.Signature},
		"another signature": {s.Body, strings.Repeat("0", 128)},
		"no signature":      {s.Body, ""},
		"a foreign field":   {`{"x":1}`, s.Signature},
		"two bodies":        {s.Body + s.Body, s.Signature},
		"no JSON":           {"x", s.Signature},
	} {
		if _, err := bad.Open(); err == nil {
			t.Errorf("%s was opened", name)
		}
	}
}

func TestValidateNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	to := string(AddressOf(ed25519.NewKeyFromSeed(make([]byte, 32))))
	for want, tx := range map[string]Tx{
		"the fee is 0":            {},
		"257 calls":               {Fee: 1, Calls: make([]Call, 257)},
		"the memo":                {Fee: 1, Memo: strings.Repeat("x", 300)},
		`a call goes to ""`:       {Fee: 1, Calls: []Call{{}}},
		"called on an address":    {Fee: 1, Calls: []Call{{To: to, Method: "vote"}}},
		"all the money there can": {Fee: 1, Calls: []Call{{To: to, Amount: MaxAmount}}},
	} {
		if err := tx.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q in it", tx.Fee, err, want)
		}
	}
	if err := (Tx{Fee: 1, Calls: []Call{{To: to, Amount: 1}, {To: "app", Method: "m"}}}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestOutbidIsATenthMoreRoundedUp(t *testing.T) {
	t.Parallel()
	for fee, want := range map[uint64]uint64{1: 2, 10: 11, 11: 13, 100: 110, 101: 112, 100000000: 110000000} {
		if got := Outbid(fee); got != want {
			t.Errorf("Outbid(%d) = %d, want %d", fee, got, want)
		}
	}
}
