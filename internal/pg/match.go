package pg

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// Seen compares the version of what is about to change, under its lock, with what the client last saw.
func (by By) Seen(version int64) error {
	if by.Match == nil || by.Match(strconv.FormatInt(version, 10)) {
		return nil
	}
	return MatchVersion(-2, version, false)
}

// seenTransaction is seen for a transaction whose queue t has locked.
func (t *Txn) seenTransaction(ctx context.Context, by By, id outbox.ID) error {
	if by.Match == nil {
		return nil
	}
	found, err := t.Store.transactions(ctx, t.Conn, by.Context, []outbox.ID{id})
	if err != nil {
		return err
	}
	return by.seenTag(found[id])
}

func (by By) seenTag(t *Transaction) error {
	if by.Match == nil || t == nil || by.Match(t.Tag()) {
		return nil
	}
	return fault.New(fault.Conflict, "precondition_failed", "transaction %s is %s by now: read it again", t.ID, t.State).With("version", t.Tag())
}

// Tag changes whenever anything that a reader sees of a transaction does, but for the next question about
// what was sent: each answer that says nothing new moves it.
func (t *Transaction) Tag() string {
	next := t.NextAt
	if t.State == outbox.REVISION || t.State == outbox.DISPATCHING {
		next = nil
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s %s %d %d %s %s %s %s %v %v %v %v %s %s %s %s %v %d", t.ID, t.State, t.QueueState, t.Retries, t.Attempt, t.Sender, t.Fee, t.Hash,
		t.BlockHeight, stamp(t.SubmittedAt), stamp(t.RetriedAt), stamp(t.DoneAt), stamp(next), t.Class, t.Code, t.Error, t.RedrivenBy, t.Suspended, t.PlacedBefore)
	return strconv.FormatUint(h.Sum64(), 36)
}

func stamp(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMicro()
}
