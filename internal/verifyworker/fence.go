package verifyworker

import (
	"context"
	"net/http"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
)

// fenced makes a call in a queue with a fence.
func (v *verifier) fenced(queue, seq, fence int64) remote.Call {
	c := v.callIn(queue, seq)
	c.Fence = fence
	return c
}

func (v *verifier) lowerFence(ctx context.Context) finding {
	queue := v.queue()
	if _, err := v.accept(ctx, v.fenced(queue, 1, 5)); err != nil {
		return failed("a call with fence 5: %s", err)
	}
	for _, late := range []struct {
		what string
		call remote.Call
	}{
		{"fence 4 after fence 5", v.fenced(queue, 2, 4)},
	} {
		a, x := v.send(ctx, late.call)
		switch {
		case a.Class == "":
			return failed("%s of the same queue: %s, want HTTP 409", late.what, told(a, x))
		case x.Status != http.StatusConflict || a.Class != outbox.ClassAmbiguous:
			return failed("%s of the same queue: %s; want HTTP 409, with no class or class ambiguous", late.what, told(a, x))
		}
		if !v.status {
			continue
		}
		if st := v.ask(ctx, late.call.Token(), ""); st.State != outbox.StatusUnknown {
			return failed("%s of the same queue was refused, but by its token %s: want unknown", late.what, says(st))
		}
	}
	return ok("refused with 409, and nothing executed")
}

func (v *verifier) otherFences(ctx context.Context) finding {
	queue := v.queue()
	first := v.fenced(queue, 1, 5)
	for _, c := range []struct {
		what string
		call remote.Call
	}{
		{"a call with fence 5", first},
		{"the same token with the same fence", first},
		{"the next transaction with the same fence", v.fenced(queue, 2, 5)},
		{"a higher fence", v.fenced(queue, 3, 6)},
		{"fence 1 of another queue", v.fenced(v.queue(), 1, 1)},
		{"fence 1 of another queue of the same name", named(v.fenced(v.queue(), 1, 1), first.Queue)},
		{"fence 1 of work without a queue", named(v.fenced(v.queue(), 1, 1), "")},
	} {
		if _, err := v.accept(ctx, c.call); err != nil {
			return failed("%s is not accepted: %s", c.what, err)
		}
	}
	return ok("equal and higher fences, and other queues, are accepted")
}

func named(c remote.Call, queue string) remote.Call {
	c.Queue = queue
	return c
}
