package leader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/strict"
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
	Size   int             // bytes
}

// Trouble is why there is no page.
type Trouble struct {
	Retryable bool // else the source stops until an operator resumes it
	Large     bool // the page is larger than what is read of one, or took too long: a smaller one may not be
	Refused   bool // the settings of this process keep it from the address
	Text      string
}

// Error returns the sentence.
func (t *Trouble) Error() string { return t.Text }

// Unanswered is the trouble where no answer came, or where it broke off: the source is asked again (S1.3).
func Unanswered(text string) *Trouble { return &Trouble{Retryable: true, Text: text} }

// ofOthers holds the statuses that what stands before a source answers with, also where it says so in JSON.
var ofOthers = map[int]bool{401: true, 403: true, 404: true, 408: true, 425: true, 429: true}

// Refused classifies an answer with another status than 2xx (S1.3); text is what the status means in words. Only the
// source's own word stops it: a JSON document under a status that speaks of the request. Anything else is no page, from
// what stands before the source or from one that is not up yet, and the source is asked again, without bound.
func Refused(status int, text string, body []byte) *Trouble {
	t := &Trouble{Text: strings.TrimSuffix(fmt.Sprintf("HTTP %d: %s", status, text), ": ")}
	switch {
	case status >= 300 && status < 400:
		t.Retryable, t.Text = true, t.Text+", "+noPage+" Redirects are not followed: give the final URL"
	case status >= 500 || ofOthers[status] || !isDocument(body):
		t.Retryable, t.Text = true, t.Text+", "+noPage
	}
	return t
}

// noPage says of an answer that no source gives it.
const noPage = "which is no page of the source: is it the source that answers, or what stands before it?"

// unlisted is the trouble with a document that has no events: a gateway writes JSON under 200, too.
func unlisted(what string) *Trouble { return &Trouble{Retryable: true, Text: what + ", " + noPage} }

// space is what may stand before a document of JSON.
const space = " \t\r\n"

// isDocument says whether a body is an object or an array of JSON.
func isDocument(body []byte) bool {
	body = bytes.TrimLeft(body, space)
	return len(body) > 0 && (body[0] == '{' || body[0] == '[') && json.Valid(body)
}

// statuses are those of remote procedure calls after which asking again may help (S1.3).
var statuses = []string{"Cancelled", "Unknown", "DeadlineExceeded", "ResourceExhausted", "Aborted", "Internal", "Unavailable"}

// Read takes apart a page that was asked for with this cursor. It keeps at most so many bytes of the page, and nearly
// none of an event that is too large to be stored. *Trouble: it cannot be read as a page. An error of in that is a
// *Trouble is returned as it is.
func (s Source) Read(in io.Reader, cursor json.RawMessage, most int) (Page, *Trouble) {
	a, err := takeApart(in, s.list(), s.pointers(), most)
	var trouble *Trouble
	switch {
	case errors.As(err, &trouble):
		return Page{}, trouble
	case errors.Is(err, errLarge):
		return Page{}, &Trouble{Large: true, Text: fmt.Sprintf("the answer has more than %d MiB", most>>20)}
	case errors.Is(err, errNotJSON):
		return Page{}, &Trouble{Retryable: true, Text: err.Error() + ", " + noPage}
	case err != nil:
		return Page{}, Unanswered("the answer broke off: " + err.Error())
	}
	read := s.readPaged
	switch s.Kind {
	case "sui":
		read = s.readSui
	case "sui_graphql":
		read = s.readGraphQL
	}
	p, trouble := read(a, cursor)
	if trouble == nil && p.Cursor != nil {
		if err := strict.Check(p.Cursor, maxNesting); err != nil {
			trouble = &Trouble{Text: "the cursor is not JSON that we accept: " + err.Error()}
		}
	}
	p.Size = a.size
	return p, trouble
}

// list is where the events of a page stand.
func (s Source) list() string {
	switch s.Kind {
	case "sui":
		return "/result/data"
	case "sui_graphql":
		return suiEvents
	}
	return s.Map.Items
}

// pointers are what must be known of an event of any size.
func (s Source) pointers() []string {
	list := []string{s.Map.FQN, "/checkpoint"}
	if s.Map.Digest != "" {
		list = append(list, s.Map.Digest)
	}
	switch s.Kind {
	case "sui":
		return append(list, "/id", "/id/txDigest", "/id/eventSeq")
	case "sui_graphql":
		return append(list, suiDigest, suiSequence, suiCheckpoint)
	}
	for k := range s.wanted() {
		list = append(list, member(k))
	}
	return append(list, s.Map.ID)
}

func (s Source) readPaged(a answer, _ json.RawMessage) (Page, *Trouble) {
	if !a.listed {
		return Page{}, unlisted("the answer has no array at " + fault.Clip(s.Map.Items))
	}
	p := Page{Cursor: notNull(a.at(s.Map.Cursor, s.Map.Items)), More: string(a.at(s.Map.More, s.Map.Items)) == "true"}
	if _, ok := scalar(p.Cursor); !ok && p.Cursor != nil {
		return Page{}, &Trouble{Text: fmt.Sprintf("the cursor at %s is neither a string nor a number", fault.Clip(s.Map.Cursor))}
	}
	p.keepsCursor(a.events)
	for _, e := range a.events {
		if !s.wants(e) {
			continue
		}
		id, ok := scalar(e.at(s.Map.ID))
		it := Item{Identity: id}
		if s.Kind == "devnet" {
			it.Checkpoint, _ = scalar(e.at("/checkpoint"))
		}
		if !ok || id == "" {
			it.Undecoded = fmt.Sprintf("it has no id at %s", s.Map.ID)
		}
		p.Items = append(p.Items, s.item(it, e))
	}
	return p, nil
}

