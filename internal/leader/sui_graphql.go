package leader

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/strict"
)

// suiQuery asks a GraphQL server of Sui for the events after a cursor, oldest first, or for the last ones. It asks for
// the newest event of the same filter, too: see lostPlace. The test of the schema validates it.
const suiQuery = `query ($filter: EventFilter, $first: Int, $after: String, $last: Int) {
  events(filter: $filter, first: $first, after: $after, last: $last) {
    pageInfo { hasNextPage endCursor }
    nodes {
      ...place
      timestamp
      sender { address }
      transactionModule { name package { address } }
      contents { type { repr } json }
    }
  }
  newest: events(filter: $filter, last: 1) { nodes { ...place } }
}
fragment place on Event {
  sequenceNumber
  transaction { digest effects { checkpoint { sequenceNumber } } }
}`

// Where things are in an answer, and in an event of it.
const (
	suiEvents     = "/data/events/nodes"
	suiPageInfo   = "/data/events/pageInfo"
	suiNewest     = "/data/newest/nodes/0"
	suiDigest     = "/transaction/digest"
	suiSequence   = "/sequenceNumber"
	suiCheckpoint = "/transaction/effects/checkpoint/sequenceNumber"
)

// suiFilter are the members of an EventFilter.
var suiFilter = []string{"afterCheckpoint", "atCheckpoint", "beforeCheckpoint", "module", "sender", "type"}

// checkSuiFilter refuses a filter with a member that the schema does not know, such as one of JSON-RPC.
func checkSuiFilter(filter json.RawMessage) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(filter, &members) != nil || len(members) == 0 {
		return fault.At("/filter", "filter: want an object such as {%q: %q}, with members of EventFilter: %s",
			"module", "0x2::workflow", strings.Join(suiFilter, ", "))
	}
	for name := range members {
		if !slices.Contains(suiFilter, name) {
			return fault.At("/filter"+member(name), "filter: %q is no member of EventFilter, want %s",
				fault.Clip(name), strings.Join(suiFilter, ", "))
		}
	}
	return nil
}

// suiCursor is how far a source of kind sui_graphql was read. An operator may give an endCursor alone, as a string.
type suiCursor struct {
	EndCursor  string `json:"endCursor"`            // of the last page
	Event      string `json:"event,omitempty"`      // the identity of the last event that was read
	Checkpoint string `json:"checkpoint,omitempty"` // and its checkpoint
}

// suiCursorOf reads a cursor: false for one of another kind of source.
func suiCursorOf(raw json.RawMessage) (c suiCursor, ok bool) {
	if notNull(raw) == nil {
		return c, true
	}
	if json.Unmarshal(raw, &c.EndCursor) != nil && json.Unmarshal(raw, &c) != nil {
		return suiCursor{}, false
	}
	return c, c.EndCursor != ""
}

// askGraphQL is the request for the page after a cursor, or for the last event.
func (s Source) askGraphQL(cursor json.RawMessage) Ask {
	type variables struct {
		Filter json.RawMessage `json:"filter"`
		First  int             `json:"first,omitempty"`
		After  string          `json:"after,omitempty"`
		Last   int             `json:"last,omitempty"`
	}
	v := variables{Filter: s.Filter}
	if s.seeksEnd(cursor) {
		v.Last = 1
	} else {
		c, _ := suiCursorOf(cursor) // readGraphQL refuses one that cannot be read
		v.First, v.After = s.PageSize, c.EndCursor
	}
	body, _ := json.Marshal(struct {
		Query     string    `json:"query"`
		Variables variables `json:"variables"`
	}{suiQuery, v})
	return Ask{Method: "POST", URL: s.URL, Body: body}
}

// readGraphQL takes the page apart that came after a cursor.
func (s Source) readGraphQL(a answer, cursor json.RawMessage) (Page, *Trouble) {
	if trouble := graphQLErrors(a.rest); trouble != nil {
		return Page{}, trouble
	}
	if !a.listed {
		return Page{}, Unanswered("the answer has neither errors nor an array at " + suiEvents + ", " + noPage)
	}
	before, ok := suiCursorOf(cursor)
	if !ok {
		return Page{}, &Trouble{Text: "the cursor is none of GraphQL: rewind to an endCursor, or to the start"}
	}
	after := before
	end := notNull(at(a.rest, suiPageInfo+"/endCursor"))
	if end != nil && json.Unmarshal(end, &after.EndCursor) != nil {
		return Page{}, &Trouble{Text: "the endCursor is no string"}
	}
	p := Page{More: string(at(a.rest, suiPageInfo+"/hasNextPage")) == "true"}
	for _, e := range a.events {
		it := Item{Identity: suiIdentity(e.at), Checkpoint: suiNumber(e.at, suiCheckpoint)}
		if it.Digest, _ = scalar(e.at(suiDigest)); it.Identity == "" {
			it.Undecoded = "it has no transaction.digest and sequenceNumber"
		}
		after.Event, after.Checkpoint = it.Identity, it.Checkpoint
		p.Items = append(p.Items, s.item(it, e))
	}
	if s.seeksEnd(cursor) { // the last event is where it starts, and is not its own
		if p = (Page{Cursor: atBeginning}); after.EndCursor != "" {
			p.Cursor, p.More = after.json(), true
		}
		return p, nil
	}
	switch {
	case p.More && after.EndCursor == before.EndCursor:
		return Page{}, Unanswered("the page says that there is more, and its endCursor leads nowhere")
	case len(p.Items) == 0 && !p.More:
		return p, lostPlace(a, before)
	case after.EndCursor != before.EndCursor:
		p.Cursor = after.json()
	}
	return p, nil
}

