package demo

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// Pool is the pool of the demo's senders.
const Pool = "demo"

// Accounts are the demo's senders: fewer than queues, so that queues wait for one another's.
var Accounts = []string{
	"B62qnX7sAPUoJfyMcSbpPPkYjQpEPbHhYEmMgJwTFEvgzbFVCXZ3f2b",
	"B62qpZ4iXG9LTsk5QbR1fWSCFLEh4mVfuBUAqcgx1jCMjSoDpCQWvqn",
	"B62qjyUSFBZYPKmRYG7bNSYm6wFrJ8e2dcShLP9wPsPDrHGvoVCYjqC",
	"B62qkbCH6jLfVEgR36UGyUzzFTPogr2CQb8fPLLFr6DWajMokYEAJvt",
	"B62qrn2QGqHcUWDdjzMnAcVHoPFPmkbfVVvVDBsPeoBHMC4FmGJeqLd",
}

// BlockEvery is the time between blocks of the demo's chain; the settings below follow from it.
const BlockEvery = 500 * time.Millisecond

// onePerBlock lets one transaction of each zkApp go at a time, whatever its type. The next one lands in a later block,
// since a reorg of the demo takes out fewer blocks than the confirmations of a dispatcher.
const onePerBlock outbox.Exclusive = "group:zkapp:/zkAppAddress"

// dispatcher returns the settings of a type in the demo: the retries of seed 2, but with the waits of a
// chain whose blocks take half a second instead of three minutes.
func dispatcher(typ, worker string) outbox.Dispatcher {
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL, d.Pool, d.PostedBy = typ, worker, Pool, outbox.SystemOf(typ)
	d.Timeouts.Dispatch = outbox.Duration(10 * time.Second)
	two := 2
	d.Retry.MaxRetries = &two
	d.Retry.Kind, d.Retry.Initial, d.Retry.Cap = "fixed", outbox.Duration(BlockEvery), outbox.Duration(2*time.Second)
	d.Inclusion = outbox.Inclusion{PollEvery: outbox.Duration(BlockEvery / 2),
		Deadline:     outbox.Duration(8 * BlockEvery),
		UnknownGrace: outbox.Duration(2 * BlockEvery), Confirmations: 2}
	return d
}

// setup puts the dispatchers and senders that the samples need.
func (r *run) setup(ctx context.Context) error {
	types := map[string]bool{}
	for _, s := range r.samples {
		if typ := s.Transaction.Type; !types[typ] {
			types[typ] = true
			d := dispatcher(typ, r.Worker)
			if s.app() != "" {
				d.Exclusive = onePerBlock
			}
			if err := r.client.do(ctx, http.MethodPut, "/dispatchers/"+typ, d, nil); err != nil {
				return fmt.Errorf("set up the dispatcher of %s: %w", typ, err)
			}
		}
	}
	for _, account := range Accounts {
		body := map[string]any{"pool": Pool}
		if err := r.client.do(ctx, http.MethodPut, "/senders/"+account, body, nil); err != nil {
			return fmt.Errorf("set up the sender %s: %w", account, err)
		}
	}
	return nil
}

// post sends every sample in one batch and checks that each was accepted.
func (r *run) post(ctx context.Context) error {
	items := make([]Post, len(r.samples))
	for i, s := range r.samples {
		items[i] = s.Transaction
	}
	var answer struct {
		Items []struct {
			Status      int                      `json:"status"`
			Transaction *Transaction             `json:"transaction"`
			Problem     *struct{ Detail string } `json:"problem"`
		} `json:"items"`
	}
	body := map[string]any{"atomic": false, "items": items}
	if err := r.client.do(ctx, http.MethodPost, "/transactions:batch", body, &answer); err != nil {
		return fmt.Errorf("post the samples: %w", err)
	}
	if len(answer.Items) != len(items) {
		return fmt.Errorf("post the samples: %d answers for %d transactions", len(answer.Items), len(items))
	}
	for i, a := range answer.Items {
		if a.Problem != nil || a.Transaction == nil {
			return fmt.Errorf("post the sample %s: refused with status %d: %+v", items[i].UID, a.Status, a.Problem)
		}
		r.byUID[a.Transaction.UID] = &life{sample: r.samples[i], tx: *a.Transaction}
		r.order = append(r.order, a.Transaction.UID)
	}
	return nil
}
