package domains

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// WhyIntent says what an intent waits for: the chain from itself to the root, which may lie at another node, in the
// service of the domain, or in the core. Of an intent of another node, by its id, it says what the work of this one
// waits for. It locks nothing: its answer was true a moment ago.
func (s *Store) WhyIntent(ctx context.Context, contextID int32, domain, called string) (*reads.Why, error) {
	i, err := s.Intent(ctx, contextID, domain, called)
	if id, ok := idOf(called); ok && fault.KindOf(err) == fault.NotFound {
		return s.whyWork(ctx, contextID, domain, id.String(), err)
	}
	if err != nil {
		return nil, err
	}
	x, err := s.explain(ctx, contextID, domain)
	if err != nil {
		return nil, err
	}
	x.w.State = string(i.State)
	if err := x.intent(i, 0); err != nil {
		return nil, err
	}
	if i.Receipt == "" { // whatever it waits for, this is the root
		x.stopped()
	}
	if n := len(x.w.Blockers); n > 0 && x.w.Summary == "" {
		x.w.Summary = fmt.Sprintf("intent %s is %s: %s", i.ID, i.State, x.w.Blockers[n-1].Detail)
	}
	return x.w, nil
}

// WhyDomain says what keeps a domain from going on: that it is stopped, nodes that are silent or have other settings,
// ways to nodes that are closed, and works whose public transactions wait for an operator's word.
func (s *Store) WhyDomain(ctx context.Context, contextID int32, domain string) (*reads.Why, error) {
	x, err := s.explain(ctx, contextID, domain)
	if err != nil {
		return nil, err
	}
	x.w.State = string(x.d.Coordinator)
	x.stopped()
	for _, p := range x.image.Peers {
		if p.Node != x.d.Settings.Self {
			x.node(p.Node)
		}
	}
	for _, c := range x.calls {
		if c.failure != "" {
			x.call(c)
		}
	}
	if err := x.unknown(); err != nil {
		return nil, err
	}
	x.w.Moving = len(x.w.Blockers) == 0
	if x.w.Summary = "nothing is in its way"; !x.w.Moving {
		x.w.Summary = x.w.Blockers[0].Detail
	}
	return x.w, nil
}

// whyDomain collects what is in the way.
type whyDomain struct {
	s       *Store
	ctx     context.Context
	context int32
	d       *Domain
	image   coreImage
	now     time.Time
	calls   []openCall
	lines   map[string]closedLine
	trouble string // why the last try of the work that is explained came to nothing
	w       *reads.Why
}

// openCall is a call of the service that has no answer.
type openCall struct {
	kind, intent, failure string
	tries                 int
	due                   time.Time
}

// closedLine is a node that does not take messages.
type closedLine struct {
	since time.Time
	why   string
}

// most levels of intents that depend on one another are explained.
const whyDepth = 20

