package remote

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/strict"
)

// txnResult is a worker's answer to a dispatch, read and checked.
type txnResult struct {
	result outbox.Result
	err    workerError
	keys   bool   // it has the keys hash, done and error, whatever their values
	reason string // why it is not readable
}

// workerError is the member error of an answer.
type workerError struct {
	set     bool // neither null nor {}
	code    string
	kind    codeKind
	message string
	class   outbox.Class // "" unless the worker names one
	noClass string       // what it names as its class, and is none
	scope   outbox.Scope // "" unless the worker names one
	after   time.Duration
	notTill string // error.until as it came
}

// codeKind is what S2.8 makes of an error code.
type codeKind int

const (
	codeOther       codeKind = iota // 20202 proving, 20203 sending, ...: try again
	codeUnavailable                 // 502: the worker, or its fee payer, is not there
	codeNever                       // 500: it can never be done
)

// codeKinds knows the codes by number and by the names that the reference gives them.
var codeKinds = map[string]codeKind{
	"502": codeUnavailable, "WORKER_UNAVAILABLE": codeUnavailable, "NO_FEE_PAYER_AVAILABLE": codeUnavailable,
	"500": codeNever, "ACCOUNT_NOT_FOUND": codeNever, "PREPARE_TRANSACTION_FAILED": codeNever,
}

// noFeePayer is what the reference says beside 502 where the account of a sender is missing, and not the worker.
const noFeePayer = "There is no fee payer with this account publicKey."

// readResult reads a body as a TxnResult. It is not readable if it is none, or holds something that a
// hash cannot be: a hash that we would have to mend is one that we could never ask after.
func readResult(body []byte) (r txnResult, readable bool) {
	if len(body) == 0 {
		return txnResult{reason: "it is empty"}, false
	}
	var raw struct {
		Hash  json.RawMessage `json:"hash"`
		Done  json.RawMessage `json:"done"`
		Error json.RawMessage `json:"error"`
		Data  json.RawMessage `json:"data"`
		Nonce json.RawMessage `json:"nonce"`
		Fee   json.RawMessage `json:"fee"`
	}
	all, err := strict.Object(body)
	if err != nil {
		return txnResult{reason: clipMessage(err.Error())}, false
	}
	_ = all.Fill(&raw) // raw members are not read
	r.keys = raw.Hash != nil && raw.Done != nil && raw.Error != nil
	if isSet(raw.Error) && string(raw.Error) != `""` {
		if raw.Error[0] != '{' {
			return txnResult{reason: "error is neither an object nor null"}, false
		}
		if r.err, err = readError(raw.Error); err != nil {
			return txnResult{reason: "error: " + clipMessage(err.Error())}, false
		}
	}
	if isSet(raw.Hash) && string(raw.Hash) != `""` {
		if json.Unmarshal(raw.Hash, &r.result.Hash) != nil || !plainHash(r.result.Hash) {
			return txnResult{err: r.err, keys: r.keys,
				reason: "hash is not a string of 1 to 512 printable characters"}, r.err.set
		}
	}
	var ok bool
	// {} is unset beside a hash key alone
	if isSet(raw.Done) || len(raw.Done) > 0 && raw.Done[0] == '{' && raw.Hash == nil {
		if r.result.Done, ok = storable(raw.Done); !ok {
			return txnResult{err: r.err, keys: r.keys, reason: "done is nested deeper than 64 levels"}, r.err.set
		}
	}
	if len(raw.Data) > 0 && string(raw.Data) != "null" {
		if r.result.Data, ok = storable(raw.Data); !ok {
			return txnResult{err: r.err, keys: r.keys, reason: "data is nested deeper than 64 levels"}, r.err.set
		}
	}
	r.result.Nonce, r.result.Fee = digits(raw.Nonce), digits(raw.Fee)
	r.result.Members = members(all, r.err.set)
	return r, true
}

