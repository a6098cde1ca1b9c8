package scenario

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/channels"
)

// channel: channel NAME [capacity=] [max_retries=] [stale=]
func channel(s *story, c *command, _ say) (err error) {
	v := channels.DefaultChannel()
	v.Name = c.word()
	for name, into := range map[string]*int{"capacity": &v.Capacity, "max_retries": &v.MaxRetries} {
		if text := c.option(name, ""); text != "" {
			if *into, err = strconv.Atoi(text); err != nil {
				return err
			}
		}
	}
	if text := c.option("stale", ""); text != "" {
		if v.StaleAfter, err = time.ParseDuration(text); err != nil {
			return err
		}
	}
	_, err = s.store.Channels.PutChannel(s.ctx, s.by, v, 0)
	return err
}

// conduit opens the channel that a command names, in the store of the node in by=, else in that of the people. It also
// returns that node.
func (s *story) conduit(c *command) (conduit *channels.Conduit[json.RawMessage], who pg.Node, err error) {
	store := s.store
	if name := c.option("by", ""); name != "" {
		n, err := s.node(name)
		if err != nil {
			return nil, who, err
		}
		store, who = n.store, pg.Node{ID: n.id, Epoch: 1}
	}
	conduit, err = channels.OpenConduit[json.RawMessage](s.ctx, store.Channels, s.by.Context, c.word())
	return conduit, who, err
}

// send: send CHANNEL ID...
func send(s *story, c *command, say say) error {
	conduit, _, err := s.conduit(c)
	if err != nil {
		return err
	}
	for _, id := range c.rest() {
		out, err := conduit.Send(s.ctx, channels.Outgoing[json.RawMessage]{ID: id, Payload: json.RawMessage(`{}`)})
		if err != nil {
			return err
		}
		say("%s %s", id, out[0])
	}
	return nil
}

// receive: receive CHANNEL [by=NODE]. One message, with its fence.
func receive(s *story, c *command, say say) error {
	conduit, who, err := s.conduit(c)
	if err != nil {
		return err
	}
	list, err := conduit.Receive(s.ctx, who, 1)
	if len(list) == 0 {
		say("nothing")
	}
	for _, h := range list {
		say("%s fence=%d%s", h.ID, s.received(h.ID, h.Fence), fields("retries", h.Retries, "error", h.Error))
	}
	return err
}

// received counts the fences under which a message was received, from 1: they are times.
func (s *story) received(id string, fence int64) int {
	if !slices.Contains(s.fences[id], fence) {
		s.fences[id] = append(s.fences[id], fence)
	}
	return slices.Index(s.fences[id], fence) + 1
}

// judge is ack and nack. ack: ack CHANNEL ID fence=; nack: nack CHANNEL ID fence= [reason=]
func judge(ok bool) func(*story, *command, say) error {
	return func(s *story, c *command, _ say) error {
		conduit, _, err := s.conduit(c)
		if err != nil {
			return err
		}
		id := c.word()
		n, err := strconv.Atoi(c.option("fence", "1"))
		if err != nil {
			return err
		}
		fence := int64(n)
		if n > 0 && n <= len(s.fences[id]) {
			fence = s.fences[id][n-1]
		}
		if ok {
			_, err = conduit.Ack(s.ctx, id, fence)
		} else {
			err = conduit.Nack(s.ctx, id, fence, strings.ReplaceAll(c.option("reason", ""), "_", " "))
		}
		if err != nil {
			f := fault.As(err)
			f.Detail = strings.ReplaceAll(f.Detail, strconv.FormatInt(fence, 10), strconv.Itoa(n))
			return f
		}
		return nil
	}
}

// retrier: retrier CHANNEL. It meets one message.
func retrier(s *story, c *command, say say) error {
	conduit, _, err := s.conduit(c)
	if err != nil {
		return err
	}
	did, err := conduit.Retry(s.ctx, 0)
	say("%s", did)
	return err
}

// sweeper: sweeper CHANNEL
func sweeper(s *story, c *command, say say) error {
	conduit, _, err := s.conduit(c)
	if err != nil {
		return err
	}
	n, err := conduit.Sweep(s.ctx)
	say("%d taken back", n)
	return err
}

// tend: tend [NODE]. The node runs the retriers and sweepers whose time has come.
func tend(s *story, c *command, _ say) error {
	n, err := s.node(nodeName(c))
	if err != nil {
		return err
	}
	return n.channels.TendOnce(s.ctx)
}

// messages: messages CHANNEL. One line each: those without an end, then the others with theirs.
func messages(s *story, c *command, say say) error {
	if err := s.learn(); err != nil {
		return err
	}
	var id, state, note string
	var retries int
	return s.each(`SELECT x.message_id, x.state, x.retries, x.note FROM postern.channel c CROSS JOIN LATERAL (
			SELECT 0 AS place, m.message_id, m.state, m.retries, m.error AS note, 0 AS fence FROM postern.channel_message m WHERE m.channel_id = c.channel_id
			UNION ALL SELECT 1, e.message_id, e.state, e.retries, e.reason, e.fence FROM postern.channel_message_end e WHERE e.channel_id = c.channel_id) x
		WHERE c.name = $1 ORDER BY x.place, x.message_id, x.fence`, []any{c.word()}, []any{&id, &state, &retries, &note}, func() error {
		if note != "" {
			note = fmt.Sprintf(" (%s)", note)
		}
		say("%s %s%s%s", id, state, fields("retries", retries), note)
		return nil
	})
}
