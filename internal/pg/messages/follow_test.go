package messages_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pg/peers"
)

// far is a peer of default that is called.
func (w *world) far() messages.Following {
	w.T.Helper()
	_, err := w.S.Installations.PutPeer(w.Ctx, w.By, peers.Settings{
		Name: "far", Secret: []byte(strings.Repeat("s", 32)), URL: "https://far.example/contexts/c/peers/near",
	}, 0)
	w.Must(err)
	return messages.Following{Context: w.ID, Peer: "far"}
}

// toFar posts a message to the peer far and lets it go, and notes that it is stored there.
func (w *world) toFar(body string) uuid.UUID {
	w.T.Helper()
	id := w.post(w.chat(body, func(p *messages.Posted) {
		p.Target, p.To = 0, message.To{Peer: "far", Context: "c"}
	}))[0]
	w.route()
	w.Must(w.S.Messages.AtPeer(w.Ctx, id, nil))
	return id
}

// Of two processes that look at one time, one follows a peer, and the other one follows it once the time of the first
// is over, or once that lets go.
func TestOneProcessAtATimeFollowsAPeer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.S.Messages
	f := w.far()
	follows := func(holder string, want int) {
		t.Helper()
		list, err := s.Follow(w.Ctx, holder, time.Minute)
		if err != nil || len(list) != want || want == 1 && list[0] != f {
			t.Errorf("%s follows %v %v, want %d", holder, list, err, want)
		}
	}
	follows("one", 0) // nothing is open there
	w.toFar("hello")
	hold := w.Begin(w.S.Pool())
	_, err := hold.Exec(w.Ctx, `SELECT FROM postern.peer FOR UPDATE`)
	w.Must(err)
	follows("one", 0) // another session has the row, and is not waited for
	w.Must(hold.Rollback(w.Ctx))
	follows("one", 1)
	follows("two", 0)
	follows("one", 1) // it has it still
	w.At(w.Now.Add(2 * time.Minute))
	follows("two", 1)
	follows("one", 0)
	w.Must(s.Unfollow(w.Ctx, "two"))
	follows("one", 1)
}

// A word comes twice, late, and from a process whose time is over: it changes a message once, and behind the end it is
// kept as late.
func TestAWordOfAPeerChangesAMessageOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.S.Messages
	f := w.far()
	id := w.toFar("hello")
	hears := func(word messages.Word, status message.Status, steps int) {
		t.Helper()
		word.ID = id
		w.Must(s.Hear(w.Ctx, f, word))
		w.Must(s.Hear(w.Ctx, f, word))
		if m, err := s.Get(w.Ctx, w.ID, id); err != nil || m.Status != status || m.Steps != steps {
			t.Errorf("after %+v it is %+v %v, want %s and %d steps", word, m, err, status, steps)
		}
	}
	hears(messages.Word{Steps: 3, Status: "dispatched"}, message.Dispatched, 3)
	hears(messages.Word{Steps: 4, Status: "acknowledged"}, message.Acknowledged, 4)
	told := &messages.Told{ID: uuid.New(), Format: "text", Body: "yes"}
	hears(messages.Word{Steps: 5, Status: "processed", Result: told}, message.Processed, 5)
	hears(messages.Word{Steps: 6, Status: "error", Code: "rejected", Error: "no"}, message.Processed, 5)
	if r, err := s.ResultOf(w.Ctx, id); err != nil || r == nil || r.Body != "yes" {
		t.Error(r, err)
	}
	if _, late, err := s.History(w.Ctx, w.ID, id); err != nil || len(late) != 1 || late[0].By != "peer:far" {
		t.Error(late, err)
	}
}

