package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postern-dev/postern/internal/httpapi"
)

// TestDrawnRequestsAreAnsweredAsTheDocumentSays draws requests from the contract, valid ones and ones with
// something wrong, and plays them against the real router and database: never a 5xx, every answer fits
// the document, every refusal is a problem with a known code. -rapid.checks=N draws N times 12 requests.
func TestDrawnRequestsAreAnsweredAsTheDocumentSays(t *testing.T) {
	d := newDoor(t)
	doc, err := decoded(d.want(200, "GET", "/openapi.json", "").raw)
	if err != nil {
		t.Fatal(err)
	}
	g := &drawer{contract: contract{doc.(map[string]any)}, door: d, codes: httpapi.Codes(), answered: map[string]int{}}
	g.world()
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.IntRange(0, len(g.ops)-1).Draw(t, "first")
		for i := range 12 { // far apart, since what is drawn is mostly near zero
			g.play(t, g.request(t, g.ops[(first+37*i)%len(g.ops)]))
		}
	})
	never := []string{}
	for _, op := range g.ops {
		if g.answered[op.name] == 0 {
			never = append(never, op.name)
		}
	}
	t.Logf("%d of %d operations were never done, only refused: %v", len(never), len(g.ops), never)
	if len(never)*3 > len(g.ops)*2 {
		t.Error("more than two thirds of the operations were never done: what is drawn is not valid often enough")
	}
}

// drawer draws requests, and judges what is answered.
type drawer struct {
	contract
	door     *door
	codes    map[string]int
	ops      []operation
	names    map[string][]string // the names that exist, by path parameter or field
	answered map[string]int      // operations that were done
	tidy     bool                // nothing is wrong with the present request by itself
}

// operation is one of the document.
type operation struct {
	name, method, path string
	spec               map[string]any
}

// request is what was drawn.
type request struct {
	operation
	target, body string
	header       http.Header
}

