package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// placeBody is where a transaction is to stand: "head", {"before": id} or {"after": id}.
type placeBody struct {
	before, after string
	wrong         error // it is none of the three
}

// UnmarshalJSON reads one of the three. It keeps what is wrong for place, which tells it with its pointer.
func (p *placeBody) UnmarshalJSON(b []byte) error {
	var word string
	if json.Unmarshal(b, &word) == nil {
		if word != "head" {
			p.wrong = fault.At("/place", "place %q: want %s", fault.Clip(word), placeForms)
		}
		return nil
	}
	var m map[string]string
	if json.Unmarshal(b, &m) != nil || len(m) != 1 || m["before"] == "" && m["after"] == "" {
		p.wrong = fault.At("/place", "place: want %s", placeForms)
	}
	p.before, p.after = m["before"], m["after"]
	return nil
}

const placeForms = `"head", {"before": id} or {"after": id}`

// Schema leaves the form to UnmarshalJSON: generated clients have no type for all three.
func (placeBody) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: placeForms + ", of a transaction that waits in the same queue. head: before all that wait.", Examples: []any{"head"}}
}

// place reads the ids; nil: none is named.
func (p *placeBody) place() (to *pg.Place, err error) {
	switch {
	case p == nil:
		return nil, nil
	case p.wrong != nil:
		return nil, p.wrong
	}
	to = &pg.Place{}
	if to.Before, err = idAt("/place/before", p.before); err == nil {
		to.After, err = idAt("/place/after", p.after)
	}
	return to, err
}

// idAt reads the id of a transaction, nil for none.
func idAt(pointer, text string) (*outbox.ID, error) {
	if text == "" {
		return nil, nil
	}
	id, err := outbox.ParseID(text)
	if err != nil {
		return nil, fault.At(pointer, "%q is no id of a transaction", fault.Clip(text))
	}
	return &id, nil
}

// to checks where something is to go: within its queue there must be a place, and another queue must take posts.
func (a *API) to(ctx context.Context, queue name, place *placeBody) (*pg.Place, error) {
	to, err := place.place()
	if err != nil {
		return nil, err
	}
	if queue == "" {
		if to == nil {
			return nil, fault.At("/place", "want place, queue, or both: place is %s", placeForms)
		}
		return to, nil
	}
	into := queueName(queue)
	return to, a.wanted(ctx, &transactionInput{Queue: &into, UID: "-"})
}

// moving is the lever for one place.
func (a *API) moving(queue name, to *pg.Place) pg.Pull {
	return func(ctx context.Context, by db.By, id outbox.ID) (pg.LeverResult, error) {
		if queue == "" {
			return a.Store.Move(ctx, by, id, *to)
		}
		return a.Store.MoveTo(ctx, by, id, string(queue), to)
	}
}

type moveInput struct {
	ID string `path:"id"`
	Trial
	Body struct {
		Queue  name       `json:"queue,omitempty" doc:"To another queue: it gets a new id there, to which the old one leads. Absent: within its queue."`
		Place  *placeBody `json:"place,omitempty"`
		Reason string     `json:"reason,omitempty" maxLength:"1000" doc:"Kept in the audit row."`
	}
}

// move lets a waiting transaction go out earlier or later in its queue, where its position and id stay, or moves
// it to another queue.
func (a *API) move(ctx context.Context, in *moveInput) (*leverOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	to, err := a.to(ctx, in.Body.Queue, in.Body.Place)
	if err != nil {
		return nil, err
	}
	return lever(a.moving(in.Body.Queue, to)(ctx, by(ctx, in.Body.Reason), id))
}

type moveManyInput struct {
	DryRun bool `query:"dry_run" doc:"As dry_run in the body."`
	Body   struct {
		IDs    []string    `json:"ids,omitempty" maxItems:"1000" doc:"ids, or filter with max."`
		Filter *bulkFilter `json:"filter,omitempty" doc:"As in the list."`
		Max    int         `json:"max,omitempty" minimum:"1" maximum:"10000" doc:"Required with filter: nothing beyond it is touched."`
		After  string      `json:"after,omitempty" doc:"next of the answer before."`
		DryRun bool        `json:"dry_run,omitempty"`
		Reason string      `json:"reason,omitempty" maxLength:"1000"`
		Queue  name        `json:"queue,omitempty" doc:"To another queue, where they get new ids. Absent: within theirs."`
		Place  *placeBody  `json:"place,omitempty"`
	}
}

