package channels_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/channels"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func idsOf(list []channels.Held[pgworld.Note]) string {
	var ids []string
	for _, h := range list {
		ids = append(ids, h.ID)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// Both diagrams of the seed, arrow by arrow (S1.15).
func TestAMessageGoesEveryWayOfTheDiagrams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.Conduit(w.S, func(c *channels.ChannelSettings) { c.Capacity, c.MaxRetries = 2, 2 })
	var told []string
	c.Owner = func(b *pgx.Batch, h channels.Held[pgworld.Note]) error {
		told = append(told, fmt.Sprintf("%s %d %s", h.ID, h.Payload.N, h.Error))
		b.Queue(`INSERT INTO postern.channel_message_end (channel_id, message_id, fence, state, retries, reason, created_at, ended_at)
			VALUES (0, 'told ' || $1, 0, 'Acked', 0, '', now(), now())`, h.ID)
		return nil
	}
	retry := func(want channels.Retried) {
		t.Helper()
		got, err := c.Retry(w.Ctx, 0)
		if w.Must(err); got != want {
			t.Errorf("the retrier did %q, want %q; there are %s", got, want, w.Lies())
		}
	}
	// the sender: NotFull, Full, Exists in whatever state
	if got := pgworld.Sent(t, c, "a", "b", "d", "a"); got != "[offered offered queued exists]" {
		t.Error(got)
	}
	retry(channels.RetriedFull)
	if got := pgworld.Sent(t, c, "d", "b", "a"); got != "[exists exists exists]" || w.Lies() != "a Offered 0, b Offered 0, d Queued 0" {
		t.Error(got, w.Lies())
	}
	// the receiver: the oldest first; Ok, Err
	w.Later(time.Second)
	a := pgworld.Received(t, c, pg.Node{}, 1)[0]
	if a.ID != "a" || a.Payload.N != 0 || w.Lies() != "a Active 0, b Offered 0, d Queued 0" || pgworld.Sent(t, c, "a") != "[exists]" {
		t.Errorf("%+v %s", a, w.Lies())
	}
	retry(channels.RetriedOffered)
	b := pgworld.Received(t, c, pg.Node{}, 1)[0]
	if b.ID != "b" {
		t.Errorf("%s before b, which was offered earlier", b.ID)
	}
	ack := func(id string, fence int64) error {
		_, err := c.Ack(w.Ctx, id, fence)
		return err
	}
	for _, first := range []bool{true, false} { // the answer of the first was lost
		changed, err := c.Ack(w.Ctx, "a", a.Fence)
		if w.Must(err); changed != first {
			t.Errorf("changed: %v, want %v", changed, first)
		}
	}
	for what, err := range map[string]error{
		"what has ended":             c.Nack(w.Ctx, "a", a.Fence, "late"),
		"another fence":              ack("b", 7),
		"a message without a holder": ack("d", 0),
		"what was never there":       ack("x", 1),
	} {
		if fault.CodeOf(err) != "stale_fence" || fault.KindOf(err) != fault.Conflict {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.Must(c.Nack(w.Ctx, "b", b.Fence, "no luck"))
	if w.Lies() != "b Queued 1, d Offered 0" {
		t.Error(w.Lies())
	}
	// the retrier: RetriesRemaining, MaxRetriesReached, NoMessage
	retry(channels.RetriedOffered)
	for _, h := range pgworld.Received(t, c, pg.Node{}, 9) {
		if h.ID == "b" {
			if h.Retries != 1 || h.Error != "no luck" || h.Fence <= b.Fence {
				t.Errorf("%+v", h)
			}
			w.Must(c.Nack(w.Ctx, "b", h.Fence, "still none"))
		}
	}
	retry(channels.RetriedDropped)
	retry(channels.RetriedNone)
	var reason, payload string
	w.Scan(`SELECT reason || payload::text FROM postern.channel_message_end WHERE message_id = 'b' AND state = 'Dropped'`, &reason)
	w.Scan(`SELECT count(*)::text FROM postern.channel_message_end WHERE message_id = 'told b'`, &payload)
	if reason != `max retries reached (2): still none{"n": 1}` || payload != "1" || fmt.Sprint(told) != "[b 1 still none]" {
		t.Error(reason, payload, told)
	}
	// the sweeper: NotStale, Stale; a life after an end has other fences
	if n, err := c.Sweep(w.Ctx); n != 0 || err != nil {
		t.Error(n, err)
	}
	w.Later(5*time.Minute + time.Second)
	if n, err := c.Sweep(w.Ctx); n != 1 || err != nil || w.Lies() != "d Queued 0" {
		t.Error(n, err, w.Lies())
	}
	if err := ack("d", 1); fault.CodeOf(err) != "stale_fence" {
		t.Errorf("a receiver that woke up late: %v", err)
	}
	pgworld.Sent(t, c, "a")
	if h := pgworld.Received(t, c, pg.Node{}, 1)[0]; h.ID != "a" || h.Fence <= a.Fence {
		t.Errorf("the next life of a: %+v", h)
	}
}

func TestWhatADeadNodeHeldIsTakenBackAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.Conduit(w.S, nil)
	pgworld.Sent(t, c, "a", "b")
	n1, n2 := w.Node("n1"), w.Node("n2")
	pgworld.Received(t, c, n1, 1)
	pgworld.Received(t, c, n2, 1)
	w.Later(11 * time.Second)
	_, err := w.S.Beat(w.Ctx, n2, pg.NodeLoad{})
	w.Must(err)
	_, err = w.S.Bury(w.Ctx)
	w.Must(err)
	if n, err := c.Sweep(w.Ctx); n != 1 || err != nil || strings.Count(w.Lies(), "Queued 0") != 1 {
		t.Error(n, err, w.Lies())
	}
}

func TestAPayloadThatCannotBeReadIsDroppedAndStopsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.Conduit(w.S, func(c *channels.ChannelSettings) { c.MaxRetries = 1 })
	raw, err := channels.OpenConduit[json.RawMessage](w.Ctx, w.S.Channels, w.ID, "c")
	w.Must(err)
	_, err = raw.Send(w.Ctx, channels.Outgoing[json.RawMessage]{ID: "bad", Payload: json.RawMessage(`{"n": "x"}`)})
	w.Must(err)
	pgworld.Sent(t, c, "good")
	if got := idsOf(pgworld.Received(t, c, pg.Node{}, 9)); got != "good" || w.Lies() != "bad Queued 1, good Active 0" {
		t.Error(got, w.Lies())
	}
	if did, err := c.Retry(w.Ctx, 0); did != channels.RetriedDropped || err != nil {
		t.Error(did, err)
	}
	if _, err := raw.Send(w.Ctx, channels.Outgoing[json.RawMessage]{ID: "", Payload: json.RawMessage(`{}`)}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a message without id: %v", err)
	}
}