// members are those of an answer that have no other place, and its error, if it counts. One that cannot be stored is
// left out, since it says nothing to Postern.
func members(all strict.Members, failed bool) json.RawMessage {
	for name, value := range all {
		kept, ok := storable(value)
		switch {
		case name == "error" && failed && ok:
			all[name] = kept
		case slices.Contains(knownMembers, name), !ok, !storableName(name):
			delete(all, name)
		default:
			all[name] = kept
		}
	}
	size := 0
	for name, value := range all {
		size += len(name) + len(value)
	}
	if size > maxMembers {
		maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool { return name != "error" })
	}
	if len(all) == 0 || len(all["error"]) > maxMembers {
		return nil
	}
	kept, err := json.Marshal(all)
	if err != nil {
		return nil
	}
	return kept
}

// maxMembers is how much of them is kept: a call with that and with the largest data stays below the 1 MiB that workers
// must take.
const maxMembers = 256 << 10

// knownMembers are those that have a place of their own.
var knownMembers = []string{"hash", "done", "error", "data", "nonce", "fee"}

// storableName says whether the name of a member can be stored as it is.
func storableName(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsRune(name, 0) && !strings.ContainsRune(name, utf8.RuneError)
}

// readError reads the member error, which is an object. Members of a foreign type are left out.
func readError(obj json.RawMessage) (workerError, error) {
	e := workerError{set: true}
	var raw struct {
		Code    json.RawMessage `json:"code"`
		Message json.RawMessage `json:"message"`
		Class   json.RawMessage `json:"class"`
		Scope   json.RawMessage `json:"scope"`
		Until   json.RawMessage `json:"until"`
		After   json.RawMessage `json:"after"`
	}
	if err := strict.Read(obj, &raw); err != nil {
		return e, err
	}
	e.code = clipCode(scalar(raw.Code))
	e.kind = codeKinds[e.code]
	e.message = clipMessage(scalar(raw.Message))
	switch class := outbox.Class(scalar(raw.Class)); class {
	case outbox.ClassBlocked, outbox.ClassAmbiguous, outbox.ClassRejected, outbox.ClassRetry:
		e.class = class
	default:
		e.noClass = clipCode(string(class))
	}
	switch scope := outbox.Scope(scalar(raw.Scope)); scope {
	case outbox.ScopeQueue, outbox.ScopeSender, outbox.ScopeWorker:
		e.scope = scope
	}
	after := scalar(raw.After)
	if seconds, err := strconv.ParseFloat(after, 64); err == nil {
		e.after = clampWait(seconds)
	} else if d, err := time.ParseDuration(after); err == nil {
		e.after = clampWait(d.Seconds())
	}
	e.notTill = scalar(raw.Until)
	return e, nil
}

// blocks is what an error of class blocked blocks: what the worker names, or what its code stands for in a body of the
// reference, which names no class.
func (e workerError) blocks() outbox.Scope {
	switch {
	case e.scope != "":
		return e.scope
	case e.class != "":
		return outbox.ScopeQueue
	case e.code == "NO_FEE_PAYER_AVAILABLE", e.message == noFeePayer:
		return outbox.ScopeSender
	}
	return outbox.ScopeWorker
}

// until is the moment before which a blocked worker wants to be left alone, zero if it names none.
func (e workerError) until(now time.Time) time.Time {
	at, err := time.Parse(time.RFC3339, e.notTill)
	if err != nil || !at.After(now) {
		return time.Time{}
	}
	if most := now.Add(maxWait); at.After(most) {
		return most
	}
	return at
}

// isSet says whether a member counts: neither absent, null nor an empty object (S2.7).
func isSet(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "{}":
		return false
	}
	return raw[0] != '{' || len(strings.TrimSpace(string(raw[1:len(raw)-1]))) > 0
}

// scalar reads a string, or a number as its digits; "" for anything else.
func scalar(raw json.RawMessage) string {
	var v any
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return ""
	}
	switch v := v.(type) {
	case string:
		return v
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return strconv.FormatInt(int64(v), 10) // 502.0 is 502
		}
		return string(raw)
	}
	return ""
}

// digits reads a whole number, as string or number, of at most 78 digits (2^256); "" for anything else,
// as if the worker had not said it.
func digits(raw json.RawMessage) string {
	s := strings.Trim(string(raw), `"`)
	if len(s) > 78 || strings.Trim(s, "0123456789") != "" {
		return ""
	}
	return s
}

// plainHash says whether s can be a hash: 1 to 512 printable ASCII characters without blanks.
func plainHash(s string) bool {
	if s == "" || len(s) > 512 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
