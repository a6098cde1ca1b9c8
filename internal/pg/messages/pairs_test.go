package messages_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pg/peers"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// world has two contexts: default sends, and shop receives.
type world struct {
	*pgworld.World
	shop db.By
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: pgworld.New(t)}
	_, err := w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 10}}, 0)
	w.Must(err)
	w.shop = w.By
	w.shop.Context = w.S.Context("shop").ID
	w.S.Messages.Open = true
	return w
}

// chat is a message to the shop.
func (w *world) chat(body string, change ...func(*messages.Posted)) messages.Posted {
	p := messages.Posted{Target: w.shop.Context, Spec: message.Spec{To: message.To{Context: "shop"}, Type: message.Chat,
		Format: "text", Body: body}}
	for _, c := range change {
		c(&p)
	}
	return p
}

// post posts messages, and routes nothing.
func (w *world) post(list ...messages.Posted) (ids []uuid.UUID) {
	w.T.Helper()
	for _, p := range list {
		m, err := w.S.Messages.Post(w.Ctx, w.By, p)
		w.Must(err)
		ids = append(ids, m.ID)
	}
	return ids
}

func (w *world) route() {
	w.T.Helper()
	_, err := w.S.Messages.Route(w.Ctx)
	w.Must(err)
}

// sent posts a chat and delivers it.
func (w *world) sent(change ...func(*messages.Posted)) uuid.UUID {
	w.T.Helper()
	id := w.post(w.chat("hello", change...))[0]
	w.route()
	return id
}

func (w *world) receive(s *stores.Store, max int) ([]*messages.Message, error) {
	return s.Messages.Receive(w.Ctx, w.shop, messages.Receiving{Max: max, Lease: time.Minute})
}

func (w *world) one() *messages.Message {
	w.T.Helper()
	list, err := w.receive(w.S, 1)
	w.Must(err)
	if len(list) != 1 {
		w.T.Fatalf("%d messages, want 1", len(list))
	}
	return list[0]
}

// stands is what a message has come to.
func (w *world) stands(id uuid.UUID) string {
	w.T.Helper()
	m, err := w.S.Messages.Get(w.Ctx, w.ID, id)
	w.Must(err)
	return strings.TrimSpace(string(m.Status) + " " + m.Code)
}

func (w *world) late(id uuid.UUID) (events []string) {
	w.T.Helper()
	_, late, err := w.S.Messages.History(w.Ctx, w.ID, id)
	w.Must(err)
	for _, l := range late {
		events = append(events, l.Event)
	}
	return events
}

func said(err error) string {
	if err == nil {
		return "ok"
	}
	return fault.CodeOf(err)
}

func code(_ bool, err error) string { return said(err) }

// Two receivers at one time are not handed the same message: the second skips what the first has locked.
func TestTwoReceiversAtOneTimeShareNoMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sent()
	other := w.Another(4)
	var first []*messages.Message
	second, waited := w.Beside(func() (err error) {
		first, err = w.receive(w.S, 5)
		return err
	}, func() string {
		list, err := w.receive(other, 5)
		return fmt.Sprint(len(list), " ", said(err))
	})
	if len(first) != 1 || second != "0 ok" || waited {
		t.Errorf("the first has %d, the second %q, and waited: %v", len(first), second, waited)
	}
}

// Of two processes that route at one time the second waits, and delivers what is behind the messages of the first:
// those of one sender keep their order.
func TestTwoRoutersKeepTheOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.post(w.chat("1"), w.chat("2"))
	other := w.Another(4)
	other.Messages.Open = true
	second, waited := w.Beside(func() error { _, err := w.S.Messages.Route(w.Ctx); return err }, func() string {
		n, err := other.Messages.Route(w.Ctx)
		return fmt.Sprint(n, " ", said(err))
	})
	if second != "0 ok" || !waited {
		t.Errorf("the second routes %q, and waited: %v", second, waited)
	}
	list, err := w.receive(w.S, 5)
	w.Must(err)
	var got []uuid.UUID
	for _, m := range list {
		got = append(got, m.ID)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("received %v, want %v", got, ids)
	}
}

