package domains

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Parcel is a coordination message as it goes to another node: with the data that its receiver needs of it. The
// machines know ids and hashes alone.
type Parcel struct {
	Domain string `json:"domain"`
	coord.Message
	Made   json.RawMessage `json:"made,omitempty"`   // by the assembler
	Of     string          `json:"of,omitempty"`     // the party of the intent
	Given  []Given         `json:"given,omitempty"`  // signatures; of EndorsementResponse, the endorsement
	States []pendingState  `json:"states,omitempty"` // that may be used, as far as the assembler may see them
}

// What one call may bring, and how much of a domain may wait.
const (
	MostParcels  = 1000
	mostWaiting  = 10_000
	mostPerStep  = 200
	mostListed   = 10_000
	mostWordSize = 4000
)

// Arrive stores coordination messages of a peer in one commit, or none of them. A newer one takes the place of one in
// its slot that no step has taken yet, so that nothing piles up here. It returns the places of those whose kind this
// version does not know: their sender is a newer one, and the rest is taken.
//
// Those for a domain that is paused, or for which too many wait, are dropped as on a wire that loses them: the machines
// say again what still counts. A refusal would hold up the domains whose messages are in the same call.
//
// Why a message is not lost between the two: a step deletes the rows that it has read behind the lock of the seat by
// their numbers, and one that takes a slot anew has another number.
func (s *Store) Arrive(ctx context.Context, contextID int32, peer string, list []json.RawMessage) (unknown []int,
	err error) {
	if n := len(list); n == 0 || n > MostParcels {
		return nil, fault.At("/messages", "messages has %d items: want 1 to %d", n, MostParcels)
	}
	homes, err := s.homes(ctx, contextID)
	if err != nil {
		return nil, err
	}
	slots := map[string]*arrived{}
	for n, raw := range list {
		at := "/messages/" + itoa(n)
		var p Parcel
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, fault.At(at, "the message is not understood: %s", fault.Clip(err.Error()))
		}
		if !p.Kind.Known() {
			unknown = append(unknown, n)
			continue
		}
		home := homes[p.Domain]
		if err := p.check(at, peer, home); err != nil {
			return nil, err
		}
		if home.full {
			s.count(p.Kind, "dropped")
			continue
		}
		slot := &arrived{home.id, p.Slot(), p.Beat, raw}
		key := itoa(int(home.id)) + "/" + slot.slot
		if old := slots[key]; old == nil || old.beat < p.Beat {
			slots[key] = slot
		}
	}
	if len(slots) == 0 {
		return unknown, nil
	}
	if err := s.putIn(ctx, peer, slots); err != nil {
		return nil, err
	}
	s.ring()
	return unknown, nil
}

// home is a domain as the door of peers knows it.
type home struct {
	id    int32
	set   Settings
	image *coord.Domain
	full  bool // no message of it is stored now
}

type arrived struct {
	domain int32
	slot   string
	beat   int64
	raw    json.RawMessage
}

