package ledger

import (
	"fmt"
	"net/http"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/fault"
)

// Submit takes a signed transaction into the pool and returns what is known of it. The same one again is
// no error: taken says whether it is new to the pool. An error is a *devnet.Refusal, or that the ledger is
// broken.
func (l *Ledger) Submit(s devnet.Signed) (st devnet.Status, taken bool, err error) {
	tx, err := s.Open()
	if err != nil {
		return st, false, refuse(http.StatusUnprocessableEntity, devnet.CodeInvalid, "%s", fault.As(err).Detail)
	}
	l.mu.Lock()
	e := l.txs[s.Hash()]
	if e == nil || e.state == devnet.Dropped {
		if refusal := l.refusal(tx); refusal != nil {
			l.mu.Unlock()
			return st, false, refusal
		}
		taken = true
	}
	var upTo int64
	if taken {
		upTo, err = l.write(record{Op: opSubmit, Tx: &s})
	}
	if err == nil {
		st = l.known(s.Hash())
	}
	l.mu.Unlock()
	if err == nil && taken {
		err = l.settle(upTo)
	}
	return st, taken, err
}

// refusal says why a transaction cannot go into the pool, nil if it can. The lock is held.
func (l *Ledger) refusal(tx devnet.Tx) error {
	payer, exists := l.state.accounts[tx.From]
	next := l.next(tx.From)
	old := l.pool[tx.From][tx.Nonce]
	switch {
	case tx.Chain != l.chain:
		return refuse(http.StatusConflict, devnet.CodeWrongChain, "the transaction is for chain %q, this is %q", fault.Clip(tx.Chain), l.chain)
	case !exists:
		return refuse(http.StatusNotFound, devnet.CodeNoAccount, "account %s never got any money: POST /faucet gives some", tx.From)
	case tx.Nonce < payer.nonce:
		r := refuse(http.StatusConflict, devnet.CodeNonceUsed, "nonce %d is used: the next of %s is %d", tx.Nonce, tx.From, next)
		r.NextNonce = next
		return r
	case tx.Nonce >= payer.nonce+nonceMost:
		r := refuse(http.StatusUnprocessableEntity, devnet.CodeNonceFar, "nonce %d is too far ahead: the next of %s is %d", tx.Nonce, tx.From, next)
		r.NextNonce = next
		return r
	case old != nil && tx.Fee < devnet.Outbid(old.tx.Fee):
		r := refuse(http.StatusConflict, devnet.CodeFeeTooLow, "a fee of %d does not replace one of %d: want at least %d", tx.Fee, old.tx.Fee, devnet.Outbid(old.tx.Fee))
		r.LeastFee = devnet.Outbid(old.tx.Fee)
		return r
	case payer.balance() < tx.Cost():
		return refuse(http.StatusUnprocessableEntity, devnet.CodeInsufficient, "insufficient funds: the account has %d and this takes %d with its fee", payer.balance(), tx.Cost())
	case old == nil && l.pool.len() >= poolMost:
		return refuse(http.StatusServiceUnavailable, devnet.CodePoolFull, "the pool holds %d transactions: send it later", poolMost)
	}
	return nil
}

func refuse(status int, code, format string, args ...any) *devnet.Refusal {
	return &devnet.Refusal{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}
