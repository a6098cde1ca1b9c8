package work

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/domains"
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
	alone bool      // the last call was refused, and it does not say for which message
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

// send tells a node what it is to be told, one call after the other.
func (d *Domains) send(ctx context.Context, to domains.Busy, l *line, list []*domains.Mail) {
	for len(list) > 0 {
		part, body := d.letter(l, list)
		if len(part) == 0 {
			list = list[1:] // it is said again, or not any more
			continue
		}
		taken, err := d.deliver(ctx, to, l, part, body)
		if err != nil {
			d.Log.Warn("note what came of messages to a node of a domain", "node", to.Node, "error", err)
		}
		if !taken || err != nil {
			d.unsent(ctx, list)
			return
		}
		list = list[len(part):]
	}
}

// letter makes the body of a call of the first messages.
func (d *Domains) letter(l *line, list []*domains.Mail) ([]*domains.Mail, []byte) {
	most := mailPerCall
	if l.alone {
		most = 1
	}
	var texts []json.RawMessage
	size := 0
	for _, m := range list[:min(most, len(list))] {
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

// deliver makes one call, and says whether the way to the node is open. What it took is deleted, and so is what it
// never will take.
func (d *Domains) deliver(ctx context.Context, to domains.Busy, l *line, part []*domains.Mail, body []byte) (bool,
	error) {
	store := d.Store.Domains
	peer, err := d.Store.Installations.Peer(ctx, to.Context, to.Node)
	if err != nil {
		d.failed(l, 0)
		return false, err
	}
	got := d.peers.ask(ctx, peer, remote.PeerCall{Verb: remote.PeerCoord, Body: body, Timeout: mailTimeout})
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	switch got.Class {
	case "":
		d.opened(l, false)
		d.counted(part, "delivered")
		return true, store.Delivered(end, part)
	case outbox.ClassRejected:
		at := whichRefused(got.Body)
		if len(part) == 1 {
			at = 0
		}
		found := at >= 0 && at < len(part)
		if d.opened(l, !found); !found {
			return true, store.Undelivered(end, part, got.Message)
		}
		d.Log.Warn("a node of a domain refuses a message, which is dropped", "domain", part[at].Parcel.Domain, "node",
			to.Node, "kind", part[at].Kind, "why", got.Message)
		d.counted(part[at:at+1], "refused")
		if err := store.Delivered(end, part[at:at+1]); err != nil {
			return true, err
		}
		rest := append(append([]*domains.Mail{}, part[:at]...), part[at+1:]...)
		return true, store.Undelivered(end, rest, "")
	}
	d.failed(l, got.After)
	return false, store.Undelivered(end, part, got.Code+": "+got.Message)
}

func (d *Domains) counted(list []*domains.Mail, outcome string) {
	if count := d.Store.Domains.Counted; count != nil {
		for _, m := range list {
			count(m.Kind, outcome)
		}
	}
}

func (d *Domains) opened(l *line, alone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.tries, l.after, l.alone = 0, time.Time{}, alone
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