// homes reads the domains of a context that have other nodes.
func (s *Store) homes(ctx context.Context, contextID int32) (map[string]*home, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT d.domain_id, d.name, d.settings, d.paused OR EXISTS (SELECT
			FROM postern.coord_in i WHERE i.domain_id = d.domain_id AND i.error = '' OFFSET $2)
		FROM postern.domain d
		WHERE d.context_id = $1 AND d.removed_at IS NULL AND jsonb_array_length(d.settings->'nodes') > 1`, contextID,
		mostWaiting)
	if err != nil {
		return nil, db.Known(err)
	}
	all := map[string]*home{}
	var name string
	var h home
	_, err = pgx.ForEachRow(rows, []any{&h.id, &name, &h.set, &h.full}, func() error {
		one := h
		one.image = coord.New(name, h.set.Self, h.set.coord(), 1)
		all[name], h.set = &one, Settings{}
		return nil
	})
	return all, db.Known(err)
}

// putIn inserts messages, in the order of their slots, so that two calls wait for one another in one order. Those for a
// domain that has been removed since homes, or has no other nodes any more, are dropped.
//
// Why no message stays that no step reads: the rows of the domains are locked against a PUT or a DELETE before any
// message is inserted. Either of these comes before, and its domain is not found here, or after, and deletes the
// message.
func (s *Store) putIn(ctx context.Context, peer string, slots map[string]*arrived) error {
	var ids []int32
	var names, texts []string
	var beats []int64
	keys := make([]string, 0, len(slots))
	for key := range slots {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		a := slots[key]
		ids, names = append(ids, a.domain), append(names, a.slot)
		beats, texts = append(beats, a.beat), append(texts, string(a.raw))
	}
	_, err := s.Exec(ctx, `WITH home AS MATERIALIZED (
			SELECT d.domain_id
			FROM postern.domain d
			WHERE d.domain_id = ANY ($2) AND d.removed_at IS NULL AND jsonb_array_length(d.settings->'nodes') > 1
			ORDER BY d.domain_id
			FOR KEY SHARE)
		INSERT INTO postern.coord_in AS x (domain_id, node, slot, beat, message)
		SELECT q.domain_id, $1, q.slot, q.beat, q.message::json
		FROM unnest($2::int[], $3::text[], $4::bigint[], $5::text[])
			WITH ORDINALITY q(domain_id, slot, beat, message, place)
		WHERE q.domain_id IN (SELECT home.domain_id FROM home)
		ORDER BY q.place
		ON CONFLICT (domain_id, node, slot) DO UPDATE
			SET n = DEFAULT, beat = excluded.beat, message = excluded.message, error = ''
			WHERE x.beat < excluded.beat`, peer, ids, names, beats, texts)
	return err
}

// check refuses a message that no node of the domain could have meant.
func (p *Parcel) check(at, peer string, h *home) error {
	switch {
	case p.From != peer:
		return fault.New(fault.Forbidden, "forbidden", "from %q: the call is signed by peer %q", fault.Clip(p.From),
			peer).About(at + "/from")
	case h == nil || !slices.Contains(h.set.Nodes, peer):
		return fault.New(fault.Forbidden, "forbidden", "domain %q: peer %q is no node of one of this name here",
			fault.Clip(p.Domain), peer).About(at + "/domain")
	case p.To != h.set.Self:
		return fault.New(fault.Forbidden, "forbidden", "to %q: this node is %q", fault.Clip(p.To), h.set.Self).
			About(at + "/to")
	}
	room := int64(0)
	if p.Room != nil {
		room = int64(*p.Room)
	}
	numbers := []number{
		{"install", p.Install, 1}, {"beat", p.Beat, 1}, {"height", p.Height, 0}, {"generation", p.Generation, 0},
		{"for", p.For, 0}, {"echo", p.Echo, 0}, {"gap_from", p.GapFrom, 0}, {"gap_to", p.GapTo, 0},
		{"seen", p.Seen, 0}, {"seen_install", p.SeenInstall, 0}, {"tenure", int64(p.Tenure), 0},
		{"room", room, 0},
	}
	for n, e := range p.Entries {
		of := "entries/" + itoa(n) + "/"
		numbers = append(numbers, number{of + "generation", e.Generation, 0}, number{of + "install", e.Install, 0},
			number{of + "counts/rejections", int64(e.Counts.Rejections), 0},
			number{of + "counts/reverts", int64(e.Counts.Reverts), 0})
	}
	for n, d := range p.Delegations {
		of := "delegations/" + itoa(n) + "/"
		numbers = append(numbers, number{of + "generation", d.Generation, 0},
			number{of + "counts/rejections", int64(d.Counts.Rejections), 0},
			number{of + "counts/reverts", int64(d.Counts.Reverts), 0})
	}
	for _, n := range numbers {
		if n.is < n.least || n.is > mostNumber {
			return fault.At(at+"/"+n.name, "%s %d: want %d to %d", n.name, n.is, n.least, int64(mostNumber))
		}
	}
	if err := p.checkWords(at); err != nil {
		return err
	}
	if err := p.checkStates(at); err != nil {
		return err
	}
	if err := p.checkIDs(at); err != nil {
		return err
	}
	return p.checkMade(at, h)
}

// number is a number of a message, and the least that it may be.
type number struct {
	name  string
	is    int64
	least int64
}

// mostNumber leaves room above each number for those that count on from it.
const mostNumber = 1 << 60

// checkWords refuses words that are too long, or that no text of the database can hold.
func (p *Parcel) checkWords(at string) error {
	words := map[string][]string{
		"key": {p.Key}, "name": {p.Name}, "party": {p.Party}, "hash": {p.Hash}, "result": {p.Result},
		"reason": {p.Reason}, "digest": {p.Digest}, "state": {string(p.State)}, "successor": {p.Successor},
		"of": {p.Of}, "pending": p.Pending, "spent": p.Spent, "points": p.Points,
	}
	for n, e := range p.Entries {
		words["entries/"+itoa(n)] = []string{string(e.State), e.Hash, e.Outcome, e.Reason}
	}
	for n, g := range p.Given {
		words["given/"+itoa(n)] = []string{g.Name, g.Party}
	}
	for n, s := range p.States {
		words["states/"+itoa(n)] = []string{s.ID, s.By}
	}
	for name, list := range words {
		if len(list) > mostListed {
			return fault.At(at+"/"+name, "%s has %d items: want at most %d", name, len(list), mostListed)
		}
		for _, w := range list {
			if strings.Contains(w, "\x00") || len(w) > mostWordSize {
				return fault.At(at+"/"+name, "%s %q: want a text without NUL of at most %d bytes", name, fault.Clip(w),
					mostWordSize)
			}
		}
	}
	return nil
}

// What a message may say of a seat, and of a work: nothing, or a state.
var (
	seatStates = append(coord.Coordinator.States(), "")
	workStates = append(coord.CoordinatorTransaction.States(), "")
)

// checkStates refuses states and outcomes that no machine has: what others do next follows from them.
func (p *Parcel) checkStates(at string) error {
	if !slices.Contains(seatStates, string(p.State)) {
		return fault.At(at+"/state", "state %q: want one of a coordinator", fault.Clip(string(p.State)))
	}
	for n, e := range p.Entries {
		of := at + "/entries/" + itoa(n)
		if !slices.Contains(workStates, string(e.State)) {
			return fault.At(of+"/state", "state %q: want one of a work", fault.Clip(string(e.State)))
		}
		if e.Outcome != "" && e.Outcome != coord.Success && e.Outcome != coord.Failure {
			return fault.At(of+"/outcome", "outcome %q: want success or failure", fault.Clip(e.Outcome))
		}
	}
	return nil
}

// checkIDs refuses what is no id of an intent.
func (p *Parcel) checkIDs(at string) error {
	lists := map[string][]string{"ids": p.IDs, "refused": p.Refused}
	for _, d := range p.Delegations {
		lists["delegations"] = append(lists["delegations"], d.ID)
	}
	for _, e := range p.Entries {
		lists["entries"] = append(lists["entries"], e.ID)
	}
	switch p.Kind {
	case coord.AssembleRequest, coord.AssembleResponse, coord.AssembleError, coord.AssembleRejected,
		coord.EndorsementRequest, coord.EndorsementResponse, coord.EndorsementRejected, coord.EndorsementError,
		coord.ConfirmationRequest, coord.DispatchConfirmed, coord.ConfirmationRejected:
		lists["id"] = []string{p.ID}
	default:
		if p.ID != "" {
			return fault.At(at+"/id", "id %q: want none with kind %s", fault.Clip(p.ID), p.Kind)
		}
	}
	for name, list := range lists {
		if len(list) > mostListed {
			return fault.At(at+"/"+name, "%s has %d items: want at most %d", name, len(list), mostListed)
		}
		for _, id := range list {
			if _, ok := idOf(id); !ok {
				return fault.At(at+"/"+name, "%s %q: want the id of an intent", name, fault.Clip(id))
			}
		}
	}
	return nil
}

// checkMade reads what was assembled, and has the machines know of it what is computed here.
func (p *Parcel) checkMade(at string, h *home) error {
	if p.Kind != coord.EndorsementRequest && (p.Kind != coord.AssembleResponse || p.Result != coord.OK) {
		p.Assembled = coord.Assembled{}
		return nil
	}
	_, brief, err := h.image.ReadMaking(p.Made)
	switch {
	case err != nil:
		return fault.At(at+"/made", "made: %s", err)
	case brief.Hash != p.Hash:
		return fault.At(at+"/hash", "hash %q: what was assembled has another one", fault.Clip(p.Hash))
	}
	p.Assembled = brief
	return nil
}

// inbox reads messages that no step has taken, the first first, with their numbers.
func (s *Store) inbox(ctx context.Context, t *db.Txn, h *seat, most int) (list []*Parcel, ns []int64, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT i.n, i.message FROM postern.coord_in i WHERE i.domain_id = $1 AND i.error = ''
		ORDER BY i.n LIMIT $2`, h.id, most).Query(func(rows pgx.Rows) error {
		var n int64
		var raw []byte
		_, err := pgx.ForEachRow(rows, []any{&n, &raw}, func() error {
			p := &Parcel{}
			list, ns = append(list, p), append(ns, n)
			return json.Unmarshal(raw, p)
		})
		return err
	})
	return list, ns, t.Send(ctx, b)
}

