package work

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/safe"
)

// How often a node looks at domains: at once when it knows of something, else when the next is due, and so often for
// what others have done.
const (
	domainsEvery   = 500 * time.Millisecond
	domainsRest    = 2 * time.Millisecond // between two turns, so that one takes what several brought
	domainsRepost  = time.Second          // what a process has dispatched and did not post
	domainsPassed  = time.Second          // without its seat, until a domain is waited for
	domainsAtOnce  = 8
	domainsPerStep = 200 // events
)

// DomainService asks the services of domains. *remote.Client is one.
type DomainService interface {
	Domain(ctx context.Context, call remote.DomainCall) remote.DomainReply
}

// Domains looks after domains: it takes their steps, asks their services, and posts their public transactions.
type Domains struct {
	*Node
	service DomainService
	peers   *Peers
	bell    chan struct{} // a domain has something to do
	mail    chan struct{} // another node is to be told something
	calls   chan struct{} // a service is to be asked
	repost  time.Time     // when the next look for what was not posted is due

	mu     sync.Mutex
	events map[int32][]domains.Event // answers that no step has taken yet; a lost one is asked for again
	posts  map[int32]bool            // domains that have dispatched
	out    map[int32]int             // calls under way, by domain
	passed map[int32]time.Time       // since when others have had the seat at each turn
	asking sync.WaitGroup

	lines   map[domains.Busy]*line // to other nodes
	sending sync.WaitGroup
}

// NewDomains makes what looks after domains in the process of an engine.
func NewDomains(e *Engine, service DomainService, peers *Peers) *Domains {
	d := &Domains{Node: e.Node, service: service, peers: peers, bell: make(chan struct{}, 1),
		calls: make(chan struct{}, 1), mail: make(chan struct{}, 1), events: map[int32][]domains.Event{},
		posts: map[int32]bool{}, out: map[int32]int{}, passed: map[int32]time.Time{}, lines: map[domains.Busy]*line{}}
	s := d.Store.Domains
	s.Self = d.self
	s.Bell = func() { knock(d.bell); knock(d.calls) }
	s.Stepped = d.stepped
	return d
}

// System is what the engine runs of it.
func (d *Domains) System() System {
	return System{Name: "domains", Loops: []Loop{d.steps(), d.questions(), d.letters()}, First: d.first, Round: d.round,
		Ended: d.heard}
}

// first has each domain know of this process, so that it waits for the others where all processes were down, and takes
// back what domains recall.
func (d *Domains) first(ctx context.Context) error {
	s := d.Store.Domains
	if !s.Has(domains.Domains) {
		return nil
	}
	if err := s.Begin(ctx); err != nil {
		return err
	}
	return d.postOf(ctx, 0)
}

func (d *Domains) self() int64 {
	if n := d.node.Load(); n != nil {
		return n.ID
	}
	return 0
}

// stepped notes what a step of this process has left to do.
func (d *Domains) stepped(out domains.Stepped) {
	if out.Posts > 0 || out.Still { // also to hold back what is posted
		d.mu.Lock()
		d.posts[out.Domain] = true
		d.mu.Unlock()
		knock(d.bell)
	}
	if out.Calls > 0 {
		knock(d.calls)
	}
	if out.Sent > 0 {
		knock(d.mail)
	}
}

// heard notes that a public transaction has gone on.
func (d *Domains) heard(l *pg.Lease, _ *pg.Answer) {
	if strings.HasPrefix(l.Task.UID, domains.UIDPrefix) {
		knock(d.bell)
	}
}

func (d *Domains) any(ctx context.Context) bool { return d.Store.Await(ctx, domains.Domains) }

// steps is the loop that takes the steps of domains.
func (d *Domains) steps() Loop {
	return Loop{
		Name:      "domains",
		Does:      "take the steps of domains",
		Await:     d.any,
		Leased:    true,
		Every:     domainsEvery,
		Bell:      d.bell,
		Rest:      domainsRest,
		Retry:     100 * time.Millisecond,
		RetryMost: 2 * time.Second,
		Once: func(ctx context.Context) (Turn, error) {
			n, next, err := d.StepOnce(ctx)
			turn := Turn{Did: n, Next: domainsEvery}
			switch {
			case n > 0:
				turn.Next = AtOnce
			case next > 0:
				turn.Next = min(next, domainsEvery)
			}
			return turn, err
		},
	}
}