// A deadline and an acknowledgement at one time: the one that is first decides, and the other finds it so.
func TestADeadlineAndAnAcknowledgementAtOneTime(t *testing.T) {
	t.Parallel()
	for _, ackFirst := range []bool{true, false} {
		w := newWorld(t)
		id := w.sent(func(p *messages.Posted) { p.Timeouts.Ack = 10 * time.Second })
		m := w.one()
		w.Later(9 * time.Second)
		if !ackFirst {
			w.Later(2 * time.Second)
		}
		other := w.Another(4)
		ack := func(s *stores.Store) string { return code(s.Messages.Ack(w.Ctx, w.shop, id, m.Fence)) }
		expire := func(s *stores.Store) string {
			n, err := s.Messages.Expire(w.Ctx)
			return fmt.Sprint(n, " ", said(err))
		}
		if ackFirst {
			second, _ := w.Beside(func() error { _, err := w.S.Messages.Ack(w.Ctx, w.shop, id, m.Fence); return err },
				func() string { return expire(other) })
			if second != "0 ok" || w.stands(id) != "acknowledged" || expire(w.S) != "0 ok" {
				t.Errorf("the sweep found %q: %s", second, w.stands(id))
			}
			continue
		}
		second, waited := w.Beside(func() error { _, err := w.S.Messages.Expire(w.Ctx); return err },
			func() string { return ack(other) })
		if second != "wrong_state" || !waited || w.stands(id) != "error timeout_ack" ||
			!slices.Equal(w.late(id), []string{"Acknowledged"}) {
			t.Errorf("the receiver was told %q: %s, late %v", second, w.stands(id), w.late(id))
		}
	}
}

// A deadline that is over ends its message by its name, also where no process has looked since: what a receiver or a
// peer says behind it is late.
func TestAWordBehindADeadlineIsLateThoughNobodyHasLooked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.sent(func(p *messages.Posted) { p.Timeouts.Ack = 10 * time.Second })
	m := w.one()
	w.Later(11 * time.Second)
	for range 2 {
		if _, err := w.S.Messages.Ack(w.Ctx, w.shop, id, m.Fence); code(true, err) != "wrong_state" {
			t.Errorf("the receiver was told %v", err)
		}
	}
	if w.stands(id) != "error timeout_ack" || !slices.Contains(w.late(id), "Acknowledged") {
		t.Errorf("%s, late %v", w.stands(id), w.late(id))
	}
}

// An envelope that is posted again, without a ref or a key, is the same message: a peer would take both for one.
func TestAnEnvelopeForAPeerIsOneMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.far()
	hint := "one"
	post := func(s *stores.Store, body string) (*messages.Message, error) {
		return s.Messages.Post(w.Ctx, w.By, w.chat(body, func(p *messages.Posted) {
			p.Target, p.To = 0, message.To{Peer: "far", Context: "c"}
			p.Envelope = []byte(`{"payload": "c2VhbGVk", "signatures": [{"keyid": "` + hint + `"}]}`)
		}))
	}
	first, err := post(w.S, "hello")
	w.Must(err)
	hint = "two" // no signature covers it
	again, err := post(w.S, "hello")
	w.Must(err)
	if again.ID != first.ID || !again.Replay {
		t.Errorf("%s is posted again as %s", first.ID, again.ID)
	}
	if _, err := post(w.S, "other"); fault.KindOf(err) != fault.Conflict {
		t.Errorf("another message with this envelope: %v", err)
	}
}

