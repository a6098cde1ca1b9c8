package work

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pg/peers"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/sequencer"
	"github.com/postern-dev/postern/internal/twin"
)

// How a node follows what peers have: it looks each second for peers at which something is open, has each for its TTL
// from then on, as it has queues, and asks with a long poll.
const (
	followEvery = time.Second
	followLong  = 50 * time.Second // after which the next look begins anew
	followWait  = 10 * time.Second
	followPage  = time.Second           // where more is open than one question names
	followRest  = 50 * time.Millisecond // between two questions to a peer that has said something
	followRetry = 5 * time.Second       // after one whose answer could not be taken
	followLeave = 10 * time.Second      // how long a peer that could not be asked is left to other processes
)

// PeersConfig is how peers are called.
type PeersConfig struct {
	Call func(context.Context, remote.PeerCall) remote.PeerAnswer // nil: this process calls none
}

// Peers brings messages to peers, and asks what becomes of them there.
type Peers struct {
	*Node
	PeersConfig
	holder string // names this process among those that follow

	mu   sync.Mutex
	left map[messages.Following]time.Time // until when this process follows a peer in no case: it could not ask it
}

// NewPeers makes what looks after peers in the process of an engine.
func NewPeers(e *Engine, c PeersConfig) *Peers {
	return &Peers{Node: e.Node, PeersConfig: c, holder: rand.Text(), left: map[messages.Following]time.Time{}}
}

// System is what the engine runs of it.
func (p *Peers) System() System {
	return System{
		Name:    "peers",
		Loops:   []Loop{p.loop()},
		Round:   p.round,
		Workers: map[string]Call{outbox.PeerURL: p.deliver},
	}
}

// deliver is the dispatch of a transaction that carries a message. The peer knows messages by their ids, so that the
// same call may be made again; what it has stored, and what it refuses for good, is noted before the transaction ends.
func (p *Peers) deliver(ctx context.Context, l *pg.Lease, call remote.Call) (a outbox.Answer) {
	began := time.Now()
	defer func() { a.StartedAt, a.Elapsed = began, time.Since(began) }()
	contextID := l.Dispatcher.ContextID
	store := p.Store.Messages
	m, err := store.Carried(ctx, contextID, l.Task.Data)
	switch {
	case err != nil:
		return unclearAt(err)
	case m == nil || m.Status.Ended():
		a.Result.Done = json.RawMessage(`{"ended": true}`)
		return a
	}
	peer, err := p.Store.Installations.Peer(ctx, contextID, m.Peer)
	if err != nil {
		return unclearAt(err)
	}
	brings := map[string]any{"message": m.ID, "envelope": json.RawMessage(m.Envelope)}
	if m.Carries {
		inputs, err := p.Store.Flows.InputsAway(ctx, m.ID)
		if err != nil {
			return unclearAt(err)
		}
		if len(inputs) > 0 {
			brings["inputs"] = json.RawMessage(inputs)
		}
	}
	answers, err := store.AnswersAt(ctx, m)
	if err != nil {
		return unclearAt(err)
	}
	if answers != nil {
		brings["reply_to"] = answers
	}
	body, err := remote.Plain(brings)
	if err != nil {
		return unclearAt(err)
	}
	got := p.ask(ctx, peer, remote.PeerCall{
		Verb: remote.PeerMessages, Key: call.Token(), Body: body, Timeout: call.Timeout,
	})
	a = brought(got.Answer, time.Now())
	switch a.Class {
	case "":
		err = store.AtPeer(ctx, m.ID, nil)
		a.Result.Done = json.RawMessage(`{"stored": true}`)
	case outbox.ClassRejected:
		err = store.AtPeer(ctx, m.ID, &messages.Refusal{Code: a.Code, Text: a.Message,
			Unclear: l.Flight(0).Unclear.Code != ""})
	}
	if err != nil {
		return unclearAt(err)
	}
	return a
}