// read takes the messages of others into a step, with the intents and works that they are about, and has the commit
// delete them. A domain without other nodes has none: see putIn.
func (s *Store) read(ctx context.Context, t *db.Txn, h *seat, b *pgx.Batch, most int) ([]Event, []int64, error) {
	if most == 0 || len(h.d.Peers) < 2 {
		return nil, nil, nil
	}
	list, ns, err := s.inbox(ctx, t, h, most)
	if err != nil || len(list) == 0 {
		return nil, nil, err
	}
	var ids []string
	for _, p := range list {
		if p.ID != "" {
			ids = append(ids, p.ID)
		}
		ids = append(ids, p.IDs...)
		for _, d := range p.Delegations {
			ids = append(ids, d.ID)
		}
	}
	slices.Sort(ids)
	if err := s.more(ctx, t, h, slices.Compact(ids)); err != nil {
		return nil, ns, err
	}
	here := &home{set: *h.settings, image: h.d}
	var events []Event
	for _, p := range list {
		if p.checkMade("", here) != nil { // the settings have changed since it came
			continue
		}
		events = append(events, Event{Event: coord.Event{Message: &p.Message}, Parts: h.partsOf(p)})
	}
	b.Queue(`DELETE FROM postern.coord_in WHERE domain_id = $1 AND n = ANY ($2)`, h.id, ns)
	return events, ns, nil
}