// What a receiver says that holds a message no more changes nothing, and is kept as late; a repetition under the fence
// that holds is answered as the first time.
func TestAStaleFenceChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.sent()
	first := w.one()
	if list, err := w.receive(w.S, 1); err != nil || len(list) != 0 {
		t.Errorf("it is handed out twice within its lease: %v %v", list, err)
	}
	w.Later(61 * time.Second)
	second := w.one()
	if second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
	for name, say := range map[string]func(fence int64) (bool, error){
		"ack":       func(f int64) (bool, error) { return w.S.Messages.Ack(w.Ctx, w.shop, id, f) },
		"processed": func(f int64) (bool, error) { return w.S.Messages.Processed(w.Ctx, w.shop, id, f) },
		"reject":    func(f int64) (bool, error) { return w.S.Messages.Reject(w.Ctx, w.shop, id, f) },
		"reply": func(f int64) (bool, error) {
			return w.S.Messages.Answered(w.Ctx, w.shop, id, f, messages.Reply{Format: "text", Body: "late"})
		},
	} {
		if got := code(say(first.Fence)); got != "stale_fence" {
			t.Errorf("%s under the old fence: %s", name, got)
		}
	}
	if got := w.stands(id); got != "dispatched" || len(w.late(id)) != 4 {
		t.Errorf("%s, late %v", got, w.late(id))
	}
	if got := code(w.S.Messages.Ack(w.Ctx, w.By, id, second.Fence)); got != "not_found" {
		t.Errorf("its sender acknowledges it: %s", got)
	}
	reply := messages.Reply{Format: "md", Body: "hi"}
	for i, want := range []bool{true, false} {
		changed, err := w.S.Messages.Ack(w.Ctx, w.shop, id, second.Fence)
		if err != nil || changed != want {
			t.Errorf("ack %d: %v %v", i, changed, err)
		}
	}
	for i, want := range []bool{true, false} {
		changed, err := w.S.Messages.Answered(w.Ctx, w.shop, id, second.Fence, reply)
		if err != nil || changed != want {
			t.Errorf("reply %d: %v %v", i, changed, err)
		}
	}
	if got := code(w.S.Messages.Answered(w.Ctx, w.shop, id, second.Fence, messages.Reply{Format: "md",
		Body: "other"})); got != "wrong_state" {
		t.Errorf("another reply: %s", got)
	}
	if r, err := w.S.Messages.ResultOf(w.Ctx, id); err != nil || r.Body != "hi" || r.Status != message.Processed {
		t.Errorf("%+v %v", r, err)
	}
}

// What another one says under the fence of a receiver changes nothing, and nothing of it is kept: a fence is no secret.
func TestOnlyTheReceiverOfAMessageSpeaksOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ann, ben := w.shop, w.shop
	ann.Actor, ben.Actor = "ann", "ben"
	id := w.sent(func(p *messages.Posted) { p.To.Actor = "ann" })
	words := func(by db.By, fence int64) (said []string) {
		s := w.S.Messages
		for _, say := range []func() (bool, error){
			func() (bool, error) { return s.Ack(w.Ctx, by, id, fence) },
			func() (bool, error) { return s.Processed(w.Ctx, by, id, fence) },
			func() (bool, error) { return s.Reject(w.Ctx, by, id, fence) },
			func() (bool, error) {
				return s.Answered(w.Ctx, by, id, fence, messages.Reply{Format: "text", Body: "a"})
			},
		} {
			said = append(said, code(say()))
		}
		return said
	}
	stale := []string{"stale_fence", "stale_fence", "stale_fence", "stale_fence"}
	w.Same(words(ben, 0), stale...)
	w.Same(words(ann, 0), stale...)
	list, err := w.S.Messages.Receive(w.Ctx, ann, messages.Receiving{Max: 1, Lease: time.Minute})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	w.Same(words(ben, list[0].Fence), stale...)
	if got := w.stands(id); got != "dispatched" || len(w.late(id)) != 0 {
		t.Errorf("%s, late %v", got, w.late(id))
	}
	w.Same([]string{code(w.S.Messages.Ack(w.Ctx, ann, id, list[0].Fence))}, "ok")
	w.Same(words(ben, list[0].Fence), stale...)
	w.Same([]string{code(w.S.Messages.Processed(w.Ctx, ann, id, list[0].Fence)), w.stands(id)}, "ok", "processed")
	w.Same(words(ben, list[0].Fence), stale...)
	if got := w.late(id); len(got) != 0 {
		t.Errorf("late %v", got)
	}
}

// Two receivers that say different things of one message: the second waits, and is late.
func TestTwoWordsAtOneTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.sent()
	m := w.one()
	other := w.Another(4)
	second, waited := w.Beside(func() error {
		_, err := w.S.Messages.Processed(w.Ctx, w.shop, id,
			m.Fence)
		return err
	},
		func() string { return code(other.Messages.Reject(w.Ctx, w.shop, id, m.Fence)) })
	if second != "wrong_state" || !waited || w.stands(id) != "processed" {
		t.Errorf("the second was told %q, and waited %v: %s", second, waited, w.stands(id))
	}
}

