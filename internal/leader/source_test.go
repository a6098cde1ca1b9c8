package leader_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
)

func sui() leader.Source {
	return leader.Source{
		Kind:   "sui",
		URL:    "http://127.0.0.1:9000",
		Filter: json.RawMessage(`{"MoveEventModule": {"package": "0xf1", "module": "workflow"}}`),
		Map:    leader.SourceMap{FQN: "/parsedJson/tool"},
	}.WithDefaults()
}

func paged() leader.Source {
	return leader.Source{Kind: "http_json", URL: "http://127.0.0.1:9000/log?a=b", Map: leader.SourceMap{FQN: "/tool"}}.WithDefaults()
}

func items(p leader.Page) string {
	var list []string
	for _, it := range p.Items {
		list = append(list, fmt.Sprintf("%s %s %s %q", it.Identity, it.Checkpoint, it.FQN, it.Undecoded))
	}
	return strings.Join(list, "; ")
}

func read(s leader.Source, body string, cursor json.RawMessage) (leader.Page, *leader.Trouble) {
	return s.Read(strings.NewReader(body), cursor, 4<<20)
}

// S1.1: the request of each kind, and what is read of its answer.
func TestAPageOfEachKindIsAskedForAndRead(t *testing.T) {
	s := sui()
	if a := s.Page(nil); a.Method != "POST" || string(a.Body) != `{"id":1,"jsonrpc":"2.0","method":"suix_queryEvents",`+
		`"params":[{"MoveEventModule":{"package":"0xf1","module":"workflow"}},null,50,false]}` {
		t.Errorf("%s %s", a.Method, a.Body)
	}
	if a := s.Page(json.RawMessage(`{"txDigest":"d","eventSeq":"1"}`)); !strings.Contains(string(a.Body), `{"txDigest":"d","eventSeq":"1"},50,false`) {
		t.Errorf("%s", a.Body)
	}
	p, trouble := read(s, `{"jsonrpc":"2.0","id":1,"result":{"data":[
		{"id":{"txDigest":"d1","eventSeq":"0"},"checkpoint":"77","parsedJson":{"tool":"xyz.labs.add@1","n":1.50}},
		{"id":{"txDigest":"d1","eventSeq":"1"},"parsedJson":{"tool":"labs@1"}},
		{"id":{"txDigest":"d2"},"parsedJson":{"tool":"xyz.labs.add@1"}},
		{"id":{"txDigest":"d3","eventSeq":"0"},"parsedJson":{"tool":"xyz.labs.add@1","s":"\u0000"}},
		{"id":{"txDigest":"d4","eventSeq":"0"}}],"nextCursor":{"txDigest":"d4","eventSeq":"0"},"hasNextPage":true}}`, nil)
	if trouble != nil || !p.More || string(p.Cursor) != `{"txDigest":"d4","eventSeq":"0"}` || !strings.Contains(string(p.Items[0].JSON), "1.50") || string(p.Items[3].JSON) != "null" {
		t.Errorf("%+v %v", p, trouble)
	}
	for _, part := range []string{`d1:0 77 xyz.labs.add@1 ""; `, `d1:1   "it names the tool \"labs@1\": Invalid tool FQN format"; `, `sha256:`, `"it has no id.txDigest and id.eventSeq"`,
		`d3:0   "it is not JSON that we accept: the character \\u0000 at /parsedJson/s"; `, `d4:0   "it names no tool at /parsedJson/tool"`} {
		if !strings.Contains(items(p), part) {
			t.Errorf("%s lacks %s", items(p), part)
		}
	}
	p, trouble = read(s, `{"result":{"data":[
		{"id":{"txDigest":"d1","eventSeq":"0"},"checkpoint":"7\u0000","parsedJson":{"tool":"xyz.labs.add@1"}}]}}`, nil)
	if trouble != nil || items(p) != `d1:0   "it is not JSON that we accept: the character \\u0000 at /checkpoint"` {
		t.Errorf("%s %v", items(p), trouble)
	}
	s.Start = "latest"
	if a := s.Page(nil); !strings.Contains(string(a.Body), `null,1,true`) {
		t.Errorf("%s", a.Body)
	}
	p, trouble = read(s, `{"result":{"data":[{"id":{"txDigest":"last","eventSeq":"9"}}],"nextCursor":{"x":1},"hasNextPage":true}}`, nil)
	if trouble != nil || len(p.Items) != 0 || string(p.Cursor) != `{"txDigest":"last","eventSeq":"9"}` {
		t.Errorf("%+v %v", p, trouble)
	}

	// A log without an event has no last one: then its start is its end, and the first that comes is read.
	p, trouble = read(s, `{"result":{"data":[],"nextCursor":null,"hasNextPage":false}}`, nil)
	if trouble != nil || len(p.Items) != 0 || string(p.Cursor) != "null" || p.More {
		t.Errorf("%+v %v", p, trouble)
	}
	if a := s.Page(p.Cursor); !strings.Contains(string(a.Body), `null,50,false`) {
		t.Errorf("%s", a.Body)
	}
	p, trouble = read(s, `{"result":{"data":[{"id":{"txDigest":"first","eventSeq":"0"},"parsedJson":{"tool":"xyz.labs.add@1"}}],"nextCursor":null,"hasNextPage":false}}`, p.Cursor)
	if trouble != nil || items(p) != `first:0  xyz.labs.add@1 ""` || p.Cursor != nil {
		t.Errorf("%+v %v", p, trouble)
	}

	h := paged()
	if a := h.Page(nil); a.Method != "GET" || a.URL != "http://127.0.0.1:9000/log?a=b&limit=50" {
		t.Error(a.URL)
	}
	if a := h.Page(json.RawMessage(`"a b"`)); a.URL != "http://127.0.0.1:9000/log?a=b&cursor=a+b&limit=50" {
		t.Error(a.URL)
	}
	h.Map.Digest, h.Map.ID = "/meta/tx", "/meta/ids/1"
	p, trouble = read(h, `{"events": [{"meta": {"tx": "0xab", "ids": [1, 12345678901234567890]}, "tool": "xyz.labs.add@2"}], "next_cursor": 12345678901234567890, "has_more": false}`, nil)
	if trouble != nil || p.More || string(p.Cursor) != "12345678901234567890" || p.Items[0].Identity != "12345678901234567890" || p.Items[0].Digest != "0xab" {
		t.Errorf("%+v %v", p, trouble)
	}
}

