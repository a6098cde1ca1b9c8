package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// fields joins what is set: fields("by", "a1", "code", "") is " by=a1".
func fields(pairs ...any) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		switch v := pairs[i+1].(type) {
		case string:
			if v != "" {
				fmt.Fprintf(&b, " %s=%s", pairs[i], v)
			}
		case int:
			if v != 0 {
				fmt.Fprintf(&b, " %s=%d", pairs[i], v)
			}
		case int64:
			if v != 0 {
				fmt.Fprintf(&b, " %s=%d", pairs[i], v)
			}
		case bool:
			if v {
				fmt.Fprintf(&b, " %s", pairs[i])
			}
		default:
			panic(fmt.Sprintf("scenario: a field of type %T", v))
		}
	}
	return b.String()
}

// moment shows a time that may be missing.
func (s *story) moment(t *time.Time) string {
	if t == nil {
		return ""
	}
	return s.since(*t)
}

// each runs a query of the story and calls f for each row.
func (s *story) each(sql string, args []any, dest []any, f func() error) error {
	rows, err := s.pool.Query(s.ctx, sql, args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, dest, f)
	return err
}

// rows: rows [QUEUE]... One line a transaction: queue, position, uid, state/state of its queue.
func rows(s *story, c *command, say say) error {
	var queue, uid, state, queueState, sender, code string
	var seq int64
	var retries, attempt int
	var next *time.Time
	return s.each(`SELECT coalesce(queue, '-'), seq, uid, state, coalesce('/' || queue_state, ''), retries, attempt, coalesce(sender, ''), coalesce(error_code, ''), next_at
		FROM postern.tx WHERE cardinality($1::text[]) = 0 OR queue = ANY ($1) ORDER BY queue, received_at, seq`, []any{append([]string{}, c.rest()...)},
		[]any{&queue, &seq, &uid, &state, &queueState, &retries, &attempt, &sender, &code, &next}, func() error {
			if attempt == 1 && retries == 0 {
				attempt = 0
			}
			say("%s %d %s %s%s%s", queue, seq, uid, state, queueState,
				fields("attempt", attempt, "retries", retries, "by", sender, "code", code, "next", s.moment(next)))
			return nil
		})
}

// queues: what each queue does, who has it, and where it stands or until when it waits.
func queues(s *story, _ *command, say say) error {
	var name, state, sender, node, lane string
	var depth int64
	var paused, draining bool
	var due *time.Time
	return s.each(`SELECT coalesce(v.queue, '-'), v.state, v.depth, coalesce(v.sender, ''), coalesce(v.node, ''), v.paused, v.draining,
			coalesce((SELECT l.kind FROM postern.ready r JOIN postern.lane l ON l.lane_id = r.lane WHERE r.queue_id = q.queue_id), ''),
			(SELECT t.due_at FROM postern.timer t WHERE t.queue_id = q.queue_id)
		FROM postern.queues v JOIN postern.queue_name n ON n.name = v.queue JOIN postern.queue q USING (queue_id) ORDER BY v.queue`, nil,
		[]any{&name, &state, &depth, &sender, &node, &paused, &draining, &lane, &due}, func() error {
			say("%s %s depth=%d%s", name, state, depth, fields("by", sender, "node", node, "lane", lane, "timer", s.moment(due), "paused", paused, "draining", draining))
			return nil
		})
}

// senders: what each sender does, for which queue, and whether it is blocked.
func senders(s *story, _ *command, say say) error {
	list, err := s.store.Senders(s.ctx, s.by.Context, "", 100)
	for _, v := range list {
		until := s.moment(v.BlockedUntil)
		if v.BlockedUntil != nil && v.BlockedUntil.Year() == 9999 {
			until = "forever"
		}
		say("%s %s%s", v.Account, v.State, fields("queue", v.Queue, "blocked", until, "because", v.BlockReason, "paused", v.Paused))
	}
	return err
}

// pools: how many senders are free in each pool, and how many queues wait.
func pools(s *story, _ *command, say say) error {
	list, err := s.store.SenderPools(s.ctx, s.by.Context, "", 100)
	for _, v := range list {
		say("%s %s%s", v.Name, v.AfterFailure, fields("free", v.Free, "bound", v.Bound, "blocked", v.Blocked, "waiting", v.Waiting, "paused", v.Paused))
	}
	return err
}