// Each deadline ends its message with its name.
func TestEachDeadlineEndsItsMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := func(p *messages.Posted) {
		p.Timeouts = message.Timeouts{Deliver: 10 * time.Second, Ack: 20 * time.Second, Result: 30 * time.Second}
	}
	expire := func() {
		t.Helper()
		_, err := w.S.Messages.Expire(w.Ctx)
		w.Must(err)
	}
	stuck := w.post(w.chat("never routed", all))[0]
	w.Later(10 * time.Second)
	expire()
	if got := w.stands(stuck); got != "error timeout" {
		t.Error(got)
	}
	w.route()
	if got := w.stands(stuck); got != "error timeout" {
		t.Errorf("routed after its end: %s", got)
	}

	silent := w.sent(all)
	w.Later(19 * time.Second)
	expire()
	if got := w.stands(silent); got != "dispatched" {
		t.Error(got)
	}
	m := w.one()
	w.Later(time.Second)
	expire()
	if got := w.stands(silent); got != "error timeout_ack" {
		t.Error(got)
	}
	if got := code(w.S.Messages.Ack(w.Ctx, w.shop, silent, m.Fence)); got != "wrong_state" || len(w.late(silent)) != 1 {
		t.Errorf("%s %v", got, w.late(silent))
	}

	open := w.sent(all)
	m = w.one()
	if _, err := w.S.Messages.Ack(w.Ctx, w.shop, open, m.Fence); err != nil {
		t.Error(err)
	}
	w.Later(30 * time.Second)
	expire()
	if got := w.stands(open); got != "error timeout_result" {
		t.Error(got)
	}
	if got := code(w.S.Messages.Answered(w.Ctx, w.shop, open, m.Fence, messages.Reply{Format: "text",
		Body: "x"})); got != "wrong_state" {
		t.Error(got)
	}
	if r, err := w.S.Messages.ResultOf(w.Ctx, open); r != nil || err != nil ||
		w.stands(open) != "error timeout_result" {
		t.Errorf("a late reply made a result: %+v %v", r, err)
	}
}

// The same ref with the same content is the same message; with another one it is refused, and the parts that differ are
// named. The same ref of two actors is two messages.
func TestARefNamesOneMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := int64(7)
	ref := func(p *messages.Posted) { p.Ref = &n }
	first, err := w.S.Messages.Post(w.Ctx, w.By, w.chat("a", ref))
	w.Must(err)
	again, err := w.S.Messages.Post(w.Ctx, w.By, w.chat("a", ref))
	if err != nil || !again.Replay || again.ID != first.ID {
		t.Errorf("%+v %v", again, err)
	}
	_, err = w.S.Messages.Post(w.Ctx, w.By, w.chat("b", ref, func(p *messages.Posted) { p.Timeouts.Ack = time.Second }))
	if f := fault.As(err); f == nil || f.Code != "idempotency_conflict" ||
		fmt.Sprint(f.Extra["differs"]) != "[message timeout_ack]" {
		t.Errorf("%+v", f)
	}
	other := w.By
	other.Actor = "other"
	if m, err := w.S.Messages.Post(w.Ctx, other, w.chat("b", ref)); err != nil || m.ID == first.ID {
		t.Errorf("%+v %v", m, err)
	}
}

// Two posts of one ref at one time make one message.
func TestTwoPostsOfOneRefAtOneTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := int64(7)
	ref := func(p *messages.Posted) { p.Ref = &n }
	other := w.Another(4)
	second, _ := w.Beside(func() error { _, err := w.S.Messages.Post(w.Ctx, w.By, w.chat("a", ref)); return err },
		func() string {
			m, err := other.Messages.Post(w.Ctx, w.By, w.chat("a", ref))
			return fmt.Sprint(m != nil && m.Replay, " ", said(err))
		})
	if second != "true ok" {
		t.Error(second)
	}
}

