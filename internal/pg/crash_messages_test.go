package pg_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pg/peers"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// letters is a world in which the context default writes to the context shop, and to the peer far.
type letters struct {
	*world
	shop db.By
	far  messages.Following
}

// messageIDs are the ids of all messages: a request that is repeated makes no other ones.
const messageIDs = `SELECT message_id::text FROM postern.message ORDER BY 1`

func newLetters(w *world) *letters {
	w.T.Helper()
	w.S.Messages.Open = true
	_, err := w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 10}}, 0)
	w.Must(err)
	l := &letters{world: w, shop: w.By}
	l.shop.Context = w.S.Context("shop").ID
	l.far = l.peer("far")
	return l
}

// peer makes one that is called.
func (l *letters) peer(name string) messages.Following {
	l.T.Helper()
	l.Must(l.putPeer(l.S, name))
	return messages.Following{Context: l.ID, Peer: name}
}

func (l *letters) putPeer(s *stores.Store, name string) error {
	_, err := s.Installations.PutPeer(l.Ctx, l.By, peers.Settings{Name: name, Secret: []byte(strings.Repeat("s", 32)),
		URL: "https://far.example/contexts/c/peers/near"}, 0)
	return err
}

// toShop is a message that a context here is to receive, and toPeer one that goes to a peer.
func (l *letters) toShop(body string) messages.Posted {
	return messages.Posted{Target: l.shop.Context, Spec: message.Spec{To: message.To{Context: "shop"},
		Type: message.Chat, Format: "text", Body: body}}
}

func (l *letters) toPeer(name, body string) messages.Posted {
	p := l.toShop(body)
	p.Target, p.To = 0, message.To{Peer: name, Context: "c"}
	return p
}

// jobs is a message to the shop that makes a job there.
func (l *letters) jobs() messages.Posted {
	p := l.toShop("")
	p.Type, p.Jobs = message.Job, json.RawMessage(`[{"ref": 1, "script": "1", "script_type": "python"}]`)
	return p
}

func (l *letters) post(p messages.Posted) uuid.UUID {
	l.T.Helper()
	m, err := l.S.Messages.Post(l.Ctx, l.By, p)
	l.Must(err)
	return m.ID
}

// sent posts a message and lets it go.
func (l *letters) sent(p messages.Posted) uuid.UUID {
	l.T.Helper()
	id := l.post(p)
	_, err := l.S.Messages.Route(l.Ctx)
	l.Must(err)
	return id
}

// stored is a message that a peer has.
func (l *letters) stored(peer string) uuid.UUID {
	l.T.Helper()
	id := l.sent(l.toPeer(peer, "hello"))
	l.Must(l.S.Messages.AtPeer(l.Ctx, id, nil))
	return id
}

// received hands the shop the one message that it can have, for a time.
func (l *letters) received(lease time.Duration) *messages.Message {
	l.T.Helper()
	list, err := l.S.Messages.Receive(l.Ctx, l.shop, messages.Receiving{Max: 1, Lease: lease})
	l.Must(err)
	if len(list) != 1 {
		l.T.Fatalf("%d messages, want 1", len(list))
	}
	return list[0]
}

// brought is a message of the peer near for the shop, as an actor wrote it that has a key here.
func (l *letters) brought(body string, jobs ...string) messages.Arrival {
	l.T.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	l.Exec(`INSERT INTO postern.actor (actor_id) VALUES ('dev') ON CONFLICT DO NOTHING`)
	l.Exec(`INSERT INTO postern.actor_key (public_key, actor_id, slot, added_at) VALUES ($1, 'dev', 1, '2000-01-01')
		ON CONFLICT DO NOTHING`, []byte(key.Public().(ed25519.PublicKey)))
	us, err := l.S.Messages.Here(l.Ctx, "shop")
	l.Must(err)
	us.Peer = "near"
	s := message.Signed{Audience: us, CreatedAt: l.Now, Type: message.Chat, Body: body}
	if len(jobs) > 0 {
		s.Type, s.Body, s.Topic = message.Job, "", body
		s.Jobs = json.RawMessage("[" + strings.Join(jobs, ",") + "]")
	}
	envelope, err := message.Write(s, key)
	l.Must(err)
	return messages.Arrival{Context: l.S.Context("shop"), Peer: "near", ID: uuid.New(), Envelope: envelope}
}

