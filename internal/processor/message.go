package processor

import (
	"encoding/json"
	"fmt"

	"github.com/postern-dev/postern/internal/fault"
)

// Message is one message of a batch: an object with one key, the name of what is called, and beneath it the
// arguments.
type Message struct {
	Type string          `json:"type,omitempty"`
	Msg  json.RawMessage `json:"msg"`
}

// MessageDetails is what a function demands of its message (S4.11).
type MessageDetails struct {
	MessageType string       `json:"message_type,omitempty"`
	Message     MessageShape `json:"message"`
}

// MessageShape is the name that a message must have, and what its arguments must and must not hold.
type MessageShape struct {
	Name         string        `json:"name"`
	Restrictions []Restriction `json:"params_restrictions,omitempty"`
}

// Restriction is a rule about one path of keys, from inside the message's name. Exactly one of the three is there.
type Restriction struct {
	MustBeIncluded   []string   `json:"must_be_included,omitempty"`
	CannotBeIncluded []string   `json:"cannot_be_included,omitempty"`
	MustBeValue      *PathValue `json:"must_be_value,omitempty"`
}

// PathValue is a path of keys and the value at its end.
type PathValue struct {
	Path  []string        `json:"path"`
	Value json.RawMessage `json:"value"`
}

func (d MessageDetails) validate(at string) error {
	if d.Message.Name == "" {
		return fault.At(at+"/message/name", "name is missing: want the one key that the message has")
	}
	for i, r := range d.Message.Restrictions {
		n := 0
		for _, there := range []bool{len(r.MustBeIncluded) > 0, len(r.CannotBeIncluded) > 0, r.MustBeValue != nil &&
			len(r.MustBeValue.Path) > 0 && json.Valid(r.MustBeValue.Value)} {
			if there {
				n++
			}
		}
		if n != 1 {
			return fault.At(fmt.Sprintf("%s/message/params_restrictions/%d", at, i),
				`want one of {"must_be_included": [keys]}, {"cannot_be_included": [keys]}, {"must_be_value": {"path": [keys], "value": ...}}`)
		}
	}
	return nil
}

// CheckMessages compares messages with the functions that they are for, message by message, in the order of
// S4.12; the first that does not fit is refused with the published text.
func CheckMessages(messages []Message, functions []Function) error {
	if len(messages) != len(functions) {
		return fault.At("/messages", "The amount of messages you send must match the amount of functions in the list")
	}
	for i, m := range messages {
		if err := m.fits(functions[i].MessageDetails, fmt.Sprintf("/messages/%d", i)); err != nil {
			return err
		}
	}
	return nil
}

func (m Message) fits(d MessageDetails, at string) error {
	if m.Type != d.MessageType {
		return fault.At(at+"/type", "The message sent has a different type than expected")
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(m.Msg, &object) != nil || len(object) != 1 {
		return fault.At(at+"/msg", "The message can only have one top level key")
	}
	inside, ok := object[d.Message.Name]
	if !ok {
		return fault.At(at+"/msg", "The message doesn't match the function")
	}
	for _, r := range d.Message.Restrictions {
		if !r.holds(inside) {
			return fault.At(at+"/msg/"+d.Message.Name, "The message doesn't pass all the parameter restrictions")
		}
	}
	return nil
}

func (r Restriction) holds(inside json.RawMessage) bool {
	switch {
	case len(r.MustBeIncluded) > 0:
		_, there := follow(inside, r.MustBeIncluded)
		return there
	case len(r.CannotBeIncluded) > 0:
		_, there := follow(inside, r.CannotBeIncluded)
		return !there
	case r.MustBeValue != nil:
		v, there := follow(inside, r.MustBeValue.Path)
		return there && Same(v, r.MustBeValue.Value)
	}
	return true
}

func follow(v json.RawMessage, path []string) (json.RawMessage, bool) {
	for _, key := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(v, &object) != nil {
			return nil, false
		}
		next, ok := object[key]
		if !ok {
			return nil, false
		}
		v = next
	}
	return v, true
}

// Payload is what the worker is given: the message of the action at index, with the id of its batch where a
// callback will name it; of an atomic batch, all messages, each with its contract where there are several; of one that
// goes to another installation, all of it.
func (b *Batch) Payload() json.RawMessage {
	if b.DeliverAs != "" {
		return b.envelope()
	}
	if b.Actions.Atomic != nil {
		return b.allAtOnce()
	}
	msg := b.Messages[b.Index].Msg
	if b.Actions.Confirmation(b.Index) == nil {
		return msg
	}
	var object map[string]map[string]json.RawMessage
	if json.Unmarshal(msg, &object) != nil { // its arguments are no object: there is no room for an id
		return msg
	}
	for name, inside := range object {
		if inside == nil {
			inside = map[string]json.RawMessage{}
		}
		inside["execution_id"] = fmt.Appendf(nil, "%d", b.ID)
		object[name] = inside
	}
	text, _ := json.Marshal(object)
	return text
}

// contractMessage is a message of an atomic batch that names several contracts.
type contractMessage struct {
	ContractAddress string          `json:"contract_address"`
	Msg             json.RawMessage `json:"msg"`
}

// allAtOnce is what an atomic batch gives its worker.
func (b *Batch) allAtOnce() json.RawMessage {
	var all []any
	several := len(b.Actions.Contracts()) > 1
	for i, m := range b.Messages {
		if several {
			all = append(all, contractMessage{b.Actions.Functions()[i].ContractAddress, m.Msg})
		} else {
			all = append(all, m.Msg)
		}
	}
	text, _ := json.Marshal(all)
	return text
}
