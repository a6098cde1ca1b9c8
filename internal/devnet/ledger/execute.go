package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/postern-dev/postern/internal/devnet"
)

// execute does a transaction that may stand next in a block: its nonce is that of its account, which can
// pay the fee (mayStand). The fee goes to the sink and the nonce is used in any case; the calls are done
// all, or none with the reason.
func (s *state) execute(tx devnet.Tx) (reason string) {
	payer := s.accounts[tx.From]
	payer.net -= int64(tx.Fee)
	payer.nonce++
	s.setAccount(tx.From, payer)
	s.setSink(s.sink + tx.Fee)
	mark := len(s.undo)
	if tx.Fate != nil && tx.Fate.Revert != "" {
		return tx.Fate.Revert
	}
	for i, c := range tx.Calls {
		if reason := s.call(tx.From, c); reason != "" {
			s.back(s.undo[mark:])
			s.undo = s.undo[:mark]
			if len(tx.Calls) > 1 {
				reason = fmt.Sprintf("call %d of %d: %s", i+1, len(tx.Calls), reason)
			}
			return reason
		}
	}
	return ""
}

// mayStand says whether a transaction can be the next of its account, be it to fail.
func (s *state) mayStand(tx devnet.Tx) bool {
	payer := s.accounts[tx.From]
	return payer.nonce == tx.Nonce && payer.balance() >= tx.Fee
}

// call does one call, or says why not; then nothing but undo knows of it.
func (s *state) call(from devnet.Address, c devnet.Call) (reason string) {
	payer := s.accounts[from]
	if payer.balance() < c.Amount {
		return fmt.Sprintf("insufficient funds: %d is more than the %d there are", c.Amount, payer.balance())
	}
	payer.net -= int64(c.Amount)
	s.setAccount(from, payer)
	if devnet.IsAddress(c.To) {
		to := devnet.Address(c.To)
		payee := s.accounts[to]
		payee.net += int64(c.Amount)
		s.setAccount(to, payee)
		return ""
	}
	a, exists := s.apps[c.To]
	switch {
	case c.Method == "revert":
		return "reverted: " + strings.Trim(string(c.Args), `"`)
	case c.Method == "create" && exists:
		return "the app exists"
	case c.Method == "require" && !exists:
		return "the app does not exist"
	}
	sum := sha256.Sum256([]byte(a.root + "\n" + string(from) + "\n" + c.Method + "\n" + string(c.Args)))
	a.calls, a.balance, a.root = a.calls+1, a.balance+c.Amount, hex.EncodeToString(sum[:])
	s.setApp(c.To, a)
	return ""
}