func (l *letters) arrived(a messages.Arrival) messages.Arrival {
	l.T.Helper()
	_, _, err := l.S.Messages.Arrive(l.Ctx, a)
	l.Must(err)
	return a
}

// carry posts what carries messages to peers, and jobs that no transaction carries: the next look of any process.
func (l *letters) carry(s *stores.Store) error {
	_, err := s.Messages.Carry(l.Ctx)
	if err == nil {
		l.Later(time.Minute) // until then jobs may be under way
		_, err = s.Flows.Repost(l.Ctx)
	}
	return err
}

// messageRoom is a stage with messages to the shop: held by a receiver, held by one for too long, new, with a deadline
// that is over, and with a job that has ended; and with three that are to be routed, one of these to a peer.
func messageRoom(w *world) []roomOp {
	l := newLetters(w)
	l.sent(l.jobs())
	jobs, _, err := w.S.Flows.ListJobs(w.Ctx, l.shop.Context, flowsOf)
	w.Must(err)
	_, err = w.S.Flows.Cancel(w.Ctx, l.shop, jobs[0].ID)
	w.Must(err)
	l.sent(l.toShop("held"))
	held := l.received(time.Hour)
	l.sent(l.toShop("held for too long"))
	l.received(time.Second)
	fresh := l.sent(l.toShop("new"))
	for _, p := range []messages.Posted{l.toShop("not acknowledged"), l.toPeer("far", "not delivered")} {
		p.Timeouts = message.Timeouts{Deliver: 5 * time.Second, Ack: 5 * time.Second}
		l.sent(p)
	}
	w.Later(time.Minute)
	jobless := l.jobs()
	jobless.Jobs = json.RawMessage(`[{"ref": 2, "script": "1", "script_type": "python"}]`)
	for _, p := range []messages.Posted{l.toShop("unrouted"), l.toPeer("far", "unrouted"), jobless} {
		l.post(p)
	}
	return append(l.postOps(fresh), l.receiverOps(held)...)
}

// postOps are what senders ask for, and what a node looks after.
func (l *letters) postOps(fresh uuid.UUID) []roomOp {
	post := func(p messages.Posted) func(s *stores.Store) error {
		return func(s *stores.Store) error {
			_, err := s.Messages.Post(l.Ctx, l.By, p)
			return err
		}
	}
	number := func(n func(s *messages.Store) (int, error)) func(s *stores.Store) error {
		return func(s *stores.Store) error {
			_, err := n(s.Messages)
			return err
		}
	}
	ref := int64(7)
	named, keyed, signed := l.toShop("with a ref"), l.toShop("with a key"), l.toPeer("far", "signed")
	named.Ref, keyed.Key, signed.Envelope = &ref, "key", []byte(`{"payload": "c2VhbGVk", "signatures": []}`)
	return []roomOp{
		{name: "post with a ref", keeps: messageIDs, run: post(named)},
		{name: "post with a key", keeps: messageIDs, run: post(keyed)},
		{name: "post to a peer", keeps: messageIDs, run: post(signed)},
		{name: "route", keeps: messageIDs, reacts: true, then: l.carry, run: func(s *stores.Store) error {
			_, err := s.Messages.Route(l.Ctx)
			return err
		}},
		{name: "expire", run: number(func(s *messages.Store) (int, error) { return s.Expire(l.Ctx) })},
		{name: "settle", keeps: messageIDs,
			run: number(func(s *messages.Store) (int, error) { return s.Settle(l.Ctx) })},
		{name: "cancel a message", run: func(s *stores.Store) error {
			_, err := s.Messages.Cancel(l.Ctx, l.By, fresh)
			return err
		}},
	}
}

