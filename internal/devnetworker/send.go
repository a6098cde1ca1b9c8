package devnetworker

import (
	"context"
	"crypto/ed25519"
	"errors"

	"github.com/postern-dev/postern/internal/devnet"
)

// send journals an attempt and submits it. nil: the ledger moved, look again.
func (w *Worker) send(ctx context.Context, c call, tx devnet.Tx, key ed25519.PrivateKey, to *nonces) *answer {
	for _, n := range to.gaps {
		if err := w.nothing(ctx, key, tx.Chain, n, w.cfg.FirstFee); err != nil {
			a := blocked("a gap of nonces cannot be filled: "+err.Error(), blockOrTwo)
			return &a
		}
	}
	var signed devnet.Signed
	var err error
	if to.again != nil {
		signed = to.again.signed
	} else {
		if signed, err = devnet.Sign(tx, key); err == nil {
			err = w.memory.note(record{Token: c.token(), Account: c.Sender.AccountID, Signed: &signed})
		}
	}
	if err == nil {
		err = w.memory.sync()
	}
	if err != nil {
		a := open(err.Error())
		return &a
	}
	if w.memory.stale(c.line, c.Postern.Fence) {
		w.void(attempted{signed: signed, keep: to.again != nil})
		a := stale("a higher fence came on this line while the call was prepared")
		return &a
	}
	var st devnet.Status
	maybe, err := patient(ctx, func() (err error) { st, err = w.ledger.Submit(ctx, signed); return err })
	if err == nil {
		a := accepted(st)
		return &a
	}
	return w.failed(ctx, c, attempted{signed, to.again != nil || maybe, maybe}, err)
}

// attempted is a submission that went wrong.
type attempted struct {
	signed devnet.Signed
	keep   bool // it may be on the ledger, now or from before
	now    bool // it may have been sent just now
}

// failed says what a submission that went wrong is answered; nil: look again.
func (w *Worker) failed(ctx context.Context, c call, sent attempted, err error) *answer {
	w.log.Debug("submit", "tx", c.transaction(), "attempt", c.Postern.Attempt, "hash", sent.signed.Hash(), "error", err)
	var gone *devnet.Unanswered
	var a answer
	switch code := refused(err); {
	case sent.now, code == "" && !errors.As(err, &gone):
		hash := sent.signed.Hash()
		if known, err := w.statuses(ctx, []string{hash}); err == nil && known[0].State != devnet.Unknown &&
			known[0].State != devnet.Dropped {
			a = accepted(known[0])
		} else {
			a = open("the ledger did not answer, and does not know the transaction yet")
		}
		return &a
	case code == devnet.CodeWrongChain:
		w.setChain("")
		w.void(sent)
		return nil
	case code == devnet.CodeNonceUsed, code == devnet.CodeFeeTooLow, code == devnet.CodeNonceFar:
		w.void(sent)
		return nil
	case code == devnet.CodeNoAccount:
		w.void(sent)
		a = w.never(c, "ACCOUNT_NOT_FOUND: "+err.Error())
	case code == devnet.CodeInsufficient:
		w.void(sent)
		if !w.mayHappen(c) {
			a = w.never(c, "INSUFFICIENT_FUNDS: "+err.Error())
			break
		}
		// an earlier attempt may yet do well: this one only failed to outbid it
		a = refuse(refusal{20203, "INSUFFICIENT_FUNDS: " + err.Error()})
	case code == devnet.CodeInvalid:
		w.void(sent)
		a = w.never(c, "PREPARE_TRANSACTION_FAILED: "+err.Error())
	default: // refused for now, or never sent
		w.void(sent)
		a = blocked("WORKER_UNAVAILABLE: "+err.Error(), 0)
	}
	return &a
}

// void forgets an intent that was made just now and certainly did not reach the ledger.
func (w *Worker) void(sent attempted) {
	if !sent.keep {
		_ = w.memory.note(record{Void: sent.signed.Hash()}) // a journal that is broken says so at the next sync
	}
}