// A message that was ended before its store went back in time ends again, and says so: its peer remembers that end.
func TestAnEndThatARestoreHasForgottenIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.far()
	id := w.toFar("hello")
	w.Must(w.S.Messages.Hear(w.Ctx, f, messages.Word{ID: id, Steps: 3, Status: "error", Code: message.CodeCancelled,
		Error: "it has ended where it comes from"}))
	m, err := w.S.Messages.Get(w.Ctx, w.ID, id)
	if err != nil || m.Code != message.CodeCancelled || !strings.Contains(m.Error, "restored from a backup") {
		t.Errorf("%+v %v", m, err)
	}
}

// A message that its peer has lost is delivered again, three times, and then it ends with the name of that.
func TestAMessageThatAPeerLosesIsDeliveredAgainThreeTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.S.Messages
	f := w.far()
	id := w.toFar("hello")
	carried := func() (n int) {
		t.Helper()
		w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*) FROM postern.task WHERE type = 'peer.far'`).Scan(&n))
		return n
	}
	for again := range 3 {
		w.Must(s.Lost(w.Ctx, f, id))
		w.Must(s.Lost(w.Ctx, f, id)) // it is on its way already
		if open, err := s.OpenAt(w.Ctx, f, uuid.UUID{}); err != nil || len(open) != 0 {
			t.Error("what is on its way is asked about", open, err)
		}
		if n := carried(); n != again+2 {
			t.Errorf("%d transactions have carried it, want %d", n, again+2)
		}
		w.Must(s.AtPeer(w.Ctx, id, nil))
		if open, err := s.OpenAt(w.Ctx, f, uuid.UUID{}); err != nil || len(open) != 1 || open[0].Steps != 0 {
			t.Error(open, err)
		}
	}
	w.Must(s.Lost(w.Ctx, f, id))
	if m, err := s.Get(w.Ctx, w.ID, id); err != nil || m.Code != messages.CodeLost || carried() != 4 {
		t.Error(m, err)
	}
}

// carried lists the messages that transactions carry to the peer far, in the order in which they go there.
func (w *world) carried() (list []uuid.UUID) {
	w.T.Helper()
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT array_agg((data ->> 'message')::uuid ORDER BY queue_id, seq)
		FROM postern.task
		WHERE type = 'peer.far'`).Scan(&list))
	return list
}

// leave lets messages to the peer far go, as a process does that dies behind that commit.
func (w *world) leave(bodies ...string) (ids []uuid.UUID) {
	w.T.Helper()
	for _, body := range bodies {
		ids = append(ids, w.post(w.chat(body, func(p *messages.Posted) {
			p.Target, p.To = 0, message.To{Peer: "far", Context: "c"}
		}))...)
	}
	_, err := w.S.Pool().Exec(w.Ctx, `UPDATE postern.message SET routed_at = created_at WHERE message_id = ANY ($1)`,
		ids)
	w.Must(err)
	return ids
}

// What a process let go before it died stays in front of what another one lets go.
func TestAMessageOfADeadProcessKeepsItsPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.far()
	ids := append(w.leave("1"), w.toFar("2"))
	if got := w.carried(); !slices.Equal(got, ids) {
		t.Errorf("%v go to the peer, want %v", got, ids)
	}
}

// Of two processes that post transactions for the same messages, the second waits, and finds those of the first.
func TestTwoProcessesCarryAMessageOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.far()
	ids := w.leave("1", "2")
	other := w.Another(4)
	w.Must(other.Refresh(w.Ctx))
	second, waited := w.Beside(func() error { _, err := w.S.Messages.Carry(w.Ctx); return err }, func() string {
		n, err := other.Messages.Carry(w.Ctx)
		return fmt.Sprint(n, " ", said(err))
	})
	if got := w.carried(); !slices.Equal(got, ids) || second != "2 ok" || !waited {
		t.Errorf("%v go to the peer, want %v; the second posts %q, and waited: %v", got, ids, second, waited)
	}
}