// StepOnce takes a step of each domain that is due, or has events, and posts what these steps dispatch. It
// returns how many steps it took, and when the next domain is due.
func (d *Domains) StepOnce(ctx context.Context) (n int, next time.Duration, err error) {
	s := d.Store.Domains
	if s.QuarantinedWhole() {
		return 0, 0, nil
	}
	due, next, err := s.Due(ctx)
	if err != nil {
		return 0, 0, err
	}
	words, err := s.Words(ctx)
	if err != nil {
		return 0, 0, err
	}
	todo := d.take()
	for _, id := range due {
		todo[id] = slices.Clip(todo[id])
	}
	for id, list := range words {
		todo[id] = append(todo[id], list...)
	}
	err = d.each(todo, func(id int32, events []domains.Event) error {
		err := d.step(ctx, id, events)
		return err
	})
	return len(todo), next, errors.Join(err, d.post(ctx))
}

// each runs the steps of several domains side by side.
func (d *Domains) each(todo map[int32][]domains.Event, step func(int32, []domains.Event) error) error {
	errs := make(chan error, len(todo))
	slots := make(chan struct{}, domainsAtOnce)
	for id, events := range todo {
		slots <- struct{}{}
		go safe.Run("step", func() {
			defer func() { <-slots }()
			errs <- safe.Try("step", func() error { return step(id, events) })
		})
	}
	var all []error
	for range todo {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// step takes the steps that a domain has events for. Answers that no step could take are kept for the next turn, unless
// the domain was removed meanwhile: no step would ever take them.
func (d *Domains) step(ctx context.Context, id int32, events []domains.Event) error {
	s := d.Store.Domains
	if stopped, err := s.InQuarantine(ctx, id); err != nil || stopped {
		return err
	}
	for {
		part := events[:min(len(events), domainsPerStep)]
		step := s.Step
		if d.passedOver(id) {
			step = s.StepInLine
		}
		out, err := step(ctx, id, part)
		if err == nil {
			d.had(id, out.Taken || out.Gone)
		}
		if err == nil && out.Gone {
			return nil
		}
		if err != nil || !out.Taken {
			d.note(id, events)
			return err
		}
		if events = events[len(part):]; len(events) == 0 && !out.More {
			return nil
		}
	}
}

// passedOver says whether others have had the seat of a domain for so long that it is waited for.
func (d *Domains) passedOver(id int32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, passed := d.passed[id]
	return passed && time.Since(since) > domainsPassed
}

// had notes whether a step had the seat of its domain.
func (d *Domains) had(id int32, taken bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, passed := d.passed[id]; taken {
		delete(d.passed, id)
	} else if !passed {
		d.passed[id] = time.Now()
	}
}

// note keeps answers until a step takes them. What the core says is read again.
func (d *Domains) note(id int32, events []domains.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range events {
		if e.Answer != nil {
			d.events[id] = append(d.events[id], e)
		}
	}
}

func (d *Domains) take() map[int32][]domains.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.events
	d.events = map[int32][]domains.Event{}
	return all
}

// post posts what domains have dispatched: what steps of this process did at once, and now and then all that was left.
func (d *Domains) post(ctx context.Context) error {
	d.mu.Lock()
	ids := slices.Collect(maps.Keys(d.posts))
	clear(d.posts)
	d.mu.Unlock()
	if now := time.Now(); now.After(d.repost) {
		d.repost, ids = now.Add(domainsRepost), []int32{0}
	}
	var all []error
	for _, id := range ids {
		all = append(all, d.postOf(ctx, id))
	}
	return errors.Join(all...)
}

// postOf posts the public transactions of a domain, or of all (0).
func (d *Domains) postOf(ctx context.Context, id int32) error {
	refused, err := d.Store.Domains.PostActivities(ctx, id)
	return errors.Join(err, d.each(refused, func(id int32, events []domains.Event) error {
		return d.step(ctx, id, events)
	}))
}

// round does all that can be done now.
func (d *Domains) round(ctx context.Context) (int, error) {
	d.repost = time.Time{}
	asked, err := d.AskOnce(ctx)
	d.asking.Wait()
	n, _, failed := d.StepOnce(ctx)
	sent, lost := d.SendOnce(ctx)
	d.sending.Wait()
	return asked + n + sent, errors.Join(err, failed, lost)
}
