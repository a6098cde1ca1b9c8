package events

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/channels"
	"github.com/postern-dev/postern/internal/pg/db"
)

// ToolCall is the data of a transaction that calls a tool.
type ToolCall struct {
	Event string `json:"event"`
	Tool  string `json:"tool"`
	Try   int    `json:"try"`
}

// takeMost is how many events are taken in one go.
const takeMost = 500

// TakeEvents makes events Active for which the engine has room, and posts the transactions that call their tools
// (S1.5). Room is what the slots of the dispatcher leave, in a context over all nodes; one tool gets half of it at
// most, so that one that hangs leaves room for the others.
//
// In this order: the messages are held and the events made Active in one commit, behind the lock under which the room
// is counted; the transactions are posted under uids that event and try make up; then the events name them and the
// messages are acknowledged in one commit. An event is Active before its tool can be called and until the result of
// the call is written, so that never more tools are called than there is room. A process that dies on the way leaves
// messages that are taken back: their events are Active already, and the next receiver finds the same transactions
// again.
func (s *Store) TakeEvents(ctx context.Context, w LeaderWork, n pg.Node) (out Taken, err error) {
	for _, l := range w.events {
		d := s.DispatcherOf(l.Context, leader.TypeTool)
		if d == nil || d.Removed || d.Paused || s.Quarantined(l.Context, leader.TypeTool) {
			continue // an event that is taken uses up room, also while nothing is called
		}
		held, list, steps, err := s.activate(ctx, l, n, d.Slots)
		if err == nil {
			out.Steps = append(out.Steps, steps...) // these are committed, also if an error follows
			err = s.refill(ctx, l)
		}
		if err == nil && len(held) > 0 {
			err = s.call(ctx, l, held, list)
		}
		if err != nil {
			return out, s.giveBack(ctx, l, held, err)
		}
		out.Messages += len(held)
	}
	return out, nil
}

// Taken says what TakeEvents did.
type Taken struct {
	Messages int
	Steps    []EventStep
}

func toolShare(slots int) int { return max(1, slots/2) }

// callingSQL counts the events whose tool is called, or about to be. Served by event_calling.
const callingSQL = `SELECT fqn, count(*)::int FROM postern.event WHERE context_id = $1 AND status = 'Active' AND outcome = '' GROUP BY 1`

func collectCalling(into *map[string]int) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		out := map[string]int{}
		*into = out
		var fqn string
		var n int
		_, err := pgx.ForEachRow(rows, []any{&fqn, &n}, func() error { out[fqn] = n; return nil })
		return err
	}
}

// calling counts the events of a context whose tool is called, by tool.
func (s *Store) calling(ctx context.Context, contextID int32) (out map[string]int, err error) {
	rows, err := s.Db(ctx).Query(ctx, callingSQL, contextID)
	if err != nil {
		return nil, db.Known(err)
	}
	return out, db.Known(collectCalling(&out)(rows))
}

// activate holds messages of a channel and makes their events Active, as many as there is room for. With them come
// the events whose transactions are still to be posted: these, and those that a process made Active before it died,
// which have their room already. The messages of the latter are taken where they wait, too: all messages on offer may
// be of events for which there is no room before these have ended.
//
// Each call in a context locks the row of its tool dispatcher, and counts in a statement behind that lock: it sees
// the commit of the call before it, and no other call adds until its own commit. Calls of tools that end meanwhile
// leave more room than was counted, never less. Messages and events that are locked by others are skipped, so that no
// session waits while it holds the dispatcher's row, and there is no cycle.
func (s *Store) activate(ctx context.Context, l leaderChannel, n pg.Node, slots int) (held []channels.Held[EventRef], open []*eventRow, steps []EventStep, err error) {
	share := toolShare(slots)
	err = s.Run(ctx, func(t *db.Txn) error {
		held, open, steps = nil, nil, nil
		calling, err := lockCalling(ctx, t, l.Context)
		if err != nil {
			return err
		}
		w := &channels.ChannelMessageChange{S: s.Channels, Channel: l.Channel}
		rows, room, err := s.lockMessages(ctx, t, w, calling, slots)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return t.Rollback(ctx)
		}
		byID, err := s.lockEvents(ctx, t, rows)
		if err != nil {
			return err
		}
		change := &eventChange{by: n.Name}
		var ids []string
		var mine []*channels.ChannelMessageRow
		for _, m := range rows {
			v := byID[m.ID]
			if v == nil {
				continue // somebody is at it
			}
			if v.Status == leader.EventQueued {
				if room <= 0 || calling[v.FQN] >= share {
					continue
				}
				step, err := leader.NextEvent(v.Status, leader.EventTaken, v.facts())
				if err != nil {
					return err
				}
				change.apply(v, leader.EventTaken, step, w.Now)
				room, calling[v.FQN], v.Tool = room-1, calling[v.FQN]+1, ""
				ids = append(ids, v.ID)
			}
			if m.State == leader.ChannelMessageQueued {
				m.State = leader.ChannelMessageOffered // beyond the capacity: see above
			}
			if mine = append(mine, m); v.Status == leader.EventActive && v.Outcome == "" && v.Tool == "" {
				open = append(open, v)
			}
		}
		if held, err = channels.Hold[EventRef](w, mine, n); err != nil {
			return err
		}
		b := &pgx.Batch{}
		change.queue(b, w.Now)
		steps = change.steps
		forgetCalls(b, ids)
		w.Queue(b)
		return t.Commit(ctx, b)
	})
	return held, open, steps, err
}

