package devnetworker

import (
	"context"
	"crypto/ed25519"
	"net/http"
	"strconv"
	"time"

	"github.com/postern-dev/postern/api/worker"
	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/fault"
)

// rounds is how often a dispatch looks again when the ledger moved under it.
const rounds = 5

// blockOrTwo is how long a caller is asked to wait for a block.
const blockOrTwo = time.Second

// dispatch executes a call, unless its token was executed before or its fence is old. Whatever it answers
// is on the disk before.
func (w *Worker) dispatch(ctx context.Context, c call) answer {
	ok, err := w.memory.raise(c.line, c.Postern.Fence)
	if err == nil && !ok {
		return stale("a higher fence came on this line")
	}
	if err != nil {
		return blocked("WORKER_UNAVAILABLE: "+err.Error(), 0)
	}
	for _, name := range []string{"transaction " + c.transaction(), "account " + c.Sender.AccountID} {
		release, err := w.locks.take(ctx, name)
		if err != nil {
			return answer{} // the caller has left
		}
		defer release()
	}
	a := w.execute(ctx, c)
	if err := w.memory.sync(); err != nil {
		return open(err.Error())
	}
	return a
}

// execute does a call whose turn it is.
func (w *Worker) execute(ctx context.Context, c call) answer {
	if w.memory.stale(c.line, c.Postern.Fence) {
		return stale("a higher fence came on this line while the call waited")
	}
	before, known := w.memory.answered(c.token())
	if known && before.refused != nil {
		return refuse(*before.refused)
	}
	if later := w.overtaken(c); later && known {
		return accepted(w.remembered(before.hash))
	} else if later {
		return stale("a later attempt of this transaction came before")
	}
	sim := simulateOf(c.TxData.Data)
	if a := w.simulated(c, sim, known); a != nil {
		return *a
	}
	key, err := w.key(c.Sender.AccountID)
	switch fault.KindOf(err) {
	case "":
	case fault.NotFound, fault.Invalid:
		if w.mayHappen(c) { // the key may come back; an earlier attempt may still do well
			return blocked("NO_FEE_PAYER_AVAILABLE: "+err.Error(), 0)
		}
		return w.never(c, "ACCOUNT_NOT_FOUND: "+err.Error())
	default:
		return blocked("NO_FEE_PAYER_AVAILABLE: "+err.Error(), 0)
	}
	calls, err := w.prepare(c.TxData.Type, c.TxData.Data)
	if err != nil {
		return w.never(c, "PREPARE_TRANSACTION_FAILED: "+err.Error())
	}
	tx := devnet.Tx{From: devnet.AddressOf(key), Fee: w.fee(c), Calls: calls, Memo: clip(c.token(), 256),
		Fate: sim.fate(attemptOf(c.token()))}
	a := w.submit(ctx, c, tx, key)
	if a.status == http.StatusOK && sim.LoseAnswer != nil &&
		sim.LoseAnswer.due(w.again("lose_answer", c.transaction())) {
		return answer{}
	}
	return a
}

// submit looks what there is to do, does it, and looks again where the ledger moved in between.
func (w *Worker) submit(ctx context.Context, c call, tx devnet.Tx, key ed25519.PrivateKey) answer {
	for range rounds {
		p, chain, err := w.look(ctx, c, tx.Fee, tx.From)
		switch {
		case refused(err) == devnet.CodeNoAccount && !w.mayHappen(c):
			return w.never(c, "ACCOUNT_NOT_FOUND: "+err.Error())
		case err != nil:
			return blocked("WORKER_UNAVAILABLE: "+err.Error(), 0)
		case p.take != nil:
			if err := w.memory.note(record{Token: c.token(), Hash: p.take.Hash}); err != nil {
				return open(err.Error())
			}
			return accepted(*p.take)
		case p.wait != "":
			return blocked(p.wait, blockOrTwo)
		case p.kill != nil:
			if dead, err := w.kill(ctx, p.kill); err != nil {
				return blocked("WORKER_UNAVAILABLE: "+err.Error(), 0)
			} else if !dead {
				return blocked("an attempt of another account is open", blockOrTwo)
			}
			continue
		}
		tx.Chain, tx.Nonce = chain, p.send.nonce
		if a := w.send(ctx, c, tx, key, p.send); a != nil {
			return *a
		}
	}
	return blocked("the ledger moves faster than this worker", blockOrTwo)
}

// never refuses for good and remembers it.
func (w *Worker) never(c call, message string) answer {
	r := rejected(message)
	return w.refuse(c, r)
}

func (w *Worker) refuse(c call, r refusal) answer {
	if err := w.memory.note(record{Token: c.token(), Refused: &r}); err != nil {
		return open(err.Error())
	}
	return refuse(r)
}

// simulated says what the data wants to be answered instead of an execution, nil for nothing.
func (w *Worker) simulated(c call, sim simulate, known bool) *answer {
	var a answer
	switch {
	case sim.Unavailable != nil && sim.Unavailable.due(w.again("unavailable", c.transaction())):
		a = blocked("WORKER_UNAVAILABLE: as it wished", 0)
	case known:
		return nil
	case sim.Reject != nil:
		a = w.refuse(c, sim.Reject.as(500, "ACCOUNT_NOT_FOUND"))
	case sim.FailDispatch.due(attemptOf(c.token())):
		a = w.refuse(c, sim.FailDispatch.as(20203, "the node did not take the transaction"))
	default:
		return nil
	}
	return &a
}

// overtaken says whether a later attempt of the same transaction was executed.
func (w *Worker) overtaken(c call) bool {
	for _, in := range w.memory.of(c.transaction()) {
		if attemptOf(in.token) > attemptOf(c.token()) {
			return true
		}
	}
	return false
}

// mayHappen says whether an earlier attempt of the transaction may be on the ledger: then it cannot be
// said that it never will.
func (w *Worker) mayHappen(c call) bool {
	return len(c.Postern.PreviousHashes) > 0 || len(w.memory.of(c.transaction())) > 0
}

// remembered is what is known of a hash without asking the ledger.
func (w *Worker) remembered(hash string) devnet.Status {
	w.memory.mu.Lock()
	defer w.memory.mu.Unlock()
	st := devnet.Status{Hash: hash}
	if in := w.memory.hashes[hash]; in != nil {
		st.Nonce, st.Fee = in.tx.Nonce, in.tx.Fee
	}
	return st
}

// key returns the key of an account, and in development makes one.
func (w *Worker) key(account string) (ed25519.PrivateKey, error) {
	key, err := w.keys.Key(account)
	if fault.KindOf(err) == fault.NotFound && w.cfg.Auto > 0 {
		return w.keys.Create(account)
	}
	return key, err
}

// fee is what the call offers, or our first fee times its factor, rounded up.
func (w *Worker) fee(c call) uint64 {
	offer := worker.Info{Fee: c.Postern.Fee, FeeFactor: c.Postern.FeeFactor}.Offer(w.cfg.FirstFee)
	if fee, err := strconv.ParseUint(offer, 10, 64); err == nil && fee > 0 {
		return min(fee, devnet.MaxAmount)
	}
	return w.cfg.FirstFee
}

func clip(s string, most int) string { return s[:min(len(s), most)] }