// brought is an answer of a peer as the core takes it. A transaction that carries a message ends when the peer has it,
// or has refused it for good: the core gives up what it cannot read, and what a retry does not help, and then nothing
// would bring the message any more.
func brought(a outbox.Answer, now time.Time) outbox.Answer {
	if a.Class == outbox.ClassAmbiguous && twin.Planted("unclear_is_refusal") {
		a.Class = outbox.ClassRejected
	}
	switch {
	case a.Class == outbox.ClassRetry:
		a.Class, a.Scope, a.Until, a.After = outbox.ClassBlocked, outbox.ScopeQueue, now.Add(a.After), 0
	case a.Class == outbox.ClassAmbiguous && sequencer.Mute(a):
		a.Code, a.Message = "peer_unclear", "what came back is no answer of a peer ("+a.Code+"): "+a.Message
	}
	return a
}

// unclearAt is the answer where this installation itself is in trouble: the call is made again.
func unclearAt(err error) outbox.Answer {
	f := fault.As(err)
	if f.Kind == fault.NotFound {
		return outbox.Answer{Class: outbox.ClassBlocked, Scope: outbox.ScopeWorker, Code: "no_peer", Message: f.Detail}
	}
	return outbox.Answer{Class: outbox.ClassAmbiguous, Code: f.Code, Message: f.Detail}
}

// ask calls a peer, and notes whether it takes calls.
func (p *Peers) ask(ctx context.Context, peer *peers.Peer, call remote.PeerCall) (got remote.PeerAnswer) {
	if p.Call == nil {
		got.Class, got.Code, got.Message = outbox.ClassBlocked, "no_peers", "this process calls no peers"
		return got
	}
	call.URL, call.Installation, call.Secrets = peer.URL, peer.Installation, peer.Secrets()
	got = p.Call(ctx, call)
	if ctx.Err() != nil && got.Class != "" { // it is we who broke off
		return got
	}
	code, message := got.Code, got.Message
	switch {
	case got.Class == outbox.ClassBlocked:
	case got.Installation == "" && call.Verb == remote.PeerFollow && peer.RefusedCode == "":
		// it hears and does not answer: why of what is open there names that
	case got.Installation == "": // no peer has answered: its last refusal stays
		return got
	default: // it has taken the call, whatever it made of it
		code, message = "", ""
	}
	if err := p.Store.Installations.Met(ctx, peer, got.Installation, code, message); err != nil {
		p.Log.Warn("note what came of a call to a peer", "peer", peer.Name, "error", err)
	}
	return got
}

// loop keeps a question open at each peer that this process follows.
func (p *Peers) loop() Loop {
	var mu sync.Mutex
	var open sync.WaitGroup
	running := map[messages.Following]bool{}
	follow := func(ctx context.Context, f messages.Following) {
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			delete(running, f)
		}()
		p.follow(ctx, f)
	}
	return Loop{
		Name:      "peers",
		Does:      "follow messages at peers",
		Await:     func(ctx context.Context) bool { return p.Store.Await(ctx, peers.Peers) },
		Every:     followEvery,
		Retry:     followEvery,
		RetryMost: 10 * time.Second,
		Once: func(ctx context.Context) (Turn, error) {
			list, n, err := p.look(ctx)
			mu.Lock()
			defer mu.Unlock()
			for _, f := range list {
				if !running[f] {
					running[f] = true
					open.Go(safe.Func("follow", func() { follow(ctx, f) }))
				}
			}
			return Turn{Did: n}, err
		},
		End: func() {
			open.Wait()
			last, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			if p.Store.Has(messages.Messages) {
				_ = p.Store.Messages.Unfollow(last, p.holder) // else its time ends
			}
		},
	}
}

// look posts what another process left, and takes peers to follow.
func (p *Peers) look(ctx context.Context) (list []messages.Following, n int, err error) {
	if !p.Store.Has(messages.Messages) || p.Store.QuarantinedWhole() {
		return nil, 0, nil
	}
	if n, err = p.Store.Messages.Carry(ctx); err != nil {
		return nil, n, err
	}
	list, err = p.Store.Messages.Follow(ctx, p.holder, p.TTL, p.leaves()...)
	// A question may have failed since leaves was read. Either leave comes last, and lets go of what was taken here, or
	// it is seen here.
	if left := p.leaves(); err == nil && slices.ContainsFunc(list, func(f messages.Following) bool {
		return slices.Contains(left, f)
	}) {
		list = slices.DeleteFunc(list, func(f messages.Following) bool { return slices.Contains(left, f) })
		err = p.Store.Messages.Unfollow(ctx, p.holder, left...)
	}
	return list, n + len(list), err
}

