package scenario

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	pgbatches "github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

// as is who does what a command says: by=ACTOR, else the people of the story.
func (s *story) as(c *command) db.By {
	by := s.by
	by.Actor = c.option("by", by.Actor)
	return by
}

// aProcessor: processor NAME [owner=] [by=] [fair=true] [within=30s] [as=TYPE]. It is ticked by hand. Its owner is the
// one that puts it; owner= without a name says none.
func aProcessor(s *story, c *command, _ say) error {
	within, err := time.ParseDuration(c.option("within", "0s"))
	if err != nil {
		return err
	}
	by := s.as(c)
	_, err = s.store.Batches.PutProcessor(s.ctx, by, pgbatches.Processor{
		Name:          c.word(),
		Owner:         c.option("owner", by.Actor),
		Fair:          c.option("fair", "") == "true",
		DeliverWithin: within,
		DeliverAs:     c.option("as", ""),
	}, 0)
	return err
}

// height: height PROCESSOR N. The block height of its domain.
func height(s *story, c *command, _ say) error {
	name := c.word()
	n, err := strconv.ParseInt(c.word(), 10, 64)
	if err != nil {
		return err
	}
	return s.store.Batches.SetHeight(s.ctx, s.by, name, n)
}

func priority(c *command) processor.Priority {
	if c.option("priority", "Med") == processor.High.String() {
		return processor.High
	}
	return processor.Med
}

// actions reads what functions there are from words such as add, add+5 (retried 5 times), add+ (without limit), add?bob
// (confirmed by bob, who says {"ok":true}) and add+5@PAY (of the contract PAY, else of T), and from
// atomic=true|5|forever, pause=5s|3blocks, lives=SECONDS.
func actions(c *command, domain string, words []string) (a processor.Actions, err error) {
	pause, err := pauseOf(c)
	if err != nil {
		return a, err
	}
	logic := func(times string) (*processor.RetryLogic, error) { return retryLogic(times, pause) }
	sub := &processor.Subroutine{}
	for _, w := range words {
		f := processor.Function{Domain: domain, ContractAddress: "T"}
		w, contract, named := strings.Cut(w, "@")
		if named {
			f.ContractAddress = contract
		}
		w, address, confirmed := strings.Cut(w, "?")
		if confirmed {
			f.Callback = &processor.Confirmation{ContractAddress: address,
				CallbackMessage: json.RawMessage(`{"ok":true}`)}
		}
		w, times, retried := strings.Cut(w, "+")
		if retried {
			if f.RetryLogic, err = logic(times); err != nil {
				return a, err
			}
		}
		f.MessageDetails.Message.Name = w
		sub.Functions = append(sub.Functions, f)
	}
	if text := c.option("lives", ""); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return a, err
		}
		sub.ExpirationTime = &n
	}
	switch atomic := c.option("atomic", ""); atomic {
	case "":
		a.NonAtomic = sub
	case "true":
		a.Atomic = sub
	default:
		a.Atomic = sub
		sub.RetryLogic, err = logic(atomic)
	}
	return a, err
}

// pauseOf reads pause=5s|3blocks.
func pauseOf(c *command) (pause processor.Interval, err error) {
	text := c.option("pause", "5s")
	if n, ok := strings.CutSuffix(text, "blocks"); ok {
		blocks, err := strconv.ParseInt(n, 10, 64)
		pause.Blocks = &blocks
		return pause, err
	}
	d, err := time.ParseDuration(text)
	seconds := int64(d.Seconds())
	pause.Seconds = &seconds
	return pause, err
}

// retryLogic is so many retries with a pause before each, without limit where times is empty or forever.
func retryLogic(times string, pause processor.Interval) (*processor.RetryLogic, error) {
	if times == "" || times == "forever" {
		return &processor.RetryLogic{Interval: pause}, nil
	}
	n, err := strconv.ParseInt(times, 10, 64)
	return &processor.RetryLogic{Times: processor.Times{Amount: &n}, Interval: pause}, err
}

// messagesOf makes one for each word: add is {"add":{}}.
func messagesOf(words []string) (list []processor.Message) {
	for _, w := range words {
		w, _, _ = strings.Cut(w, "@")
		w, _, _ = strings.Cut(w, "?")
		w, _, _ = strings.Cut(w, "+")
		list = append(list, processor.Message{Msg: json.RawMessage(fmt.Sprintf(`{%q:{}}`, w))})
	}
	return list
}

