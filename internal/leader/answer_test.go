package leader_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/postern-dev/postern/internal/leader"
)

// An event of any size is known by its identity, takes none of the room of its page, and the others of the page are
// read.
func TestAnEventOfAnySizeIsPassedOver(t *testing.T) {
	huge := strings.Repeat(`{"a\"]}": ["x", {"id": 7}, "\\"]},`, 1<<15)
	for _, c := range []struct{ name, event, want string }{
		{"its identity comes first", `{"id": "big", "tool": "xyz.labs.add@1", "list": [` + huge + `1]}`, `big   "it has `},
		{"its identity comes last", `{"list": [` + huge + `1] , "id" : "big"}`, `big   "it has `},
		{"it has none", `{"list": [` + huge + `1]}`, `sha256:`},
		{"its identity is too large", `{"id": "` + strings.Repeat("x", 1<<20) + `"}`, `sha256:`},
		{"it is a string", `"` + strings.Repeat(`\"`, 1<<20) + `"`, `sha256:`},
		{"its identity is hidden", `{"data": {"id": "inner"}, "list": [` + huge + `1], "text": "\"id\": 4"}`, `sha256:`},
	} {
		body := `{"has_more": false, "events": [{"id": 1, "tool": "xyz.labs.add@1"}, ` + c.event + `, {"id": 2, "tool": "xyz.labs.add@1"}], "next_cursor": 2}`
		p, trouble := paged().Read(strings.NewReader(body), nil, 1<<20)
		if trouble != nil || len(p.Items) != 3 || string(p.Cursor) != "2" || p.More || p.Size > 1<<18 {
			t.Errorf("%s: %+v %v", c.name, p, trouble)
			continue
		}
		if got := items(p); !strings.HasPrefix(got, `1  xyz.labs.add@1 ""; `+c.want) || !strings.HasSuffix(got, `; 2  xyz.labs.add@1 ""`) {
			t.Errorf("%s: %.200s", c.name, got)
		}
		if want := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(c.event))); c.want == "sha256:" && p.Items[1].Identity != want {
			t.Errorf("%s: %s, want %s", c.name, p.Items[1].Identity, want)
		}
		if string(p.Items[1].JSON) != "null" || !strings.Contains(p.Items[1].Undecoded, fmt.Sprintf("%d bytes", len(c.event))) {
			t.Errorf("%s: %s %s", c.name, p.Items[1].JSON, p.Items[1].Undecoded)
		}
	}
	s := sui()
	p, trouble := s.Read(strings.NewReader(`{"result": {"nextCursor": {"txDigest": "d", "eventSeq": "1"}, "data": [{"x": [`+huge+`0], "id": {"txDigest": "d", "eventSeq": "1"}, "checkpoint": "5"}], "hasNextPage": true}}`), nil, 1<<20)
	if trouble != nil || len(p.Items) != 1 || p.Items[0].Identity != "d:1" || p.Items[0].Digest != "d" || p.Items[0].Checkpoint != "5" || !p.More || string(p.Cursor) != `{"txDigest": "d", "eventSeq": "1"}` {
		t.Errorf("%+v %v", p, trouble)
	}
	large := `{"x": [` + huge + `0], ` + event("d", 1, 5)[1:]
	p, trouble = graphql().Read(strings.NewReader(answered(true, `"c"`, large)), nil, 4<<20)
	if trouble != nil || len(p.Items) != 1 || p.Items[0].Identity != "d:1" || p.Items[0].Digest != "d" ||
		p.Items[0].Checkpoint != "5" || string(p.Cursor) != `{"endCursor":"c","event":"d:1","checkpoint":"5"}` {
		t.Errorf("%+v %v", p, trouble)
	}
	d := leader.Source{Kind: "devnet", URL: "http://127.0.0.1:9000", Filter: json.RawMessage(`{"a/b": {"c": 1}}`)}.WithDefaults()
	p, trouble = d.Read(strings.NewReader(`{"events": [{"id": 1, "x": [`+huge+`0], "a/b": {"c": 1.0}}, {"id": 2, "x": [`+huge+`0], "a/b": {"c": 2}}]}`), nil, 1<<20)
	if trouble != nil || len(p.Items) != 1 || p.Items[0].Identity != "1" {
		t.Errorf("%+v %v", p, trouble)
	}
}

