package leader

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// Item is one event of a page.
type Item struct {
	Identity   string // within its source
	Checkpoint string // "" if the source tells none
	Digest     string
	JSON       json.RawMessage
	FQN        string
	Undecoded  string // why it is no event; "" if it is one
}

// Page is what a source answered.
type Page struct {
	Items  []Item
	Cursor json.RawMessage // where the next page begins; nil: as before
	More   bool            // there is more now
}

// Trouble is why there is no page.
type Trouble struct {
	Retryable bool // else the source stops until an operator resumes it
	Large     bool // the page is larger than what is read of one: a smaller one may not be
	Text      string
}

// Error returns the sentence.
func (t *Trouble) Error() string { return t.Text }

// Refused classifies an answer that is no page, by its HTTP status; 0 for no answer at all (S1.3).
func Refused(status int, text string) *Trouble {
	retry := status == 0 || status == 408 || status == 425 || status == 429 || status >= 500
	if status != 0 {
		text = strings.TrimSuffix(fmt.Sprintf("HTTP %d: %s", status, text), ": ")
	}
	return &Trouble{Retryable: retry, Text: text}
}

// statuses are those of remote procedure calls after which asking again may help (S1.3).
var statuses = []string{"Cancelled", "Unknown", "DeadlineExceeded", "ResourceExhausted", "Aborted", "Internal", "Unavailable"}

// Read takes a page apart that was asked for with this cursor. *Trouble: it cannot be read as one.
func (s Source) Read(body []byte, cursor json.RawMessage) (Page, *Trouble) {
	body = bytes.TrimSpace(body)
	if !json.Valid(body) {
		return Page{}, &Trouble{Text: "the answer is no JSON"}
	}
	if s.Kind == "sui" {
		return s.readSui(body, cursor)
	}
	items, ok := array(at(body, s.Map.Items))
	if !ok {
		return Page{}, &Trouble{Text: fmt.Sprintf("the answer has no array at %s", fault.Clip(s.Map.Items))}
	}
	p := Page{Cursor: notNull(at(body, s.Map.Cursor)), More: string(at(body, s.Map.More)) == "true"}
	if _, ok := scalar(p.Cursor); !ok && p.Cursor != nil {
		return Page{}, &Trouble{Text: fmt.Sprintf("the cursor at %s is neither a string nor a number", fault.Clip(s.Map.Cursor))}
	}
	p.keepsCursor(items)
	for _, raw := range items {
		if !s.wants(raw) {
			continue
		}
		id, ok := scalar(at(raw, s.Map.ID))
		it := Item{Identity: id}
		if s.Kind == "devnet" {
			it.Checkpoint, _ = scalar(at(raw, "/checkpoint"))
		}
		if !ok || id == "" {
			it.Undecoded = fmt.Sprintf("it has no id at %s", s.Map.ID)
		}
		p.Items = append(p.Items, s.Item(it, raw))
	}
	return p, nil
}

// atBeginning is the cursor of a source that was to start at its end, and had no event yet: it is read from there, and
// what comes first is its own.
var atBeginning = json.RawMessage("null")

// keepsCursor has a page that is empty change no cursor (S1.2), unless it is one of several on the way: a log may have
// filtered all of it.
func (p *Page) keepsCursor(items []json.RawMessage) {
	if len(items) == 0 && !p.More {
		p.Cursor = nil
	}
}

// wants says whether an event has what the filter of a devnet wants; the others are passed over.
func (s Source) wants(raw json.RawMessage) bool {
	if s.Kind != "devnet" || len(s.Filter) == 0 {
		return true
	}
	var want, have map[string]any
	if json.Unmarshal(s.Filter, &want) != nil || json.Unmarshal(raw, &have) != nil {
		return false
	}
	for k, v := range want {
		if !reflect.DeepEqual(have[k], v) {
			return false
		}
	}
	return true
}