// partsOf lists what is kept of the data of a message. Data that somebody brings who was not asked for it is not kept:
// it would stand where that of the node that was asked is to stand.
func (h *seat) partsOf(p *Parcel) (parts []Part) {
	w, i := h.d.Work(p.ID), h.d.Intent(p.ID)
	keep := func(part, name, party string, data any) {
		if raw, err := json.Marshal(data); err == nil {
			parts = append(parts, Part{p.ID, p.Generation, part, name, party, raw})
		}
	}
	switch p.Kind {
	case coord.AssembleRequest:
		if i != nil && !i.Ended() && i.Delegate == p.From && p.Generation > i.Generation {
			keep("pending", "", "", p.States)
		}
	case coord.AssembleResponse:
		if w == nil || w.Origin != p.From || w.State != coord.Assembling || w.Generation != p.Generation ||
			p.Result != coord.OK {
			return nil
		}
		keep("assembled", "", "", p.Made)
		keep("intent", "", "", intentPart{ID: p.ID, Party: p.Of})
		for _, at := range p.Assembled.Signs(p.From) {
			for _, g := range p.Given {
				if g.Name == at.Name && g.Party == at.Parties[0] {
					keep("sign", g.Name, g.Party, g.Data)
				}
			}
		}
	case coord.EndorsementRequest:
		if i != nil || w != nil && w.Generation == p.Generation {
			return nil // it is here
		}
		keep("assembled", "", "", p.Made)
		for _, g := range p.Given {
			keep("sign", g.Name, g.Party, g.Data)
		}
	case coord.EndorsementResponse:
		if w == nil || w.State != coord.Gathering || len(p.Given) != 1 {
			return nil
		}
		for _, a := range w.Asks {
			if a.Key == p.Key && a.Node == p.From && a.Answer == "" {
				p.Generation = w.Generation
				keep("endorse", a.Name, a.Party, p.Given[0].Data)
			}
		}
	}
	return parts
}