// The retrier meets each message, wherever it starts. Each queueing draws another place for a message.
func TestTheRetrierMeetsEveryMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.Conduit(w.S, func(c *channels.ChannelSettings) { c.Capacity = 1 })
	for i := range 20 {
		pgworld.Sent(t, c, fmt.Sprintf("m%02d", i))
	}
	met := map[string]bool{}
	for i := range 400 {
		for _, h := range pgworld.Received(t, c, pg.Node{}, 1) {
			met[h.ID] = true
			_, err := c.Ack(w.Ctx, h.ID, h.Fence)
			w.Must(err)
		}
		did, err := c.Retry(w.Ctx, int64(i%3-1)<<62)
		if w.Must(err); did == channels.RetriedNone {
			break
		}
	}
	for _, h := range pgworld.Received(t, c, pg.Node{}, 1) {
		met[h.ID] = true
	}
	if len(met) != 20 {
		t.Errorf("met %d of 20; there are %s", len(met), w.Lies())
	}
}

func TestTheSettingsOfAChannelAreChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for field, change := range map[string]func(*channels.ChannelSettings){
		"/capacity":       func(c *channels.ChannelSettings) { c.Capacity = 0 },
		"/max_retries":    func(c *channels.ChannelSettings) { c.MaxRetries = 0 },
		"/retry_interval": func(c *channels.ChannelSettings) { c.RetryEvery = 0 },
		"/stale_after":    func(c *channels.ChannelSettings) { c.StaleAfter = -1 },
		"/sweep_interval": func(c *channels.ChannelSettings) { c.SweepEvery = 366 * 24 * time.Hour },
	} {
		c := channels.DefaultChannel()
		c.Name = "c"
		change(&c)
		if _, err := w.S.Channels.PutChannel(w.Ctx, w.By, c, 0); fault.KindOf(err) != fault.Invalid || fault.As(err).Fields[0].Pointer != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	c := w.Conduit(w.S, nil)
	pgworld.Sent(t, c, "a")
	if err := w.S.Channels.RemoveChannel(w.Ctx, w.By, "c"); fault.CodeOf(err) != "in_use" {
		t.Errorf("removed with a message in it: %v", err)
	}
	v, err := w.S.Channels.Channel(w.Ctx, w.ID, "c")
	if w.Must(err); v.Offered != 1 || v.Capacity != 100 || v.RetryEvery != 5*time.Second || v.Version != 1 {
		t.Errorf("%+v", v)
	}
	_, err = c.Ack(w.Ctx, "a", pgworld.Received(t, c, pg.Node{}, 1)[0].Fence)
	w.Must(err)
	w.Must(w.S.Channels.RemoveChannel(w.Ctx, w.By, "c"))
	if _, err := c.Send(w.Ctx, channels.Outgoing[pgworld.Note]{ID: "b"}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("sent to nowhere: %v", err)
	}
	if _, err := w.S.Channels.Channel(w.Ctx, w.ID, "c"); fault.KindOf(err) != fault.NotFound {
		t.Error(err)
	}
}