// receiverOps are what a receiver says of a message that it holds.
func (l *letters) receiverOps(held *messages.Message) []roomOp {
	say := func(what func(s *messages.Store) (bool, error)) func(s *stores.Store) error {
		return func(s *stores.Store) error {
			_, err := what(s.Messages)
			return err
		}
	}
	return []roomOp{
		{name: "receive messages", run: func(s *stores.Store) error {
			_, err := s.Messages.Receive(l.Ctx, l.shop, messages.Receiving{Max: 5, Lease: time.Minute})
			return err
		}},
		{name: "acknowledge", run: say(func(s *messages.Store) (bool, error) {
			return s.Ack(l.Ctx, l.shop, held.ID, held.Fence)
		})},
		{name: "say that it is processed", run: say(func(s *messages.Store) (bool, error) {
			return s.Processed(l.Ctx, l.shop, held.ID, held.Fence)
		})},
		{name: "reject", run: say(func(s *messages.Store) (bool, error) {
			return s.Reject(l.Ctx, l.shop, held.ID, held.Fence)
		})},
		{name: "reply", keeps: messageIDs, run: say(func(s *messages.Store) (bool, error) {
			return s.Answered(l.Ctx, l.shop, held.ID, held.Fence, messages.Reply{Format: "text", Body: "hi"})
		})},
	}
}

// arrivalRoom is a stage with messages that the peer near has brought, one of them with a job, and two that it is about
// to bring.
func arrivalRoom(w *world) []roomOp {
	l := newLetters(w)
	job := `{"script": "1", "script_type": "python"}`
	open, jobs := l.arrived(l.brought("open")), l.arrived(l.brought("jobs", job))
	fresh, more := l.brought("new"), l.brought("more", job, job)
	w.Later(time.Minute)
	arrive := func(a messages.Arrival) func(s *stores.Store) error {
		return func(s *stores.Store) error {
			_, _, err := s.Messages.Arrive(w.Ctx, a)
			return err
		}
	}
	again := fresh // as a peer brings it that was restored meanwhile
	again.ID, again.Envelope = uuid.New(), open.Envelope
	return []roomOp{
		{name: "arrive", keeps: messageIDs, run: arrive(fresh)},
		{name: "arrive under another name", keeps: `SELECT peer_message::text FROM postern.message ORDER BY 1`,
			run: arrive(again)},
		{name: "arrive with jobs", keeps: messageIDs, reacts: true, then: l.carry, run: arrive(more)},
		{name: "stop", run: func(s *stores.Store) error {
			return s.Messages.Stop(w.Ctx, l.shop.Context, "near", []uuid.UUID{open.ID, fresh.ID, jobs.ID},
				[]uuid.UUID{jobs.ID})
		}},
	}
}

// peerRoom is a stage with messages at the peer far and on their way to it, one that was taken back, one that nothing
// carries yet, and one at a peer that was removed; and with a peer that has none.
func peerRoom(w *world) []roomOp {
	l := newLetters(w)
	l.peer("quiet")
	l.peer("gone")
	l.stored("gone")
	w.Exec(`UPDATE postern.peer SET removed_at = $1 WHERE name = 'gone'`, w.Now)
	back := l.stored("far")
	_, err := w.S.Messages.Cancel(w.Ctx, w.By, back)
	w.Must(err)
	there, goes := l.stored("far"), l.sent(l.toPeer("far", "on its way"))
	left := l.post(l.toPeer("far", "left")) // by a process that died behind that commit
	w.Exec(`UPDATE postern.message SET routed_at = created_at WHERE message_id = $1`, left)
	w.Later(time.Minute)
	return slices.Concat(l.deliveryOps(goes), l.followOps(there, back), l.peerOps())
}

