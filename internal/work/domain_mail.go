package work

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/pg/peers"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/safe"
)

// How messages go to the other nodes of domains: one call to a node at a time, with many messages. A newer message
// takes the slot of an older one, so that after a failure what counts goes, and not what stood there before.
const (
	mailAtOnce  = 1000 // of all nodes
	mailPerCall = 200
	mailBytes   = 900 << 10
	mailTimeout = 10 * time.Second
	mailAgain   = 100 * time.Millisecond // after a call that failed, doubling up to mailMost
	mailMost    = 5 * time.Second
)

// line is what a process knows of the way to a node.
type line struct {
	busy  bool
	tries int
	after time.Time // nothing is sent before
}

// letters is the loop that tells other nodes what steps have said.
func (d *Domains) letters() Loop {
	return Loop{
		Name:      "domain messages",
		Does:      "bring messages to the other nodes of domains",
		Await:     func(ctx context.Context) bool { return d.Store.Await(ctx, domains.Nodes) },
		Leased:    true,
		Every:     domainsEvery,
		Bell:      d.mail,
		Rest:      domainsRest,
		Retry:     100 * time.Millisecond,
		RetryMost: 2 * time.Second,
		Once: func(ctx context.Context) (Turn, error) {
			n, err := d.SendOnce(ctx)
			turn := Turn{Did: n}
			if n == mailAtOnce {
				turn.Next = AtOnce
			} else if next := d.nextLine(); next > 0 {
				turn.Next = min(next, domainsEvery)
			}
			return turn, err
		},
		End: d.sending.Wait,
	}
}

// SendOnce leases the messages to nodes that no call of this process is out to, begins these calls, and returns how
// many messages that are.
func (d *Domains) SendOnce(ctx context.Context) (int, error) {
	list, err := d.Store.Domains.ClaimMail(ctx, d.busy(), mailAtOnce)
	if err != nil {
		return 0, err
	}
	byNode := map[domains.Busy][]*domains.Mail{}
	for _, m := range list {
		to := domains.Busy{Context: m.Context, Node: m.To}
		byNode[to] = append(byNode[to], m)
	}
	for to, list := range byNode {
		d.mu.Lock()
		l := d.lines[to]
		if l == nil {
			l = &line{}
			d.lines[to] = l
		}
		l.busy = true
		d.mu.Unlock()
		d.sending.Go(safe.Func("domain messages", func() {
			defer d.rest(l)
			d.send(ctx, to, l, list)
		}))
	}
	return len(list), nil
}

func (d *Domains) busy() (list []domains.Busy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for to, l := range d.lines {
		if l.busy || l.after.After(time.Now()) {
			list = append(list, to)
		}
	}
	return list
}

// nextLine says when the next node may be told something again to which a call has failed; 0: there is none.
func (d *Domains) nextLine() (next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lines {
		if in := time.Until(l.after); !l.busy && in > 0 && (next == 0 || in < next) {
			next = in
		}
	}
	return next
}

func (d *Domains) rest(l *line) {
	d.mu.Lock()
	l.busy = false
	d.mu.Unlock()
	knock(d.mail)
}

// send tells a node what it is to be told, one call after the other. Where a call is refused, and it is not said for
// which message, those of the call go one to a call.
func (d *Domains) send(ctx context.Context, to domains.Busy, l *line, list []*domains.Mail) {
	for alone := 0; len(list) > 0; {
		most := mailPerCall
		if alone > 0 {
			most, alone = 1, alone-1
		}
		part, body := d.letter(list[:min(most, len(list))])
		if len(part) == 0 {
			list = list[1:] // it is said again, or not any more
			continue
		}
		came, err := d.deliver(ctx, to, l, part, body)
		if err != nil {
			d.Log.Warn("note what came of messages to a node of a domain", "node", to.Node, "error", err)
		}
		switch {
		case came == wayShut || err != nil:
			d.unsent(ctx, list)
			return
		case came == oneIsRefused:
			alone = len(part)
		default:
			list = list[len(part):]
		}
	}
}

// letter makes the body of a call of the first messages.
func (d *Domains) letter(list []*domains.Mail) ([]*domains.Mail, []byte) {
	var texts []json.RawMessage
	size := 0
	for _, m := range list {
		text, err := json.Marshal(m.Parcel)
		if err != nil {
			d.Log.Error("a message to a node of a domain has no JSON", "kind", m.Kind, "error", err)
			break
		}
		if size += len(text) + 1; size > mailBytes && len(texts) > 0 {
			break
		}
		texts = append(texts, text)
	}
	body, _ := json.Marshal(map[string]any{"messages": texts})
	return list[:len(texts)], body
}