// Where the core cannot take a message now, those of its queue stay behind it, and others go.
func TestAMessageThatMustWaitHoldsThoseBehindIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.far()
	_, err := w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "default", MaxDepth: 2}}, 0)
	w.Must(err)
	ids := w.leave("1", "2", "3", "4")
	for range 2 {
		if n, err := w.S.Messages.Carry(w.Ctx); err != nil || !slices.Equal(w.carried(), ids[:2]) {
			t.Fatalf("%d are posted, and %v go to the peer, want %v: %v", n, w.carried(), ids[:2], err)
		}
	}
}

// What ended before its delivery was noted is told to stop, too, once it was let go, though no transaction is noted
// that carries it: the peer may have it.
func TestWhatMayBeAtThePeerIsStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.far()
	toFar := func(p *messages.Posted) { p.Target, p.To = 0, message.To{Peer: "far", Context: "c"} }
	kept := w.post(w.chat("cancelled before it was let go", toFar))[0]
	_, err := w.S.Messages.Cancel(w.Ctx, w.By, kept)
	w.Must(err)
	id := w.post(w.chat("hello", toFar))[0]
	w.route()
	w.Exec(`UPDATE postern.message SET peer_tx = NULL`) // its process died before that
	for _, cancelled := range []bool{false, true} {
		if cancelled {
			_, err := w.S.Messages.Cancel(w.Ctx, w.By, id)
			w.Must(err)
		}
		stop, _, err := w.S.Messages.ToStop(w.Ctx, f)
		w.Must(err)
		if want := map[bool]int{true: 1}[cancelled]; len(stop) != want || want == 1 && stop[0] != id {
			t.Errorf("cancelled %v: to be stopped are %v", cancelled, stop)
		}
	}
}

// A process that was frozen since it read a message notes nothing of one that its peer has lost meanwhile: what it
// finds has ended, and what carries the message anew stays noted, or is still to be posted.
func TestAFrozenProcessDoesNotKeepALostMessageFromItsPeer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.far()
	other := w.Another(4)
	w.Must(other.Refresh(w.Ctx))
	wakes := func(id uuid.UUID) { // and does what it was about to when it was frozen
		t.Helper()
		_, err := other.Messages.CarryRead(w.Ctx, w.ID, id, "far", w.By.Actor)
		w.Must(err)
	}
	tx := func() string { return strings.Join(w.Lines(`SELECT coalesce(peer_tx, '') FROM postern.message`), " ") }
	id := w.toFar("hello")
	first := tx()
	wakes(id)
	w.Same([]string{tx()}, first)
	w.Must(w.S.Messages.Lost(w.Ctx, f, id))
	second := tx()
	wakes(id)
	w.Same([]string{tx()}, second)
	w.Exec(`UPDATE postern.message SET peer_tx = NULL`) // as Lost leaves it, before its transaction is posted
	wakes(id)
	_, err := w.S.Messages.Carry(w.Ctx)
	w.Must(err)
	w.Same([]string{tx()}, second)
	if first == second || len(w.carried()) != 2 {
		t.Errorf("%q and %q carry it", first, second)
	}
}

// A peer keeps its URL while it has messages that have not ended: without one it is asked about none. Where one was
// posted at that moment all the same, its why names the URL that is missing.
func TestAPeerWithOpenMessagesKeepsItsURL(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.far()
	id := w.toFar("hello")
	silent := func() error {
		_, err := w.S.Installations.PutPeer(w.Ctx, w.By, peers.Settings{Name: "far"}, 0)
		return err
	}
	err := silent()
	if said(err) != "in_use" || !strings.Contains(err.Error(), "1 messages") {
		t.Error(err)
	}
	w.Same(w.Lines(`SELECT url FROM postern.peer`), "https://far.example/contexts/c/peers/near")
	away := w.leave("on its way")[0]
	w.Exec(`UPDATE postern.peer SET url = ''`)
	for _, one := range []uuid.UUID{id, away} {
		y := w.why(w.ID, one)
		w.blocks(y, "peer_refused", "far has no url")
		if !strings.Contains(y.Summary, "has no url") {
			t.Error(y.Summary)
		}
	}
	for _, one := range []uuid.UUID{id, away} {
		_, err = w.S.Messages.Cancel(w.Ctx, w.By, one)
		w.Must(err)
	}
	w.Same([]string{said(silent())}, "ok")
}

