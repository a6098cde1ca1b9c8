package leader_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
)

func graphql() leader.Source {
	return leader.Source{
		Kind:   "sui_graphql",
		URL:    "http://127.0.0.1:9000/graphql",
		Filter: json.RawMessage(`{"module": "0xf1::workflow"}`),
		Map:    leader.SourceMap{FQN: "/contents/json/tool"},
	}.WithDefaults()
}

// asked are the variables with which a page is asked for.
func asked(t *testing.T, s leader.Source, cursor string) string {
	t.Helper()
	a := s.Page(json.RawMessage(cursor))
	var body struct {
		Query     string
		Variables json.RawMessage
	}
	if err := json.Unmarshal(a.Body, &body); err != nil || a.Method != "POST" || a.URL != s.URL ||
		!strings.HasPrefix(body.Query, "query") {
		t.Errorf("%s %s %s: %v", a.Method, a.URL, a.Body, err)
	}
	return string(body.Variables)
}

// S1.1: a page of GraphQL is asked for, and read.
func TestAPageOfGraphQLIsAskedForAndRead(t *testing.T) {
	s := graphql()
	const filter = `{"filter":{"module":"0xf1::workflow"}`
	for cursor, want := range map[string]string{
		``:     filter + `,"first":50}`,
		`null`: filter + `,"first":50}`,
		`"c"`:  filter + `,"first":50,"after":"c"}`,
		`{"endCursor": "c", "event": "d:0", "checkpoint": "7"}`: filter + `,"first":50,"after":"c"}`,
	} {
		if got := asked(t, s, cursor); got != want {
			t.Errorf("after %s: %s, want %s", cursor, got, want)
		}
	}
	body, err := os.ReadFile("testdata/sui_graphql.json")
	if err != nil {
		t.Fatal(err)
	}
	p, trouble := read(s, string(body), nil)
	const digest = "8Ei2xTm5wP2ZyBzE1mUZDdE4Fv3dLPrWHgyg1W8HTQVp"
	if trouble != nil || !p.More || len(p.Items) != 2 ||
		string(p.Cursor) != `{"endCursor":"eyJ0Ijo3LCJlIjoxfQ","event":"`+digest+`:1","checkpoint":"77"}` {
		t.Fatalf("%+v %v", p, trouble)
	}
	want := digest + `:0 77 xyz.labs.add@1 ""; ` + digest + `:1 77  "it names no tool at /contents/json/tool"`
	if items(p) != want || p.Items[0].Digest != digest {
		t.Errorf("%s", items(p))
	}
	for _, part := range []string{`"amount": "18446744073709551615"`, `"timestamp": "2026-11-26T1`, `00a1"`} {
		if !strings.Contains(string(p.Items[0].JSON), part) {
			t.Errorf("%s lacks %s", p.Items[0].JSON, part)
		}
	}
	p, trouble = read(s, answered(false, `"c"`, `{"sequenceNumber": 0}`, `{"transaction": {"digest": "d"}}`), nil)
	if trouble != nil || len(p.Items) != 2 || strings.Count(items(p), "it has no transaction.digest") != 2 {
		t.Errorf("%+v %v", p, trouble)
	}
}

// event is a node of an answer, of a checkpoint.
func event(digest string, seq, checkpoint int) string {
	return fmt.Sprintf(`{"sequenceNumber": %d,
		"transaction": {"digest": %q, "effects": {"checkpoint": {"sequenceNumber": %d}}},
		"contents": {"json": {"tool": "xyz.labs.add@1"}}}`, seq, digest, checkpoint)
}

// answered is an answer with these events; the last one is the newest of the log.
func answered(more bool, end string, nodes ...string) string {
	newest := ""
	if len(nodes) > 0 {
		newest = nodes[len(nodes)-1]
	}
	return logged(more, end, newest, nodes...)
}

func logged(more bool, end, newest string, nodes ...string) string {
	return fmt.Sprintf(`{"data": {"newest": {"nodes": [%s]},
		"events": {"pageInfo": {"hasNextPage": %t, "endCursor": %s}, "nodes": [%s]}}}`,
		newest, more, end, strings.Join(nodes, ","))
}