// S1.2: an empty page keeps the cursor, whatever it says; a log that has more behind one goes on.
func TestAnEmptyPageKeepsTheCursor(t *testing.T) {
	for _, c := range []struct {
		s          leader.Source
		body, want string
	}{
		{paged(), `{"events": [], "next_cursor": 0, "has_more": false}`, ""},
		{paged(), `{"events": [], "next_cursor": 7, "has_more": true}`, "7"},
		{paged(), `{"events": [{"id": 1, "tool": "xyz.labs.add@1"}], "next_cursor": null}`, ""},
		{sui(), `{"result": {"data": [], "nextCursor": {"txDigest": "d", "eventSeq": "0"}, "hasNextPage": false}}`, ""},
		{sui(), `{"result": {"data": [], "nextCursor": {"txDigest": "d", "eventSeq": "9"}, "hasNextPage": true}}`, `{"txDigest": "d", "eventSeq": "9"}`},
	} {
		if p, trouble := read(c.s, c.body, json.RawMessage(`5`)); trouble != nil || string(p.Cursor) != c.want {
			t.Errorf("%s: %s %v, want %q", c.body, p.Cursor, trouble, c.want)
		}
	}
}

// S1.3. A source that gives no page is asked again: only its own word, in JSON, stops it.
func TestTroubleIsRetryableOrTerminal(t *testing.T) {
	const page, text, own = "<!DOCTYPE html>\n<html>nginx</html>", "default backend", `{"error": "bad cursor"}`
	for _, c := range []struct {
		status int
		body   string
		retry  bool
	}{
		{302, "", true}, {302, page, true}, {307, own, true},
		{400, own, false}, {400, `["bad cursor"]`, false}, {400, page, true},
		{400, text, true}, {400, "", true}, {400, `{"error"`, true},
		{401, own, true}, {401, page, true}, {403, own, true}, {403, page, true},
		{404, own, true}, {404, page, true}, {404, "", true},
		{405, own, false}, {405, page, true}, {410, own, false}, {422, own, false}, {422, page, true},
		{408, own, true}, {425, "", true}, {429, own, true}, {429, page, true},
		{500, own, true}, {500, page, true}, {501, own, true}, {502, page, true}, {503, "", true}, {599, "", true},
	} {
		trouble := leader.Refused(c.status, "so", []byte(c.body))
		if trouble.Retryable != c.retry ||
			trouble.Retryable != strings.Contains(trouble.Text, "no page of the source") ||
			!strings.HasPrefix(trouble.Text, fmt.Sprintf("HTTP %d: so", c.status)) {
			t.Errorf("HTTP %d %s: %+v", c.status, c.body, trouble)
		}
	}
	if trouble := leader.Unanswered("timeout"); !trouble.Retryable || trouble.Text != "timeout" {
		t.Errorf("no answer: %+v", trouble)
	}
	for body, retry := range map[string]bool{
		`{"error":{"code":-32603,"message":"m"}}`:                        true,
		`{"error":{"code":-32000,"message":"m"}}`:                        true,
		`{"error":{"code":-32099,"message":"m"}}`:                        true,
		`{"error":{"code":-32100,"message":"m"}}`:                        false,
		`{"error":{"code":-32602,"message":"m"}}`:                        false,
		`{"error":{"code":1,"status":"DeadlineExceeded","message":"m"}}`: true,
		`{"error":{"code":1,"status":"NotFound","message":"m"}}`:         false,
		`{"error":"?"}`:                     true, // of a gateway: the source's names a code
		`{"error":{"message":"m"}}`:         true,
		`{"message":"service unavailable"}`: true,
		`{"result":{}}`:                     true,
		page:                                true,
		text:                                true,
		``:                                  true,
		`{"result": {"`:                     true,
	} {
		if _, trouble := read(sui(), body, nil); trouble == nil || trouble.Retryable != retry {
			t.Errorf("%s: %+v", body, trouble)
		}
	}
	for body, retry := range map[string]bool{
		`{}`:                                 true,
		`{"message":"service unavailable"}`:  true,
		`{"events": {}}`:                     true,
		`{"events": [], "next_cursor": {}}`:  false,
		`[`:                                  true,
		page:                                 true,
		`{"events": [{"id": 1}], "next_curs`: true,
	} {
		if _, trouble := read(paged(), body, nil); trouble == nil || trouble.Retryable != retry {
			t.Errorf("%s: %+v", body, trouble)
		}
	}
}