// world makes what drawn requests may name.
func (g *drawer) world() {
	paths := g.doc["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for _, method := range []string{"get", "post", "put", "patch", "delete"} {
			spec, ok := paths[path].(map[string]any)[method].(map[string]any)
			if raw, _ := json.Marshal(spec["responses"]); ok && !strings.Contains(string(raw), "text/event-stream") { // a stream has no end
				g.ops = append(g.ops, operation{spec["operationId"].(string), strings.ToUpper(method), path, spec})
			}
		}
	}
	d := g.door
	d.dispatcher("pay")
	d.want(201, "PUT", "/senders/cap-1", `{"pool": "caps"}`)
	d.want(201, "PUT", "/queues/ada", `{"max_depth": 1000}`)
	d.want(201, "PUT", "/subscriptions/all", `{"kind": "pull"}`)
	d.want(201, "PUT", "/contexts/shop", `{}`)
	d.want(201, "PUT", "/processors/main", `{"tick_interval": "0s"}`)
	// of a type without a worker, so that no tick has to wait for its end
	f := `{"non_atomic": {"functions": [{"domain": "main", "contract_address": "gone", "message_details": {"message": {"name": "add"}}}]}}`
	for range 9 {
		d.want(201, "POST", "/processors/main/batches", `{"actions_config": `+f+`, "msgs": [{"msg": {"add": {}}}]}`)
	}
	d.want(201, "PUT", "/authorizations/open", `{"mode": "permissionless", "actions_config": `+f+`}`)
	d.want(201, "PUT", "/tools/xyz.labs.add@1", `{"url": "http://127.0.0.1:1", `+sums+`}`)
	d.want(201, "PUT", "/channels/between", `{"kind": "integrity"}`)
	d.want(201, "PUT", "/channels/cap-9", `{"kind": "cap"}`)
	var events []string
	for range 3 {
		events = append(events, d.deadEvent())
	}
	var actors, keys []string
	for range 3 {
		actors = append(actors, d.want(201, "POST", "/actors", `{}`).str("id"))
		keys = append(keys, d.want(201, "POST", "/api-keys", `{"name": "till", "role": "reader"}`).str("id"))
	}
	var ids []string
	for i := range 20 {
		ids = append(ids, d.want(201, "POST", "/transactions", fmt.Sprintf(`{"type": "pay", "queue": "ada", "uid": "u-%d", "data": {"n": 1.50}}`, i)).str("id"))
	}
	g.names = map[string][]string{"id": ids, "uid": {"u-1", "u-2", "new-1"}, "name": {"ada", "bob", "caps", "all", "transaction"}, "account": {"cap-1", "cap-2"}, "type": {"pay", "new"},
		"queue": {"ada", "bob"}, "pool": {"caps"}, "sender": {"cap-1"}, "worker_url": {"http://127.0.0.1:1/", "noop:"}, "state": {"WAITING", "DONE"},
		"wait": {"0s", "5ms"}, "Prefer": {"wait=0", "respond-async"}, "until": {"terminal", "change", "DONE"}, "If-Match": {`"1"`, "*", `W/"2"`, "x"}, "If-None-Match": {"*", `"1"`},
		"exclusive": {"none", "type", "field:/n"}, "cursor": {""}, "for": {"24h", "1s"}, "block_for": {"24h"}, "dispatch": {"10m"}, "initial": {"5s", "1"}, "cap": {"5m", "2"},
		"poll_every": {"10s"}, "deadline": {"1h"}, "unknown_grace": {"5m"}, "ids": ids, "depends_on": ids, "url": {"https://127.0.0.1:1/hook"}, "subscription": {"all"}, "events": {"transaction.done", "transaction.failed"},
		"/actors id": actors, "/api-keys id": keys, "/contexts name": {"shop", "new"}, "actor": actors, "admins": actors, "executors": actors, "readers": actors, "Postern-Context": {"default", "shop"},
		"roles": {"admin", "executor", "reader"}, "overlap": {"1h"}, "/processors name": {"main"}, "/processors id": {"1", "2", "3", "4"},
		"label": {"open"}, "owner": {"dev"}, "tick_interval": {"0s"}, "/tools fqn": {"xyz.labs.add@1"}, "timeout": {"10s"}, "ttl": {"5m"}, "check_every": {"30s"}, "max_answer": {"2048"},
		"/channels name": {"between", "cap-9"}, "/events id": events, "/sources name": {"app"}, "source": {"app"}, "secret": {"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}, "retry_interval": {"5s"}, "stale_after": {"5m"}, "sweep_interval": {"30s"}}
}

// odd are texts that no field takes.
var odd = []string{"", " ", "a b", "\x00", "\x7f", "ä€𝄞", "..", "%2F", "-", strings.Repeat("x", 300), "null", "0", "9999999999999999999999", "'; --", "\u202e", "0001-01-01T00:00:00Z"}

func (g *drawer) request(t *rapid.T, op operation) request {
	r := request{operation: op, header: http.Header{}}
	g.tidy = rapid.Bool().Draw(t, "tidy")
	r.target = r.path
	query := url.Values{}
	list, _ := r.spec["parameters"].([]any)
	for _, p := range list {
		p := p.(map[string]any)
		name, in := p["name"].(string), p["in"].(string)
		must, _ := p["required"].(bool)
		if !must && rapid.IntRange(0, 3).Draw(t, "with "+name) > 0 {
			continue
		}
		if noun := "/" + strings.Split(r.path, "/")[1] + " " + name; in == "path" && len(g.names[noun]) > 0 {
			name = noun
		}
		text := g.text(t, name, p["schema"])
		switch in {
		case "path":
			if text == "" || text == ".." {
				text = "x"
			}
			r.target = strings.ReplaceAll(r.target, "{"+p["name"].(string)+"}", url.PathEscape(text))
		case "query":
			query.Add(name, text)
		case "header":
			r.header.Set(name, strings.Map(func(c rune) rune {
				if c < ' ' || c == 0x7f {
					return '?'
				}
				return c
			}, text))
		}
	}
	if g.chance(t, 20, "an unknown parameter") {
		query.Add("colour", "red")
	}
	if len(query) > 0 {
		r.target += "?" + query.Encode()
	}
	if body, ok := r.spec["requestBody"].(map[string]any); ok {
		media := g.schema(body)["content"].(map[string]any)
		if whole, ok := g.doc["paths"].(map[string]any)[r.path].(map[string]any)["put"].(map[string]any); ok && r.method == "PATCH" { // any part of what a PUT takes
			media = g.schema(whole["requestBody"])["content"].(map[string]any)
		}
		if must, _ := body["required"].(bool); must || rapid.Bool().Draw(t, "with a body") {
			r.header.Set("Content-Type", "application/json")
			v := g.value(t, "", g.schema(media["application/json"])["schema"], 0)
			raw, _ := json.Marshal(v)
			r.body = string(raw)
			if g.chance(t, 8, "broken") {
				r.body = rapid.SampledFrom([]string{"", "{", "[]", "null", "1", `"x"`, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `{"type": "\u0000"}`, `{"\ud800": 1}`, r.body + r.body,
					strings.Repeat("[", 100), `{"__proto__": {}}`, strings.Repeat(" ", 1000) + r.body, `{"items": null}`}).Draw(t, "body")
			}
			if g.chance(t, 20, "as") {
				r.header.Set("Content-Type", rapid.SampledFrom([]string{"text/plain", "application/x-ndjson", "application/json; charset=latin1", "x"}).Draw(t, "media type"))
			}
		}
	}
	return r
}

// chance of something wrong: true once in n times.
func (g *drawer) chance(t *rapid.T, n int, what string) bool {
	return !g.tidy && rapid.IntRange(1, n).Draw(t, what) == n
}

// text draws a parameter.
func (g *drawer) text(t *rapid.T, name string, schema any) string {
	if name == "wait" || name == "Prefer" { // all that is not drawn here could wait for long
		return rapid.SampledFrom(g.names[name]).Draw(t, name)
	}
	if g.chance(t, 8, "odd "+name) {
		return rapid.SampledFrom(odd).Draw(t, name)
	}
	s := g.schema(schema)
	if slices.Contains(types(s), "array") {
		s = g.schema(s["items"])
	}
	v := g.value(t, name, s, 0)
	if s, ok := v.(string); ok {
		return s
	}
	raw, _ := json.Marshal(v)
	return string(raw)
}

// value draws what fits a schema, mostly.
func (g *drawer) value(t *rapid.T, name string, schema any, depth int) any {
	s := g.schema(schema)
	if name != "" && g.chance(t, 25, "a misfit for "+name) {
		if g.chance(t, 2, "an odd "+name) {
			return rapid.SampledFrom(odd).Draw(t, name)
		}
		return rapid.SampledFrom([]any{nil, true, -1, 1.5, json.Number("1e300"), "", "a b", strings.Repeat("y", 300), []any{}, []any{nil}, map[string]any{}, map[string]any{"x": "y"}}).Draw(t, name)
	}
	if list, ok := s["oneOf"].([]any); ok {
		return g.value(t, name, rapid.SampledFrom(list).Draw(t, name+" as"), depth)
	}
	if enum, ok := s["enum"].([]any); ok {
		return rapid.SampledFrom(enum).Draw(t, name)
	}
	kinds := types(s)
	if len(kinds) == 0 {
		return rapid.SampledFrom([]any{map[string]any{"a": json.Number("1.10")}, "text", 7, []any{1, "2"}, false}).Draw(t, name)
	}
	switch kind := rapid.SampledFrom(kinds).Draw(t, name+" is"); kind {
	case "object":
		o := map[string]any{}
		properties, _ := s["properties"].(map[string]any)
		must := required(s)
		for _, p := range slices.Sorted(maps.Keys(properties)) {
			if slices.Contains(must, p) && !g.chance(t, 25, "leave out "+p) || rapid.IntRange(0, 2+depth).Draw(t, "with "+p) == 0 {
				o[p] = g.value(t, p, properties[p], depth+1)
			}
		}
		if s["additionalProperties"] != false || g.chance(t, 25, "something unknown") {
			o[rapid.SampledFrom([]string{"k", "colour", "paused"}).Draw(t, "key")] = "v"
		}
		return o
	case "array":
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, name+" items") {
			list = append(list, g.value(t, name, s["items"], depth+1))
		}
		return list
	case "integer", "number":
		least, most := 0, 100
		if n, ok := s["minimum"].(json.Number); ok {
			least = number(n)
		}
		if n, ok := s["maximum"].(json.Number); ok {
			most = max(least, number(n))
		}
		return rapid.IntRange(least, min(most, least+1000)).Draw(t, name)
	case "boolean":
		return rapid.Bool().Draw(t, name)
	case "string":
		if known := g.names[name]; len(known) > 0 {
			return rapid.SampledFrom(known).Draw(t, name)
		}
		if s["format"] == "date-time" {
			return rapid.SampledFrom([]string{"2026-11-20T14:04:10Z", "2030-01-01T00:00:00.123456789+02:00", "1970-01-01T00:00:00Z"}).Draw(t, name)
		}
		return rapid.SampledFrom([]string{"a", "7", "why not", "5s"}).Draw(t, name)
	}
	return nil
}

