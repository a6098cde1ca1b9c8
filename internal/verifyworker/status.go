package verifyworker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
)

const noStatus = "no /status: give the dispatcher idempotent: true if sending again is safe, else each call that is cut off is held for an operator"

// ask asks after a token, or if that is "", after a hash.
func (v *verifier) ask(ctx context.Context, token, hash string) outbox.Status {
	return v.client.Status(ctx, v.o.URL, v.o.Type, token, hash)
}

// says tells a status as a sentence.
func says(st outbox.Status) string {
	if st.State == outbox.StatusUnreachable {
		return st.Message
	}
	return "it is said to be " + word(st)
}

// word is the state as the worker wrote it.
func word(st outbox.Status) string {
	if st.Done != nil {
		return "done"
	}
	return string(st.State)
}

func (v *verifier) statusByToken(ctx context.Context) finding {
	c := v.call()
	r, err := v.accept(ctx, c)
	if err != nil {
		return failed("before the question: %s", err)
	}
	st := v.ask(ctx, c.Token(), "")
	switch {
	case st.State == outbox.StatusUnsupported:
		v.status = false
		return notOffered(noStatus)
	case st.State == outbox.StatusUnknown:
		return failed("the token of a call that %s is unknown: the worker has forgotten it", how(r))
	case st.State == outbox.StatusUnreachable || st.State == outbox.StatusFailed:
		return failed("the token of a call that %s: %s", how(r), says(st))
	case r.Hash != "" && st.Hash == "":
		return failed("the status by token is %s and names no hash: there is nothing to watch", word(st))
	case st.Hash != r.Hash:
		return failed("the status by token names hash %q, the dispatch was answered with %q", st.Hash, r.Hash)
	case st.State == outbox.StatusPending && st.Hash == "":
		return failed("the call is done, and its status by token is pending without a hash: it is asked after for ever")
	case st.Done != nil && r.Done != nil && string(st.Done) != "true" && !same(st.Done, r.Done):
		return failed("the status by token has done %.64s, the dispatch was answered with done %.64s", st.Done, r.Done)
	case r.Hash == "":
		return ok("%s", word(st))
	}
	return ok("%s, with its hash", word(st))
}

// how says how a dispatch was answered that was accepted.
func how(r outbox.Result) string {
	if r.Hash == "" {
		return "is done"
	}
	return "was accepted"
}

func (v *verifier) statusByHash(ctx context.Context) finding {
	if !v.status {
		return notOffered(noStatus)
	}
	r, err := v.accept(ctx, v.call())
	if err != nil {
		return failed("before the question: %s", err)
	}
	if r.Hash == "" {
		return notRun("it is done at once, and gives no hash")
	}
	switch st := v.ask(ctx, "", r.Hash); st.State {
	case outbox.StatusPending, outbox.StatusIncluded:
		return ok("%s", word(st))
	case outbox.StatusUnsupported:
		return failed("/status answers by token, but not by hash")
	case outbox.StatusUnknown:
		return failed("the hash that the worker gave a moment ago is unknown to it")
	default:
		return failed("asked after its own hash: %s", says(st))
	}
}

func (v *verifier) unknown(ctx context.Context) finding {
	if !v.status {
		return notOffered(noStatus)
	}
	if st := v.ask(ctx, v.call().Token(), ""); st.State != outbox.StatusUnknown {
		return failed("a token that was never sent: %s, want unknown", says(st))
	}
	if st := v.ask(ctx, "", fmt.Sprintf("verify%x", v.queue())); st.State != outbox.StatusUnknown &&
		st.State != outbox.StatusUnsupported {
		return failed("a hash that was never given: %s, want unknown", says(st))
	}
	return ok("what was never sent is unknown")
}

func (v *verifier) batch(ctx context.Context) finding {
	if !v.status {
		return notOffered(noStatus)
	}
	hashes := []string{fmt.Sprintf("verify%x", v.queue())}
	for range 2 {
		r, err := v.accept(ctx, v.call())
		if err != nil {
			return failed("before the question: %s", err)
		}
		if r.Hash == "" {
			return notRun("it is done at once, and gives no hash")
		}
		hashes = append(hashes, r.Hash)
	}
	var x remote.Exchange // of the last call: one by one, if the worker has no batch
	all := v.client.StatusBatch(watch(ctx, &x), v.o.URL, v.o.Type, hashes)
	for i, st := range all {
		if st.State == outbox.StatusUnreachable || (st.State == outbox.StatusUnknown) != (i == 0) {
			return failed("status %d of %d, whose first hash was never given: %s", i+1, len(all), says(st))
		}
	}
	if !strings.HasSuffix(x.URL, "/status:batch") {
		return notOffered("no /status:batch: hashes are asked after one by one")
	}
	return ok("statuses in the order of the hashes")
}

// await asks until hash is no longer pending, or the wait is over.
func (v *verifier) await(ctx context.Context, hash string) outbox.Status {
	until := time.Now().Add(v.o.Wait)
	for {
		st := v.ask(ctx, "", hash)
		if st.State != outbox.StatusPending || time.Now().After(until) || !pause(ctx) {
			return st
		}
	}
}

func (v *verifier) inclusion(ctx context.Context) finding {
	if !v.status {
		return notOffered(noStatus)
	}
	r, err := v.accept(ctx, v.call())
	if err != nil {
		return failed("before the question: %s", err)
	}
	if r.Hash == "" {
		return notRun("it is done at once, and gives no hash")
	}
	switch st := v.await(ctx, r.Hash); st.State {
	case outbox.StatusIncluded:
		if st.Done != nil {
			return ok("done, in no block")
		}
		return ok("included, in block %s", st.BlockHeight)
	case outbox.StatusPending:
		return notRun("still pending after %s: wait longer to see it included", v.o.Wait)
	case outbox.StatusFailed:
		return failed("it was accepted and then failed: %s", st.FailureReason)
	default:
		return failed("it was accepted and then: %s", says(st))
	}
}

func (v *verifier) replacement(ctx context.Context) finding {
	if !v.status {
		return notOffered(noStatus)
	}
	c := v.call()
	one, err := v.accept(ctx, c)
	if err != nil {
		return failed("the first attempt: %s", err)
	}
	if one.Hash == "" {
		return notRun("it is done at once: there is nothing to replace")
	}
	c.Attempt, c.Retries, c.PreviousHashes, c.Nonce = 2, 1, []string{one.Hash}, one.Nonce
	two, err := v.accept(ctx, c)
	if err != nil {
		return failed("an attempt that names the hash before it is not accepted: %s", err)
	}
	if one.Hash == two.Hash {
		return ok("both attempts stand for the same")
	}
	in, last := 0, outbox.Status{}
	for _, h := range []string{one.Hash, two.Hash} {
		last = v.await(ctx, h)
		if last.State == outbox.StatusIncluded {
			in++
		}
	}
	switch {
	case in == 2:
		return failed("both attempts of one transaction are included: %s and %s", one.Hash, two.Hash)
	case in == 0:
		return notRun("neither attempt was included within %s", v.o.Wait)
	}
	return ok("one of two attempts is included")
}