func TestSourcesThatCannotWorkAreRefused(t *testing.T) {
	for _, s := range []leader.Source{sui(), paged(), {Kind: "push", Map: leader.SourceMap{FQN: "/t"}}} {
		if err := s.WithDefaults().Validate(); err != nil {
			t.Error(err)
		}
	}
	for field, change := range map[string]func(*leader.Source){
		"/kind":           func(s *leader.Source) { s.Kind = "kafka" },
		"/url":            func(s *leader.Source) { s.URL = "ftp://x" },
		"/start":          func(s *leader.Source) { s.Start = "latest" },
		"/on_undecodable": func(s *leader.Source) { s.OnUndecodable = "skip" },
		"/poll_every":     func(s *leader.Source) { s.PollEvery = time.Millisecond },
		"/page_size":      func(s *leader.Source) { s.PageSize = 1001 },
		"/filter":         func(s *leader.Source) { s.Filter = json.RawMessage(`{}`) },
		"/map/fqn":        func(s *leader.Source) { s.Map.FQN = "" },
		"/map/items":      func(s *leader.Source) { s.Map.Items = "events" },
	} {
		s := paged()
		change(&s)
		if err := s.Validate(); fault.KindOf(err) != fault.Invalid || fault.As(err).Fields[0].Pointer != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	s := sui()
	s.Filter = nil
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "filter is required") {
		t.Error(err)
	}
}