// forgetCalls takes the transactions of earlier tries from events: they say nothing of this one.
func forgetCalls(b *pgx.Batch, events []string) {
	if len(events) > 0 {
		b.Queue(`UPDATE postern.event
			SET tool_queue = NULL, tool_seq = NULL, tool_day = NULL, tool_id = ''
			WHERE event_id = ANY ($1::text[]::uuid[]) AND tool_id <> ''`, events)
	}
}

// lockCalling locks the tool dispatcher of a context, and counts the calls of each tool behind that.
func lockCalling(ctx context.Context, t *db.Txn, contextID int32) (calling map[string]int, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT FROM postern.dispatcher WHERE context_id = $1 AND type = $2 FOR NO KEY UPDATE`,
		contextID, leader.TypeTool)
	b.Queue(callingSQL, contextID).Query(collectCalling(&calling))
	err = t.Send(ctx, b)
	return calling, err
}

// lockMessages locks messages of a channel that may be taken while so many calls of each tool run: those about events
// of tools that have room, and those about events that are Active. room is how many calls more there may be.
func (s *Store) lockMessages(ctx context.Context, t *db.Txn, w *channels.ChannelMessageChange, calling map[string]int, slots int) (
	rows []*channels.ChannelMessageRow, room int, err error) {
	share := toolShare(slots)
	room, full := slots, []string{}
	for fqn, n := range calling {
		if room -= n; n >= share {
			full = append(full, fqn)
		}
	}
	most := min(room, takeMost, share)
	if room <= 0 {
		most = takeMost
	}
	b := &pgx.Batch{}
	b.Queue(`SELECT `+channels.ChannelMessageSelect+`
		FROM postern.channel_message m
		WHERE m.channel_id = $1
			AND (m.state = 'Offered' OR m.state = 'Queued' AND m.retries = 0)
			AND (m.state = 'Offered' AND $4 AND NOT m.payload ->> 'tool' = ANY ($3)
				OR EXISTS (SELECT FROM postern.event e
					WHERE e.event_id = m.message_id::uuid AND e.status = 'Active' OFFSET 0))
		ORDER BY m.updated_at, m.message_id
		LIMIT $2
		FOR UPDATE OF m SKIP LOCKED`, w.Channel, most, full, room > 0).Query(channels.CollectChannelMessages(&rows))
	s.ReadNow(b, &w.Now)
	err = t.Send(ctx, b)
	return rows, room, err
}

// lockEvents locks the events of messages, but for those that another process holds, and returns them by id.
func (s *Store) lockEvents(ctx context.Context, t *db.Txn, of []*channels.ChannelMessageRow) (map[string]*eventRow, error) {
	var ids []string
	for _, m := range of {
		ids = append(ids, m.ID)
	}
	var locked []*eventRow
	b := &pgx.Batch{}
	b.Queue(eventSelect+`WHERE e.event_id = ANY ($2::text[]::uuid[])
		ORDER BY e.event_id
		FOR UPDATE OF e SKIP LOCKED`, s.Clock(), ids, s.LeaseNow()).Query(collectEvents(&locked))
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	byID := map[string]*eventRow{}
	for _, v := range locked {
		byID[v.ID] = v
	}
	return byID, nil
}

// call posts the transactions that call the tools of events which are Active, and acknowledges the messages about them.
func (s *Store) call(ctx context.Context, l leaderChannel, held []channels.Held[EventRef], of []*eventRow) error {
	var subs []*pg.Submission
	for _, v := range of {
		subs = append(subs, v.toolCall())
	}
	posted, refused, err := s.postAll(ctx, l, subs)
	if err != nil {
		return err
	}
	var ids db.Columns
	var names []string
	for i, a := range posted {
		if v := of[i]; a.Err == nil {
			ids.Add(v.ID, v.Retried, a.ID.Queue, a.ID.Seq, a.ID.Day.Time(), a.ID.String())
			names = append(names, v.ID)
		}
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		if len(names) > 0 {
			// Locked in their order: the process that had the messages before may be at the same events.
			b.Queue(`SELECT FROM postern.event WHERE event_id = ANY ($1::text[]::uuid[]) ORDER BY event_id FOR UPDATE`, names)
			b.Queue(`UPDATE postern.event e SET tool_queue = n.queue_id, tool_seq = n.seq, tool_day = n.day, tool_id = n.id
				FROM ROWS FROM (unnest($1::uuid[]), unnest($2::int[]), unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::date[]), unnest($6::text[])) n(event_id, retried, queue_id, seq, day, id)
				WHERE e.event_id = n.event_id AND e.status = 'Active' AND e.retried = n.retried AND e.tool_id = ''`, ids.Args()...)
			if err := t.Send(ctx, b); err != nil {
				return err
			}
			b = &pgx.Batch{}
		}
		if err := channels.ConduitOf[EventRef](s.Channels, l.Channel).AckIn(ctx, t, b, without(held, refused, of)); err != nil {
			return err
		}
		return t.Commit(ctx, b)
	})
	if err != nil {
		return err
	}
	return s.nackAll(ctx, l, held, refused, of)
}

func (v *eventRow) toolUID() string { return fmt.Sprintf("event:%s:tool:%d", v.ID, v.Retried+1) }

// toolCall is the call of the event's tool. The event was accepted before, so that a drain lets it pass (Held).
func (v *eventRow) toolCall() *pg.Submission {
	data, _ := json.Marshal(ToolCall{v.ID, v.FQN, v.Retried + 1})
	hash, none := sha256.Sum256(append([]byte(leader.TypeTool+"\x00"), data...)), 0
	return &pg.Submission{Held: true, ContextID: v.Context, UID: v.toolUID(), Hash: hash[:], Poster: outbox.ByLeader,
		Type: leader.TypeTool, Data: data, MaxRetries: &none}
}

// postAll posts transactions of the leader to the core. One that the core cannot take now is tried again until ctx
// ends. One that it refuses for good is returned with the reason, by its place in the list.
func (s *Store) postAll(ctx context.Context, l leaderChannel, subs []*pg.Submission) (out []pg.Accepted, refused map[int]error, err error) {
	refused = map[int]error{}
	if len(subs) == 0 {
		return nil, refused, nil
	}
	for {
		if out, err = s.Ingest(ctx, subs, false); err == nil {
			again := false
			for i, a := range out {
				switch fault.KindOf(a.Err) {
				case "":
				case fault.Retry, fault.Internal:
					again = true
				default:
					refused[i] = a.Err
				}
			}
			if !again {
				s.RingHere()
				return out, refused, nil
			}
		}
		if k := fault.KindOf(err); err != nil && k != fault.Retry {
			return nil, nil, err
		}
		s.Log.Warn("the core takes nothing now: the leader waits", "context", l.Context, "error", err)
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func idsOf(held []channels.Held[EventRef]) []string {
	ids := make([]string, len(held))
	for i, h := range held {
		ids[i] = h.ID
	}
	return ids
}

// without lists the messages that are done with.
func without(held []channels.Held[EventRef], refused map[int]error, of []*eventRow) (list []channels.Held[EventRef]) {
	bad := map[string]bool{}
	for i := range refused {
		bad[of[i].ID] = true
	}
	for _, h := range held {
		if !bad[h.ID] {
			list = append(list, h)
		}
	}
	return list
}

// nackAll gives back the messages whose transactions the core has refused.
func (s *Store) nackAll(ctx context.Context, l leaderChannel, held []channels.Held[EventRef], refused map[int]error, of []*eventRow) error {
	c := channels.ConduitOf[EventRef](s.Channels, l.Channel)
	for i, why := range refused {
		for _, h := range held {
			if h.ID != of[i].ID {
				continue
			}
			if err := c.Nack(ctx, h.ID, h.Fence, why.Error()); err != nil && fault.CodeOf(err) != "stale_fence" {
				return err
			}
		}
	}
	return nil
}