// A peer that is changed while it is being removed stays as it was, and what it has stays open: messages still go to
// it.
func TestAPeerThatIsChangedWhileItIsRemovedStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.far()
	at := w.leave("at the peer")[0]
	w.Must(w.S.Messages.AtPeer(w.Ctx, at, nil))
	peer, err := w.S.Installations.Peer(w.Ctx, w.ID, "far")
	w.Must(err)
	other := w.Another(4)
	w.Must(other.Refresh(w.Ctx))
	by := w.By
	by.Match = func(tag string) bool { return tag == strconv.FormatInt(peer.Version, 10) }
	second, waited := w.Beside(func() error {
		return w.S.Installations.RotateSecret(w.Ctx, w.By, "far", []byte("another secret, of 32 bytes and more"), 0)
	}, func() string { return said(other.Installations.RemovePeer(w.Ctx, by, "far")) })
	if second != "precondition_failed" || !waited {
		t.Errorf("a removal beside a change says %s, and waited: %v", second, waited)
	}
	if got := w.stands(at); got != "dispatched" {
		t.Errorf("then what it had is %s", got)
	}
	id := w.post(w.chat("hello", func(p *messages.Posted) {
		p.Target, p.To = 0, message.To{Peer: "far", Context: "c"}
	}))[0]
	w.route()
	if got := w.stands(id); got != "dispatched" {
		t.Errorf("then a message to it is %s", got)
	}
	tx := w.Lines(`SELECT coalesce(peer_tx, 'none') FROM postern.message WHERE message_id = $1`, id)
	if tx[0] == "none" {
		t.Error("it is carried by nothing")
	}
}

// What a peer has when it is removed ends with the name of that, also where the process dies behind the commit that
// removes it, and where another one lets a message go to it meanwhile.
func TestWhatARemovedPeerHasEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.far()
	ids := w.leave("at the peer", "at the peer, and lost there")
	for _, id := range ids {
		w.Must(w.S.Messages.AtPeer(w.Ctx, id, nil))
	}
	w.Exec(`UPDATE postern.message SET peer_tx = 'one that has ended'`)
	w.Exec(`UPDATE postern.message SET redelivering = true, peer_tx = NULL WHERE message_id = $1`, ids[1])
	ids = append(ids, w.post(w.chat("to be routed", func(p *messages.Posted) {
		p.Target, p.To = 0, message.To{Peer: "far", Context: "c"}
	}))[0])
	w.S.Installations.Removed = func(context.Context) error { return context.Canceled } // as a process that dies
	w.Must(w.S.Installations.RemovePeer(w.Ctx, w.By, "far"))
	other := w.Another(4)
	other.Messages.Open = true
	w.Must(other.Refresh(w.Ctx))
	_, err := other.Messages.Route(w.Ctx)
	w.Must(err)
	_, err = other.Messages.EndRemoved(w.Ctx)
	w.Must(err)
	for _, id := range ids {
		if got := w.stands(id); got != "error peer_removed" {
			t.Errorf("it is %s", got)
		}
	}
	if n, err := other.Messages.EndRemoved(w.Ctx); n != 0 || err != nil {
		t.Error(n, err)
	}
	w.far()
	if got := w.stands(w.toFar("hello")); got != "dispatched" {
		t.Errorf("a message to one that is made anew is %s", got)
	}
}

