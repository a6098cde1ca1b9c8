package domains

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/pg/db"
)

// parts are what is stored of an intent and of one of its generations.
type parts struct {
	intent       intentPart
	made         json.RawMessage // by the assembler, byte for byte
	making       coord.Making
	pending      []pendingState // of an assembly for another node: what that says may be used
	signatures   []Given
	endorsements []Given
}

// intentPart is what is stored of an intent itself.
type intentPart struct {
	ID    string          `json:"id"`
	Party string          `json:"party"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// Given is a signature, or an endorsement, of a party.
type Given struct {
	Name  string          `json:"name"`
	Party string          `json:"party"`
	Data  json.RawMessage `json:"data"`
}

// pendingStates are states that may be used before the ledger has them, and states that may not though it has.
type pendingStates struct {
	Outputs []pendingState `json:"outputs"`
	Spent   []string       `json:"spent"`
}

type pendingState struct {
	ID   string          `json:"id"`
	Data json.RawMessage `json:"data"`
	By   string          `json:"by"`
}

// question is the body of a request to the service of a domain.
type question struct {
	Key          string          `json:"key"`
	Domain       string          `json:"domain"`
	Intent       *intentPart     `json:"intent,omitempty"`
	Height       *int64          `json:"height,omitempty"`
	Pending      *pendingStates  `json:"pending,omitempty"`
	Name         string          `json:"name,omitempty"`
	Party        string          `json:"party,omitempty"`
	Hash         string          `json:"hash,omitempty"`
	Assembled    json.RawMessage `json:"assembled,omitempty"`
	Inputs       []string        `json:"inputs,omitempty"`
	Outputs      []coord.Output  `json:"outputs,omitempty"`
	Signatures   []Given         `json:"signatures,omitempty"`
	Endorsements []Given         `json:"endorsements,omitempty"`
	Intents      []string        `json:"intents,omitempty"`
}

// prepare makes the requests of a call of what is stored.
func (s *Store) prepare(ctx context.Context, c *Call) error {
	q := question{Key: c.Key, Domain: c.Name}
	switch c.Kind {
	case CallHeight:
		c.Requests = []Request{{Key: c.Key}}
		return nil
	case CallLook:
		q.Intents = []string{c.intent}
		return c.ask(q)
	}
	p, err := s.parts(ctx, c.Domain, c.intent, c.generation)
	if err != nil {
		return err
	}
	height := int64(0)
	if err := s.Db(ctx).QueryRow(ctx, `SELECT height FROM postern.coord_state WHERE domain_id = $1`, c.Domain).
		Scan(&height); err != nil {
		return db.Known(err)
	}
	q.Height, q.Hash = &height, c.call.Assembled.Hash
	switch {
	case c.Kind == "assemble", c.Kind == CallSettled:
	case p.made == nil:
		return fmt.Errorf("%s of intent %s: %w", c.Kind, c.intent, errNoData)
	case coord.HashOf(p.made) != q.Hash: // nothing is said of what others were shown
		return fmt.Errorf("%s of intent %s, generation %d: %w than %s", c.Kind, c.intent, c.generation, errOtherData,
			q.Hash)
	}
	if c.Kind != "assemble" {
		q.Assembled, q.Inputs, q.Outputs, q.Height = p.making.Assembled, p.making.Inputs, p.making.Outputs, nil
	}
	switch c.Kind {
	case "assemble":
		q.Intent = &p.intent
		if q.Pending, err = s.pending(ctx, c, p); err != nil {
			return err
		}
	case "sign":
		return c.askSigners(q)
	case "endorse":
		q.Name, q.Party, q.Signatures = c.call.Name, c.call.Party, p.signatures
	case "prepare":
		// The intent's data stays where it came from: what the others need of it, the assembler has made.
		q.Intent = &intentPart{ID: c.intent, Party: p.intent.Party}
		q.Signatures, q.Endorsements = p.signatures, p.endorsements
	case CallSettled:
		q.Intent, q.Height, q.Assembled = &p.intent, &height, nil
	}
	return c.ask(q)
}

func (c *Call) ask(q question) error {
	body, err := json.Marshal(q)
	c.Requests = append(c.Requests, Request{Key: q.Key, Name: q.Name, Party: q.Party, Body: body})
	return err
}

// askSigners asks each party of this node that is to sign.
func (c *Call) askSigners(q question) error {
	var all []error
	for _, at := range c.call.Assembled.Signs(c.settings.Self) {
		one := q
		one.Name, one.Party = at.Name, at.Parties[0]
		one.Key = c.Key + "." + one.Name + "." + one.Party
		all = append(all, c.ask(one))
	}
	return errors.Join(all...)
}

// parts reads what is stored of an intent, and of one of its generations.
func (s *Store) parts(ctx context.Context, domain int32, id string, generation int64) (*parts, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT p.part, p.name, p.party, p.data
		FROM postern.coord_payload p
		WHERE p.domain_id = $1 AND p.intent_id = $2::text::uuid AND p.generation IN (0, $3)
		ORDER BY p.part, p.name, p.party`, domain, id, generation)
	if err != nil {
		return nil, db.Known(err)
	}
	out := &parts{}
	var part string
	var g Given
	var raw []byte
	_, err = pgx.ForEachRow(rows, []any{&part, &g.Name, &g.Party, &raw}, func() error {
		one := Given{g.Name, g.Party, json.RawMessage(string(raw))}
		switch part {
		case "intent":
			return json.Unmarshal(raw, &out.intent)
		case "pending":
			return json.Unmarshal(raw, &out.pending)
		case "assembled":
			out.made = json.RawMessage(string(raw))
			return json.Unmarshal(raw, &out.making)
		case "sign":
			out.signatures = append(out.signatures, one)
		case "endorse":
			out.endorsements = append(out.endorsements, one)
		}
		return nil
	})
	return out, db.Known(err)
}

// pending lists the states that an assembler may use before the ledger has them.
func (s *Store) pending(ctx context.Context, c *Call, p *parts) (*pendingStates, error) {
	all := &pendingStates{Outputs: p.pending, Spent: c.call.Spent}
	if all.Spent == nil {
		all.Spent = []string{}
	}
	if all.Outputs == nil {
		var err error
		all.Outputs, err = s.visible(ctx, c.Domain, c.settings.Self, c.call.Pending, c.makers)
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// visible reads states that are made by what is on its way, those that a node may see: it has made them, or they were
// made for it.
func (s *Store) visible(ctx context.Context, domain int32, node string, states []string, makers map[string]made) (
	[]pendingState, error) {
	list := []pendingState{}
	makings := map[made]*parts{}
	for _, state := range states {
		by, ok := makers[state]
		if !ok {
			continue
		}
		if makings[by] == nil {
			var err error
			if makings[by], err = s.parts(ctx, domain, by.ID, by.Generation); err != nil {
				return nil, err
			}
		}
		for _, o := range makings[by].making.Outputs {
			if o.ID == state && (by.Origin == node || slices.Contains(o.To, node)) {
				list = append(list, pendingState{o.ID, o.Data, by.ID})
			}
		}
	}
	return list, nil
}
