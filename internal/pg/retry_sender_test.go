package pg_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A retry behind the closed gates of all senders of a pool is refused, as behind that of a type, and names the lever
// that opens one. Where one sender may be used, the transaction goes out anyway.
func TestARetryBehindTheGatesOfItsSendersIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	_, err := w.S.PutSender(w.Ctx, w.By, pg.Sender{Account: "own", Pool: "p", WorkerURL: "http://127.0.0.1:2/"}, 0)
	w.Must(err)
	id := w.Post("q", "T", "a")[0]
	w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Lost()))
	_, err = w.S.RetryNow(w.Ctx, w.By, id)
	if fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "/senders/own/unblock") {
		t.Errorf("%v, want a conflict that names how to unblock its sender", err)
	}
	w.Sender("p", "another")
	if _, err = w.S.RetryNow(w.Ctx, w.By, id); err != nil {
		t.Errorf("another sender may be used: %v", err)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}
