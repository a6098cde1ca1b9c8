package devnetworker

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
)

// pauses are between the tries of one call to the ledger. A short failure is not worth a blocked answer, after which
// the whole worker is left alone for a second and more (S2.9). A longer failure is.
var pauses = []time.Duration{20 * time.Millisecond, 80 * time.Millisecond}

// patient does a call to the ledger that may be done more than once, again if the ledger does not answer
// or cannot now. maybe says that some try was sent and not answered: unless err is nil it may have been
// done.
func patient(ctx context.Context, call func() error) (maybe bool, err error) {
	for try := 0; ; try++ {
		err = call()
		var gone *devnet.Unanswered
		switch {
		case err == nil:
			return maybe, nil
		case errors.As(err, &gone):
			maybe = maybe || !gone.Unsent
		case refused(err) == devnet.CodeUnavailable:
		default:
			return maybe, err
		}
		if try == len(pauses) {
			return maybe, err
		}
		select {
		case <-time.After(pauses[try]):
		case <-ctx.Done():
			return maybe, err
		}
	}
}

// statuses asks after many transactions.
func (w *Worker) statuses(ctx context.Context, hashes []string) (all []devnet.Status, err error) {
	_, err = patient(ctx, func() error {
		all, err = w.ledger.Statuses(ctx, hashes)
		return err
	})
	return all, err
}
