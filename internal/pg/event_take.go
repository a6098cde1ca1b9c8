package pg

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
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
// (S1.5). Room is what the slots of the dispatcher leave, in a context over all nodes; of them one tool gets half at
// most, so that one that hangs leaves room for the others. Nodes that take at one moment may each fill the same
// room: the slots of the dispatcher bound what a node calls in any case.
//
// In this order: the messages are held, the transactions posted under uids that event and try make up, then the
// events made Active and the messages acknowledged in one commit. Whoever dies on the way leaves messages that
// are taken back, and the same transactions are found again.
func (s *Store) TakeEvents(ctx context.Context, w LeaderWork, n Node) (total int, err error) {
	if len(w.events) == 0 {
		return 0, nil
	}
	calling, err := s.calling(ctx)
	if err != nil {
		return 0, err
	}
	for _, l := range w.events {
		d := s.DispatcherOf(l.Context, leader.TypeTool)
		if d == nil || d.Removed {
			continue
		}
		room, skip := d.Slots, []string{}
		for fqn, n := range calling[l.Context] {
			if room -= n; n >= toolShare(d.Slots) {
				skip = append(skip, fqn)
			}
		}
		if room <= 0 {
			continue
		}
		held, err := s.receive(ctx, l, n, min(room, takeMost, toolShare(d.Slots)), skip)
		if err != nil {
			return total, s.giveBack(ctx, l, held, err)
		}
		if len(held) == 0 {
			continue
		}
		for _, h := range held {
			if calling[l.Context] == nil {
				calling[l.Context] = map[string]int{}
			}
			calling[l.Context][h.Payload.Tool]++
		}
		if err := s.giveBack(ctx, l, held, s.take(ctx, l, n, held)); err != nil {
			return total, err
		}
		total += len(held)
	}
	return total, nil
}

func toolShare(slots int) int { return max(1, slots/2) }

// calling counts the events whose tool is called, by context and tool. Served by event_calling.
func (s *Store) calling(ctx context.Context) (map[int32]map[string]int, error) {
	rows, err := s.db(ctx).Query(ctx, `SELECT context_id, fqn, count(*)::int FROM postern.event WHERE status = 'Active' AND outcome = '' GROUP BY 1, 2`)
	if err != nil {
		return nil, known(err)
	}
	out := map[int32]map[string]int{}
	var id int32
	var fqn string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&id, &fqn, &n}, func() error {
		if out[id] == nil {
			out[id] = map[string]int{}
		}
		out[id][fqn] = n
		return nil
	})
	return out, known(err)
}

func (s *Store) take(ctx context.Context, l leaderLine, n Node, held []Held[EventRef]) error {
	var list []*eventRow
	rows, err := s.db(ctx).Query(ctx, eventSelect+`WHERE e.event_id = ANY ($2::text[]::uuid[])`, s.now(), idsOf(held))
	if err == nil {
		err = collectEvents(&list)(rows)
		rows.Close()
	}
	if err != nil {
		return known(err)
	}
	var subs []*Submission
	var of []*eventRow
	for _, v := range list {
		if v.Status == leader.EventQueued {
			subs, of = append(subs, v.toolCall()), append(of, v)
		}
	}
	posted, refused, err := s.postAll(ctx, l, subs)
	if err != nil {
		return err
	}
	calls := map[string]Accepted{}
	for i, a := range posted {
		calls[of[i].ID] = a
	}
	err = s.run(ctx, func(t *txn) error {
		var locked []*eventRow
		b := &pgx.Batch{}
		b.Queue(eventSelect+`WHERE e.event_id = ANY ($2::text[]::uuid[]) ORDER BY e.event_id FOR UPDATE OF e`, s.now(), idsOf(held)).Query(collectEvents(&locked))
		var now time.Time
		s.readNow(b, &now)
		if err := t.send(ctx, b); err != nil {
			return err
		}
		b = &pgx.Batch{}
		w := &eventChange{by: n.Name}
		var ids columns
		for _, v := range locked {
			a, ok := calls[v.ID]
			if !ok || a.Err != nil || v.Status != leader.EventQueued || v.toolUID() != uidOf(subs, of, v.ID) {
				continue
			}
			step, err := leader.NextEvent(v.Status, leader.EventTaken, v.facts())
			if err != nil {
				return err
			}
			w.apply(v, leader.EventTaken, step, now)
			ids.add(v.ID, a.ID.Queue, a.ID.Seq, a.ID.Day.Time(), a.ID.String())
		}
		w.queue(b, now)
		if len(ids.cols) > 0 {
			b.Queue(`UPDATE postern.event e SET tool_queue = n.queue_id, tool_seq = n.seq, tool_day = n.day, tool_id = n.id
				FROM ROWS FROM (unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::date[]), unnest($5::text[])) n(event_id, queue_id, seq, day, id)
				WHERE e.event_id = n.event_id`, ids.args()...)
		}
		if err := (&Conduit[EventRef]{s: s, id: l.Channel}).ackIn(ctx, t, b, without(held, refused, of)); err != nil {
			return err
		}
		return t.commit(ctx, b)
	})
	if err != nil {
		return err
	}
	return s.nackAll(ctx, l, held, refused, of)
}

func (v *eventRow) toolUID() string { return fmt.Sprintf("event:%s:tool:%d", v.ID, v.Retried+1) }

func uidOf(subs []*Submission, of []*eventRow, id string) string {
	for i, v := range of {
		if v.ID == id {
			return subs[i].UID
		}
	}
	return ""
}

func (v *eventRow) toolCall() *Submission {
	data, _ := json.Marshal(ToolCall{v.ID, v.FQN, v.Retried + 1})
	hash, none := sha256.Sum256(append([]byte(leader.TypeTool+"\x00"), data...)), 0
	return &Submission{ContextID: v.Context, UID: v.toolUID(), Hash: hash[:], Type: leader.TypeTool, Data: data, MaxRetries: &none}
}

// postAll posts what the leader wants of the core. What it cannot take now is tried again until ctx ends; what it
// refuses for good is returned with the reason, by its place in the list.
func (s *Store) postAll(ctx context.Context, l leaderLine, subs []*Submission) (out []Accepted, refused map[int]error, err error) {
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
				s.ring()
				return out, refused, nil
			}
		}
		if k := fault.KindOf(err); err != nil && k != fault.Retry {
			return nil, nil, err
		}
		s.log.Warn("the core takes nothing now: the leader waits", "context", l.Context, "error", err)
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func idsOf(held []Held[EventRef]) []string {
	ids := make([]string, len(held))
	for i, h := range held {
		ids[i] = h.ID
	}
	return ids
}

// without lists the messages that are done with.
func without(held []Held[EventRef], refused map[int]error, of []*eventRow) (list []Held[EventRef]) {
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

// nackAll gives back the messages of which the core has refused the transaction.
func (s *Store) nackAll(ctx context.Context, l leaderLine, held []Held[EventRef], refused map[int]error, of []*eventRow) error {
	c := &Conduit[EventRef]{s: s, id: l.Channel}
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
