package devnetworker

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/fault"
)

// Types are the transaction types of seed 2, in the order in which a vote passes through them. The worker
// takes others too.
var Types = []string{"CREATE_CLAIM_VOTING_ACCOUNT", "SEND_CLAIM_VOTE", "CREATE_VOTING_BATCHES_ACCOUNT",
	"RECEIVE_VOTES_BATCH", "COMMIT_ALL_VOTING_BATCHES"}

// wanted is what the data of a transaction may say of what it does on the ledger.
type wanted struct {
	Calls             []wantedCall // all of them or none, whatever the type
	To                string
	Amount            json.RawMessage
	ZkAppAddress      string
	ClaimUID, PlanUID string
}

// wantedCall is one call: to an account of the keystore, an address, or an app with a method.
type wantedCall struct {
	To     string
	Method string
	Amount json.RawMessage // digits, as string or number
	Args   json.RawMessage
}

// prepare makes the calls of a transaction. Data with "calls" does these, all or none; type EXECUTE does the message or
// messages of a processor's batch, all or none (S4.6); type TRANSFER moves amount to an account; any other type calls
// the method of its name, in lower case, on the app that zkAppAddress, claimUid or planUid names, with its data. An
// error is Invalid and names the field.
func (w *Worker) prepare(typ string, data json.RawMessage) ([]devnet.Call, error) {
	var want wanted
	if len(data) > 0 && data[0] == '{' {
		if err := json.Unmarshal(data, &want); err != nil {
			return nil, fault.At("/data", "the data is not understood: %v", err)
		}
	}
	switch {
	case want.Calls != nil:
		calls := make([]devnet.Call, len(want.Calls))
		for i, c := range want.Calls {
			var err error
			if calls[i], err = w.oneCall(c); err != nil {
				return nil, fault.At("/data/calls/"+strconv.Itoa(i), "call %d: %v", i, err)
			}
		}
		return calls, nil
	case typ == "EXECUTE":
		return w.messages(data)
	case typ == "TRANSFER":
		c, err := w.oneCall(wantedCall{To: want.To, Amount: want.Amount})
		if err == nil && !devnet.IsAddress(c.To) {
			err = fault.At("/data/to", "a transfer goes to %q: want an account of the keystore, or an address",
				fault.Clip(want.To))
		}
		return []devnet.Call{c}, err
	}
	app := "postern"
	for _, name := range []string{want.PlanUID, want.ClaimUID, want.ZkAppAddress} {
		if name != "" {
			app = name
		}
	}
	return []devnet.Call{{To: app, Method: strings.ToLower(typ), Args: without(data, "simulate")}}, nil
}

// messages makes a call of each message: {"transfer": {"to", "amount"}} moves money, any other name is a method of the
// app that "to" names, which gets the message's arguments.
func (w *Worker) messages(data json.RawMessage) ([]devnet.Call, error) {
	list := []json.RawMessage{data}
	if len(data) > 0 && data[0] == '[' {
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, fault.At("/data", "the data is not understood: %v", err)
		}
	}
	var calls []devnet.Call
	for i, text := range list {
		var message map[string]json.RawMessage
		if json.Unmarshal(text, &message) != nil || len(message) != 1 {
			return nil, fault.At("/data/"+strconv.Itoa(i),
				"message %d: want an object with one key, the name of what is called", i)
		}
		for name, args := range message {
			var want wantedCall
			if err := json.Unmarshal(args, &want); err != nil {
				return nil, fault.At("/data/"+strconv.Itoa(i), "message %d: %v", i, err)
			}
			if want.Method, want.Args = name, args; name == "transfer" {
				want.Method, want.Args = "", nil
			}
			c, err := w.oneCall(want)
			if err != nil {
				return nil, fault.At("/data/"+strconv.Itoa(i), "message %d: %v", i, err)
			}
			calls = append(calls, c)
		}
	}
	return calls, nil
}

// oneCall reads a call. The name of an account in the keystore becomes its address.
func (w *Worker) oneCall(c wantedCall) (devnet.Call, error) {
	out := devnet.Call{To: c.To, Method: c.Method, Args: c.Args}
	if digits := strings.Trim(string(c.Amount), `"`); digits != "" && digits != "null" {
		var err error
		if out.Amount, err = strconv.ParseUint(digits, 10, 64); err != nil {
			return out, fault.At("/amount", "amount is %s: want digits", fault.Clip(string(c.Amount)))
		}
	}
	if c.To == "" {
		return out, fault.At("/to", "to is missing: want an account of the keystore, an address, or the name of an app")
	}
	if c.Method == "" && !devnet.IsAddress(c.To) {
		if key, err := w.keys.Key(c.To); err == nil {
			out.To = string(devnet.AddressOf(key))
		}
	}
	return out, nil
}

// without leaves a member out of an object. It returns data that is no object as it is.
func without(data json.RawMessage, member string) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil || object[member] == nil {
		return data
	}
	delete(object, member)
	out, err := json.Marshal(object)
	if err != nil {
		return data
	}
	return out
}