// lanes: the exclusive lanes, and which queue holds each.
func lanes(s *story, _ *command, say say) error {
	var typ, value, holder string
	return s.each(`SELECT d.type, l.value, coalesce(n.name, '') FROM postern.lane l JOIN postern.dispatcher d USING (dispatcher_id)
		JOIN postern.lane h ON h.lane_id = coalesce(l.shared, l.lane_id)
		LEFT JOIN postern.queue_name n ON n.queue_id = h.holder WHERE l.kind = 'exclusive' ORDER BY d.type, l.value`, nil,
		[]any{&typ, &value, &holder}, func() error {
			say("%s%s", typ, fields("value", value, "held_by", holder))
			return nil
		})
}

// attempts: attempts UID. The rows of its attempts, oldest first.
func attempts(s *story, c *command, say say) error {
	id, err := s.id(c.word())
	if err != nil {
		return err
	}
	var attempt int
	var step, by, node, fee, nonce, hash, class, code, data string
	return s.each(`SELECT a.attempt, a.step, coalesce(s.account, ''), coalesce(n.name, ''), coalesce(a.fee, ''), coalesce(a.nonce, ''), coalesce(a.hash, ''),
			coalesce(a.class, ''), coalesce(a.code, ''), coalesce(a.data::text, '')
		FROM postern.attempt a LEFT JOIN postern.sender s USING (sender_id) LEFT JOIN postern.node n ON n.node_id = a.node_id
		WHERE (a.queue_id, a.seq, a.day) = ($1, $2, $3) ORDER BY a.attempt, a.fence, a.answered_at, a.step`, []any{id.Queue, id.Seq, id.Day.Time()},
		[]any{&attempt, &step, &by, &node, &fee, &nonce, &hash, &class, &code, &data}, func() error {
			say("%d %s%s", attempt, step, fields("by", by, "node", node, "fee", fee, "nonce", nonce, "hash", hash, "class", class, "code", code, "data", data))
			return nil
		})
}

// outcome: outcome UID. How it ended, with the result that a reader sees.
func outcome(s *story, c *command, say say) error {
	uid := c.word()
	id, err := s.id(uid)
	if err != nil {
		return err
	}
	var was, state, class, code, text, by, fee, hash, height, result string
	var attempt, retries int
	return s.each(`SELECT o.was, o.state, coalesce(o.error_class, ''), coalesce(o.error_code, ''), coalesce(o.error, ''), coalesce(s.account, ''),
			coalesce(o.fee, ''), coalesce(o.hash, ''), coalesce(o.block_height, ''), coalesce(o.result::text, ''), coalesce(o.attempt, 0), o.retries
		FROM postern.outcome o LEFT JOIN postern.sender s USING (sender_id) WHERE (o.queue_id, o.seq, o.day) = ($1, $2, $3)`, []any{id.Queue, id.Seq, id.Day.Time()},
		[]any{&was, &state, &class, &code, &text, &by, &fee, &hash, &height, &result, &attempt, &retries}, func() error {
			say("%s %s -> %s%s", uid, was, state, fields("attempt", attempt, "retries", retries, "by", by, "fee", fee, "hash", hash, "height", height, "class", class, "code", code))
			if text != "" {
				say("  %s", text)
			}
			if result != "" {
				say("  %s", result)
			}
			return nil
		})
}

// why: why UID... The chain of what is in the way, from itself to the root, and when the next thing happens.
func why(s *story, c *command, say say) error {
	for _, uid := range c.rest() {
		id, err := s.id(uid)
		if err != nil {
			return err
		}
		w, err := s.store.Reads.Why(s.ctx, s.by.Context, id)
		if err != nil {
			return err
		}
		for i, b := range w.Blockers {
			next := ""
			if b.Next != nil {
				next = s.since(b.Next.At)
			}
			say("%s%s %s%s", strings.Repeat("  ", i), uid, b.Kind, fields("of", b.Object, "next", next))
		}
	}
	return nil
}

// hooks: the hooks that were or will be delivered.
func hooks(s *story, _ *command, say say) error {
	var uid, hook, state string
	var tries int
	var next *time.Time
	return s.each(`SELECT coalesce(t.uid, ''), d.event, d.state, d.attempts, d.next_at FROM postern.delivery d
		JOIN postern.task t USING (queue_id, seq, day) ORDER BY t.created_at, t.queue_id, t.seq`, nil, []any{&uid, &hook, &state, &tries, &next}, func() error {
		say("%s %s %s%s", uid, hook, state, fields("tries", tries, "next", s.moment(next)))
		return nil
	})
}
