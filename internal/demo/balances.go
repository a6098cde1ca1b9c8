package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/outbox"
)

// transfer is the data of a sample of type TRANSFER: who receives how much.
type transfer struct {
	To     devnet.Address `json:"to"`
	Amount int64          `json:"amount,string"`
}

// transfer reads what a sample moves; ok is false for one that calls an app. An error says that the
// sample names no account of the ledger, and so could not be held against a balance.
func (p Post) transfer() (t transfer, ok bool, err error) {
	if p.Type != "TRANSFER" {
		return t, false, nil
	}
	if err := json.Unmarshal(p.Data, &t); err != nil || !devnet.IsAddress(string(t.To)) || t.Amount <= 0 {
		return t, false,
			fmt.Errorf("the data of %s is %s: want an address of the ledger in to, and digits in amount (%v)",
				p.UID, p.Data, err)
	}
	return t, true, nil
}

// balances asks what each account has that a sample may pay; one that the ledger never heard of has nothing.
func (r *run) balances(ctx context.Context) (map[devnet.Address]int64, error) {
	have := map[devnet.Address]int64{}
	for _, s := range r.samples {
		t, ok, err := s.Transaction.transfer()
		if err != nil {
			return nil, err
		}
		if _, asked := have[t.To]; asked || !ok {
			continue
		}
		a, err := r.ledger.Account(ctx, t.To)
		var refused *devnet.Refusal
		if err != nil && !(errors.As(err, &refused) && refused.Code == devnet.CodeNoAccount) {
			return nil, fmt.Errorf("ask the devnet for the balance of %s: %w", t.To, err)
		}
		have[t.To] = int64(a.Balance) // the ledger's money fits: devnet.MaxAmount
	}
	return have, nil
}

// received holds what the receiving accounts got since the run began against the outcomes: each got the
// amounts of its transfers that are DONE, once, and nothing else. It adds what the outcomes say to out.
func (r *run) received(ctx context.Context, out *Ledger) ([]Difference, error) {
	now, err := r.balances(ctx)
	if err != nil {
		return nil, err
	}
	want := map[devnet.Address]int64{}
	for _, uid := range r.order {
		l := r.byUID[uid]
		if t, ok, _ := l.sample.Transaction.transfer(); ok && l.tx.State == outbox.DONE {
			want[t.To] += t.Amount
			out.Transfers++
			out.Moved += t.Amount
		}
	}
	return unbalanced(r.before, now, want), nil
}

// unbalanced lists the accounts whose balance did not change by what they should have received.
func unbalanced(before, now, want map[devnet.Address]int64) (differ []Difference) {
	for account, have := range now {
		if got := have - before[account]; got != want[account] {
			differ = append(differ, Difference{string(account),
				fmt.Sprintf("received %d, the outcomes say %d", got, want[account])})
		}
	}
	return differ
}
