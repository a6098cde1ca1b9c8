package demo

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// Receipt is how an intent of the demo ended.
type Receipt struct {
	UID     string `json:"uid"`
	Node    string `json:"node"`
	Outcome string `json:"outcome"` // success or failure; "": it has not ended
	Text    string `json:"text"`
	Note    string `json:"note"`
}

// Balance is what somebody has by the ledger.
type Balance struct {
	Party  string `json:"party"`
	Amount int64  `json:"amount"`
	Tokens int    `json:"tokens"`
}

// Domains is what a Summary has besides of the demo of a domain.
type Domains struct {
	Receipts     []Receipt `json:"receipts"`
	Balances     []Balance `json:"balances"`
	Coordinators []string  `json:"coordinators"` // in turn, with the height of the ledger
	Killed       string    `json:"killed"`       // the installation
}

// sum compares every end with what its sample wants, and the receipts with the ledger and the tokens of each owner.
func (r *domainRun) sum(ctx context.Context) (*Summary, error) {
	s := &Summary{kind: ofIntents, Run: r.Name, Queues: 1, Senders: len(r.nodes), States: []StateTime{},
		Failures: []Failure{}, Differing: []Difference{}, Domain: &Domains{Coordinators: r.coordinators},
		Example: strings.TrimPrefix(r.path("/intents/"+r.byUID["never"].row.ID), "/")}
	if r.killed == nil {
		s.differ("coordinator", "none was killed: of two installations none coordinated with a transaction on its way")
	} else {
		s.Domain.Killed = r.killed.name
	}
	stays := map[outbox.State][]time.Duration{}
	var first, last time.Time
	for _, p := range r.payments {
		s.addIntent(p)
		if err := r.stays(ctx, p, stays); err != nil {
			return nil, err
		}
		if first.IsZero() || p.row.CreatedAt.Before(first) {
			first = p.row.CreatedAt
		}
		if p.row.EndedAt != nil && p.row.EndedAt.After(last) {
			last = *p.row.EndedAt
		}
	}
	s.timed(first, last)
	s.stayed([]outbox.State{"Pending", "Delegated", "Assembling", "Signing", "EndorsementGathering", "Prepared",
		"Dispatched", "Sequenced", "Submitted", "Parked"}, stays)
	if err := r.public(ctx, s); err != nil {
		return nil, err
	}
	if err := r.readBack(ctx, s); err != nil {
		return nil, fmt.Errorf("read back from the devnet: %w", err)
	}
	return s, nil
}

// addIntent counts one intent, and compares its receipt with its sample.
func (s *Summary) addIntent(p *payment) {
	s.Transactions++
	one := Receipt{UID: p.uid, Node: p.node, Note: p.note}
	if p.row.Receipt != nil {
		one.Outcome, one.Text = p.row.Receipt.Outcome, strings.Join(strings.Fields(p.row.Receipt.Text), " ")
	}
	s.Domain.Receipts = append(s.Domain.Receipts, one)
	if one.Outcome == "success" {
		s.Done++
	} else {
		s.Failed++
		s.Failures = append(s.Failures, Failure{UID: p.uid, State: outbox.State(p.row.State), Message: one.Text,
			Note: p.note})
	}
	switch {
	case one.Outcome == "":
		s.differ(p.uid, "has not ended: it is %s", p.row.State)
	case p.fails == "" && one.Outcome != "success":
		s.differ(p.uid, "ended as %s (%s), want success", one.Outcome, one.Text)
	case p.fails != "" && (one.Outcome != "failure" || !strings.Contains(one.Text, p.fails)):
		s.differ(p.uid, "ended as %s (%s), want a failure that says %q", one.Outcome, one.Text, p.fails)
	}
}

// stays adds how long an intent was in each state.
func (r *domainRun) stays(ctx context.Context, p *payment, into map[outbox.State][]time.Duration) error {
	var h page[struct {
		At      time.Time
		Machine string
		To      outbox.State
	}]
	if err := p.at.client.do(ctx, http.MethodGet, r.path("/intents/"+p.row.ID+"/history"), nil, &h); err != nil {
		return err
	}
	state, since := outbox.State(""), time.Time{}
	for _, m := range h.Items {
		if m.Machine != "originator_transaction" || m.To == state {
			continue
		}
		if state != "" {
			into[state] = append(into[state], m.At.Sub(since))
		}
		state, since = m.To, m.At
	}
	return nil
}

// public counts the public transactions of each intent at all installations: at most one is done, none for a failure.
// The others are retries. Where another node looked at the ledger, the one that sent it may not know yet.
func (r *domainRun) public(ctx context.Context, s *Summary) error {
	done := map[string]int{}
	for _, n := range r.nodes {
		list, err := all[Transaction](ctx, n.client, "/transactions", url.Values{"type": {tokenType}})
		if err != nil {
			return err
		}
		for _, t := range list {
			for _, p := range r.payments {
				if !strings.Contains(t.UID, p.row.ID) {
					continue
				}
				if s.Retries++; t.State == outbox.DONE {
					done[p.uid]++
				}
			}
		}
	}
	s.Retries -= s.Done
	for _, p := range r.payments {
		most := 0
		if p.row.Receipt != nil && p.row.Receipt.Outcome == "success" {
			most = 1
		}
		if done[p.uid] > most {
			s.differ(p.uid, "has %d public transactions that are done, want %d at most", done[p.uid], most)
		}
	}
	return nil
}

