package domains

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/pg/db"
)

// write adds to b what a step changes, and has the seat stand behind it.
func (h *seat) write(b *pgx.Batch, st *coord.Step) error {
	old, d := h.d, st.Domain
	d.Calls = slices.DeleteFunc(d.Calls, d.Obsolete)
	moves := map[string]coord.Move{} // the last of each
	for _, m := range st.Moves {
		moves[m.Machine+m.ID] = m
		b.Queue(`INSERT INTO postern.coord_step (domain_id, object, at, machine, was, event, state, generation, node,
			reason)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, h.id, m.ID, m.At, m.Machine, string(m.From),
			string(m.On),
			string(m.To), m.Generation, m.Node, m.Reason)
	}
	for _, write := range []func(*pgx.Batch, *coord.Domain, *coord.Domain, map[string]coord.Move) error{
		h.writeSpends, h.writeWorks, h.writeIntents, h.writePermits, h.writeCalls,
	} {
		if err := write(b, old, d, moves); err != nil {
			return err
		}
	}
	h.writePosts(b, st)
	h.writeEnds(b, old, d)
	if err := h.writeMail(b, d, st.Messages); err != nil {
		return err
	}
	h.writeSettled(b, d, st.Receipts)
	image, err := imageOf(d)
	if err != nil {
		return err
	}
	var due *time.Time
	if !d.Rests() && !st.Due.IsZero() {
		due = &st.Due
	}
	h.steps++
	intents, works, err := openIn(d)
	if err != nil {
		return err
	}
	changed, err := h.tellChanged()
	if err != nil {
		return err
	}
	b.Queue(`UPDATE postern.coord_state
		SET image = $2, originator = $3, coordinator = $4, step = $5, lives = $6, due = $7, life = $8, intents = $9,
			works = $10, still = $11, changed = $12
		WHERE domain_id = $1`, h.id, image, string(d.Seat.Originator), string(d.Seat.Coordinator), h.steps, h.lives,
		due, h.newLife, intents, works, d.Still(), changed)
	h.d = d
	return nil
}

// openIn counts the intents and works of an image that are not over, by state. An image has all of them.
func openIn(d *coord.Domain) (intents, works []byte, err error) {
	ofIntents, ofWorks := map[coord.State]int{}, map[coord.State]int{}
	for _, i := range d.Intents {
		if !i.Ended() {
			ofIntents[i.State]++
		}
	}
	for _, w := range d.Works {
		if w.State != coord.Final && w.State != coord.Evicted {
			ofWorks[w.State]++
		}
	}
	if intents, err = json.Marshal(ofIntents); err == nil {
		works, err = json.Marshal(ofWorks)
	}
	return intents, works, err
}

// writeSpends keeps which work spends a state. A state that one lets go is deleted before another takes it.
func (h *seat) writeSpends(b *pgx.Batch, old, d *coord.Domain, _ map[string]coord.Move) error {
	var gone []string
	taken := map[string][]string{}
	for _, w := range d.Works {
		var before []string
		if was := old.Work(w.ID); was != nil {
			before = was.Spends()
		}
		if now := w.Spends(); !slices.Equal(before, now) {
			if len(before) > 0 {
				gone = append(gone, w.ID)
			}
			taken[w.ID] = now
		}
	}
	if len(gone) > 0 {
		b.Queue(`DELETE FROM postern.coord_spend WHERE domain_id = $1 AND intent_id = ANY ($2::text[]::uuid[])`, h.id,
			gone)
	}
	for _, w := range d.Works {
		for _, state := range taken[w.ID] {
			b.Queue(`INSERT INTO postern.coord_spend (domain_id, state_id, intent_id)
				VALUES ($1, $2, $3::text::uuid)`, h.id,
				state, w.ID)
		}
	}
	return nil
}

// writeWorks writes works that have changed: those that leave Assembling before the one that enters it.
func (h *seat) writeWorks(b *pgx.Batch, old, d *coord.Domain, moves map[string]coord.Move) error {
	list := slices.Clone(d.Works)
	slices.SortStableFunc(list, func(x, y *coord.Work) int { return entering(x) - entering(y) })
	for _, w := range list {
		was, held := old.Work(w.ID), d.HoldsWork(w)
		move, moved := moves[coord.CoordinatorTransaction.Name+w.ID]
		if was != nil && !moved && held == old.HoldsWork(was) && reflect.DeepEqual(was, w) {
			continue
		}
		h.wrote[w.ID] = true
		image, err := json.Marshal(w)
		if err != nil {
			return err
		}
		if was != nil {
			b.Queue(`UPDATE postern.coord_work
				SET place = $3, was = CASE WHEN $9 THEN $4 ELSE was END, state = $5, since = $6, generation = $7,
					held = $8, image = $10
				WHERE domain_id = $1 AND intent_id = $2::text::uuid`, h.id, w.ID, w.Place, string(move.From),
				string(w.State), w.Since,
				w.Generation, held, moved, image)
			continue
		}
		b.Queue(`INSERT INTO postern.coord_work AS w (domain_id, intent_id, place, was, state, since, generation,
			held, image)
			VALUES ($1, $2::text::uuid, $3, $4, $5, $6, $7, $8, $9)
			ON CONFLICT (domain_id, intent_id) DO UPDATE SET place = excluded.place, was = excluded.was,
				state = excluded.state,
				since = excluded.since, generation = excluded.generation, held = excluded.held, image = excluded.image`,
			h.id, w.ID, w.Place, string(move.From), string(w.State), w.Since, w.Generation, held, image)
	}
	return nil
}

func entering(w *coord.Work) int {
	if w.State == coord.Assembling {
		return 1
	}
	return 0
}

// writeIntents writes intents that have changed. The row of a new one was inserted by its post.
func (h *seat) writeIntents(b *pgx.Batch, old, d *coord.Domain, moves map[string]coord.Move) error {
	for n, i := range d.Intents {
		var was *coord.Intent
		if n < len(old.Intents) && old.Intents[n].ID == i.ID { // nearly always
			was = old.Intents[n]
		} else {
			was = old.Intent(i.ID)
		}
		held := d.HoldsIntent(i)
		move, moved := moves[coord.OriginatorTransaction.Name+i.ID]
		if was == nil {
			h.top++
			i.Seq = h.top
		} else if !moved && held == old.HoldsIntent(was) && i.Same(was) {
			continue
		}
		h.wrote[i.ID] = true
		image, err := json.Marshal(i)
		if err != nil {
			return err
		}
		parked := ""
		if i.State == coord.Parked && i.Response != nil {
			parked = i.Response.Reason
		}
		b.Queue(`UPDATE postern.coord_intent
			SET seq = $3, was = CASE WHEN $4 THEN $5 ELSE was END, state = $6, since = $7, held = $8, image = $9,
				receipt = $10,
				text = $11, ended_at = $12, parked = $13
			WHERE domain_id = $1 AND intent_id = $2::text::uuid`, h.id, i.ID, i.Seq, moved, string(move.From),
			string(i.State),
			i.Since, held, image, db.Nullable(i.Receipt), i.Text, db.Nullable(i.EndedAt), parked)
	}
	return nil
}

// writePermits writes permits: those that close before those that are given.
func (h *seat) writePermits(b *pgx.Batch, old, d *coord.Domain, _ map[string]coord.Move) error {
	for n, p := range d.Permits[:len(old.Permits)] {
		if *p != *old.Permits[n] {
			h.wrote[p.ID] = true
			b.Queue(`UPDATE postern.coord_permit
				SET generation = $4, install = $5, beat = $6, asked_at = $7, closed_at = $8, closed_by = $9, ended = $10
				WHERE domain_id = $1 AND intent_id = $2::text::uuid AND n = $3`, h.id, p.ID, h.permits[n], p.Generation,
				p.Install, p.Beat, db.Nullable(p.AskedAt), db.Nullable(p.ClosedAt), p.ClosedBy, p.Ended)
		}
	}
	h.permits = slices.Clone(h.permits)
	for k, p := range d.Permits[len(old.Permits):] {
		h.wrote[p.ID] = true
		n := 1
		for m, other := range d.Permits[:len(old.Permits)+k] {
			if other.ID == p.ID {
				n = max(n, h.permits[m]+1)
			}
		}
		h.permits = append(h.permits, n)
		b.Queue(`INSERT INTO postern.coord_permit (domain_id, intent_id, n, generation, node, install, beat, given_at,
			asked_at,
				closed_at, closed_by, ended)
			VALUES ($1, $2::text::uuid, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`, h.id, p.ID, n, p.Generation,
			p.Node,
			p.Install, p.Beat, p.GivenAt, db.Nullable(p.AskedAt), db.Nullable(p.ClosedAt), p.ClosedBy, p.Ended)
	}
	return nil
}

// made names the generation of a work that makes a state.
type made struct {
	ID         string `json:"id"`
	Generation int64  `json:"generation"`
	Origin     string `json:"origin"` // the node of the intent
}

// writeCalls writes which calls of the service have no answer yet.
func (h *seat) writeCalls(b *pgx.Batch, old, d *coord.Domain, _ map[string]coord.Move) error {
	has := func(list []*coord.Call, key string) bool {
		return slices.ContainsFunc(list, func(c *coord.Call) bool { return c.Key == key })
	}
	var gone []string
	for _, c := range old.Calls {
		if !has(d.Calls, c.Key) {
			gone = append(gone, c.Key)
		}
	}
	if len(gone) > 0 {
		b.Queue(`DELETE FROM postern.coord_call WHERE domain_id = $1 AND key = ANY ($2)`, h.id, gone)
	}
	for _, c := range d.Calls {
		if has(old.Calls, c.Key) {
			continue
		}
		call, err := json.Marshal(c)
		if err != nil {
			return err
		}
		names, err := json.Marshal(makersOf(d, c.Pending))
		if err != nil {
			return err
		}
		h.queueCall(b, c.Key, c.Kind, c.ID, c.Generation, call, names)
	}
	return nil
}

// makersOf names what makes states.
func makersOf(d *coord.Domain, states []string) map[string]made {
	makers := map[string]made{}
	for _, w := range d.Works {
		for _, o := range w.Assembled.Outputs {
			if slices.Contains(states, o) {
				makers[o] = made{w.ID, w.Generation, w.Origin}
			}
		}
	}
	return makers
}

func (h *seat) queueCall(b *pgx.Batch, key, kind, id string, generation int64, call, makers []byte) {
	b.Queue(`INSERT INTO postern.coord_call (domain_id, key, kind, intent_id, generation, call, makers, due)
		VALUES ($1, $2, $3, $4::text::uuid, $5, $6, $7, $8)
		ON CONFLICT (domain_id, key) DO NOTHING`, h.id, key, kind, db.Nullable(id), generation, call, makers, h.now)
}

// UIDPrefix begins the uid of each public transaction of a domain, and no client's.
const UIDPrefix = ":coord:"

func (h *seat) uid(workUID string) string {
	return UIDPrefix + strconv.Itoa(int(h.id)) + ":" + workUID
}

// writePosts keeps which public transactions are to be posted, and which are to be called back.
func (h *seat) writePosts(b *pgx.Batch, st *coord.Step) {
	for _, p := range st.Posts {
		on := []string{}
		for _, uid := range p.DependsOn {
			on = append(on, h.uid(uid))
		}
		b.Queue(`INSERT INTO postern.coord_activity (domain_id, intent_id, generation, work_uid, uid, depends_on, at)
			VALUES ($1, $2::text::uuid, $3, $4, $5, $6, $7)`, h.id, p.ID, p.Generation, p.UID, h.uid(p.UID), on, h.now)
	}
	if len(st.Recalls) > 0 {
		b.Queue(`UPDATE postern.coord_activity SET recalled = true WHERE domain_id = $1 AND work_uid = ANY ($2)`, h.id,
			st.Recalls)
	}
}

// writeEnds ends the public transactions of works that wait for them no more, also of one whose outcome the core does
// not know: the ledger, or an operator, has said it. Retention keeps what has not ended.
func (h *seat) writeEnds(b *pgx.Batch, old, d *coord.Domain) {
	out := func(w *coord.Work) bool { return w.State == coord.Dispatched || w.State == coord.Submitted }
	var uids []string
	for _, was := range old.Works {
		if w := d.Work(was.ID); out(was) && w != nil && !out(w) {
			uids = append(uids, was.UID)
		}
	}
	if len(uids) > 0 {
		b.Queue(`UPDATE postern.coord_activity
			SET ended_at = $3
			WHERE domain_id = $1 AND work_uid = ANY ($2) AND ended_at IS NULL`, h.id, uids, h.now)
	}
}

// writeSettled has the service told of what was confirmed, where it wants that.
func (h *seat) writeSettled(b *pgx.Batch, d *coord.Domain, receipts []coord.Receipt) {
	if !h.settings.asks(CallSettled) {
		return
	}
	for _, r := range receipts {
		if i := d.Intent(r.ID); r.Outcome == coord.Success && i != nil {
			h.queueCall(b, r.ID+".settled", CallSettled, r.ID, i.Generation, []byte("{}"), []byte("{}"))
		}
	}
}

// writeParts adds to b what the service made, as an event brings it, and keeps the core's word.
//
// Why a late word does not open again what has ended: words are read before the lock of the seat, and another step may
// have ended the work meanwhile. This statement stands behind that lock, and so it sees that end.
func writeParts(b *pgx.Batch, h *seat, e Event) {
	for _, p := range e.Parts {
		b.Queue(`INSERT INTO postern.coord_payload (domain_id, intent_id, generation, part, name, party, data, at)
			VALUES ($1, $2::text::uuid, $3, $4, $5, $6, $7, $8)
			ON CONFLICT ON CONSTRAINT one_row_per_part DO NOTHING`, h.id, p.ID, p.Generation, p.Part, p.Name, p.Party,
			string(p.Data), h.now)
		if p.Part == "assembled" || p.Part == "pending" {
			h.forgetParts(b, p)
		}
	}
	if w := e.Word; w != nil {
		b.Queue(`UPDATE postern.coord_activity
			SET state = $3, nonce = $4, hash = $5, ended_at = CASE WHEN $6 THEN $7::timestamptz END
			WHERE domain_id = $1 AND work_uid = $2 AND ended_at IS NULL`, h.id, w.UID, w.State, w.Nonce, w.Hash,
			w.Ended, h.now)
	}
}

// forgetParts deletes parts of generations before the one that a part is stored for: one try follows another while an
// endorser is away. Where the intent is only to be assembled anew, these are the states that could be used then.
//
// Why none is deleted that is still read: all parts are written by steps, behind the lock of the seat, and so is what
// names a generation: its public transaction, its permit, an open call, and the work, which has the one that it asks
// for. What a message to another node wants of an older one is stale there, and such a message is dropped.
func (h *seat) forgetParts(b *pgx.Batch, p Part) {
	b.Queue(`DELETE FROM postern.coord_payload o
		WHERE o.domain_id = $1 AND o.intent_id = $2::text::uuid AND o.generation > 0 AND o.generation < $3
			AND o.part IN ('pending', CASE WHEN $4 THEN o.part END)
			AND NOT EXISTS (SELECT FROM postern.coord_activity a
				WHERE (a.domain_id, a.intent_id, a.generation) = (o.domain_id, o.intent_id, o.generation))
			AND NOT EXISTS (SELECT FROM postern.coord_permit y
				WHERE (y.domain_id, y.intent_id, y.generation) = (o.domain_id, o.intent_id, o.generation))
			AND NOT EXISTS (SELECT FROM postern.coord_call c
				WHERE (c.domain_id, c.intent_id, c.generation) = (o.domain_id, o.intent_id, o.generation))
			AND NOT EXISTS (SELECT FROM postern.coord_work w
				WHERE (w.domain_id, w.intent_id, w.generation) = (o.domain_id, o.intent_id, o.generation))`, h.id, p.ID,
		p.Generation, p.Part == "assembled")
}
