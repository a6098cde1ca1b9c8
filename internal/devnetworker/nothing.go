package devnetworker

import (
	"context"
	"crypto/ed25519"

	"github.com/postern-dev/postern/internal/devnet"
)

// nothing submits a transaction without calls: it uses up a nonce. It is not journalled, since doing it
// twice is doing it once.
func (w *Worker) nothing(ctx context.Context, key ed25519.PrivateKey, chain string, nonce, fee uint64) error {
	s, err := devnet.Sign(devnet.Tx{Chain: chain, From: devnet.AddressOf(key), Nonce: nonce, Fee: fee,
		Calls: []devnet.Call{}, Memo: "nothing"}, key)
	if err != nil {
		return err
	}
	_, err = w.ledger.Submit(ctx, s)
	switch refused(err) {
	case devnet.CodeNonceUsed, devnet.CodeFeeTooLow:
		return nil // something else uses it, or this does already
	}
	return err
}

// kill makes an open attempt impossible whose account does not sign any more: its nonce is used up. dead
// says that it is so for good.
func (w *Worker) kill(ctx context.Context, in *intent) (dead bool, err error) {
	account, err := w.ledger.Account(ctx, in.tx.From)
	switch {
	case refused(err) == devnet.CodeNoAccount, err == nil && account.FinalNonce > in.tx.Nonce:
		return true, w.memory.note(record{Void: in.hash})
	case err != nil || account.NextNonce > in.tx.Nonce:
		return false, err
	}
	key, err := w.keys.Key(in.account)
	if err != nil {
		return false, err
	}
	for n := account.NextNonce; n <= in.tx.Nonce; n++ {
		if err := w.nothing(ctx, key, in.tx.Chain, n, devnet.Outbid(in.tx.Fee)); err != nil {
			return false, err
		}
	}
	return false, nil
}

// giveUp replaces each hash of a transaction that ended badly and that is still pending, so that it does not happen
// after all and its nonce is used. A hash that is in a block already stays.
func (w *Worker) giveUp(ctx context.Context, c call) error {
	for _, in := range w.memory.of(c.transaction()) {
		if err := w.giveUpOne(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

func (w *Worker) giveUpOne(ctx context.Context, in *intent) error {
	release, err := w.locks.take(ctx, "account "+in.account)
	if err != nil {
		return err
	}
	defer release()
	st, err := w.ledger.Status(ctx, in.hash)
	if err != nil || st.State != devnet.Pending {
		return err
	}
	key, err := w.keys.Key(in.account)
	if err != nil {
		return err
	}
	return w.nothing(ctx, key, in.tx.Chain, st.Nonce, devnet.Outbid(st.Fee))
}