// lostPlace tells a log that has ended from a server that does not find the place of the cursor any more, since it has
// pruned that checkpoint, or since the source has another filter by now: it answers both with an empty page and no
// error. In the second case its newest event was not read. A server that lags behind the one that answered before knows
// only older events, and has lost nothing.
func lostPlace(a answer, read suiCursor) *Trouble {
	find := func(pointer string) json.RawMessage { return at(a.rest, suiNewest+pointer) }
	newest, checkpoint := suiIdentity(find), suiNumber(find, suiCheckpoint)
	if newest == "" || read.Event == "" || newest == read.Event || isBelow(checkpoint, read.Checkpoint) {
		return nil
	}
	return Unanswered(fmt.Sprintf("no event comes after the cursor, and the newest one, %s, was not read: the source "+
		"has pruned what the cursor stands for, or has another filter by now. Rewind it to its start, or to an "+
		"endCursor that it knows", fault.Clip(newest)))
}

// isBelow compares numbers in decimal digits without leading zeros; one that is not known is below.
func isBelow(a, b string) bool {
	return a == "" || b == "" || len(a) < len(b) || len(a) == len(b) && a < b
}

// suiIdentity is the identity of an event, as sources of kind sui have it; "" for none. find returns the value at a
// pointer of the event.
func suiIdentity(find func(string) json.RawMessage) string {
	digest, seq := suiNumber(find, suiDigest), suiNumber(find, suiSequence)
	if digest == "" || seq == "" {
		return ""
	}
	return digest + ":" + seq
}

// suiNumber is a number or a string at a pointer, "" for neither, and for a string with a NUL, which no cursor may
// have.
func suiNumber(find func(string) json.RawMessage, pointer string) string {
	text, _ := scalar(find(pointer))
	if strings.ContainsRune(text, 0) {
		return ""
	}
	return text
}

func (c suiCursor) json() json.RawMessage {
	raw, _ := json.Marshal(c)
	return raw
}

// ofRequests are the codes of errors that come again, however often the same request is made.
var ofRequests = []string{
	"BAD_REQUEST",
	"BAD_USER_INPUT",
	"FEATURE_UNAVAILABLE",
	"GRAPHQL_PARSE_FAILED",
	"GRAPHQL_VALIDATION_FAILED",
}

// graphQLErrors is why an answer is no page, nil where it has no errors: under any status, and beside data, which then
// lacks something. The source stops where all errors speak of the request. After a timeout it asks for fewer events.
func graphQLErrors(body json.RawMessage) *Trouble {
	raw := notNull(at(body, "/errors"))
	if raw == nil {
		return nil
	}
	list, err := readGraphQLErrors(raw)
	if err != nil {
		return &Trouble{Retryable: true, Text: "GraphQL error: " + fault.Clip(string(raw))}
	}
	if len(list) == 0 {
		return nil
	}
	t := &Trouble{}
	for _, e := range list {
		t.Retryable = t.Retryable || !slices.Contains(ofRequests, e.code)
		t.Large = t.Large || e.code == "REQUEST_TIMEOUT"
	}
	first := list[0]
	t.Text = fmt.Sprintf("%s: %s", strings.TrimSpace("GraphQL error "+first.code), fault.Clip(first.message))
	if n := len(list) - 1; n > 0 {
		t.Text += fmt.Sprintf(" (and %d more)", n)
	}
	return t
}

// graphQLError is one of a list of errors.
type graphQLError struct{ code, message string }

// readGraphQLErrors reads a list of errors.
func readGraphQLErrors(raw json.RawMessage) (list []graphQLError, err error) {
	var all []json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	for _, raw := range all {
		var e struct {
			Message    string          `json:"message"`
			Extensions json.RawMessage `json:"extensions"`
		}
		var more struct {
			Code string `json:"code"`
		}
		if err = strict.Read(raw, &e); err == nil && len(e.Extensions) > 0 {
			err = strict.Read(e.Extensions, &more)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, graphQLError{more.Code, e.Message})
	}
	return list, nil
}