// moveMany moves several to one place. They keep their order: each stands behind the one before it.
func (a *API) moveMany(ctx context.Context, in *moveManyInput) (*bulkOutput, error) {
	to, err := a.to(ctx, in.Body.Queue, in.Body.Place)
	if err != nil {
		return nil, err
	}
	m := &moves{a: a, into: in.Body.Queue, to: to, dry: in.DryRun || in.Body.DryRun,
		last: map[int64]outbox.ID{}, follows: map[outbox.ID]outbox.ID{}}
	after, err := m.open(ctx, in.Body.After)
	if err != nil {
		return nil, err
	}
	r := a.newBulk(ctx, m.pull, &bulkInput{DryRun: in.DryRun, Body: bulkInputBody{in.Body.IDs, in.Body.Filter,
		in.Body.Max, after, in.Body.DryRun, in.Body.Reason}})
	r.apart, r.carried = m.into != "", m.carried
	return r.run(ctx)
}

// moves are those of many to one place.
type moves struct {
	a    *API
	into name
	to   *pg.Place
	dry  bool

	last    map[int64]outbox.ID     // the one that was moved last in each queue; none: a zero id
	follows map[outbox.ID]outbox.ID // what stood there when one was to be moved
	tried   outbox.ID               // the last one that a dry run has moved to another queue
}

// linesMost bounds the queues in which one move may keep an order: the cursor of its next request names each.
const linesMost = bulkMost

// chained says whether one is to stand behind the one before it: before another one, and at the end of a queue, they
// keep their order by themselves.
func (m *moves) chained() bool { return m.to != nil && m.to.Before == nil }

// line is the queue in which one comes to stand, 0 for the one into which all are moved.
func (m *moves) line(id outbox.ID) int64 {
	if m.into != "" {
		return 0
	}
	return id.Queue
}

// carried is what the next request of the same move has to know, as a tail of its cursor: behind which ones its own are
// to stand, each in 16 bytes.
func (m *moves) carried() string {
	var b []byte
	last := m.last
	if m.tried != (outbox.ID{}) {
		last = map[int64]outbox.ID{0: m.tried}
	}
	for _, line := range slices.Sorted(maps.Keys(last)) {
		if id, err := uuid.Parse(last[line].String()); err == nil && last[line] != (outbox.ID{}) {
			b = append(b, id[:]...)
		}
	}
	if len(b) == 0 || !m.chained() {
		return ""
	}
	return "." + base64.RawURLEncoding.EncodeToString(b)
}

// open takes the tail off a cursor, and remembers what it says. Of a dry run that names the last one in its old queue:
// where that was moved since, its id leads to the new one, and where it was not, there is nothing to stand behind.
func (m *moves) open(ctx context.Context, after string) (cursor string, err error) {
	cursor, tail, _ := strings.Cut(after, ".")
	if !m.chained() {
		return cursor, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(tail)
	if err != nil || len(b)%16 != 0 || len(b) > 16*linesMost || m.into != "" && len(b) > 16 {
		return "", badCursor(after)
	}
	for part := range slices.Chunk(b, 16) {
		id, err := outbox.ParseID(uuid.UUID(part).String())
		if err != nil {
			return "", badCursor(after)
		}
		if m.into != "" {
			t, err := m.a.Store.Transaction(ctx, contextID(ctx), id)
			if err != nil && fault.KindOf(err) != fault.NotFound {
				return "", err
			}
			if err != nil || t.Queue != string(m.into) {
				continue
			}
			id = t.ID
		}
		m.last[m.line(id)] = id
	}
	return cursor, nil
}

// pull moves one behind the one that was moved before it.
func (m *moves) pull(ctx context.Context, by db.By, id outbox.ID) (pg.LeverResult, error) {
	line, to := m.line(id), m.to
	if before, again := m.follows[id]; again { // its chunk is done once more
		m.last[line] = before
	}
	before := m.last[line]
	m.follows[id] = before
	switch {
	case !m.chained():
	case before != (outbox.ID{}):
		to = &pg.Place{After: &before}
	case len(m.last) >= linesMost && m.into == "":
		return pg.LeverResult{}, fault.New(fault.Conflict, "wrong_state",
			"one move keeps the order of at most %d queues: name the queues in several", linesMost)
	}
	r, err := m.a.moving(m.into, to)(ctx, by, id)
	if to != m.to && fault.CodeOf(err) == "wrong_state" && m.wentOut(ctx, by.Context, before) {
		r, err = m.a.moving(m.into, m.to)(ctx, by, id)
	}
	switch {
	case err == nil && r.Moved != nil && m.dry: // nothing is there to stand behind
		m.tried = id
	case err == nil && r.Moved != nil:
		m.last[line] = *r.Moved
	case err == nil && r.Moved == nil:
		m.last[line] = id
	}
	return r, err
}

// wentOut says whether one has ended after it was called: all that stood before it had ended then. Before one that
// ended in another way others may wait.
func (m *moves) wentOut(ctx context.Context, contextID int32, id outbox.ID) bool {
	t, err := m.a.Store.Transaction(ctx, contextID, id)
	return err == nil && t.ID == id && t.State.Terminal() && t.Attempt > 0
}
