package devnetworker

import (
	"context"
	"slices"
	"strconv"

	"github.com/postern-dev/postern/internal/devnet"
)

// plan is what to do about a dispatch: one of its four fields says.
type plan struct {
	take *devnet.Status // there is nothing to send: this one is it
	wait string         // why nothing can be sent before a block or two
	kill *intent        // an open attempt of another account, to be made impossible first
	send *nonces
}

// nonces is where to send an attempt.
type nonces struct {
	nonce uint64
	gaps  []uint64 // lower ones that nothing uses, to be filled first
	again *intent  // this very one, since its token came again
}

// decide says what to do about an attempt with a fee, by what the ledger says of the earlier ones of the
// same transaction and of the account that is to sign. It has no I/O.
//
// earlier and known stand in the same order; known also holds hashes that only the caller remembers, whose
// intents are nil.
func decide(token, chain string, fee uint64, account devnet.Account, earlier []*intent, known []devnet.Status) plan {
	if i := slices.IndexFunc(known, func(st devnet.Status) bool { return st.State == devnet.Included }); i >= 0 {
		return plan{take: &known[i]}
	}
	live := -1 // the one whose nonce must be used
	for i, st := range known {
		in := earlier[i]
		own := in != nil && in.token == token
		switch st.State {
		case devnet.Pending:
			if own || st.From != account.Address || fee < devnet.Outbid(st.Fee) {
				return plan{take: &known[i]}
			}
			live = i
		case devnet.Failed:
			if own {
				return plan{take: &known[i]} // the answer stays what it was: its status says the rest
			}
			if !st.Final() {
				return plan{wait: "an earlier attempt failed in a block that is not final"}
			}
		default: // not in the pool; but what was on its way may still arrive
			nonce, from, over := st.Nonce, st.From, false
			if in != nil {
				nonce, from, over = in.tx.Nonce, in.tx.From, in.tx.Chain != chain
			}
			switch {
			case over || in == nil && st.State == devnet.Unknown: // of a ledger that is no more, or never ours
			case from != account.Address:
				if in != nil {
					return plan{kill: in}
				}
			case nonce < account.FinalNonce: // used for good by another
			case nonce < account.NextNonce:
				if !slices.ContainsFunc(known, func(o devnet.Status) bool {
					return o.State == devnet.Pending && o.Nonce == nonce
				}) {
					return plan{wait: "the nonce of an earlier attempt is used by a transaction that is not final"}
				}
			default:
				live = i
			}
		}
	}
	if live < 0 {
		return plan{send: &nonces{nonce: account.NextNonce}}
	}
	to := &nonces{nonce: known[live].Nonce}
	if in := earlier[live]; in != nil {
		to.nonce = in.tx.Nonce
		if in.token == token {
			to.again = in
		}
	}
	for n := account.NextNonce; n < to.nonce; n++ {
		to.gaps = append(to.gaps, n)
	}
	return plan{send: to}
}

// look asks the ledger for all that decide wants to know.
func (w *Worker) look(ctx context.Context, c call, fee uint64, a devnet.Address) (p plan, chain string, err error) {
	if chain, err = w.onChain(ctx); err != nil {
		return plan{}, "", err
	}
	account, err := w.account(ctx, a)
	if err != nil {
		return plan{}, "", err
	}
	earlier := w.memory.of(c.transaction())
	var hashes []string
	for _, in := range earlier {
		hashes = append(hashes, in.hash)
	}
	for _, h := range c.Postern.PreviousHashes {
		if !slices.Contains(hashes, h) {
			hashes, earlier = append(hashes, h), append(earlier, nil)
		}
	}
	var known []devnet.Status
	if len(hashes) > 0 {
		if known, err = w.statuses(ctx, hashes); err != nil {
			return plan{}, "", err
		}
	}
	if nonce, err := strconv.ParseUint(c.Postern.Nonce, 10, 64); err == nil && nonce <= account.NextNonce {
		for i := range known { // neither we nor the ledger know it, but the caller knows its nonce: it keeps that one
			if earlier[i] == nil && known[i].State == devnet.Unknown {
				known[i] = devnet.Status{Hash: hashes[i], State: devnet.Dropped, From: a, Nonce: nonce}
			}
		}
	}
	return decide(c.token(), chain, fee, account, earlier, known), chain, nil
}