// play sends a request and judges its answer.
func (g *drawer) play(t *rapid.T, r request) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, g.door.url+r.target, strings.NewReader(r.body))
	if err != nil {
		t.Fatalf("%s %s: %v", r.method, r.target, err)
	}
	req.Header = r.header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", r.method, r.target, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if said := g.judge(r, res, string(b)); said != "" {
		t.Fatalf("%s %s\n%v\n%s\nanswers %s\n%s\n%s", r.method, r.target, r.header, r.body, res.Status, b, said)
	}
	if res.StatusCode < 400 {
		g.answered[r.name]++
	}
}

// judge says what is wrong with an answer.
func (g *drawer) judge(r request, res *http.Response, body string) string {
	declared := r.spec["responses"].(map[string]any)
	answer, ok := declared[fmt.Sprint(res.StatusCode)]
	switch {
	case res.StatusCode >= 500:
		return "a 5xx"
	case !ok && res.StatusCode < 400:
		return "the document does not list this status"
	case !ok:
		answer = declared["default"]
	}
	media, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	content, _ := g.schema(answer)["content"].(map[string]any)
	if len(content) == 0 || res.StatusCode == http.StatusNotModified {
		if body != "" {
			return "there is a body, and the document lists none"
		}
		return ""
	}
	schema, ok := content[media].(map[string]any)
	if !ok {
		return "the document does not list the media type " + media
	}
	v, err := decoded(body)
	if err != nil {
		return err.Error()
	}
	if said := g.misfit("", schema["schema"], v); said != "" {
		return said
	}
	if res.StatusCode >= 400 {
		p := v.(map[string]any)
		if code, _ := p["code"].(string); g.codes[code] != res.StatusCode || fmt.Sprint(p["status"]) != fmt.Sprint(res.StatusCode) || p["detail"] == "" {
			return "no problem as we know them"
		}
	}
	return ""
}
