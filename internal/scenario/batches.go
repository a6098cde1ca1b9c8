package scenario

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	pgbatches "github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/processor"
)

// subscribe: subscribe NAME [EVENT]... A consumer, which asks for what it is told. It is told of all that happens once
// this command is over, since the time passes that it takes for everybody to know of it.
func subscribe(s *story, c *command, _ say) error {
	v := outbox.Subscription{Name: c.word(), Kind: "pull", OnError: "skip"}
	for _, name := range c.rest() {
		e, ok := outbox.ParseEvent(name)
		if !ok {
			return fmt.Errorf("there is no event %s", name)
		}
		v.Events = append(v.Events, e)
	}
	if _, err := s.store.Deliveries.PutSubscription(s.ctx, s.by, v, nil, 0); err != nil {
		return err
	}
	return s.pass(3 * time.Second)
}

// hears: hears NAME. The events of batches that a consumer was told since it asked last.
func hears(s *story, c *command, say say) error {
	sub, err := s.store.Deliveries.Subscription(s.ctx, s.by.Context, c.word())
	if err != nil {
		return err
	}
	if _, err := s.store.Deliveries.Deliver(s.ctx, sub.ID, nil, 0); err != nil {
		return err
	}
	list, _, err := s.store.Deliveries.Feed(s.ctx, sub.ID, nil, sub.Cursor, 100)
	if err != nil {
		return err
	}
	for _, e := range list {
		var v processor.Batch
		if err := json.Unmarshal(e.Body, &v); err != nil || v.Result == nil {
			return fmt.Errorf("%s: %s: %v", e.Event.Name(), e.Body, err)
		}
		say("%s %s", e.Event.Name(), s.batch(&pgbatches.Batch{Batch: v}))
	}
	if len(list) > 0 {
		_, err = s.store.Deliveries.AckFeed(s.ctx, s.by.Context, sub.Name,
			deliveries.Cursor{Subscription: sub.ID, Position: list[len(list)-1].Position}.String())
	}
	return err
}

// record: record PROCESSOR ID. It prints the row of an execution, and whether it is as it was in the beginning.
func record(s *story, c *command, say say) error {
	name := c.word()
	id, err := strconv.ParseInt(c.word(), 10, 64)
	if err != nil {
		return err
	}
	v, err := s.store.Batches.Batch(s.ctx, s.by.Context, name, id)
	if err != nil {
		return err
	}
	result, by := processor.InProcess, "User"
	if v.Result != nil {
		result = v.Result.Kind
	}
	if v.ByOwner {
		by = "Owner"
	}
	messages, err := json.Marshal(v.Messages)
	say("%d %s %s by %s%s %s", v.ID, v.Priority, result, by,
		fields("initiator", v.Initiator, "label", v.Label, "ttl", s.moment(v.TTL),
			"expires", s.moment(v.Expiration), "unchanged", v.CreatedAt.Equal(v.UpdatedAt)), messages)
	return err
}

// shuffle: shuffle FUNCTION PROCESSOR... [steps=200] [seed=1]. It puts batches anywhere into the lines of processors,
// looks at any part of them and takes from anywhere, by lot. It compares each line with a plain list that goes through
// the same.
func shuffle(s *story, c *command, say say) error {
	var lines []*shuffled
	function := c.word()
	for _, name := range c.rest() {
		for _, prio := range processor.Priorities {
			lines = append(lines, &shuffled{name: name, prio: prio})
		}
	}
	steps, err1 := strconv.Atoi(c.option("steps", "200"))
	seed, err2 := strconv.ParseUint(c.option("seed", "1"), 10, 64)
	if err1 != nil || err2 != nil || len(lines) == 0 {
		return fmt.Errorf("want shuffle FUNCTION PROCESSOR... [steps=N] [seed=N]")
	}
	draw := rand.New(rand.NewPCG(seed, seed))
	for range steps {
		l := lines[draw.IntN(len(lines))]
		if err := l.change(s, draw, function); err != nil {
			return err
		}
		if err := l.compare(s, draw); err != nil {
			return err
		}
	}
	for _, l := range lines {
		got, err := l.part(s, processor.Range{To: -1})
		if err != nil || !slices.Equal(got, l.plain) {
			return fmt.Errorf("%s %s is %v, want %v: %v", l.name, l.prio, got, l.plain, err)
		}
		say("%s %s: %d as in the list", l.name, l.prio, len(got))
	}
	return nil
}

// shuffled is a line of a processor, and the plain list of ids that it is compared with.
type shuffled struct {
	name  string
	prio  processor.Priority
	plain []int64
}

// change inserts a batch somewhere, or evicts one.
func (l *shuffled) change(s *story, draw *rand.Rand, function string) error {
	n := len(l.plain)
	switch at := draw.IntN(n + 1); {
	case n == 0 || draw.IntN(5) < 3:
		a, err := actions(&command{options: map[string]string{}}, l.name, []string{function})
		if err != nil {
			return err
		}
		b := pgbatches.NewBatch{Actions: a, Messages: messagesOf([]string{function}), Priority: l.prio}
		v, err := s.store.Batches.Insert(s.ctx, s.by, l.name, b, processor.Spot{Position: int64(at)})
		if err != nil {
			return err
		}
		l.plain = slices.Insert(l.plain, at, v.ID)
	case at < n:
		e := pgbatches.Eviction{Priority: l.prio, Position: int64(at)}
		v, err := s.store.Batches.Evict(s.ctx, s.by, l.name, e)
		if err != nil {
			return err
		}
		if v.ID != l.plain[at] {
			return fmt.Errorf("%s %s: %d stood at %d, want %d", l.name, l.prio, v.ID, at, l.plain[at])
		}
		l.plain = slices.Delete(l.plain, at, at+1)
	}
	return nil
}

// compare reads some part of the line, in either order.
func (l *shuffled) compare(s *story, draw *rand.Rand) error {
	from := draw.IntN(len(l.plain) + 1)
	r := processor.Range{
		From: int64(from),
		To:   int64(from + draw.IntN(len(l.plain)-from+1)),
		Desc: draw.IntN(2) == 0,
	}
	got, err := l.part(s, r)
	want := slices.Clone(l.plain[r.From:r.To])
	if r.Desc {
		slices.Reverse(want)
	}
	if err != nil || !slices.Equal(got, want) {
		return fmt.Errorf("%s %s: %+v is %v, want %v: %v", l.name, l.prio, r, got, want, err)
	}
	return nil
}

// part reads the ids of a part of the line. A line of another length than the list is an error.
func (l *shuffled) part(s *story, r processor.Range) (ids []int64, err error) {
	list, length, err := s.store.Batches.BatchesInLine(s.ctx, s.by.Context, l.name, l.prio, r)
	for _, v := range list {
		ids = append(ids, v.ID)
	}
	if err == nil && length != int64(len(l.plain)) {
		err = fmt.Errorf("%s %s: %d stand there, want %d", l.name, l.prio, length, len(l.plain))
	}
	return ids, err
}