func (s Source) readSui(body []byte, cursor json.RawMessage) (Page, *Trouble) {
	if e := notNull(at(body, "/error")); e != nil {
		var rpc struct {
			Code    int64
			Message string
			Status  string
		}
		_ = json.Unmarshal(e, &rpc)
		retry := rpc.Code == -32603 || rpc.Code >= -32099 && rpc.Code <= -32000 || slices.Contains(statuses, rpc.Status)
		return Page{}, &Trouble{Retryable: retry, Text: fmt.Sprintf("JSON-RPC error %d: %s", rpc.Code, fault.Clip(rpc.Message))}
	}
	items, ok := array(at(body, "/result/data"))
	if !ok {
		return Page{}, &Trouble{Text: "the answer has neither an error nor an array at /result/data"}
	}
	p := Page{Cursor: notNull(at(body, "/result/nextCursor")), More: string(at(body, "/result/hasNextPage")) == "true"}
	if s.seeksEnd(cursor) { // the last event is where it starts, and is not its own
		p.Cursor, p.More = atBeginning, false
		if len(items) > 0 {
			p.Cursor, p.More = notNull(at(items[0], "/id")), true
		}
		return p, nil
	}
	p.keepsCursor(items)
	for _, raw := range items {
		digest, okDigest := scalar(at(raw, "/id/txDigest"))
		seq, okSeq := scalar(at(raw, "/id/eventSeq"))
		it := Item{Identity: digest + ":" + seq, Digest: digest}
		it.Checkpoint, _ = scalar(at(raw, "/checkpoint"))
		if !okDigest || !okSeq || digest == "" || seq == "" {
			it.Undecoded = "it has no id.txDigest and id.eventSeq"
		}
		p.Items = append(p.Items, s.Item(it, raw))
	}
	return p, nil
}

// Most that one event may have.
const (
	maxIdentity = 255
	MaxEvent    = 256 << 10 // bytes
)

// Item reads what is the same in all kinds of sources: the tool that an event names. An event of which that
// cannot be said is undecoded, and says why.
func (s Source) Item(it Item, raw json.RawMessage) Item {
	it.JSON = raw
	name, ok := scalar(at(raw, s.Map.FQN))
	fqn, err := ParseFQN(name)
	if s.Map.Digest != "" && it.Digest == "" {
		it.Digest, _ = scalar(at(raw, s.Map.Digest))
	}
	switch {
	case it.Undecoded != "":
		it.Identity, it.Digest = "", ""
	case len(it.Identity) > maxIdentity || len(it.Digest) > maxIdentity || strings.ContainsRune(it.Identity+it.Digest, 0):
		it.Undecoded = fmt.Sprintf("its identity has more than %d bytes, or a NUL in it", maxIdentity)
		it.Identity, it.Digest = "", ""
	case len(raw) > MaxEvent:
		it.Undecoded = oversize(len(raw))
	case bytes.Contains(raw, []byte(`\u0000`)):
		it.Undecoded = "there is a NUL in it"
	case !ok:
		it.Undecoded = fmt.Sprintf("it names no tool at %s", s.Map.FQN)
	case err != nil:
		it.Undecoded = fmt.Sprintf("it names the tool %q: %s", fault.Clip(name), err)
	default:
		it.FQN = fqn.String()
	}
	if it.Identity == "" { // by what it is, so that it too is stored once
		it.Identity = fmt.Sprintf("sha256:%x", sha256.Sum256(raw))
	}
	if it.Undecoded != "" && (len(raw) > MaxEvent || bytes.Contains(raw, []byte(`\u0000`))) {
		it.JSON = json.RawMessage("null") // the database cannot hold it
	}
	return it
}

func oversize(n int) string {
	return fmt.Sprintf("it has %d bytes, at most %d can be stored", n, MaxEvent)
}

func array(raw json.RawMessage) (list []json.RawMessage, ok bool) {
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false
	}
	return list, json.Unmarshal(raw, &list) == nil
}

func notNull(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" || len(raw) == 0 {
		return nil
	}
	return raw
}