// The rights of a sender are looked at once more before a message is let go.
func TestARoleThatIsTakenAwayRefusesTheMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.S.Messages.Open = false
	w.Exec(`INSERT INTO postern.actor (actor_id) VALUES ('ann')`)
	_, err := w.S.SetMember(w.Ctx, w.By, "default", "ann", []string{pg.Admin})
	w.Must(err)
	_, err = w.S.SetMember(w.Ctx, w.By, "shop", "ann", []string{pg.Reader})
	w.Must(err)
	ann := w.By
	ann.Actor = "ann"
	post := func(p messages.Posted) uuid.UUID {
		t.Helper()
		m, err := w.S.Messages.Post(w.Ctx, ann, p)
		w.Must(err)
		return m.ID
	}
	good := post(w.chat("1"))
	w.route()
	job := post(w.chat("", func(p *messages.Posted) {
		p.Type, p.Jobs = message.Job, json.RawMessage(`[{"script": "1", "script_type": "python"}]`)
	}))
	w.route() // a reader posts no jobs
	bad := post(w.chat("2"))
	_, err = w.S.SetMember(w.Ctx, w.By, "shop", "ann", nil)
	w.Must(err)
	w.route()
	for id, want := range map[uuid.UUID]string{good: "dispatched", job: "error forbidden", bad: "error forbidden"} {
		if got := w.stands(id); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if list, err := w.receive(w.S, 5); err != nil || len(list) != 1 || list[0].ID != good {
		t.Errorf("%v %v", list, err)
	}
}

// A context is not deleted while a message of its boxes is open, nor while it has what would stand there.
func TestAContextWithAnOpenMessageStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	remove := func() (what string) {
		err := w.S.RemoveContext(w.Ctx, w.shop, "shop")
		if fault.CodeOf(err) == "in_use" {
			_, what, _ = strings.Cut(fault.As(err).Detail, " still has ")
			what, _, _ = strings.Cut(what, ":")
			return what
		}
		return said(err)
	}
	in := w.sent()
	m := w.one()
	w.Same([]string{remove()}, "messages that have not ended")
	w.Same([]string{code(w.S.Messages.Processed(w.Ctx, w.shop, in, m.Fence))}, "ok")
	out, err := w.S.Messages.Post(w.Ctx, w.shop, w.chat("out", func(p *messages.Posted) {
		p.Target, p.To.Context = w.ID, "default"
	}))
	w.Must(err)
	w.Same([]string{remove()}, "messages that have not ended")
	_, err = w.S.Messages.Cancel(w.Ctx, w.shop, out.ID)
	w.Must(err)
	_, err = w.S.Installations.PutPeer(w.Ctx, w.shop, peers.Settings{Name: "far",
		Secret: []byte(strings.Repeat("s", 32))}, 0)
	w.Must(err)
	w.Same([]string{remove()}, "peers")
	w.Must(w.S.Installations.RemovePeer(w.Ctx, w.shop, "far"))
	const unequip = `UPDATE postern.dispatcher SET removed_at = clock_timestamp() WHERE removed_at IS NULL`
	_, err = w.S.Flows.PutRunner(w.Ctx, w.shop, flows.RunnerSettings{Name: "r"}.WithDefaults(), 0)
	w.Must(err)
	w.Exec(unequip)
	w.Same([]string{remove()}, "runners")
	w.Must(w.S.Flows.RemoveRunner(w.Ctx, w.shop, "r"))
	_, err = w.S.Flows.PostFlow(w.Ctx, w.shop, flows.FlowSpec{})
	w.Must(err)
	w.Exec(unequip)
	w.Same([]string{remove()}, "flows that have not ended")
}

// A message that is routed beside the deletion of the context that it is for keeps that context, or is refused.
func TestARouteBesideTheDeletionOfAContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.Another(4)
	other.Messages.Open = true
	remove := func(s *stores.Store) error { return s.RemoveContext(w.Ctx, w.shop, "shop") }
	route := func(s *stores.Store) error { _, err := s.Messages.Route(w.Ctx); return err }
	id := w.post(w.chat("1"))[0]
	second, waited := w.Beside(func() error { return route(w.S) }, func() string { return said(remove(other)) })
	if second != "in_use" || !waited || w.stands(id) != "dispatched" {
		t.Errorf("the deletion behind the route says %q, and waited: %v; %s", second, waited, w.stands(id))
	}
	_, err := w.S.Messages.Cancel(w.Ctx, w.By, id)
	w.Must(err)
	id = w.post(w.chat("2"))[0]
	second, waited = w.Beside(func() error { return remove(w.S) }, func() string { return said(route(other)) })
	if second != "ok" || !waited || w.stands(id) != "error forbidden" {
		t.Errorf("the route behind the deletion says %q, and waited: %v; %s", second, waited, w.stands(id))
	}
}
