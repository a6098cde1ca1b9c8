package domains

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Intent is one as clients read it.
type Intent struct {
	ID        string
	UID       string
	Actor     string
	Party     string
	Data      json.RawMessage
	State     coord.State
	Since     time.Time
	Receipt   string // "": it has not ended
	Text      string
	Parked    string
	Image     coord.Intent
	Holder    string // of its open permit
	Waits     string // another node whose permit is closed, and may still be used; "": none
	WaitsBy   string // and how it was closed: silent, presumed
	Unknown   bool   // it is not known what became of its public transaction
	Nonce     string // of that
	Hash      string
	CoreUID   string
	CreatedAt time.Time
	EndedAt   *time.Time
	Replay    bool
	seq       int64
}

// NewIntent is what a client wants done once.
type NewIntent struct {
	UID       string
	Party     string
	Data      json.RawMessage
	DependsOn []string // ids or uids
}

// MostIntents is how many intents one call may bring.
const MostIntents = 1000

// Submit stores intents, all or none. One whose uid is known with the same content is that one, and with another
// content it is a Conflict "idempotency_conflict". pointer is the place of the nth in the request.
//
// Why a uid never names two intents: its id is derived from it, and from the name that this node has in the domain. Its
// row is looked for behind the lock of the seat, behind which it is inserted, under the present name and under each
// that the node had before: a name changes behind that lock, too. The id stays the same where a store is restored and
// the intent is posted again: so what names the ledger's entry by it is met there.
func (s *Store) Submit(ctx context.Context, by db.By, domain string, list []NewIntent,
	pointer func(int) string) ([]*Intent, error) {
	d, err := s.Domain(ctx, by.Context, domain)
	if err != nil {
		return nil, err
	}
	p := &posting{s: s, by: by, d: d, given: list, at: pointer}
	if err := p.check(); err != nil {
		return nil, err
	}
	waited := s.Has(Domains)
	out, err := s.step(ctx, d.ID, taking{wait: true, more: p.store})
	if err == nil && !out.Taken { // it was removed meanwhile
		err = noDomain(domain)
	}
	if err != nil {
		return nil, err
	}
	if p.fresh > 0 {
		s.ring()
		if err := s.Appeared(ctx, !waited); err != nil {
			return nil, err
		}
	}
	all, err := s.intents(ctx, d.ID, `i.intent_id = ANY ($2::text[]::uuid[])`, p.ids)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *Intent) int { return slices.Index(p.ids, a.ID) - slices.Index(p.ids, b.ID) })
	for _, i := range all {
		i.Replay = p.known[i.ID]
	}
	return all, nil
}

// posting is a call that brings intents.
type posting struct {
	s      *Store
	by     db.By
	d      *Domain
	given  []NewIntent
	list   []NewIntent // with the node of each party
	at     func(int) string
	ids    []string
	hashes [][]byte
	named  map[string]int // those of the call, by id and uid
	known  map[string]bool
	fresh  int
}

// idSpace is the name space of the ids of intents that have a uid.
var idSpace = uuid.NewSHA1(uuid.NameSpaceURL, []byte("postern:intent"))

// check refuses what is wrong in itself, and gives each intent its id.
func (p *posting) check() error {
	p.list, p.named, p.ids, p.hashes = slices.Clone(p.given), map[string]int{}, nil, nil
	image := coord.New(p.d.Name, p.d.Settings.Self, p.d.Settings.coord(), 1)
	for n := range p.list {
		in := &p.list[n]
		if !strings.Contains(in.Party, "@") {
			in.Party += "@" + p.d.Settings.Self
		} else if p.d.left(nodeOf(in.Party)) {
			*in = in.by(p.d.Settings.Self) // it is posted again as it was posted under that name
		}
		if err := image.CheckParty(in.Party); err != nil {
			return fault.At(p.at(n)+"/party", "%s", err)
		}
		if node := nodeOf(in.Party); node != p.d.Settings.Self {
			return fault.At(p.at(n)+"/party", "party %q is one of node %q, and this is %q: post it there",
				fault.Clip(in.Party),
				fault.Clip(node), p.d.Settings.Self)
		}
		id := p.derived(p.d.Settings.Self, in.UID)
		if in.UID == "" {
			drawn, err := uuid.NewV7()
			if err != nil {
				return err
			}
			id = drawn.String()
		} else if _, twice := p.named[in.UID]; twice {
			return fault.At(p.at(n)+"/uid", "uid %q stands in this call twice", fault.Clip(in.UID))
		} else {
			p.named[in.UID] = n
		}
		p.named[id] = n
		p.ids = append(p.ids, id)
		p.hashes = append(p.hashes, in.hash())
	}
	return p.cycle()
}