// In each pair the first is held before its commit, the second runs in another session; waits says whether it has to
// wait for that commit. The answer of the second and the messages afterwards are the same as if it had begun after the
// first.
func TestTwoSessionsOnOneChannel(t *testing.T) {
	t.Parallel()
	type op = func(c *channels.Conduit[pgworld.Note], fence *int64) string // of the last that was received
	send := func(ids ...string) op {
		return func(c *channels.Conduit[pgworld.Note], _ *int64) string { return pgworld.Sent(t, c, ids...) }
	}
	receive := func(c *channels.Conduit[pgworld.Note], fence *int64) string {
		list, err := c.Receive(t.Context(), pg.Node{}, 1)
		for _, h := range list {
			*fence = h.Fence
		}
		return fmt.Sprint(idsOf(list), err)
	}
	said := func(err error) string {
		if err != nil {
			return fault.CodeOf(err)
		}
		return "ok"
	}
	ack := func(c *channels.Conduit[pgworld.Note], fence *int64) string {
		_, err := c.Ack(t.Context(), "a", *fence)
		return said(err)
	}
	nack := func(c *channels.Conduit[pgworld.Note], fence *int64) string {
		return said(c.Nack(t.Context(), "a", *fence, "no"))
	}
	retry := func(c *channels.Conduit[pgworld.Note], _ *int64) string {
		did, err := c.Retry(t.Context(), 0)
		return fmt.Sprint(did, err)
	}
	sweep := func(c *channels.Conduit[pgworld.Note], _ *int64) string {
		n, err := c.Sweep(t.Context())
		return fmt.Sprint(n, err)
	}
	for _, p := range []struct {
		name          string
		capacity      int
		set           []op // before
		later         time.Duration
		first, second op
		waits         bool
		said, lies    string
	}{
		{"two send the same", 9, nil, 0, send("a"), send("a"), true, "[exists]", "a Offered 0"},
		{"two send for one place", 1, nil, 0, send("a"), send("b"), true, "[queued]", "a Offered 0, b Queued 0"},
		{"two receive", 9, []op{send("a", "b")}, 0, receive, receive, false, "b<nil>", "a Active 0, b Active 0"},
		{"send into what is being received", 1, []op{send("a")}, 0, receive, send("b"), false, "[queued]", "a Active 0, b Queued 0"},
		{"two retry", 9, []op{send("a"), receive, nack}, 0, retry, retry, true, "no message<nil>", "a Offered 1"},
		{"retry and send for one place", 1, []op{send("a"), receive, nack}, 0, retry, send("b"), true, "[queued]", "a Offered 1, b Queued 0"},
		{"send and retry for one place", 1, []op{send("a"), receive, nack}, 0, send("b"), retry, true, "full<nil>", "a Queued 1, b Offered 0"},
		{"two ack", 9, []op{send("a"), receive}, 0, ack, ack, true, "ok", ""},
		{"nack what is being acked", 9, []op{send("a"), receive}, 0, ack, nack, true, "stale_fence", ""},
		{"send what is being acked", 9, []op{send("a"), receive}, 0, ack, send("a"), false, "[exists]", ""},
		{"sweep what is being acked", 9, []op{send("a"), receive}, time.Hour, ack, sweep, false, "0 <nil>", ""},
		{"ack what is being swept", 9, []op{send("a"), receive}, time.Hour, sweep, ack, true, "stale_fence", "a Queued 0"},
		{"two sweep", 9, []op{send("a"), receive}, time.Hour, sweep, sweep, false, "0 <nil>", "a Queued 0"},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.Conduit(w.S, func(c *channels.ChannelSettings) { c.Capacity = p.capacity })
			var fence int64
			for _, set := range p.set {
				set(c, &fence)
			}
			theirs := fence
			w.Later(p.later)
			other := w.Opened(w.Another(2))
			got, waited := w.Beside(func() error { p.first(c, &fence); return nil },
				func() string { return p.second(other, &theirs) })
			if got != p.said || waited != p.waits || w.Lies() != p.lies {
				t.Errorf("said %q, waited %v, lies %q; want %q, %v, %q", got, waited, w.Lies(), p.said, p.waits, p.lies)
			}
		})
	}
}

func TestMessagesAreFoundByTheirKeys(t *testing.T) {
	t.Parallel()
	newWorld(t).ByKeys(channels.MessagesByKey)
}

// An id that was sent again after its end has several ends. Pages have each of them once, also where one ends between
// two.
func TestPagesOfEndsHaveEachOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.Conduit(w.S, nil)
	var want, got []int64
	for range 3 {
		pgworld.Sent(t, c, "a")
		fence := pgworld.Received(t, c, pg.Node{}, 1)[0].Fence
		_, err := c.Ack(w.Ctx, "a", fence)
		w.Must(err)
		want = append(want, fence)
	}
	after := channels.ChannelMessageAfter{}
	for {
		page, err := w.S.Channels.ChannelMessages(w.Ctx, w.ID, "c", "Acked", after, 1)
		w.Must(err)
		if len(page) == 0 {
			break
		}
		after = channels.ChannelMessageAfter{ID: page[0].ID, Fence: page[0].Fence}
		got = append(got, page[0].Fence)
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages have the fences %d, want %d", got, want)
	}
}
