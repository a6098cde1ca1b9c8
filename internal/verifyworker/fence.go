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

// again is a queue that was reaped and came back: it has another number, and the line that it had.
func (v *verifier) again(name string, seq, fence int64, line outbox.Line) remote.Call {
	c := v.fenced(v.queue(), seq, fence)
	c.Queue, c.Line = name, line
	return c
}

func (v *verifier) lowerFence(ctx context.Context) finding {
	queue := v.queue()
	first := v.fenced(queue, 1, 5)
	if _, err := v.accept(ctx, first); err != nil {
		return failed("a call with fence 5: %s", err)
	}
	for _, late := range []struct {
		what string
		call remote.Call
	}{
		{"fence 4 after fence 5 of the same queue", v.fenced(queue, 2, 4)},
		{"fence 4 after fence 5 of the same line, of the queue after it was forgotten and came back",
			v.again(first.Queue, 3, 4, first.Line)},
	} {
		a, x := v.send(ctx, late.call)
		switch {
		case a.Class == "":
			return failed("%s: %s, want HTTP 409", late.what, told(a, x))
		case x.Status != http.StatusConflict || a.Class != outbox.ClassAmbiguous:
			return failed("%s: %s; want HTTP 409, with no class or class ambiguous", late.what, told(a, x))
		}
		if !v.status {
			continue
		}
		if st := v.ask(ctx, late.call.Token(), ""); st.State != outbox.StatusUnknown {
			return failed("%s was refused, but by its token %s: want unknown", late.what, says(st))
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
		{"the same fence of the queue after it was forgotten and came back", v.again(first.Queue, 4, 6, first.Line)},
		{"fence 1 of another queue", v.fenced(v.queue(), 1, 1)},
		{"fence 1 of another line, of a queue of the same name", named(v.fenced(v.queue(), 1, 1), first.Queue)},
		{"fence 5 of work without a line", v.again("", 1, 5, outbox.Line{})},
		{"fence 1 of work without a line", v.again("", 1, 1, outbox.Line{})},
		{"fence 1 of a queue without a line", v.again(first.Queue, 1, 1, outbox.Line{})},
	} {
		if _, err := v.accept(ctx, c.call); err != nil {
			return failed("%s is not accepted: %s", c.what, err)
		}
	}
	return ok("equal and higher fences, other lines, and any fence without a line, are accepted")
}

func named(c remote.Call, queue string) remote.Call {
	c.Queue = queue
	return c
}