// nodeOf is the node of a party.
func nodeOf(party string) string { return party[strings.LastIndexByte(party, '@')+1:] }

// left says whether this node had a name before that no node has now.
func (d *Domain) left(node string) bool {
	return slices.Contains(d.Former, node) && !slices.Contains(d.Settings.Nodes, node)
}

// by is the intent as it is posted where this node has another name.
func (in NewIntent) by(self string) NewIntent {
	in.Party = strings.TrimSuffix(in.Party, nodeOf(in.Party)) + self
	return in
}

func (in *NewIntent) hash() []byte {
	canonical, _ := json.Marshal([]any{in.Party, outbox.Canonical(in.Data), in.DependsOn})
	sum := sha256.Sum256(canonical)
	return sum[:]
}

// cycle refuses dependencies that go round within the call.
func (p *posting) cycle() error {
	state := make([]int, len(p.list)) // 1: being looked at, 2: fine
	var path []string
	var visit func(n int) error
	visit = func(n int) error {
		path = append(path, p.name(n))
		defer func() { path = path[:len(path)-1] }()
		switch state[n] {
		case 1:
			return fault.New(fault.Invalid, "dependency_cycle",
				"depends_on makes a cycle, so that none of these could ever go "+
					"out: %s", fault.Clip(strings.Join(path, " -> "))).About(p.at(n) + "/depends_on")
		case 2:
			return nil
		}
		state[n] = 1
		for _, name := range p.list[n].DependsOn {
			if m, ok := p.named[name]; ok {
				if err := visit(m); err != nil {
					return err
				}
			}
		}
		state[n] = 2
		return nil
	}
	for n := range p.list {
		if err := visit(n); err != nil {
			return err
		}
	}
	return nil
}

func (p *posting) name(n int) string {
	if p.list[n].UID != "" {
		return p.list[n].UID
	}
	return p.ids[n]
}

// store inserts the intents that are new, behind the lock of the seat, and has the step take them. Where the domain got
// another name of this node while they waited for that, they are checked anew.
func (p *posting) store(ctx context.Context, t *db.Txn, h *seat, b *pgx.Batch) ([]Event, error) {
	if p.d.Settings.Self != h.settings.Self || !slices.Equal(p.d.Former, h.former) {
		p.d.Settings, p.d.Former = *h.settings, h.former
		if err := p.check(); err != nil {
			return nil, err
		}
	}
	p.known, p.fresh = map[string]bool{}, 0
	byName, err := p.look(ctx, t, h)
	if err != nil {
		return nil, err
	}
	var events []Event
	var on []string
	for n, in := range p.list {
		if p.known[p.ids[n]] {
			continue
		}
		created := &coord.Intent{ID: p.ids[n]}
		for k, name := range in.DependsOn {
			id, ok := byName[name]
			if m, here := p.named[name]; here {
				id, ok = p.ids[m], true
			}
			if !ok {
				return nil, fault.New(fault.Invalid, "unknown_dependency",
					"depends_on names %q, which is neither the id nor the uid "+
						"of an intent of this installation in domain %q: post that one first", fault.Clip(name),
					h.name).
					About(p.at(n) + "/depends_on/" + itoa(k))
			}
			if !slices.Contains(created.DependsOn, id) {
				created.DependsOn, on = append(created.DependsOn, id), append(on, id)
			}
		}
		p.fresh++
		part, err := json.Marshal(intentPart{p.ids[n], in.Party, in.Data})
		if err != nil {
			return nil, err
		}
		b.Queue(`INSERT INTO postern.coord_intent (domain_id, intent_id, seq, uid, hash, actor, party, state, since,
			image, created_at)
			VALUES ($1, $2::text::uuid, $3, $4, $5, $6, $7, 'Pending', $8, '{}', $8)`, h.id, p.ids[n],
			h.top+int64(p.fresh),
			db.Nullable(in.UID), p.hashes[n], p.by.Actor, in.Party, h.now)
		b.Queue(`INSERT INTO postern.coord_payload (domain_id, intent_id, generation, part, data, at)
			VALUES ($1, $2::text::uuid, 0, 'intent', $3, $4)`, h.id, p.ids[n], string(part), h.now)
		events = append(events, Event{Event: coord.Event{Created: created, Named: in.UID != ""}})
	}
	if p.fresh > 0 {
		if err := p.s.Accepts(p.by.Context); err != nil {
			return nil, err
		}
		p.s.AuditIn(b, p.by, "post", "/domains/"+h.name+"/intents")
	}
	return events, p.s.more(ctx, t, h, on)
}

