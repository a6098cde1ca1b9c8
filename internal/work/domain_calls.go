package work

import (
	"context"
	"encoding/json"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/safe"
)

// How many calls of services of domains a process has out, in all and for one domain, so that a service that hangs does
// not stop the others.
const (
	domainCalls    = 64
	domainCallsOne = 16

	heightEvery = time.Second
	askAgain    = 100 * time.Millisecond // after a call to which nothing answered, doubling up to askMost
	askMost     = 5 * time.Second
	tellMost    = 5 * time.Minute
)

// questions is the loop that asks the services of domains.
func (d *Domains) questions() Loop {
	return Loop{
		Name:      "domain calls",
		Does:      "ask the services of domains",
		Await:     d.any,
		Leased:    true,
		Every:     domainsEvery,
		Bell:      d.calls,
		Rest:      domainsRest,
		Retry:     100 * time.Millisecond,
		RetryMost: 2 * time.Second,
		Once: func(ctx context.Context) (Turn, error) {
			n, err := d.AskOnce(ctx)
			turn := Turn{Did: n}
			if n > 0 {
				turn.Next = AtOnce
			}
			return turn, err
		},
		End: d.asking.Wait,
	}
}

// AskOnce leases the calls that are due and for which there is room, begins them, and returns how many these are.
func (d *Domains) AskOnce(ctx context.Context) (int, error) {
	var full []int32
	d.mu.Lock()
	room := domainCalls
	for id, n := range d.out {
		if room -= n; n >= domainCallsOne {
			full = append(full, id)
		}
	}
	d.mu.Unlock()
	if room <= 0 {
		return 0, nil
	}
	list, err := d.Store.Domains.ClaimCalls(ctx, d.self(), full, min(room, domainCallsOne))
	for _, c := range list {
		if c.Err != nil {
			d.unasked(ctx, c)
			continue
		}
		d.mu.Lock()
		d.out[c.Domain]++
		d.mu.Unlock()
		d.asking.Add(1)
		go safe.Run("domain call", func() {
			defer d.asking.Done()
			defer d.over(c.Domain)
			d.ask(ctx, c)
		})
	}
	return len(list), err
}

func (d *Domains) over(id int32) {
	d.mu.Lock()
	if d.out[id]--; d.out[id] <= 0 {
		delete(d.out, id)
	}
	d.mu.Unlock()
	knock(d.calls)
}

// ask makes the requests of a call, and keeps what came of it.
func (d *Domains) ask(ctx context.Context, c *domains.Call) {
	limit, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var answers []json.RawMessage
	for _, r := range c.Requests {
		reply := d.service.Domain(limit, remote.DomainCall{URL: c.URL, Kind: c.Kind, Key: r.Key, Body: r.Body,
			Timeout: c.Timeout, Sign: c.Sign})
		if reply.Body == nil {
			d.unanswered(ctx, c, reply)
			return
		}
		answers = append(answers, reply.Body)
	}
	if c.Told() {
		d.told(ctx, c, answers[0])
		return
	}
	e, err := c.Read(answers)
	if err != nil {
		d.Log.Warn("the service of a domain answered what is not of the contract", "domain", c.Name, "call", c.Kind,
			"error", err)
	}
	d.answered(c, e)
}

func (d *Domains) answered(c *domains.Call, e domains.Event) {
	d.note(c.Domain, []domains.Event{e})
	knock(d.bell)
}

// unasked answers a call that cannot be made, since what it asks about is gone, as an error of the service: it would be
// claimed for ever. One that could not be prepared for another reason is made again.
func (d *Domains) unasked(ctx context.Context, c *domains.Call) {
	d.Log.Warn("a call of the service of a domain could not be made", "domain", c.Name, "call", c.Kind, "error", c.Err)
	if c.Lost() && !c.Told() {
		d.answered(c, c.Failed(c.Err.Error()))
		return
	}
	d.later(ctx, c, c.Err.Error(), backoff.Doubling(c.Tries, askAgain, askMost))
}

// unanswered has a call made again to which nothing answered, and counts one that was answered with an error.
func (d *Domains) unanswered(ctx context.Context, c *domains.Call, reply remote.DomainReply) {
	if !reply.Away && !c.Told() {
		d.answered(c, c.Failed(reply.Why))
		return
	}
	most := askMost
	if c.Kind == domains.CallSettled {
		most = tellMost
	}
	after := max(backoff.Doubling(c.Tries, askAgain, most), reply.After)
	if ctx.Err() != nil {
		after = 0
	}
	d.later(ctx, c, reply.Why, after)
}

// told ends a call for whose answer no step waits.
func (d *Domains) told(ctx context.Context, c *domains.Call, body json.RawMessage) {
	if err := d.Store.Domains.Heard(ctx, c, body); err != nil {
		d.later(ctx, c, err.Error(), backoff.Doubling(c.Tries, time.Second, tellMost))
		return
	}
	if c.Kind == domains.CallHeight {
		d.later(ctx, c, "", heightEvery)
	}
	knock(d.bell)
}

// later has a call made again, also where the process is about to stop.
func (d *Domains) later(ctx context.Context, c *domains.Call, why string, after time.Duration) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := d.Store.Domains.Postpone(end, c, why, after); err != nil {
		d.Log.Warn("postpone a call of the service of a domain", "domain", c.Name, "call", c.Kind, "error", err)
	}
}