// A holder that lets go of a peer lets another one have it, and leaves it to that; one that has taken it since keeps
// it.
func TestAPeerThatIsLetGoIsAnothers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.S.Messages
	f := w.far()
	w.toFar("hello")
	follows := func(holder string, want int, leave ...messages.Following) {
		t.Helper()
		if list, err := s.Follow(w.Ctx, holder, time.Minute, leave...); err != nil || len(list) != want {
			t.Errorf("%s follows %v %v, want %d", holder, list, err, want)
		}
	}
	follows("one", 1)
	w.Must(s.Unfollow(w.Ctx, "one", messages.Following{Context: f.Context, Peer: "other"}))
	follows("two", 0)
	w.Must(s.Unfollow(w.Ctx, "one", f))
	follows("one", 0, f)
	follows("two", 1)
	w.Must(s.Unfollow(w.Ctx, "one", f))
	follows("one", 0)
}

// Where a message is not known any more to the peer that had it, and is refused when it is delivered again, its end
// names that it may have been done, and not what a first delivery is told. So does that of one whose first delivery
// came to nothing that is known. Its history tells that it was delivered again.
func TestARefusalOfAMessageThatMayBeDoneSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.S.Messages
	f := w.far()
	old := messages.Refusal{Code: "invalid", Text: "created_at is too long ago"}
	unclear := old
	unclear.Unclear = true
	forbidden := messages.Refusal{Code: "forbidden", Text: "no role", Unclear: true}
	ends := func(id uuid.UUID, r messages.Refusal, code string, texts ...string) {
		t.Helper()
		w.Must(s.AtPeer(w.Ctx, id, &r))
		m, err := s.Get(w.Ctx, w.ID, id)
		if w.Must(err); m.Code != code {
			t.Errorf("it ends with %s: %s, want %s", m.Code, m.Error, code)
		}
		for _, text := range texts {
			if !strings.Contains(m.Error, text) {
				t.Errorf("%q does not say %q", m.Error, text)
			}
		}
	}
	id := w.toFar("hello")
	w.Must(s.Hear(w.Ctx, f, messages.Word{ID: id, Steps: 3, Status: "acknowledged"}))
	w.Must(s.Lost(w.Ctx, f, id))
	steps, _, err := s.History(w.Ctx, w.ID, id)
	if last := steps[len(steps)-1]; err != nil || !strings.Contains(last.Text, "delivered again (1 of 3)") ||
		last.Status != "acknowledged" {
		t.Errorf("%+v %v", last, err)
	}
	ends(id, old, messages.CodeLost, "it was delivered at 20", "invalid: created_at", "may have been done",
		"before you send it anew")
	for _, x := range []struct {
		age  time.Duration
		r    messages.Refusal
		code string
	}{{0, old, "invalid"}, {0, unclear, "invalid"}, {25 * time.Hour, unclear, messages.CodeLost},
		{25 * time.Hour, old, "invalid"}, {25 * time.Hour, forbidden, "forbidden"}} {
		id := w.leave("hello")[0]
		w.Exec("UPDATE postern.message SET created_at = created_at - $2::interval WHERE message_id = $1", id, x.age)
		ends(id, x.r, x.code)
	}
}

// A peer that has refused a check counts as one that refuses while something waits for it: where nothing does, no call
// would find the refusal over.
func TestAPeerRefusesWhileSomethingWaitsForIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.far()
	w.Must(w.S.Refresh(w.Ctx))
	p, err := w.S.Installations.Peer(w.Ctx, f.Context, f.Peer)
	w.Must(err)
	w.Must(w.S.Installations.Met(w.Ctx, p, "", "peer_unauthenticated", "another secret"))
	w.Later(time.Minute)
	refuses := func(want bool) {
		t.Helper()
		v, err := w.S.Installations.TakeSample(w.Ctx)
		if w.Must(err); (v.Refused >= 60) != want || (v.States["refuses"] == 1) != want || !want && v.Refused != 0 {
			t.Errorf("%+v, want that it refuses: %v", v, want)
		}
	}
	refuses(false)
	id := w.leave("hello")[0]
	refuses(true)
	_, err = w.S.Messages.Cancel(w.Ctx, w.By, id)
	w.Must(err)
	refuses(true) // it is to be told
	w.Must(w.S.Messages.Stopped(w.Ctx, f, []uuid.UUID{id}, 0))
	refuses(false)
}