// atBeginning is the cursor of a source that was to start at its end, and had no event yet: it is read from there, and
// what comes first is its own.
var atBeginning = json.RawMessage("null")

// keepsCursor has a page that is empty change no cursor (S1.2), unless it is one of several on the way: a log may have
// filtered all of it.
func (p *Page) keepsCursor(events []element) {
	if len(events) == 0 && !p.More {
		p.Cursor = nil
	}
}

// wanted is what the filter of a devnet wants of an event.
func (s Source) wanted() (members map[string]any) {
	if s.Kind == "devnet" && len(s.Filter) > 0 {
		_ = json.Unmarshal(s.Filter, &members)
	}
	return members
}

// member is the pointer to one.
func member(name string) string {
	return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// wants says whether an event has what the filter of a devnet wants; the others are passed over, but for what is no
// JSON.
func (s Source) wants(e element) bool {
	if e.sum == nil && !json.Valid(e.raw) {
		return true
	}
	for name, want := range s.wanted() {
		var have any
		if json.Unmarshal(e.at(member(name)), &have) != nil || !reflect.DeepEqual(have, want) {
			return false
		}
	}
	return true
}

func (s Source) readSui(a answer, cursor json.RawMessage) (Page, *Trouble) {
	if e := notNull(at(a.rest, "/error")); e != nil {
		var rpc struct {
			Code    *int64 `json:"code"`
			Message string `json:"message"`
			Status  string `json:"status"`
		}
		if strict.Read(e, &rpc) != nil || rpc.Code == nil {
			return Page{}, unlisted("the answer has an error that names no code")
		}
		code := *rpc.Code
		retry := code == -32603 || code >= -32099 && code <= -32000 || slices.Contains(statuses, rpc.Status)
		return Page{}, &Trouble{Retryable: retry, Text: fmt.Sprintf("JSON-RPC error %d: %s", code, fault.Clip(rpc.Message))}
	}
	if !a.listed {
		return Page{}, unlisted("the answer has neither an error nor an array at /result/data")
	}
	p := Page{Cursor: notNull(at(a.rest, "/result/nextCursor")), More: string(at(a.rest, "/result/hasNextPage")) == "true"}
	if s.seeksEnd(cursor) { // the last event is where it starts, and is not its own
		p.Cursor, p.More = atBeginning, false
		if len(a.events) > 0 {
			p.Cursor, p.More = notNull(a.events[0].at("/id")), true
		}
		return p, nil
	}
	p.keepsCursor(a.events)
	for _, e := range a.events {
		digest, okDigest := scalar(e.at("/id/txDigest"))
		seq, okSeq := scalar(e.at("/id/eventSeq"))
		it := Item{Identity: digest + ":" + seq, Digest: digest}
		it.Checkpoint, _ = scalar(e.at("/checkpoint"))
		if !okDigest || !okSeq || digest == "" || seq == "" {
			it.Undecoded = "it has no id.txDigest and id.eventSeq"
		}
		p.Items = append(p.Items, s.item(it, e))
	}
	return p, nil
}

// Most that one event may have.
const (
	maxIdentity = 255
	MaxEvent    = 256 << 10 // bytes
	maxNesting  = 64        // levels, as of the body of a request
)

// Item reads what is the same in all kinds of sources: the tool that an event names. An event that names none is
// undecoded, and says why.
func (s Source) Item(it Item, raw json.RawMessage) Item {
	return s.item(it, element{raw: raw, size: int64(len(raw))})
}

func (s Source) item(it Item, e element) Item {
	it.JSON = e.raw
	if strings.ContainsRune(it.Checkpoint, 0) { // no text that can be stored, and nothing is known by it
		it.Checkpoint = ""
	}
	name, ok := scalar(e.at(s.Map.FQN))
	fqn, err := ParseFQN(name)
	if s.Map.Digest != "" && it.Digest == "" {
		it.Digest, _ = scalar(e.at(s.Map.Digest))
	}
	unfit := e.unfit()
	named := it.Undecoded == "" && (unfit == "" || !strings.ContainsRune(it.Identity+it.Digest, utf8.RuneError)) // else it stands for what is no text
	switch {
	case !named:
		it.Identity, it.Digest = "", ""
	case len(it.Identity) > maxIdentity || len(it.Digest) > maxIdentity || strings.ContainsRune(it.Identity+it.Digest, 0):
		it.Undecoded = fmt.Sprintf("its identity has more than %d bytes, or a NUL in it", maxIdentity)
		it.Identity, it.Digest = "", ""
	case unfit != "":
	case !ok:
		it.Undecoded = fmt.Sprintf("it names no tool at %s", s.Map.FQN)
	case err != nil:
		it.Undecoded = fmt.Sprintf("it names the tool %q: %s", fault.Clip(name), err)
	default:
		it.FQN = fqn.String()
	}
	if it.Identity == "" { // by what it is, so that it too is stored once
		it.Identity = e.hash()
	}
	if unfit != "" { // the database cannot hold it
		it.Undecoded, it.JSON = unfit, json.RawMessage("null")
	}
	return it
}

func oversize(n int64) string {
	return fmt.Sprintf("it has %d bytes, at most %d can be stored", n, MaxEvent)
}

func notNull(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" || len(raw) == 0 {
		return nil
	}
	return raw
}
