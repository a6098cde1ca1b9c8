package flows

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// Said is what a runner says at the end of a try.
type Said struct {
	Result    json.RawMessage `json:"result,omitempty"` // of a failure: what the script left
	Code      string          `json:"code,omitempty"`   // "": it went well
	Error     string          `json:"error,omitempty"`
	ExitCode  *int            `json:"exit_code,omitempty"`
	Final     bool            `json:"final,omitempty"`
	Isolation string          `json:"isolation,omitempty"`
	Usage     json.RawMessage `json:"usage,omitempty"`
}

// event is what that means to the try.
func (e *Said) event() flow.TryEvent {
	switch e.Code {
	case "":
		return flow.TryFinished
	case flow.CodeTimedOut:
		return flow.TryTimedOut
	}
	return flow.TryFailed
}

// End records how a try ended that is held under a fence. The same words again under the same fence change nothing.
// Outcomes besides: NotFound; Conflict "stale_fence", where what was said is kept as late.
//
// State and fence are compared behind the lock of the try, which is the only one. So of two that say different things
// under one fence the second is late; a sweep that takes the try back has raised the fence, or waits and finds it
// ended.
func (s *Store) End(ctx context.Context, contextID int32, id uuid.UUID, fence int64, e Said) (changed bool, err error) {
	if twin.Planted("exit_code_dropped") {
		e.ExitCode = nil
	}
	body, err := json.Marshal(e)
	if err != nil {
		return false, err
	}
	sum := sha256.Sum256(body)
	hash := append([]byte(nil), sum[:]...)
	var late error
	var queue int64
	err = s.Run(ctx, func(t *db.Txn) error {
		changed, late = false, nil
		v, now, err := s.lockTry(ctx, t, contextID, id)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		switch {
		case v.State == flow.Held && v.Fence == fence:
		case v.Fence == fence && v.EndedAt != nil && bytes.Equal(v.BodyHash, hash):
			return t.Rollback(ctx)
		default:
			late = stale(v, fence)
			keepLate(b, v, fence, string(e.event()), e, now)
			return t.Commit(ctx, b)
		}
		step, err := s.move(b, v, e.event(), ending{e.Result, e.ExitCode, e.Code, e.Error, e.Usage, e.Isolation,
			hash}, now)
		if err != nil {
			return err
		}
		if e.Final && step.To == flow.Failed {
			b.Queue(`UPDATE postern.job_try SET final = true WHERE try_id = $1`, v.ID)
		}
		changed, queue = true, v.queue
		return t.Commit(ctx, b)
	})
	switch {
	case fault.KindOf(err) == fault.Conflict && strings.Contains(fault.As(err).Detail, "one success per job"):
		return false, fault.New(fault.Conflict, "stale_fence",
			"the job of try %s has succeeded already, and is not executed again", id)
	case err != nil:
		return false, err
	case late != nil:
		return false, late
	}
	if changed {
		s.hasten(ctx, queue)
		s.ring()
	}
	return changed, nil
}

// hasten has the core ask at once about transactions whose tries have ended. Losing that costs a look.
func (s *Store) hasten(ctx context.Context, queues ...int64) {
	if err := s.Hasten(ctx, queues); err != nil {
		s.Log.Warn("have the core ask about a job that ended: the next look does", "error", err)
	}
}