// readBack compares the receipts with the ledger: each success is there once, behind what it depended on, no failure
// is, and each owner has the tokens that the receipts say.
func (r *domainRun) readBack(ctx context.Context, s *Summary) error {
	head, err := r.ledger.Health(ctx)
	if err != nil {
		return err
	}
	notary := r.nodes[len(r.nodes)-1].wallet
	notary.mu.Lock()
	err = notary.follow(ctx)
	on := maps.Clone(notary.on)
	notary.mu.Unlock()
	if err != nil {
		return err
	}
	l := &Ledger{Fees: fmt.Sprint(head.Sink), Height: head.Height, Reorgs: head.Reorgs, Apps: len(on)}
	want := r.landed(s, l, on)
	before := s.Unexpected
	s.Domain.Balances = r.owned(on)
	tokens := 0
	for _, b := range s.Domain.Balances {
		if tokens += b.Tokens; b.Amount != want[b.Party] {
			s.differ(b.Party, "has %d by the ledger, and %d by the receipts", b.Amount, want[b.Party])
		}
		delete(want, b.Party)
	}
	for party, amount := range want {
		if amount != 0 {
			s.differ(party, "has nothing by the ledger, and %d by the receipts", amount)
		}
	}
	if unspent := unspentOn(on); unspent != tokens {
		s.differ("ledger", "has %d tokens that are not spent, and their owners know %d", unspent, tokens)
	}
	l.Balanced = s.Unexpected == before
	s.Ledger = l
	return nil
}

// landed compares each receipt with the ledger, and returns what each owner has by the receipts.
func (r *domainRun) landed(s *Summary, l *Ledger, on map[string]uint64) map[string]int64 {
	want := map[string]int64{}
	for _, p := range r.payments {
		at := on[ofIntent+p.row.ID]
		success := p.row.Receipt != nil && p.row.Receipt.Outcome == "success"
		if success != (at > 0) {
			s.differ(p.uid, "is in block %d of the ledger (0: in none), and its receipt says success: %t", at, success)
		}
		if at > 0 {
			l.Calls++
		}
		for _, uid := range p.needs {
			if before := on[ofIntent+r.byUID[uid].row.ID]; at > 0 && (before == 0 || before >= at) {
				s.differ(p.uid, "is in block %d, and %s, on which it depends, in %d", at, uid, before)
			}
		}
		if !success {
			continue
		}
		for _, amount := range p.order.Amounts {
			if p.order.Do == "pay" {
				want[p.party] -= amount
				want[p.order.To] += amount
				l.Transfers++
				l.Moved += amount
			} else {
				want[p.party] += amount
			}
		}
	}
	return want
}

// unspentOn counts the tokens that the ledger has, and that are not spent.
func unspentOn(on map[string]uint64) (n int) {
	for name := range on {
		if strings.HasPrefix(name, ofToken) {
			n++
		} else if strings.HasPrefix(name, ofSpent) {
			n--
		}
	}
	return n
}

// owned lists what each owner has by the ledger.
func (r *domainRun) owned(on map[string]uint64) (list []Balance) {
	have := map[string]Balance{}
	for _, n := range r.nodes {
		n.wallet.mu.Lock()
		for id, t := range n.wallet.tokens {
			if nodeOf(t.Owner) == n.name && on[ofToken+id] > 0 && on[ofSpent+id] == 0 {
				b := have[t.Owner]
				have[t.Owner] = Balance{t.Owner, b.Amount + t.Amount, b.Tokens + 1}
			}
		}
		n.wallet.mu.Unlock()
	}
	for _, party := range slices.Sorted(maps.Keys(have)) {
		list = append(list, have[party])
	}
	return list
}

// print writes what the summary of a domain has besides.
func (d *Domains) print(out io.Writer) {
	fmt.Fprintf(out, "\ncoordinators: %s; %s was killed\n\nreceipts:\n", strings.Join(d.Coordinators, ", "), d.Killed)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, one := range d.Receipts {
		text := one.Text
		if one.Outcome == "success" && len(text) > 12 {
			text = text[:12]
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", one.UID, one.Node, one.Outcome, text, one.Note)
	}
	w.Flush()
	fmt.Fprintln(out, "\nbalances by the ledger:")
	for _, b := range d.Balances {
		fmt.Fprintf(w, "  %s\t%d\tin %d tokens\n", b.Party, b.Amount, b.Tokens)
	}
	w.Flush()
}