// A source that starts at its end begins after the newest event; of an empty log the first one that comes is its own.
func TestAGraphQLSourceStartsAtItsEnd(t *testing.T) {
	s := graphql()
	s.Start = "latest"
	if got := asked(t, s, ""); got != `{"filter":{"module":"0xf1::workflow"},"last":1}` {
		t.Error(got)
	}
	p, trouble := read(s, answered(false, `"z"`, event("d", 3, 9)), nil)
	if trouble != nil || len(p.Items) != 0 || !p.More ||
		string(p.Cursor) != `{"endCursor":"z","event":"d:3","checkpoint":"9"}` {
		t.Errorf("%+v %v", p, trouble)
	}
	if got := asked(t, s, string(p.Cursor)); !strings.HasSuffix(got, `"first":50,"after":"z"}`) {
		t.Error(got)
	}
	p, trouble = read(s, answered(false, `null`), nil)
	if trouble != nil || len(p.Items) != 0 || p.More || string(p.Cursor) != "null" {
		t.Errorf("%+v %v", p, trouble)
	}
	if got := asked(t, s, string(p.Cursor)); !strings.HasSuffix(got, `"first":50}`) {
		t.Error(got)
	}
}

// S1.2: the cursor moves with the pages, also with those that a node has filtered empty, and never back to the
// beginning.
func TestTheCursorOfGraphQLGoesOnlyOn(t *testing.T) {
	const before = `{"endCursor":"b","event":"d:0","checkpoint":"5"}`
	for name, c := range map[string]struct{ body, want string }{
		"at its end, without a cursor": {logged(false, `null`, event("d", 0, 5)), ""},
		"at its end, with a cursor":    {logged(false, `"b"`, event("d", 0, 5)), ""},
		"its node has pruned all":      {logged(false, `null`, ""), ""},
		"its node lags behind":         {logged(false, `null`, event("a", 0, 4)), ""},
		"filtered on the way":          {logged(true, `"c"`, ""), `{"endCursor":"c","event":"d:0","checkpoint":"5"}`},
		"the last page": {answered(false, `"c"`, event("e", 1, 6)),
			`{"endCursor":"c","event":"e:1","checkpoint":"6"}`},
		"a last page that names no end": {answered(false, `null`, event("e", 1, 6)), ""},
		"an event that no cursor can name": {
			answered(false, `"c"`, strings.Replace(event("NUL", 1, 6), "NUL", `\u0000`, 1)),
			`{"endCursor":"c","checkpoint":"6"}`,
		},
	} {
		p, trouble := read(graphql(), c.body, json.RawMessage(before))
		if trouble != nil || string(p.Cursor) != c.want {
			t.Errorf("%s: %s %v, want %q", name, p.Cursor, trouble, c.want)
		}
	}
}

