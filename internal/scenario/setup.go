package scenario

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// settings are what a story can say of a dispatcher.
var settings = map[string]func(d *outbox.Dispatcher, v string) error{
	"pool":      func(d *outbox.Dispatcher, v string) error { d.Pool = v; return nil },
	"exclusive": func(d *outbox.Dispatcher, v string) error { d.Exclusive = outbox.Exclusive(v); return nil },
	"posted_by": func(d *outbox.Dispatcher, v string) error { d.PostedBy = outbox.Poster(v); return nil },
	"slots":     func(d *outbox.Dispatcher, v string) (err error) { d.Slots, err = strconv.Atoi(v); return },
	"timeout":   func(d *outbox.Dispatcher, v string) error { return set(&d.Timeouts.Dispatch, v) },
	"retry":     func(d *outbox.Dispatcher, v string) error { return set(&d.Retry.Initial, v) },
	"kind":      func(d *outbox.Dispatcher, v string) error { d.Retry.Kind = v; return nil },
	"on_failed": func(d *outbox.Dispatcher, v string) (err error) {
		d.Retry.OnFailed, err = strconv.ParseBool(v)
		return
	},
	"fee":      func(d *outbox.Dispatcher, v string) error { d.Fee.Initial = v; return nil },
	"fee_kind": func(d *outbox.Dispatcher, v string) error { d.Fee.Kind = v; return nil },
	"fee_step": func(d *outbox.Dispatcher, v string) error { d.Fee.Step = v; return nil },
	"poll":     func(d *outbox.Dispatcher, v string) error { return set(&d.Inclusion.PollEvery, v) },
	"deadline": func(d *outbox.Dispatcher, v string) error { return set(&d.Inclusion.Deadline, v) },
	"grace":    func(d *outbox.Dispatcher, v string) error { return set(&d.Inclusion.UnknownGrace, v) },
	"confirmations": func(d *outbox.Dispatcher, v string) (err error) {
		d.Inclusion.Confirmations, err = strconv.Atoi(v)
		return
	},
	"idempotent": func(d *outbox.Dispatcher, v string) (err error) { d.Idempotent, err = strconv.ParseBool(v); return },
	"unknown":    func(d *outbox.Dispatcher, v string) error { d.Unknown = outbox.Unknown(v); return nil },
	"atomic": func(d *outbox.Dispatcher, v string) error {
		d.Capabilities = nil
		if v == "true" {
			d.Capabilities = []string{"atomic"}
		}
		return nil
	},
	"breaker": func(d *outbox.Dispatcher, v string) (err error) { d.Breaker, err = strconv.Atoi(v); return },
	"replaceable": func(d *outbox.Dispatcher, v string) (err error) {
		d.Replaceable, err = strconv.ParseBool(v)
		return
	},
	"max_retries": func(d *outbox.Dispatcher, v string) error {
		if d.Retry.MaxRetries = nil; v == "unsaid" { // the worker is asked, else the default counts
			return nil
		}
		n, err := strconv.Atoi(v)
		d.Retry.MaxRetries = &n
		return err
	},
}

func set(into *outbox.Duration, v string) error {
	d, err := time.ParseDuration(v)
	*into = outbox.Duration(d)
	return err
}

// dispatcher: dispatcher TYPE [worker=worker] [SETTING=VALUE]... It retries twice, after fixed 5 s, unless told
// otherwise, so that a story knows when and is short.
func dispatcher(s *story, c *command, _ say) error {
	d, two := outbox.DefaultDispatcher(), 2
	d.Type, d.WorkerURL = c.word(), s.worker(c.option("worker", "worker")).URL()
	d.Retry.Kind, d.Retry.Initial, d.Retry.MaxRetries = "fixed", outbox.Duration(5*time.Second), &two
	var names []string
	for name := range c.options {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		change, ok := settings[name]
		if !ok {
			return fmt.Errorf("a dispatcher has no %s", name)
		}
		if err := change(&d, c.option(name, "")); err != nil {
			return err
		}
	}
	_, err := s.store.PutDispatcher(s.ctx, s.by, d, 0)
	return err
}

// sender: sender ACCOUNT... pool=p [worker=] [attributes='{...}']
func sender(s *story, c *command, _ say) error {
	v := pg.Sender{Pool: c.option("pool", ""), Attributes: json.RawMessage(c.option("attributes", "{}"))}
	if w := c.option("worker", ""); w != "" {
		v.WorkerURL = s.worker(w).URL()
	}
	for _, v.Account = range c.rest() {
		if _, err := s.store.PutSender(s.ctx, s.by, v, 0); err != nil {
			return err
		}
	}
	return nil
}

// pool: pool NAME [after_failure=keep] [block_for=24h]
func pool(s *story, c *command, _ say) (err error) {
	v := pg.Pool{Name: c.word(), AfterFailure: c.option("after_failure", "keep")}
	if v.BlockFor, err = time.ParseDuration(c.option("block_for", "24h")); err != nil {
		return err
	}
	_, err = s.store.PutPool(s.ctx, s.by, v, 0)
	return err
}

// queue: queue NAME [priority=] [max_depth=] [pool=] [when_full=] [on_failure=]
func queue(s *story, c *command, _ say) (err error) {
	v := pg.Queue{Name: c.word(), Priority: c.option("priority", "Med"), Pool: c.option("pool", ""),
		WhenFull: c.option("when_full", "refuse"), OnFailure: c.option("on_failure", "continue")}
	if v.MaxDepth, err = strconv.Atoi(c.option("max_depth", "0")); err != nil {
		return err
	}
	_, err = s.store.PutQueue(s.ctx, s.by, v, 0)
	return err
}

// post: post UID... [queue=] [type=T] [sender=] [data=] [not_before=5s] [max_retries=n] [depends=uid,...]
// [as=admin]. Without a queue each is unordered. It says only what was refused, or known already.
func post(s *story, c *command, say say) error {
	sub := pg.Submission{ContextID: s.by.Context, Queue: c.option("queue", ""), Type: c.option("type", "T"),
		Sender: c.option("sender", ""),
		Poster: outbox.Poster(c.option("as", "anyone")), Data: json.RawMessage(c.option("data", "{}"))}
	sub.Hash = []byte(string(sub.Data) + sub.Type + sub.Queue)
	if text := c.option("not_before", ""); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		sub.NotBefore = s.now.Add(d)
	}
	if text := c.option("depends", ""); text != "" {
		sub.DependsOn = strings.Split(text, ",")
	}
	if text := c.option("max_retries", ""); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		sub.MaxRetries = &n
	}
	var list []*pg.Submission
	for _, uid := range c.rest() {
		one := sub
		one.UID = uid
		list = append(list, &one)
	}
	out, err := s.store.Ingest(s.ctx, list, false)
	if err != nil {
		return err
	}
	for i, a := range out {
		switch uid := list[i].UID; {
		case a.Err != nil:
			say("%s %v", uid, refusal(a.Err))
		case a.Replay:
			say("%s is known", uid)
		default:
			s.know(uid, a.ID)
		}
	}
	return nil
}