// leaves lists peers that this process leaves to others.
func (p *Peers) leaves() (list []messages.Following) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(p.left, func(_ messages.Following, until time.Time) bool { return !until.After(now) })
	return slices.Collect(maps.Keys(p.left))
}

// leave lets other processes have a peer that this one could not ask, since they may: it may be a setting of this one,
// or its network, that keeps it from the peer. For more than two looks it leaves it to them.
func (p *Peers) leave(ctx context.Context, f messages.Following) error {
	p.mu.Lock()
	p.left[f] = time.Now().Add(followLeave)
	p.mu.Unlock()
	return p.Store.Messages.Unfollow(ctx, p.holder, f)
}

// follow asks a peer until nothing is open there, or a question comes to nothing: then it is left to other processes.
func (p *Peers) follow(ctx context.Context, f messages.Following) {
	began := time.Now()
	for after := (uuid.UUID{}); ctx.Err() == nil && time.Since(began) < followLong; {
		n, last, err := p.followOnce(ctx, f, after, followWait)
		switch {
		case err != nil:
			if ctx.Err() != nil {
				return
			}
			p.Log.Warn("follow messages at a peer", "peer", f.Peer, "error", err)
			if unheard := (*errPeer)(nil); errors.As(err, &unheard) {
				if err := p.leave(ctx, f); err != nil {
					p.Log.Warn("leave a peer to other processes: its time ends", "peer", f.Peer, "error", err)
				}
				return
			}
			pause(ctx, nil, followRetry)
			if last == (uuid.UUID{}) {
				return
			}
		case n == 0 && after == uuid.UUID{}:
			return
		}
		after = last
		pause(ctx, nil, followRest)
	}
}

// round asks each peer once, without a wait.
func (p *Peers) round(ctx context.Context) (int, error) {
	list, n, err := p.look(ctx)
	for _, f := range list {
		_, _, failed := p.followOnce(ctx, f, uuid.UUID{}, 0)
		if unheard := (*errPeer)(nil); errors.As(failed, &unheard) {
			failed = errors.Join(failed, p.Store.Messages.Unfollow(ctx, p.holder, f))
		}
		err = errors.Join(err, failed)
	}
	return n - len(list), err
}

// errPeer is why a question to a peer came to nothing.
type errPeer struct{ code, message string }

func (e *errPeer) Error() string { return e.code + ": " + e.message }

// waitFor is how long a question waits for news at most: one that tells what to stop does not, and one behind which
// others are to be asked about waits for a short time.
func waitFor(asked, stop int, after uuid.UUID, wait time.Duration) time.Duration {
	switch {
	case stop > 0:
		return 0
	case asked == messages.MaxAsked, after != uuid.UUID{}:
		return min(wait, followPage)
	}
	return wait
}

// roomOver is how many bytes an answer of a peer may have, 0 for as many as over HTTP. Over a Mycelium network its node
// takes 2 MiB of it, in two layers of base64.
func roomOver(url string) int {
	if outbox.IsMycelium(url) {
		return 700 << 10
	}
	return 0
}

// lost has messages delivered again, in their order: one for which that fails keeps those behind it.
func (p *Peers) lost(ctx context.Context, f messages.Following, ids []uuid.UUID) error {
	for _, id := range ids {
		if err := p.Store.Messages.Lost(ctx, f, id); err != nil {
			return err
		}
	}
	return nil
}

// followAnswer is what a peer answers to a question about messages.
type followAnswer struct {
	Words   []messages.Word `json:"words"`
	Unknown []uuid.UUID     `json:"unknown"`
	Life    int64           `json:"life"`    // of its store; an older version says none
	Stopped []uuid.UUID     `json:"stopped"` // of these nothing is left to say; an older version says none: it is all
}