func FuzzReadPage(f *testing.F) {
	kinds := []func() leader.Source{paged, sui, graphql}
	f.Add([]byte(`{"events":[{"id":1}]}`), uint8(0))
	f.Add([]byte(`{"result":{"data":[{"id":{"txDigest":"d1","eventSeq":"0"}}]}}`), uint8(1))
	f.Add([]byte(answered(true, `"c"`, event("d", 0, 5))), uint8(2))
	f.Fuzz(func(t *testing.T, body []byte, kind uint8) {
		s := kinds[int(kind)%len(kinds)]()
		p, trouble := read(s, string(body), nil)
		for _, it := range p.Items {
			if trouble != nil || it.Identity == "" || len(it.Identity) > 255 || !json.Valid(it.JSON) || (it.FQN == "") == (it.Undecoded == "") {
				t.Errorf("%+v %v", it, trouble)
			}
		}
	})
}

func table(change func(*leader.Source)) leader.Source {
	s := leader.Source{Kind: "postgres_table", Map: leader.SourceMap{FQN: "/tool"}, Table: &leader.SourceTable{Name: "orders", Key: "id", Cursor: "id"}}
	change(&s)
	return s.WithDefaults()
}

// A name that goes into SQL, or into a connection, is refused if it is more than a name (S2.7: no secret is stored).
func TestATableIsNamedAndNothingElse(t *testing.T) {
	for _, good := range []func(*leader.Source){
		func(*leader.Source) {},
		func(s *leader.Source) {
			s.Table.Name, s.URL = "shop.Orders", "postgres://reader@db.example:5433/shop?sslmode=verify-full"
		},
	} {
		if s := table(good); s.Validate() != nil || s.Table.Settle != "5s" {
			t.Error(s.Validate())
		}
	}
	for i, c := range []struct {
		field  string
		change func(*leader.Source)
	}{
		{"/table", func(s *leader.Source) { s.Table = nil }},
		{"/table", func(s *leader.Source) { s.Kind = "push" }},
		{"/table/name", func(s *leader.Source) { s.Table.Name = `orders"; DROP TABLE x; --` }},
		{"/table/name", func(s *leader.Source) { s.Table.Name = "a.b.c" }},
		{"/table/name", func(s *leader.Source) { s.Table.Name = "postern.task" }},
		{"/table/name", func(s *leader.Source) { s.Table.Name = "pg_catalog.pg_authid" }},
		{"/table/key", func(s *leader.Source) { s.Table.Key = "" }},
		{"/table/cursor", func(s *leader.Source) { s.Table.Cursor = "now()" }},
		{"/table/payload", func(s *leader.Source) { s.Table.Payload = "a b" }},
		{"/table/settle", func(s *leader.Source) { s.Table.Settle = "-1s" }},
		{"/start", func(s *leader.Source) { s.Start = "latest" }},
		{"/url", func(s *leader.Source) { s.URL = "http://127.0.0.1/" }},
		{"/url", func(s *leader.Source) { s.URL = "postgres://reader:secret@127.0.0.1/shop" }},
		{"/url", func(s *leader.Source) { s.URL = "postgres://127.0.0.1/shop" }},
		{"/url", func(s *leader.Source) { s.URL = "postgres://reader@/shop?host=/tmp" }},
		{"/url", func(s *leader.Source) { s.URL = "postgres://reader@127.0.0.1/shop?passfile=/etc/passwd" }},
		{"/url", func(s *leader.Source) { s.URL = "postgres://reader@a,b/shop" }},
	} {
		err := table(c.change).Validate()
		if fields := fault.As(err).Fields; len(fields) != 1 || fields[0].Pointer != c.field || strings.Contains(err.Error(), "secret") {
			t.Errorf("%d: %v, want %s", i, err, c.field)
		}
	}
}
