package verifyworker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/postern-dev/postern/internal/outbox"
)

func (v *verifier) dispatches(ctx context.Context) finding {
	r, err := v.accept(ctx, v.call())
	switch {
	case err != nil:
		return failed("a dispatch of type %s is not accepted: %s (is that a type, data and account that the worker takes?)", v.o.Type, err)
	case r.Hash != "":
		return ok("sent, with hash %s", r.Hash)
	}
	return ok("done at once")
}

// differs says how two answers to one token differ, "" if they do not.
func differs(a, b outbox.Result) string {
	switch {
	case a.Hash != b.Hash:
		return fmt.Sprintf("hash %q, then hash %q", a.Hash, b.Hash)
	case !same(a.Done, b.Done):
		return fmt.Sprintf("done %.64s, then done %.64s", a.Done, b.Done)
	}
	return ""
}

// same compares JSON by what it says.
func same(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return string(a) == string(b)
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return string(p) == string(q)
}

func (v *verifier) resend(ctx context.Context) finding {
	c := v.call()
	first, err := v.accept(ctx, c)
	if err != nil {
		return failed("the first time: %s", err)
	}
	for range 2 {
		again, err := v.accept(ctx, c)
		if err != nil {
			return failed("the token was accepted, and sent again refused: %s", err)
		}
		if d := differs(first, again); d != "" {
			return failed("the same token was answered with %s: it was executed again", d)
		}
	}
	return ok("the same answer three times")
}

func (v *verifier) resendAtOnce(ctx context.Context) finding {
	c := v.call()
	results, errs := make([]outbox.Result, 8), make([]error, 8)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			a, x := v.send(ctx, c)
			if results[i] = a.Result; a.Class != "" {
				errs[i] = fmt.Errorf("%s", told(a, x))
				// "I am at it": asked again
				if a.Class == outbox.ClassBlocked || a.Class == outbox.ClassAmbiguous && x.Status != 0 {
					results[i], errs[i] = v.accept(ctx, c)
				}
			}
		})
	}
	wg.Wait()
	for i := range results {
		if errs[i] != nil {
			return failed("one of 8 calls with the same token at once: %s", errs[i])
		}
		if d := differs(results[0], results[i]); d != "" {
			return failed("8 calls with the same token at once were answered with %s: more than one was executed", d)
		}
	}
	return ok("8 at once, one answer")
}

func (v *verifier) distinct(ctx context.Context) finding {
	queue := v.queue()
	seen := map[string]bool{}
	for seq := range int64(3) {
		r, err := v.accept(ctx, v.callIn(queue, seq+1))
		switch {
		case err != nil:
			return failed("transaction %d of a queue: %s", seq+1, err)
		case r.Hash == "":
			return notRun("it is done at once, and gives no hash")
		case seen[r.Hash]:
			return failed("two transactions were given the hash %s", r.Hash)
		}
		seen[r.Hash] = true
	}
	return ok("3 transactions, 3 hashes")
}

func (v *verifier) sideBySide(ctx context.Context) finding {
	const many = 16
	hashes, errs := make([]string, many), make([]error, many)
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			r, err := v.accept(ctx, v.call())
			hashes[i], errs[i] = r.Hash, err
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for i, h := range hashes {
		switch {
		case errs[i] != nil:
			return failed("one of %d queues at once: %s", many, errs[i])
		case h != "" && seen[h]:
			return failed("of %d queues at once two were given the hash %s", many, h)
		}
		seen[h] = true
	}
	return ok("%d queues at once", many)
}

// largeData sends a call as large as those of Postern become: data up to 256 KiB. It fills it with blanks, which mean
// nothing in JSON.
func (v *verifier) largeData(ctx context.Context) finding {
	c := v.call()
	c.Data = append(append(make(json.RawMessage, 0, len(c.Data)+256<<10), c.Data...), blanks(256<<10)...)
	if _, err := v.accept(ctx, c); err != nil {
		return failed("a call with 256 KiB of data is not accepted: %s", err)
	}
	return ok("256 KiB of data are taken")
}

func blanks(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = ' '
	}
	return b
}