// refusedAt finds the message that a peer does not take.
var refusedAt = regexp.MustCompile(`^/messages/(\d+)`)

// came is the outcome of a call to a node.
type came int

const (
	wayShut      came = iota // the way to the node: nothing else is sent now
	noted                    // what became of each of its messages
	oneIsRefused             // of its messages, and it is not said which
)

// deliver makes one call. What it took is deleted, and so is what it never will take.
func (d *Domains) deliver(ctx context.Context, to domains.Busy, l *line, part []*domains.Mail, body []byte) (came,
	error) {
	store := d.Store.Domains
	peer, err := d.Store.Installations.Peer(ctx, to.Context, to.Node)
	if err != nil {
		d.failed(l, 0)
		return wayShut, err
	}
	got := d.peers.ask(ctx, peer, remote.PeerCall{Verb: remote.PeerCoord, Body: body, Timeout: mailTimeout})
	if ofOne := got.Class == outbox.ClassRejected || d.unread(ctx, peer, got); ofOne {
		d.opened(l)
		at := whichRefused(got.Body)
		if len(part) == 1 {
			at = 0
		}
		if at < 0 || at >= len(part) {
			return oneIsRefused, nil
		}
		return noted, d.refused(ctx, to, part, at, got.Message)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if got.Class == "" {
		d.opened(l)
		d.counted(part, "delivered")
		return noted, store.Delivered(end, part)
	}
	d.failed(l, got.After)
	return wayShut, store.Undelivered(end, part, got.Code+": "+got.Message)
}

// unread says whether a peer could not read the body of a call, or something before it did not let the body through:
// then it is a message of the call that is refused, as it is too large, or is JSON that the peer does not take. Such a
// refusal is not signed, since the peer has not read who calls. That the way is open all the same shows a call without
// messages, whose answer is signed.
func (d *Domains) unread(ctx context.Context, peer *peers.Peer, got remote.PeerAnswer) bool {
	switch {
	case got.Class == "" || got.Installation != "":
		return false
	case got.Status == http.StatusBadRequest, got.Status == http.StatusRequestEntityTooLarge,
		got.Status == http.StatusUnprocessableEntity:
	default:
		return false
	}
	hello := remote.PeerCall{Verb: remote.PeerHello, Body: []byte(`{}`), Timeout: mailTimeout}
	return d.peers.ask(ctx, peer, hello).Class == ""
}

// refused drops a message that a node never will take, and has the others of the call sent again.
func (d *Domains) refused(ctx context.Context, to domains.Busy, part []*domains.Mail, at int, why string) error {
	store := d.Store.Domains
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	d.Log.Warn("a node of a domain refuses a message, which is dropped", "domain", part[at].Parcel.Domain, "node",
		to.Node, "kind", part[at].Kind, "why", why)
	d.counted(part[at:at+1], "refused")
	if err := store.Delivered(end, part[at:at+1]); err != nil {
		return err
	}
	rest := append(append([]*domains.Mail{}, part[:at]...), part[at+1:]...)
	return store.Undelivered(end, rest, "")
}

func (d *Domains) counted(list []*domains.Mail, outcome string) {
	if count := d.Store.Domains.Counted; count != nil {
		for _, m := range list {
			count(m.Kind, outcome)
		}
	}
}

func (d *Domains) opened(l *line) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.tries, l.after = 0, time.Time{}
}

func (d *Domains) failed(l *line, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.tries++
	l.after = time.Now().Add(max(backoff.Doubling(l.tries, mailAgain, mailMost), min(wait, mailMost)))
}

// whichRefused reads the place of the message that a refusal is about; -1: it does not say.
func whichRefused(body []byte) int {
	var said struct {
		Errors []struct {
			Pointer string `json:"pointer"`
		} `json:"errors"`
	}
	if json.Unmarshal(body, &said) != nil {
		return -1
	}
	for _, e := range said.Errors {
		if m := refusedAt.FindStringSubmatch(e.Pointer); m != nil {
			n, _ := strconv.Atoi(m[1])
			return n
		}
	}
	return -1
}

// unsent ends the leases of what a process did not come to, also where it is about to stop.
func (d *Domains) unsent(ctx context.Context, list []*domains.Mail) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := d.Store.Domains.Undelivered(end, list, ""); err != nil {
		d.Log.Warn("messages to a node of a domain wait for the end of their leases", "error", err)
	}
}