// peerOps are what an admin does with peers.
func (l *letters) peerOps() []roomOp {
	end := func(s *stores.Store) error {
		_, err := s.Messages.EndRemoved(l.Ctx)
		return err
	}
	return []roomOp{
		{name: "put a peer", run: func(s *stores.Store) error { return l.putPeer(s, "new") }},
		{name: "rotate the secret of a peer", run: func(s *stores.Store) error {
			return s.Installations.RotateSecret(l.Ctx, l.By, "far", []byte(strings.Repeat("t", 32)), time.Hour)
		}},
		{name: "remove a peer", reacts: true, then: end, run: func(s *stores.Store) error {
			err := s.Installations.RemovePeer(l.Ctx, l.By, "quiet")
			if fault.KindOf(err) == fault.NotFound { // it was removed before
				return nil
			}
			return err
		}},
		{name: "end what a removed peer has", run: end},
	}
}

// deliveryOps are what brings messages to a peer.
func (l *letters) deliveryOps(goes uuid.UUID) []roomOp {
	data := json.RawMessage(`{"message": "` + goes.String() + `"}`)
	deliver := func(refusal *messages.Refusal) func(s *stores.Store) error {
		return func(s *stores.Store) error {
			m, err := s.Messages.Carried(l.Ctx, l.ID, data)
			if err != nil || m.Status.Ended() { // then nothing is sent any more
				return err
			}
			return s.Messages.AtPeer(l.Ctx, goes, refusal)
		}
	}
	return []roomOp{
		{name: "carry", reacts: true, run: func(s *stores.Store) error {
			_, err := s.Messages.Carry(l.Ctx)
			return err
		}},
		{name: "store at a peer", run: deliver(nil)},
		{name: "be refused by a peer", run: deliver(&messages.Refusal{Code: "forbidden", Text: "no role"})},
	}
}

// followOps are what a process does that asks a peer about messages.
func (l *letters) followOps(there, back uuid.UUID) []roomOp {
	hear := func(w messages.Word) func(s *stores.Store) error {
		if w.ID == (uuid.UUID{}) {
			w.ID = there
		}
		return func(s *stores.Store) error { return s.Messages.Hear(l.Ctx, l.far, w) }
	}
	answer := &messages.Told{ID: uuid.New(), Format: "text", Body: "yes"}
	lines := []messages.Piece{{N: 1, Stream: "stdout", Text: "a"}, {N: 2, Stream: "stderr", Text: "b"}}
	return []roomOp{
		{name: "hear of an acknowledgement", run: hear(messages.Word{Steps: 3, Status: "acknowledged"})},
		{name: "hear a result", keeps: messageIDs,
			run: hear(messages.Word{Steps: 4, Status: "processed", Result: answer})},
		{name: "hear of an end", run: hear(messages.Word{Steps: 4, Status: "processed"})},
		{name: "hear a refusal", run: hear(messages.Word{Steps: 4, Status: "error", Code: "no", Error: "no"})},
		{name: "hear output", run: hear(messages.Word{Steps: 5, Status: "acknowledged", Started: true, Lines: lines})},
		{name: "hear too late", run: hear(messages.Word{ID: back, Steps: 4, Status: "processed", Result: answer})},
		{name: "lose", reacts: true, then: l.carry, run: func(s *stores.Store) error {
			return s.Messages.Lost(l.Ctx, l.far, there)
		}},
		{name: "tell what to stop", run: func(s *stores.Store) error {
			stop, _, err := s.Messages.ToStop(l.Ctx, l.far)
			if err != nil || len(stop) == 0 {
				return err
			}
			return s.Messages.Stopped(l.Ctx, l.far, stop, 0)
		}},
		{name: "follow and let go", run: func(s *stores.Store) error {
			list, err := s.Messages.Follow(l.Ctx, "one", time.Minute)
			if err != nil {
				return err
			}
			return s.Messages.Unfollow(l.Ctx, "one", list...)
		}},
		{name: "hear of a life", run: func(s *stores.Store) error {
			p, err := s.Installations.Peer(l.Ctx, l.ID, "far")
			if err != nil {
				return err
			}
			return s.Installations.Lives(l.Ctx, p, 5)
		}},
	}
}
