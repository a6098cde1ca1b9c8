package devnetworker

import (
	"context"
	"strconv"

	"github.com/postern-dev/postern/internal/devnet"
)

// asked says what is known of a token, or if that is "", of a hash (S2.7). An error is that the ledger
// could not be asked, which says nothing about the transaction.
func (w *Worker) asked(ctx context.Context, token, hash string) (map[string]any, error) {
	if token != "" {
		s, known := w.memory.answered(token)
		switch {
		case !known:
			return shown(devnet.Status{State: devnet.Unknown}), nil
		case s.refused != nil:
			return map[string]any{"state": "failed", "block_height": nil, "failure_reason": s.refused.Message}, nil
		}
		hash = s.hash
	}
	known, err := w.statuses(ctx, []string{hash})
	if err != nil {
		return nil, err
	}
	return shown(known[0]), nil
}

// askedAll says what is known of some hashes, in their order.
func (w *Worker) askedAll(ctx context.Context, hashes []string) ([]map[string]any, error) {
	all := make([]map[string]any, len(hashes))
	if len(hashes) == 0 {
		return all, nil
	}
	known, err := w.statuses(ctx, hashes)
	if err != nil {
		return nil, err
	}
	for i, st := range known {
		all[i] = shown(st)
	}
	return all, nil
}

// shown turns what the ledger knows into what the contract says. A failure is told when it is final: until
// then a reorg may let the transaction do well, and a retry besides it would happen twice.
func shown(st devnet.Status) map[string]any {
	m := map[string]any{"state": "unknown", "block_height": nil, "failure_reason": nil}
	if st.State == devnet.Unknown || st.State == devnet.Dropped {
		return m
	}
	m["hash"], m["nonce"] = st.Hash, strconv.FormatUint(st.Nonce, 10)
	m["state"] = "pending"
	if st.State == devnet.Included || st.State == devnet.Failed && st.Final() {
		m["state"], m["block_height"], m["confirmations"] = string(st.State),
			strconv.FormatUint(st.Height, 10), st.Confirmations
	}
	if st.State == devnet.Failed && st.Final() {
		m["failure_reason"] = st.Reason
	}
	return m
}