// ofThese leaves of the words of a peer those of messages that it was asked about, or was told to stop.
func ofThese(words []messages.Word, asked []messages.Asked, stop []uuid.UUID) []messages.Word {
	named := map[uuid.UUID]bool{}
	for _, a := range asked {
		named[a.ID] = true
	}
	for _, id := range stop {
		named[id] = true
	}
	return slices.DeleteFunc(words, func(w messages.Word) bool { return !named[w.ID] })
}

// hear takes what a peer answers. A message that was stopped, and whose word is not taken, is told to stop again. kept
// says that what the peer has lost could not all be posted again: those behind it wait for that, to keep their order.
func (p *Peers) hear(ctx context.Context, f messages.Following, peer *peers.Peer, said followAnswer) (kept bool,
	err error) {
	store := p.Store.Messages
	failed := 0
	take := func(one error) bool { // one that cannot be taken keeps few others from it
		if one != nil {
			err, failed = one, failed+1
		}
		return failed < 3 && ctx.Err() == nil
	}
	take(p.Store.Installations.Lives(ctx, peer, said.Life))
	untold := map[uuid.UUID]bool{}
	goesOn := true
	for _, w := range said.Words {
		before := failed
		if goesOn {
			goesOn = take(store.Hear(ctx, f, w))
		}
		if !goesOn || failed > before {
			untold[w.ID] = true
		}
	}
	lost := p.lost(ctx, f, said.Unknown)
	take(lost)
	stopped := slices.DeleteFunc(said.Stopped, func(id uuid.UUID) bool { return untold[id] })
	if len(stopped) > 0 {
		take(store.Stopped(ctx, f, stopped, cmp.Or(said.Life, peer.Life)))
	}
	return lost != nil, err
}

// followOnce asks a peer about the messages that are open there behind an id, and takes what it says. It returns how
// many these were, and behind which the next question goes on, also where some could not be taken; none: from the first
// on.
func (p *Peers) followOnce(ctx context.Context, f messages.Following, after uuid.UUID, wait time.Duration) (n int,
	last uuid.UUID, err error) {
	store := p.Store.Messages
	if p.Store.Quarantined(f.Context, outbox.PeerType(f.Peer)) {
		return 0, last, nil
	}
	asked, err := store.OpenAt(ctx, f, after)
	if err != nil {
		return 0, last, err
	}
	stop, abort, err := store.ToStop(ctx, f)
	if err != nil {
		return 0, last, err
	}
	peer, err := p.Store.Installations.Peer(ctx, f.Context, f.Peer)
	restored := err == nil && peer.ToldLife != 0 && peer.ToldLife != peer.OwnLife
	if err != nil || len(asked)+len(stop) == 0 && !restored {
		return 0, last, err
	}
	if wait = waitFor(len(asked), len(stop), after, wait); restored {
		wait = 0
	}
	body, err := json.Marshal(map[string]any{
		"open": asked, "stop": stop, "abort": abort, "wait": outbox.Duration(wait).String(), "life": peer.OwnLife,
		"room": roomOver(peer.URL),
	})
	if err != nil {
		return 0, last, err
	}
	got := p.ask(ctx, peer, remote.PeerCall{
		Verb: remote.PeerFollow, Body: body, Timeout: wait + 15*time.Second, Most: 8 << 20,
	})
	if got.Class != "" {
		return 0, last, &errPeer{got.Code, got.Message}
	}
	said := followAnswer{Stopped: slices.Clone(stop)}
	if err := json.Unmarshal(got.Body, &said); err != nil {
		return 0, last, &errPeer{"answer_invalid", err.Error()}
	}
	said.Words = ofThese(said.Words, asked, stop)
	kept, err := p.hear(ctx, f, peer, said)
	if len(asked) == messages.MaxAsked && !kept {
		last = asked[len(asked)-1].ID
	}
	return len(asked) + len(stop), last, err
}