// asideMost is how many messages of a domain stay that were set aside, for those who look.
const asideMost = 100

// setMessageAside keeps a message that the schema refuses from being read again.
func (s *Store) setMessageAside(ctx context.Context, id int32, n int64, why error) error {
	return s.Run(ctx, func(t *db.Txn) error {
		d, err := s.byID(ctx, t, id)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.coord_in SET error = $3 WHERE domain_id = $1 AND n = $2`, id, n, why.Error())
		b.Queue(`DELETE FROM postern.coord_in
			WHERE domain_id = $1
				AND error <> ''
				AND n <= (SELECT x.n
					FROM postern.coord_in x
					WHERE x.domain_id = $1 AND x.error <> ''
					ORDER BY x.n DESC
					OFFSET $2
					LIMIT 1)`, id, asideMost)
		s.AuditIn(b, db.By{Context: d.context, Via: "domains", Reason: fault.Clip(why.Error())}, "set_aside",
			"/domains/"+d.name)
		return t.Commit(ctx, b)
	})
}

var (
	errNoData    = errors.New("its data is not there any more")
	errOtherData = errors.New("what was assembled has another hash")
)

// fill adds to a message the data that goes with it.
func (s *Store) fill(ctx context.Context, m *Mail) error {
	p := &m.Parcel
	switch p.Kind {
	case coord.AssembleRequest:
		pending, err := s.visible(ctx, m.Domain, p.To, p.Pending, m.makers)
		if err != nil {
			return err
		}
		p.States, p.Pending = pending, nil
		for _, state := range pending {
			p.Pending = append(p.Pending, state.ID)
		}
	case coord.AssembleResponse:
		if p.Result != coord.OK {
			return nil
		}
		return s.fillMade(ctx, m, func(g Given) bool { return strings.HasSuffix(g.Party, "@"+p.From) })
	case coord.EndorsementRequest:
		return s.fillMade(ctx, m, func(Given) bool { return true })
	case coord.EndorsementResponse:
		parts, err := s.parts(ctx, m.Domain, p.ID, p.Generation)
		if err != nil {
			return err
		}
		for _, g := range parts.endorsements {
			if g.Name == p.Name && g.Party == p.Party {
				p.Given = []Given{g}
			}
		}
	}
	return nil
}

func (s *Store) fillMade(ctx context.Context, m *Mail, which func(Given) bool) error {
	p := &m.Parcel
	parts, err := s.parts(ctx, m.Domain, p.ID, p.Generation)
	if err != nil {
		return err
	}
	if parts.made == nil {
		return fmt.Errorf("%s of intent %s: %w", p.Kind, p.ID, errNoData)
	}
	p.Made, p.Of, p.Assembled = parts.made, parts.intent.Party, coord.Assembled{}
	for _, g := range parts.signatures {
		if which(g) {
			p.Given = append(p.Given, g)
		}
	}
	return nil
}