// enqueue: enqueue PROCESSOR FUNCTION... [priority=Med] [at=POSITION] [expires=5s] [label=] [by=] and what actions
// reads
func enqueue(s *story, c *command, say say) error {
	name := c.word()
	words := c.rest()
	a, err := actions(c, name, words)
	if err != nil {
		return err
	}
	n := pgbatches.NewBatch{Actions: a, Messages: messagesOf(words),
		Priority: priority(c), Label: c.option("label", "")}
	if text := c.option("expires", ""); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		at := s.now.Add(d)
		n.Expiration = &at
	}
	var v *pgbatches.Batch
	if at := c.option("at", ""); at != "" {
		position, bad := strconv.ParseInt(at, 10, 64)
		if bad != nil {
			return bad
		}
		v, err = s.store.Batches.Insert(s.ctx, s.as(c), name, n, processor.Spot{Position: position})
	} else {
		v, err = s.store.Batches.Enqueue(s.ctx, s.as(c), name, n)
	}
	if err == nil && v.Result != nil {
		say("%s", s.batch(v))
	}
	return err
}

// evict: evict PROCESSOR [ID] [at=POSITION] [priority=Med] [by=]
func evict(s *story, c *command, say say) (err error) {
	e := pgbatches.Eviction{Priority: priority(c)}
	name := c.word()
	if id := c.word(); id != "" {
		e.ID, err = strconv.ParseInt(id, 10, 64)
	} else {
		e.Position, err = strconv.ParseInt(c.option("at", "0"), 10, 64)
	}
	if err != nil {
		return err
	}
	v, err := s.store.Batches.Evict(s.ctx, s.as(c), name, e)
	if err == nil {
		say("%s", s.batch(v))
	}
	return err
}

// authorize: authorize LABEL PROCESSOR FUNCTION... [calls=ann:2,...] [actors=ann,...] [most=1] [priority=] and what
// actions reads; permissionless without calls and actors.
func authorize(s *story, c *command, _ say) (err error) {
	v := processor.DefaultAuthorization()
	v.Label = c.word()
	domain := c.word()
	if v.Actions, err = actions(c, domain, c.rest()); err != nil {
		return err
	}
	calls, actors := c.option("calls", ""), c.option("actors", "")
	if v.Mode.Permissionless = calls+actors == ""; actors != "" {
		v.Mode.Actors = strings.Split(actors, ",")
	}
	if calls != "" {
		v.Mode.Limits = map[string]int64{}
		for _, part := range strings.Split(calls, ",") {
			actor, n, _ := strings.Cut(part, ":")
			if v.Mode.Limits[actor], err = strconv.ParseInt(n, 10, 64); err != nil {
				return err
			}
		}
	}
	v.Priority = priority(c)
	if v.MaxConcurrent, err = strconv.Atoi(c.option("most", "1")); err != nil {
		return err
	}
	_, err = s.store.Batches.PutAuthorization(s.ctx, s.by, v, 0)
	return err
}

// sendsBatch sends: batch LABEL MESSAGE... [by=] [ttl=1h]. Sends a batch through an authorization.
func sendsBatch(s *story, c *command, _ say) error {
	label := c.word()
	ttl, err := time.ParseDuration(c.option("ttl", "0s"))
	if err != nil {
		return err
	}
	_, err = s.store.Batches.Send(s.ctx, s.as(c), label, messagesOf(c.rest()), ttl, db.Once{})
	return err
}

// resend: resend LABEL ID [by=]. Sends a batch again that was not delivered.
func resend(s *story, c *command, say say) error {
	label := c.word()
	id, err := strconv.ParseInt(c.word(), 10, 64)
	if err != nil {
		return err
	}
	v, err := s.store.Batches.Resend(s.ctx, s.as(c), label, id)
	if err == nil {
		say("%s", s.batch(v))
	}
	return err
}

// tick: tick PROCESSOR [alone=true]. Looks at one batch; unless alone, n1 then executes what has begun. It says what
// the tick did, and what the batch is then.
func tick(s *story, c *command, say say) error {
	name, alone := c.word(), c.option("alone", "") == "true"
	out, err := s.store.Batches.Tick(s.ctx, s.as(c), name)
	if err != nil {
		return err
	}
	if out.Outcome == pgbatches.TickExecuting && !alone {
		if err := s.round("n1"); err != nil {
			return err
		}
		if err := s.store.Batches.AdvanceProcessor(s.ctx, s.by.Context, name); err != nil {
			return err
		}
	}
	v, err := s.store.Batches.Batch(s.ctx, s.by.Context, name, out.Batch.ID)
	if err != nil {
		return err
	}
	uid := fmt.Sprintf(":processor:%d:%d", v.ID, v.Runs)
	id, err := s.store.ByUID(s.ctx, s.by.Context, uid)
	if err == nil {
		s.know(fmt.Sprintf("%d:%d", v.ID, v.Runs), id)
	} else if fault.KindOf(err) != fault.NotFound {
		return err
	}
	say("%s: %s", out.Outcome, s.batch(v))
	return nil
}