// S1.3. Errors are no page, whatever data comes with them, and under status 200 too. Errors that speak of the request
// stop the source; after all others it is asked again. A node that has lost the place of the cursor answers with an
// empty page: it is told from a log that has ended by the newest event, which was never read.
func TestErrorsOfGraphQLAreNoPage(t *testing.T) {
	const code = `{"errors": [{"message": "m", "extensions": {"code": %q}}], "data": null}`
	full := answered(false, `"c"`, event("e", 1, 6))
	before := `{"endCursor":"b","event":"d:0","checkpoint":"5"}`
	for _, c := range []struct {
		body  string
		retry bool
		text  string
	}{
		{fmt.Sprintf(code, "BAD_USER_INPUT"), false, "GraphQL error BAD_USER_INPUT: m"},
		{fmt.Sprintf(code, "GRAPHQL_VALIDATION_FAILED"), false, "GraphQL error GRAPHQL_VALIDATION_FAILED: m"},
		{fmt.Sprintf(code, "FEATURE_UNAVAILABLE"), false, "GraphQL error FEATURE_UNAVAILABLE: m"},
		{fmt.Sprintf(code, "INTERNAL_SERVER_ERROR"), true, "GraphQL error INTERNAL_SERVER_ERROR: m"},
		{fmt.Sprintf(code, "RATE_LIMITED"), true, "GraphQL error RATE_LIMITED: m"},
		{`{"errors": [{"message": "too many requests"}]}`, true, "GraphQL error: too many requests"},
		{`{"errors": [{"message": "a", "extensions": {"code": "BAD_USER_INPUT"}}, {"message": "b"}]}`, true,
			"GraphQL error BAD_USER_INPUT: a (and 1 more)"},
		{`{"errors": [{"message": "m"}], ` + full[1:], true, "GraphQL error: m"},
		{`{"errors": "down"}`, true, "GraphQL error"},
		{`{"errors": [], ` + full[1:], true, ""},
		{`{"errors": null, ` + full[1:], true, ""},
		{`{"data": null}`, true, "the answer has neither errors nor an array at /data/events/nodes"},
		{`{"data": {"events": null}}`, true, "the answer has neither errors nor an array at /data/events/nodes"},
		{`{"message": "no upstream"}`, true, "the answer has neither errors nor an array at /data/events/nodes"},
		{`<html>nginx</html>`, true, "the answer is no JSON"},
		{``, true, "the answer is no JSON"},
		{full[:len(full)-2], true, "the answer is no JSON"},
		{answered(true, `null`, event("e", 1, 6)), true, "the page says that there is more, and"},
		{answered(true, `"b"`, event("e", 1, 6)), true, "the page says that there is more, and"},
		{answered(false, `{"x": 1}`, event("e", 1, 6)), false, "the endCursor is no string"},
		{logged(false, `null`, event("e", 0, 6)), true, "no event comes after the cursor, and the newest one, e:0,"},
		{logged(false, `null`, event("e", 0, 5)), true, "no event comes after the cursor, and the newest one, e:0,"},
	} {
		_, trouble := read(graphql(), c.body, json.RawMessage(before))
		switch {
		case c.text == "":
			if trouble != nil {
				t.Errorf("%s: %v", c.body, trouble)
			}
		case trouble == nil || trouble.Retryable != c.retry || !strings.HasPrefix(trouble.Text, c.text):
			t.Errorf("%s: %+v, want %q", c.body, trouble, c.text)
		}
	}
	_, trouble := read(graphql(), fmt.Sprintf(code, "REQUEST_TIMEOUT"), nil)
	if trouble == nil || !trouble.Retryable || !trouble.Large {
		t.Errorf("a page that takes too long is asked for in smaller ones: %+v", trouble)
	}
	for _, cursor := range []string{`{"txDigest": "d", "eventSeq": "1"}`, `5`, `""`, `[]`} {
		_, trouble := read(graphql(), full, json.RawMessage(cursor))
		if trouble == nil || trouble.Retryable || !strings.Contains(trouble.Text, "rewind") {
			t.Errorf("after %s: %+v", cursor, trouble)
		}
	}
}

// A filter has the members that the schema knows; one of JSON-RPC is refused with the words of GraphQL.
func TestTheFilterOfGraphQLIsOneThatItKnows(t *testing.T) {
	for _, filter := range []string{`{"type": "0x2::coin::Coin"}`, `{"sender": "0xa1", "afterCheckpoint": 7}`} {
		s := graphql()
		s.Filter = json.RawMessage(filter)
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", filter, err)
		}
	}
	for filter, want := range map[string]string{
		``: "filter is required",
		`{"MoveEventModule": {"package": "0xf1", "module": "workflow"}}`: `"MoveEventModule"`,
		`{"module": "0xf1", "Sender": "0xa1"}`:                           `"Sender"`,
		`["module"]`:                                                     "want an object",
		`"module"`:                                                       "want an object",
		`{}`:                                                             "want an object",
	} {
		s := graphql()
		s.Filter = json.RawMessage(filter)
		err := s.Validate()
		if fault.KindOf(err) != fault.Invalid || !strings.HasPrefix(fault.As(err).Fields[0].Pointer, "/filter") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", filter, err, want)
		}
	}
}