// An event that the database cannot hold, or would not give back as it was, cannot be read; neither can one that is no
// JSON, whose end can be seen. Neither takes its page with it.
func TestAnEventThatCannotBeStoredIsUndecoded(t *testing.T) {
	for event, want := range map[string]string{
		`{"id": "a", "tool": "xyz.labs.add@1", "n": 1e400}`:                                                       `a   "it is not JSON that we accept: the number 1e400 is beyond 1e308 at /n"`,
		`{"id": "a", "tool": "xyz.labs.add@1", "s": "\ud800"}`:                                                    `a   "it is not JSON that we accept: half of a surrogate pair at /s"`,
		`{"id": "a\ud800", "tool": "xyz.labs.add@1"}`:                                                             `sha256:`,
		"{\"id\": \"a\", \"s\": \"\xff\"}":                                                                        `a   "it is not JSON that we accept: byte 18 is not UTF-8"`,
		"{\"id\": \"a\", \"s\": \"\n\"}":                                                                          `sha256:`,
		`{"id": "a", "x": ` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`:                     `sha256:`,
		`{"id": "a", "x": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `, "tool": "xyz.labs.add@1"}`: `a   "it is not JSON that we accept: nested deeper than 64`,
		`{"id": "a", "s": "\x"}`:                                                                                  `sha256:`,
		`{"id": "a" "s": [1, ?]}`:                                                                                 `sha256:`,
		`nope`:                                                                                                    `sha256:`,
		`{"id": "a", "id": "b"}`:                                                                                  `b   "it is not JSON that we accept: the key \"id\" occurs twice at the root"`,
	} {
		p, trouble := read(paged(), `{"events": [{"id": 1, "tool": "xyz.labs.add@1"}, `+event+`,{"id": 2, "tool": "xyz.labs.add@1"}], "next_cursor": 2}`, nil)
		if trouble != nil || len(p.Items) != 3 || string(p.Cursor) != "2" {
			t.Errorf("%.80q: %+v %v", event, p, trouble)
			continue
		}
		if got := items(p); !strings.HasPrefix(got, `1  xyz.labs.add@1 ""; `+want) || !strings.HasSuffix(got, `; 2  xyz.labs.add@1 ""`) || string(p.Items[1].JSON) != "null" {
			t.Errorf("%.80q: %.300s", event, got)
		}
	}
	for body, want := range map[string]string{
		`{"events": [], "next_cursor": "\ud800", "has_more": true}`: "the cursor is not JSON that we accept: half of a surrogate pair at the root",
		`{"events": [1, ], "next_cursor": 1}`:                       "the answer is no JSON",
		`{"events": [1 2], "next_cursor": 1}`:                       "the answer is no JSON",
		`{"events": [{"a": 1], "next_cursor": 1}`:                   "the answer is no JSON",
		`{"events": [1], "next_cursor": 1} 2`:                       "the answer is no JSON",
		`{"events": [1], "next_cursor" 1}`:                          "the answer is no JSON",
		`{"events": [1]`:                                            "the answer is no JSON",
	} {
		if _, trouble := read(paged(), body, nil); trouble == nil || !strings.HasPrefix(trouble.Text, want) ||
			trouble.Retryable != (want == "the answer is no JSON") {
			t.Errorf("%s: %+v", body, trouble)
		}
	}
}

// At most so much is kept of a page, wherever it stands. A page that breaks off is asked for again.
func TestAPageHasABound(t *testing.T) {
	part := strings.Repeat("x", 100<<10)
	for _, body := range []string{
		`{"events": [` + strings.Repeat(`{"id": 1, "x": "`+part+`"},`, 11) + `1]}`,
		`{"events": [], "x": [` + strings.Repeat(`"`+part+`",`, 11) + `1]}`,
	} {
		if _, trouble := paged().Read(strings.NewReader(body), nil, 1<<20); trouble == nil || !trouble.Large || trouble.Text != "the answer has more than 1 MiB" {
			t.Errorf("%+v", trouble)
		}
		if _, trouble := paged().Read(strings.NewReader(body), nil, 2<<20); trouble != nil {
			t.Errorf("%+v", trouble)
		}
		broken := io.MultiReader(strings.NewReader(body[:len(body)-1]), iotest.ErrReader(io.ErrUnexpectedEOF))
		if _, trouble := paged().Read(broken, nil, 2<<20); trouble == nil || !trouble.Retryable || trouble.Large {
			t.Errorf("%+v", trouble)
		}
	}
}

// Whatever a page is, and however its bytes arrive, it is read as one that is taken as a whole.
func TestDrawnPagesAreReadAsAWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		event := func() any {
			m := map[string]any{"id": rapid.SampledFrom([]any{1, "x", nil, `q"]}\`, "é"}).Draw(t, "id"), "tool": rapid.SampledFrom([]any{"xyz.labs.add@1", "nope", 3}).Draw(t, "tool"),
				"more": drawnJSON(t, 3)}
			if rapid.IntRange(0, 9).Draw(t, "large") == 0 {
				m["large"] = strings.Repeat("y", leader.MaxEvent)
			}
			return m
		}
		list := []any{}
		for range rapid.IntRange(0, 4).Draw(t, "events") {
			list = append(list, event())
		}
		page := map[string]any{"before": drawnJSON(t, 2), "a/b": map[string]any{"list": list, "~": drawnJSON(t, 2)}, "next_cursor": rapid.SampledFrom([]any{"c", 5, nil}).Draw(t, "cursor"),
			"has_more": rapid.Bool().Draw(t, "more")}
		body, err := json.MarshalIndent(page, "", rapid.SampledFrom([]string{"", " ", "\r\n\t"}).Draw(t, "indent"))
		if err != nil {
			t.Fatal(err)
		}
		s := paged()
		s.Map.Items = "/a~1b/list"
		got, trouble := s.Read(trickle{strings.NewReader(string(body))}, nil, 4<<20)
		if trouble != nil {
			t.Fatalf("%s: %v", body, trouble)
		}
		var whole struct {
			In struct{ List []json.RawMessage } `json:"a/b"`
		}
		if err := json.Unmarshal(body, &whole); err != nil || len(got.Items) != len(whole.In.List) || got.More != page["has_more"] {
			t.Fatalf("%s: %+v %v", body, got, err)
		}
		for i, raw := range whole.In.List {
			var id struct{ ID json.RawMessage }
			if err := json.Unmarshal(raw, &id); err != nil {
				t.Fatal(err)
			}
			it := leader.Item{Identity: strings.Trim(string(id.ID), `"`)}
			if string(id.ID) == "null" {
				it.Identity, it.Undecoded = "", "it has no id at /id"
			} else if id.ID[0] == '"' {
				_ = json.Unmarshal(id.ID, &it.Identity)
			}
			if want := s.Item(it, raw); fmt.Sprintf("%+v", got.Items[i]) != fmt.Sprintf("%+v", want) {
				t.Fatalf("%.2000s:\n%+v, want\n%+v", body, got.Items[i], want)
			}
		}
	})
}

// trickle gives its bytes in pieces of any size.
type trickle struct{ r io.Reader }

func (t trickle) Read(b []byte) (int, error) { return t.r.Read(b[:min(len(b), 1+rand.IntN(40000))]) }
