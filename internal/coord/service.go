package coord

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/strict"
	"github.com/postern-dev/postern/internal/twin"
)

// The service of a domain is asked over HTTP. Its answers are read here: one that is not of the contract is an error
// that says what would be right, and counts as the answer ERROR.

// MostAssembled is how large what was assembled may be, since it has to fit a message to another node.
const MostAssembled = 512 << 10

// deepestAnswer is how deep an answer may be nested. A part of it stands up to 4 levels deeper in a message to another
// node (/messages/0/given/0/data in place of /signature), and the door of that node takes 64.
const deepestAnswer = 64 - 4

// mostParked is how long an answer may have its intent parked.
const mostParked = 30 * 24 * time.Hour

// mostName is how long the name of a state, of an attestation or of a party may be.
const mostName = 200

// Output is a state that an intent makes.
type Output struct {
	ID   string          `json:"id"`
	Data json.RawMessage `json:"data,omitempty"`
	To   []string        `json:"to,omitempty"` // nodes that are told of it
}

// PlanItem is an attestation as the service writes it.
type PlanItem struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	Parties   []string `json:"parties"`
	Threshold *int     `json:"threshold,omitempty"`
}

// Making is what the service made of an intent, as it is kept, signed and hashed.
type Making struct {
	Assembled json.RawMessage `json:"assembled"`
	Inputs    []string        `json:"inputs"`
	Outputs   []Output        `json:"outputs"`
	Plan      []PlanItem      `json:"plan"`
}

type result struct {
	Result       string `json:"result"`
	Reason       string `json:"reason"`
	RevertReason string `json:"revert_reason"`
	Resume       *struct {
		After string `json:"after"`
	} `json:"resume"`
	Assembled   json.RawMessage `json:"assembled"`
	Inputs      []string        `json:"inputs"`
	Outputs     json.RawMessage `json:"outputs"`
	Plan        json.RawMessage `json:"plan"`
	Signature   json.RawMessage `json:"signature"`
	Endorsement json.RawMessage `json:"endorsement"`
	Type        string          `json:"type"`
	Data        json.RawMessage `json:"data"`
	Items       json.RawMessage `json:"items"`
}

// ReadAnswer reads what the service of a domain answered to a call, with what of it is to be kept. The error says what
// is not of the contract. What the door of another node would refuse is refused here: there it would hold up all that
// goes to that node in the same call.
func (d *Domain) ReadAnswer(c *Call, body []byte, types []string) (Answer, json.RawMessage, error) {
	a := Answer{Key: c.Key, Result: OK}
	var r result
	if err := strict.Check(body, deepestAnswer); err != nil {
		return a, nil, err
	}
	if err := strict.Read(body, &r); err != nil {
		return a, nil, err
	}
	if c.Kind == "endorse" && r.RevertReason != "" {
		r.Result, r.Reason = Revert, r.RevertReason
	}
	if a.Reason = r.Reason; c.Kind != "look" && c.Kind != "prepare" && (r.Result == Revert || r.Result == Park) {
		if a.Result = r.Result; a.Result == Park && c.Kind == "endorse" {
			return a, nil, fmt.Errorf("result PARK: want an endorsement or a revert_reason")
		}
		if a.Reason == "" {
			return a, nil, fmt.Errorf("result %s without a reason", r.Result)
		}
		if a.Result == Park && r.Resume != nil {
			after, err := time.ParseDuration(r.Resume.After)
			if err != nil || after < time.Second || after > mostParked {
				return a, nil, fmt.Errorf("resume.after %q: want a duration of 1s to %s", fault.Clip(r.Resume.After),
					mostParked)
			}
			a.After = after
		}
		return a, nil, nil
	}
	switch c.Kind {
	case "assemble":
		return d.readMaking(a, r)
	case "sign":
		return a, r.Signature, wants("signature", r.Signature)
	case "endorse":
		return a, r.Endorsement, wants("endorsement", r.Endorsement)
	case "prepare":
		kept, err := json.Marshal(PublicTransaction{r.Type, r.Data})
		switch {
		case err != nil:
			return a, nil, err
		case !slices.Contains(types, r.Type):
			return a, nil, fmt.Errorf("type %q: want one of the domain's types, %s", fault.Clip(r.Type),
				strings.Join(types, ", "))
		}
		return a, kept, wants("data", r.Data)
	case "look":
		return readLook(a, c, r)
	}
	return a, nil, nil
}