// look finds which intents of the call are known already, and which intents those that they depend on are.
func (p *posting) look(ctx context.Context, t *db.Txn, h *seat) (map[string]string, error) {
	names := slices.Clone(p.ids)
	for _, in := range p.list {
		names = append(append(names, in.DependsOn...), in.UID)
	}
	var ids []string
	for _, name := range names {
		if id, ok := idOf(name); ok {
			ids = append(ids, id.String())
		}
	}
	hashes, found, byUID := map[string][]byte{}, map[string]string{}, map[string]string{}
	b := &pgx.Batch{}
	b.Queue(`SELECT i.intent_id::text, coalesce(i.uid, ''), i.hash
		FROM postern.coord_intent i
		WHERE i.domain_id = $1 AND i.intent_id = ANY ($2::text[]::uuid[])`, h.id, append(ids, p.called(names...)...)).
		Query(func(rows pgx.Rows) error {
			var id, uid string
			var hash []byte
			_, err := pgx.ForEachRow(rows, []any{&id, &uid, &hash}, func() error {
				found[id], hashes[id] = id, slices.Clone(hash)
				if uid != "" {
					byUID[uid] = id
				}
				return nil
			})
			return err
		})
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	for uid, id := range byUID {
		if found[uid] == "" { // else it is the id of one, as Intent reads it
			found[uid] = id
		}
	}
	for n := range p.list {
		given := p.asKnown(n, hashes)
		id := p.ids[n]
		hash, known := hashes[id]
		if known && !bytes.Equal(hash, given) {
			return nil, fault.New(fault.Conflict, "idempotency_conflict",
				"the key %q belongs to an intent with another content",
				fault.Clip(p.name(n))).With("existing", map[string]string{"id": id})
		}
		p.known[id] = known
	}
	return found, nil
}

// asKnown gives the nth intent the id under which its uid is known, and returns the hash that its content had when this
// node had the name of that id.
func (p *posting) asKnown(n int, hashes map[string][]byte) []byte {
	in := p.list[n]
	if in.UID == "" {
		return p.hashes[n]
	}
	for _, self := range p.selves() {
		if id := p.derived(self, in.UID); hashes[id] != nil {
			p.ids[n] = id
			then := in.by(self)
			return then.hash()
		}
	}
	p.ids[n] = p.derived(p.d.Settings.Self, in.UID)
	return p.hashes[n]
}

// selves are the names that this node has and had in the domain, the last one first.
func (p *posting) selves() []string {
	list := append(slices.Clone(p.d.Former), p.d.Settings.Self)
	slices.Reverse(list)
	return list
}

// derived is the id of an intent with a uid that is posted while this node has a name. Other nodes have other names, so
// that the same uid names another intent there.
func (p *posting) derived(self, uid string) string {
	return uuid.NewSHA1(idSpace,
		[]byte(strconv.Itoa(int(p.by.Context))+"\x00"+p.d.Name+"\x00"+self+"\x00"+uid)).String()
}

// called are the ids that intents with these uids may have.
func (p *posting) called(uids ...string) (ids []string) {
	for _, self := range p.selves() {
		for _, uid := range uids {
			ids = append(ids, p.derived(self, uid))
		}
	}
	return ids
}

const intentsSQL = `SELECT i.intent_id::text, coalesce(i.uid, ''), i.actor, i.party, coalesce((SELECT p.data->'data'
	FROM postern.coord_payload p
			WHERE p.domain_id = i.domain_id AND p.intent_id = i.intent_id AND p.generation = 0
				AND p.part = 'intent'), 'null'),
		i.state, i.since, coalesce(i.receipt, ''), i.text, i.parked, i.image, i.created_at, i.ended_at, i.seq,
		coalesce((SELECT p.node FROM postern.coord_permit p
			WHERE p.domain_id = i.domain_id AND p.intent_id = i.intent_id AND p.closed_at IS NULL), ''),
		coalesce(w.node, ''), coalesce(w.closed_by, ''),
		coalesce(a.state = 'unknown', false), coalesce(a.nonce, ''), coalesce(a.hash, ''), coalesce(a.uid, '')
	FROM postern.coord_intent i
	LEFT JOIN LATERAL (SELECT x.state, x.nonce, x.hash, x.uid FROM postern.coord_activity x
		WHERE x.domain_id = i.domain_id AND x.intent_id = i.intent_id ORDER BY x.generation DESC LIMIT 1) a ON true
	LEFT JOIN LATERAL (SELECT p.node, p.closed_by FROM postern.coord_permit p
		WHERE p.domain_id = i.domain_id AND p.intent_id = i.intent_id AND p.closed_at IS NOT NULL AND NOT p.ended
		ORDER BY p.closed_by DESC, p.n LIMIT 1) w ON true
	WHERE i.domain_id = $1 AND `