func (s *Store) explain(ctx context.Context, contextID int32, domain string) (*whyDomain, error) {
	d, err := s.Domain(ctx, contextID, domain)
	if err != nil {
		return nil, err
	}
	x := &whyDomain{s: s, ctx: ctx, context: contextID, d: d, lines: map[string]closedLine{},
		w: &reads.Why{Blockers: []reads.Blocker{}}}
	if x.now, err = s.Now(ctx); err != nil {
		return nil, err
	}
	var image []byte
	if err := s.Db(ctx).QueryRow(ctx, `SELECT image FROM postern.coord_state WHERE domain_id = $1`, d.ID).
		Scan(&image); err != nil {
		return nil, db.Known(err)
	}
	if err := json.Unmarshal(image, &x.image); err != nil {
		return nil, err
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT c.kind, coalesce(c.intent_id::text, ''), c.error, c.tries, c.due
		FROM postern.coord_call c WHERE c.domain_id = $1 ORDER BY c.due LIMIT 1000`, d.ID)
	if err != nil {
		return nil, db.Known(err)
	}
	x.calls, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c openCall, err error) {
		return c, row.Scan(&c.kind, &c.intent, &c.failure, &c.tries, &c.due)
	})
	if err != nil {
		return nil, db.Known(err)
	}
	rows, err = s.Db(ctx).Query(ctx, `SELECT DISTINCT ON (o.node) o.node, o.at, o.error FROM postern.coord_out o
		WHERE o.domain_id = $1 AND o.error <> '' ORDER BY o.node, o.at`, d.ID)
	if err != nil {
		return nil, db.Known(err)
	}
	var node string
	var line closedLine
	_, err = pgx.ForEachRow(rows, []any{&node, &line.since, &line.why}, func() error {
		x.lines[node] = line
		return nil
	})
	return x, db.Known(err)
}

func (x *whyDomain) path() string { return "/domains/" + x.d.Name }

func (x *whyDomain) at(id string) string { return x.path() + "/intents/" + id }

// lever is one of an intent.
func (x *whyDomain) lever(id, action string) reads.Lever {
	role := "executor"
	if action == "release" {
		role = "admin"
	}
	return reads.NewLever("POST", role, "domains", x.d.Name, "intents", id, action)
}

func (x *whyDomain) add(kind, object string, since time.Time, next *reads.NextStep, levers []reads.Lever, detail string,
	args ...any) {
	x.w.Blockers = append(x.w.Blockers, reads.Blocker{Kind: kind, Object: object, Since: since,
		Detail: fmt.Sprintf(detail, args...), Next: next, Levers: levers})
}

// stopped names what stops all of a domain. Where a lever has to end it, nothing moves by itself. While it is not known
// what the store has lost, none of the levers that end an intent works.
func (x *whyDomain) stopped() {
	seat := x.image.Seat
	if x.d.Quarantined || !seat.HelloAt.IsZero() {
		for i := range x.w.Blockers {
			x.w.Blockers[i].Levers = slices.DeleteFunc(x.w.Blockers[i].Levers, func(l reads.Lever) bool {
				ofIntent, resumes := strings.HasPrefix(l.Path, x.at("")), strings.HasSuffix(l.Path, "/resume")
				return ofIntent != resumes // a public transaction that is resumed goes out
			})
		}
	}
	x.w.Moving = x.w.Moving && !x.d.Paused && !x.d.Quarantined
	switch {
	case x.d.Paused:
		x.add("domain_paused", x.path(), seat.TickedAt, nil,
			[]reads.Lever{reads.NewLever("POST", "admin", "domains", x.d.Name, "resume")},
			"domain %s is paused: no step is taken", x.d.Name)
	case x.d.Quarantined:
		x.add("domain_quarantined", x.path(), seat.TickedAt, nil,
			[]reads.Lever{reads.NewLever("POST", "admin", "domains", x.d.Name, "release").With("reason", "...")},
			"another node has heard what this store does not know: it may have lost commits, and so nothing goes on")
	case !seat.HelloAt.IsZero():
		grace := time.Duration(x.d.Settings.InactiveGrace) * time.Duration(x.d.Settings.Heartbeat)
		x.add("domain_greets", x.path(), seat.HelloAt, &reads.NextStep{At: seat.HelloAt.Add(grace),
			What: "it goes on without those that have not answered"}, nil,
			"all processes were down: it waits until the other nodes have said what they heard last")
	}
}

func (x *whyDomain) peer(node string) *coord.Peer {
	for _, p := range x.image.Peers {
		if p.Node == node {
			return p
		}
	}
	return nil
}

// node names what is in the way to and from a node, and says whether there is something.
func (x *whyDomain) node(node string) bool {
	p := x.peer(node)
	if line, closed := x.lines[node]; closed {
		x.add("node_unreached", "/peers/"+node, line.since, nil,
			[]reads.Lever{reads.NewLever("POST", "admin", "peers", node, "check")},
			"node %s does not take messages: %s", node, line.why)
		return true
	}
	grace := time.Duration(x.d.Settings.InactiveGrace) * time.Duration(x.d.Settings.Heartbeat)
	switch {
	case p == nil || p.HeardAt.IsZero():
		x.add("node_silent", "/peers/"+node, x.d.CreatedAt, nil, nil, "nothing was ever heard of node %s", node)
	case x.now.Sub(p.HeardAt) > grace && p.State != coord.Idle && p.State != coord.Observing && p.State != "":
		x.add("node_silent", "/peers/"+node, p.HeardAt, nil, nil, "node %s was heard %s ago, and was %s", node,
			x.ago(p.HeardAt), p.State)
	case p.Digest != "" && p.Digest != x.digest():
		x.add("list_differs", "/peers/"+node, p.HeardAt, nil, nil,
			"node %s has other nodes, another mode or another block_range in this domain, so that neither yields to "+
				"the other: give both the same", node)
	default:
		return false
	}
	return true
}

func (x *whyDomain) digest() string {
	return x.d.Digest()
}

func (x *whyDomain) ago(at time.Time) time.Duration { return x.now.Sub(at).Truncate(time.Millisecond) }

// mayCancel is the lever that ends an intent, unless a permit for it may still be used.
func (x *whyDomain) mayCancel(i *Intent) []reads.Lever {
	if i == nil || i.Holder != "" || i.Waits != "" || !slices.Contains(coord.CancelledIn, i.State) {
		return nil
	}
	return []reads.Lever{x.lever(i.ID, "cancel")}
}

// mayEnd is the lever that ends an intent: an operator's word where a permit for it may still be used.
func (x *whyDomain) mayEnd(i *Intent) []reads.Lever {
	if i.Holder != "" || i.Waits != "" {
		return []reads.Lever{x.lever(i.ID, "release").With("outcome", "...").With("reason", "...")}
	}
	return x.mayCancel(i)
}

// intent explains one intent, with what went wrong in its last try.
func (x *whyDomain) intent(i *Intent, depth int) error {
	blockers := len(x.w.Blockers)
	if err := x.waits(i, depth); err != nil {
		return err
	}
	text := cmp.Or(x.trouble, i.Image.Trouble)
	x.trouble = ""
	named := slices.ContainsFunc(x.w.Blockers[blockers:], func(b reads.Blocker) bool {
		return b.Kind == "service_fails" || b.Kind == "intent_depends" // it is in there, or behind it
	})
	if text != "" && !named && i.Receipt == "" && i.State != coord.Parked && i.Holder == "" {
		x.w.Moving = false
		x.add("try_failed", x.at(i.ID), i.Since, nil, x.mayCancel(i), "its last try came to nothing, and it is tried "+
			"again: %s", text)
	}
	return nil
}

func (x *whyDomain) waits(i *Intent, depth int) error {
	image := &i.Image
	switch {
	case i.Receipt != "":
		x.add("terminal", x.at(i.ID), i.Since, nil, nil, "it has ended: %s %s", i.Receipt, i.Text)
	case i.State == coord.Parked:
		x.add("intent_parked", x.at(i.ID), i.Since, nil,
			append([]reads.Lever{x.lever(i.ID, "resume")}, x.mayEnd(i)...), "it is parked: %s", i.Parked)
	case i.State == coord.Pending:
		return x.pending(i, depth)
	case i.State == coord.Assembling || i.State == coord.Signing:
		x.w.Moving = true
		x.add("service_call", x.at(i.ID), i.Since, nil, x.mayCancel(i),
			"the domain's service is asked to assemble and sign it")
		for _, c := range x.calls {
			if c.intent == i.ID && c.failure != "" {
				x.w.Moving = false
				x.call(c)
			}
		}
	case i.Holder != "" && i.Holder != x.d.Settings.Self:
		x.held(i)
	case x.lost(i):
	case image.Delegate == x.d.Settings.Self || i.Holder == x.d.Settings.Self:
		return x.work(i.ID, x.mayCancel(i))
	case image.Delegate == "":
		if !x.full(i) {
			x.add("no_coordinator", x.at(i.ID), i.Since, nil, x.mayEnd(i), "no node coordinates it")
		}
	default:
		x.delegated(i)
	}
	return nil
}

// pending explains what was given to no node yet.
func (x *whyDomain) pending(i *Intent, depth int) error {
	if x.lost(i) {
		return nil
	}
	for _, id := range i.Image.DependsOn {
		on, err := x.s.Intent(x.ctx, x.context, x.d.Name, id)
		if err != nil {
			return err
		}
		if on.Receipt == coord.Success || depth > whyDepth {
			continue
		}
		x.add("intent_depends", x.at(id), i.Since, nil, x.mayEnd(i),
			"it goes after intent %s, which is %s", id, on.State)
		return x.intent(on, depth+1)
	}
	var next *reads.NextStep
	if i.Image.NotBefore.After(x.now) {
		next = &reads.NextStep{At: i.Image.NotBefore, What: "it is handed over anew"}
	}
	if x.full(i) {
		return nil
	}
	x.add("no_coordinator", x.at(i.ID), i.Since, next, x.mayEnd(i),
		"no node has taken it: the coordinator of this one is %s", x.d.Coordinator)
	for _, p := range x.image.Peers {
		if p.Node != x.d.Settings.Self {
			x.node(p.Node)
		}
	}
	return nil
}

// full says whether the node that coordinates has said that it takes no more of this one, and explains that.
func (x *whyDomain) full(i *Intent) bool {
	beat := time.Duration(x.d.Settings.Heartbeat)
	for _, p := range x.image.Peers {
		if p.Room == nil || *p.Room > 0 || p.State != coord.Active ||
			x.now.Sub(p.LiveAt) > time.Duration(x.d.Settings.InactiveGrace)*beat {
			continue
		}
		x.w.Moving = true
		x.add("not_taken", x.at(i.ID), i.Since,
			&reads.NextStep{At: p.LiveAt.Add(beat), What: "the node says anew how many it takes"}, x.mayEnd(i),
			"node %s takes no more intents of this node now: those that it has go first", p.Node)
		return true
	}
	return false
}

// delegated explains what another node coordinates, in the last words of that node.
func (x *whyDomain) delegated(i *Intent) {
	node, image := i.Image.Delegate, &i.Image
	if image.Acked == 0 {
		x.add("not_taken", x.at(i.ID), image.GivenAt, &reads.NextStep{
			At: image.DelegatedAt.Add(time.Duration(x.d.Settings.DelegateTimeout)), What: "it is offered again"},
			x.mayCancel(i), "it was handed to node %s, which has not said that it has it", node)
		x.node(node)
		return
	}
	x.w.Moving = true
	x.add("at_coordinator", "/peers/"+node, i.Since, nil, x.mayCancel(i), "node %s coordinates it and says: %s", node,
		x.lastWords(i, node))
	if x.node(node) {
		x.w.Moving = false
	}
}

// held explains what may be under way through another node.
func (x *whyDomain) held(i *Intent) {
	x.add("permit_held", "/peers/"+i.Holder, i.Since, nil,
		[]reads.Lever{x.lever(i.ID, "release").With("outcome", "...").With("reason", "...")},
		"node %s may post its public transaction, and so no other node may: it waits until %[1]s says what came of "+
			"it; release takes an operator's word. It said last: %s", i.Holder, x.lastWords(i, i.Holder))
	x.w.Moving = !x.node(i.Holder)
}

// lastWords are what a node said last of an intent, and when it was heard.
func (x *whyDomain) lastWords(i *Intent, node string) string {
	image := &i.Image
	said := "nothing of it yet"
	if image.Said != "" && image.Delegate == node {
		said = string(image.Said)
		if image.SaidWhy != "" {
			said += " (" + image.SaidWhy + ")"
		}
		if image.Nonce != 0 {
			said += ", nonce " + strconv.FormatInt(image.Nonce, 10)
		}
		if image.Hash != "" {
			said += ", hash " + image.Hash
		}
	}
	if p := x.peer(node); p != nil && !p.HeardAt.IsZero() {
		return said + " (heard " + x.ago(p.HeardAt).String() + " ago)"
	}
	return said + " (never heard)"
}

// lost explains what may be under way by a permit that is closed and has not ended, and says whether that keeps an
// intent from going out, or from its end.
func (x *whyDomain) lost(i *Intent) bool {
	if i.Waits == "" || i.Holder != "" || x.d.Settings.Once != string(coord.Hold) && i.Image.Failed == "" {
		return false
	}
	release := x.lever(i.ID, "release").With("outcome", "...").With("reason", "...")
	why := "this store has lost rows, and node %s may have the permit to post its public transaction: it is asked"
	if i.WaitsBy != "presumed" {
		why = "node %s had the permit to post its public transaction, and does not say what came of it"
	}
	if i.Waits != x.d.Settings.Self {
		x.add("permit_held", "/peers/"+i.Waits, i.Since, nil, []reads.Lever{release},
			why+". It said last: "+strings.ReplaceAll(x.lastWords(i, i.Waits), "%", "%%"), i.Waits)
		x.w.Moving = !x.node(i.Waits)
		return true
	}
	all := reads.NewLever("POST", "admin", "domains", x.d.Name, "release").With("outcome", "not_done")
	x.add("permit_held", x.path(), i.Since, nil, []reads.Lever{release, all.With("reason", "...")},
		"this store has lost rows, and this node may have posted its public transaction in the time that is lost: it "+
			"waits for an operator's word about it, or about all that this node may have posted")
	return true
}

// call explains a call of the service that fails.
func (x *whyDomain) call(c openCall) {
	object := x.path()
	if c.intent != "" {
		object = x.at(c.intent)
	}
	x.add("service_fails", object, c.due, &reads.NextStep{At: c.due, What: "it is called again"}, nil,
		"POST %s/%s fails, at try %d: %s", x.d.Settings.ServiceURL, c.kind, c.tries, c.failure)
}