// PublicTransaction is the public transaction that the service has prepared.
type PublicTransaction struct {
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}

func wants(name string, raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return fmt.Errorf("want %s", name)
	}
	return nil
}

func readLook(a Answer, c *Call, r result) (Answer, json.RawMessage, error) {
	var items []struct {
		State string `json:"state"`
	}
	if err := json.Unmarshal(r.Items, &items); err != nil || len(items) != 1 {
		return a, nil, fmt.Errorf("want items, one for each intent that was asked about")
	}
	if a.Result = items[0].State; twin.Planted("done_is_reverted") {
		a.Result = Unknown
	}
	if a.Result != Fulfilled && a.Result != Unknown {
		return a, nil, fmt.Errorf("state %q of %s: want fulfilled or unknown", fault.Clip(a.Result), c.ID)
	}
	return a, nil, nil
}

// readMaking reads what was assembled.
func (d *Domain) readMaking(a Answer, r result) (Answer, json.RawMessage, error) {
	m := Making{Assembled: r.Assembled, Inputs: r.Inputs}
	if r.Result != OK {
		return a, nil, fmt.Errorf("result %q: want OK, REVERT or PARK", fault.Clip(r.Result))
	}
	if len(m.Assembled) == 0 {
		m.Assembled = json.RawMessage("null")
	}
	if err := list(r.Outputs, &m.Outputs); err != nil {
		return a, nil, fmt.Errorf("outputs: %w", err)
	}
	if err := list(r.Plan, &m.Plan); err != nil {
		return a, nil, fmt.Errorf("plan: %w", err)
	}
	if err := d.checkStates(m); err != nil {
		return a, nil, err
	}
	if err := d.checkPlan(m.Plan); err != nil {
		return a, nil, err
	}
	if m.Inputs == nil {
		m.Inputs = []string{}
	}
	kept, err := json.Marshal(m)
	if err != nil {
		return a, nil, err
	}
	if len(kept) > MostAssembled {
		return a, nil, fmt.Errorf("what was assembled has %d bytes: want at most %d", len(kept), MostAssembled)
	}
	a.Assembled = m.brief(kept)
	return a, kept, nil
}

// ReadMaking reads what another node says was assembled, and returns what the machines know of it. Its hash is computed
// here.
func (d *Domain) ReadMaking(kept json.RawMessage) (Making, Assembled, error) {
	var m Making
	if len(kept) > MostAssembled {
		return m, Assembled{}, fmt.Errorf("what was assembled has %d bytes: want at most %d", len(kept), MostAssembled)
	}
	if err := json.Unmarshal(kept, &m); err != nil {
		return m, Assembled{}, err
	}
	if err := d.checkStates(m); err != nil {
		return m, Assembled{}, err
	}
	if err := d.checkPlan(m.Plan); err != nil {
		return m, Assembled{}, err
	}
	return m, m.brief(kept), nil
}

// HashOf is the hash of what was assembled, which its permit and its endorsements name.
func HashOf(kept json.RawMessage) string { return Making{}.brief(kept).Hash }

// list reads an array. Where there is none, it is empty.
func list[T any](raw json.RawMessage, into *[]T) error {
	*into = []T{}
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	return json.Unmarshal(raw, into)
}