func (s *Store) intents(ctx context.Context, domain int32, which string, args ...any) ([]*Intent, error) {
	rows, err := s.Db(ctx).Query(ctx, intentsSQL+which, append([]any{domain}, args...)...)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Intent, error) {
		i := &Intent{}
		var data, image []byte
		err := row.Scan(&i.ID, &i.UID, &i.Actor, &i.Party, &data, &i.State, &i.Since, &i.Receipt, &i.Text, &i.Parked,
			&image,
			&i.CreatedAt, &i.EndedAt, &i.seq, &i.Holder, &i.Waits, &i.WaitsBy,
			&i.Unknown, &i.Nonce, &i.Hash, &i.CoreUID)
		if err == nil {
			i.Data = slices.Clone(data)
			err = json.Unmarshal(image, &i.Image)
		}
		return i, err
	})
	return list, db.Known(err)
}

// Intent returns one intent by its id, else by its uid, or NotFound: a uid may look like an id.
func (s *Store) Intent(ctx context.Context, contextID int32, domain, called string) (*Intent, error) {
	d, err := s.Domain(ctx, contextID, domain)
	if err != nil {
		return nil, err
	}
	p := &posting{by: db.By{Context: contextID}, d: d}
	ids := p.called(called)
	if id, ok := idOf(called); ok {
		ids = append(ids, id.String())
	}
	list, err := s.intents(ctx, d.ID, `i.intent_id = ANY ($2::text[]::uuid[]) ORDER BY i.intent_id::text <> $3`, ids,
		called)
	if err == nil && len(list) == 0 {
		err = fault.New(fault.NotFound, "not_found", "no intent %q in domain %q", fault.Clip(called),
			fault.Clip(domain))
	}
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// IntentFilter narrows a list of intents. Empty fields do not narrow.
type IntentFilter struct {
	State, Receipt string
	Before         int64 // only those that came before it, by seq
	Limit          int
}

// among narrows a list to rows that an index has: those with a receipt, or those that are open.
func (f IntentFilter) among() string {
	switch {
	case f.State == string(coord.Confirmed) || f.Receipt == coord.Success:
		return `i.receipt = 'success' AND `
	case f.State == string(coord.Reverted) || f.Receipt == coord.Failure:
		return `i.receipt = 'failure' AND `
	case f.State != "":
		return `i.held AND i.ended_at IS NULL AND `
	}
	return ""
}

// Seq orders intents by their arrival.
func (i *Intent) Seq() int64 { return i.seq }

// Intents lists intents of a domain, the newest first.
func (s *Store) Intents(ctx context.Context, contextID int32, domain string, f IntentFilter) ([]*Intent, error) {
	d, err := s.Domain(ctx, contextID, domain)
	if err != nil {
		return nil, err
	}
	if f.Before == 0 {
		f.Before = math.MaxInt64
	}
	return s.intents(ctx, d.ID, f.among()+`($2 = '' OR i.state = $2) AND ($3 = '' OR i.receipt = $3) AND i.seq < $4
		ORDER BY i.seq DESC LIMIT $5`, f.State, f.Receipt, f.Before, f.Limit)
}

// IntentStep is something that happened to an intent, or to the work of this node for it.
type IntentStep struct {
	At                       time.Time
	Machine, Event, From, To string
	Generation               int64
	Node, Reason             string
}

// History lists what happened to an intent here, the first first.
func (s *Store) History(ctx context.Context, contextID int32, domain, called string) ([]IntentStep, error) {
	i, err := s.Intent(ctx, contextID, domain, called)
	if err != nil {
		return nil, err
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT x.at, x.machine, x.event, x.was, x.state, x.generation, x.node, x.reason
		FROM postern.coord_step x
		JOIN postern.domain d ON d.domain_id = x.domain_id
		WHERE d.context_id = $1 AND d.name = $2 AND x.object = $3
		ORDER BY x.n`, contextID, domain, i.ID)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[IntentStep])
	return list, db.Known(err)
}

// Seconds is how long an intent has been in each of its states.
func Seconds(steps []IntentStep, now time.Time) map[string]float64 {
	all := map[string]float64{}
	var last *IntentStep
	for n := range steps {
		if steps[n].Machine != coord.OriginatorTransaction.Name {
			continue
		}
		if last != nil {
			all[last.To] += steps[n].At.Sub(last.At).Seconds()
		}
		last = &steps[n]
	}
	if last != nil && last.To != string(coord.Confirmed) && last.To != string(coord.Reverted) {
		all[last.To] += now.Sub(last.At).Seconds()
	}
	return all
}