// advance: advance PROCESSOR. Brings on what needs no tick.
func advance(s *story, c *command, _ say) error {
	return s.store.Batches.AdvanceProcessor(s.ctx, s.by.Context, c.word())
}

// confirm: confirm PROCESSOR ID [by=] [payload={"ok":true}]
func confirm(s *story, c *command, say say) error {
	name := c.word()
	id, err := strconv.ParseInt(c.word(), 10, 64)
	if err != nil {
		return err
	}
	out, err := s.store.Batches.Confirm(s.ctx, s.as(c), name, id, json.RawMessage(c.option("payload", `{"ok":true}`)))
	if err == nil {
		say("%s: %s", out.Outcome, s.batch(out.Batch))
	}
	return err
}

// batch shows one.
func (s *story) batch(v *pgbatches.Batch) string {
	cools := s.moment(v.CooldownUntil)
	if v.CooldownHeight != nil {
		cools = fmt.Sprintf("height_%d", *v.CooldownHeight)
	}
	line := fmt.Sprintf("batch %d %s%s", v.ID, v.State, fields("index", v.Index, "retries", v.Retries, "cools", cools))
	if r := v.Result; r != nil {
		line += fmt.Sprintf(" %s(%d)", r.Kind, r.N)
		if r.Retriable {
			line += " retriable"
		}
		if r.Reason != "" {
			line += " " + r.Reason
		}
	}
	return line
}

// lines: lines PROCESSOR. The batches in each line, from the head.
func lines(s *story, c *command, say say) error {
	name := c.word()
	for _, prio := range processor.Priorities {
		list, _, err := s.store.Batches.BatchesInLine(s.ctx, s.by.Context, name, prio, processor.Range{To: -1})
		if err != nil {
			return err
		}
		ids := ""
		for _, v := range list {
			ids += fmt.Sprintf(" %d", v.ID)
		}
		say("%s:%s", prio, ids)
	}
	return nil
}

// inRange: range PROCESSOR FROM TO [priority=] [order=asc]
func inRange(s *story, c *command, say say) error {
	name := c.word()
	from, err1 := strconv.ParseInt(c.word(), 10, 64)
	to, err2 := strconv.ParseInt(c.word(), 10, 64)
	if err1 != nil || err2 != nil {
		return fmt.Errorf("want range PROCESSOR FROM TO")
	}
	list, _, err := s.store.Batches.BatchesInLine(s.ctx, s.by.Context, name, priority(c),
		processor.Range{From: from, To: to, Desc: c.option("order", "asc") == "desc"})
	for _, v := range list {
		say("%d", v.ID)
	}
	return err
}

// batches: batches PROCESSOR. One line each.
func batches(s *story, c *command, say say) error {
	list, err := s.store.Batches.Batches(s.ctx, s.by.Context, c.word(), pgbatches.BatchFilter{Limit: 100})
	for _, v := range list {
		say("%s", s.batch(v))
	}
	return err
}

// authorizations: authorizations [of=ACTOR]. How many batches of each run, and how many calls of the actor are spent.
func authorizations(s *story, c *command, say say) error {
	list, err := s.store.Batches.Authorizations(s.ctx, s.by.Context, c.option("of", ""), "", 100)
	for _, a := range list {
		say("%s%s", a.Label, fields("running", a.Running, "spent", a.Spent))
	}
	return err
}

// whyBatch: whybatch PROCESSOR ID
func whyBatch(s *story, c *command, say say) error {
	name := c.word()
	id, err := strconv.ParseInt(c.word(), 10, 64)
	if err != nil {
		return err
	}
	w, err := s.store.Batches.WhyBatch(s.ctx, s.by.Context, name, id)
	if err != nil {
		return err
	}
	for _, b := range w.Blockers {
		next := ""
		if b.Next != nil {
			next = s.since(b.Next.At)
		}
		say("%s%s", b.Kind, fields("of", b.Object, "next", next))
	}
	return nil
}