// brief is what the machines know of what was assembled. Its hash is that of the canonical JSON.
func (m Making) brief(kept json.RawMessage) Assembled {
	canonical, _ := json.Marshal(outbox.Canonical(kept))
	sum := sha256.Sum256(canonical)
	b := Assembled{Hash: hex.EncodeToString(sum[:]), Inputs: m.Inputs}
	for _, id := range m.Inputs {
		b.Size += len(id)
	}
	for _, o := range m.Outputs {
		b.Outputs = append(b.Outputs, o.ID)
		b.Size += len(o.ID) + len(o.Data)
	}
	for _, p := range m.Plan {
		at := Attestation{Name: p.Name, Type: p.Type, Parties: p.Parties}
		if p.Threshold != nil {
			at.Threshold = *p.Threshold
		}
		b.Plan = append(b.Plan, at)
	}
	return b
}

// checkStates refuses states without a name, with a name that is too long, or that stand there twice.
func (d *Domain) checkStates(m Making) error {
	seen := map[string]bool{}
	name := func(what, id string) error {
		switch {
		case id == "" || len(id) > mostName || strings.Contains(id, "\x00"):
			return fmt.Errorf("%s %q: want an id of 1 to %d bytes", what, fault.Clip(id), mostName)
		case seen[id]:
			return fmt.Errorf("%s %q stands there twice", what, fault.Clip(id))
		}
		seen[id] = true
		return nil
	}
	for _, id := range m.Inputs {
		if err := name("input", id); err != nil {
			return err
		}
	}
	for _, o := range m.Outputs {
		if err := name("output", o.ID); err != nil {
			return err
		}
		for _, node := range o.To {
			if d.peer(node) == nil {
				return fmt.Errorf("output %q goes to %q, which is no node of the domain", fault.Clip(o.ID),
					fault.Clip(node))
			}
		}
	}
	return nil
}

// checkPlan refuses attestations that could never be given.
func (d *Domain) checkPlan(plan []PlanItem) error {
	var names []string
	for _, p := range plan {
		switch {
		case p.Name == "" || len(p.Name) > mostName || strings.Contains(p.Name, "\x00") ||
			slices.Contains(names, p.Name):
			return fmt.Errorf("plan: name %q: want one of 1 to %d bytes, and each once", fault.Clip(p.Name), mostName)
		case p.Type != "sign" && p.Type != "endorse":
			return fmt.Errorf("plan %q: type %q: want sign or endorse", fault.Clip(p.Name), fault.Clip(p.Type))
		case len(p.Parties) == 0:
			return fmt.Errorf("plan %q: want parties", fault.Clip(p.Name))
		case p.Threshold != nil && (*p.Threshold < 1 || *p.Threshold > len(p.Parties)):
			return fmt.Errorf("plan %q: threshold %d: want 1 to %d, the number of its parties", fault.Clip(p.Name),
				*p.Threshold,
				len(p.Parties))
		}
		names = append(names, p.Name)
		for i, party := range p.Parties {
			if err := d.CheckParty(party); err != nil {
				return fmt.Errorf("plan %q: %w", fault.Clip(p.Name), err)
			}
			if slices.Contains(p.Parties[:i], party) {
				return fmt.Errorf("plan %q: party %q stands there twice", fault.Clip(p.Name), fault.Clip(party))
			}
		}
	}
	return nil
}

// CheckParty refuses a party of no node of the domain.
func (d *Domain) CheckParty(party string) error {
	node := nodeOf(party)
	switch {
	case len(party) > mostName || node == party || strings.HasPrefix(party, "@") || strings.Contains(party, "\x00"):
		return fmt.Errorf("party %q: want name@node, of at most %d bytes", fault.Clip(party), mostName)
	case d.peer(node) == nil:
		return fmt.Errorf("party %q: %q is no node of the domain", fault.Clip(party), fault.Clip(node))
	}
	return nil
}

// Signs lists who of a node signs what was assembled: its parties in attestations of type sign, by name.
func (a Assembled) Signs(node string) (list []Attestation) {
	for _, at := range a.Plan {
		for _, party := range at.Parties {
			if at.Type == "sign" && nodeOf(party) == node {
				list = append(list, Attestation{Name: at.Name, Type: at.Type, Parties: []string{party}})
			}
		}
	}
	return list
}
