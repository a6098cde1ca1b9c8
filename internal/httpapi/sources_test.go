package httpapi_test

import (
	"strings"
	"testing"
)

const pushSource = `{"kind": "push", "map": {"fqn": "/tool"}}`

func TestASourceIsConfiguredPausedAndRewound(t *testing.T) {
	d := newDoor(t)
	s := d.want(201, "PUT", "/sources/chain", `{"kind": "sui", "url": "http://127.0.0.1:1/",
		"filter": {"MoveEventModule": {"package": "0xf1", "module": "workflow"}}, "map": {"fqn": "/parsedJson/tool"}, "poll_every": "90s"}`)
	if s.str("state") != "running" || s.str("poll_every") != "1m30s" || s.body["page_size"] != 50.0 || s.str("start") != "earliest" || s.header.Get("Location") != "/sources/chain" ||
		!strings.Contains(s.raw, `"filter":{"MoveEventModule":`) {
		t.Errorf("%s", s.raw)
	}
	if !strings.Contains(s.raw, `"warnings":["kind sui asks by JSON-RPC, which the nodes of Sui's mainnet have `) {
		t.Errorf("%s", s.raw)
	}
	if s := d.want(200, "PATCH", "/sources/chain", `{"page_size": 7, "start": "latest"}`); s.body["page_size"] != 7.0 || s.str("poll_every") != "1m30s" || s.str("start") != "latest" {
		t.Errorf("%s", s.raw)
	}
	d.want(200, "POST", "/sources/chain/pause", "")
	if l := d.want(200, "POST", "/sources/chain/pause", ""); l.body["changed"] != false {
		t.Errorf("%s", l.raw)
	}
	d.want(200, "POST", "/sources/chain/rewind", `{"cursor": {"txDigest": "d", "eventSeq": "3"}, "reason": "the indexer lost a day"}`)
	if s := d.want(200, "GET", "/sources/chain", ""); s.str("state") != "paused" || !strings.Contains(s.raw, `"eventSeq"`) || s.body["next_at"] != nil {
		t.Errorf("%s", s.raw)
	}
	if a := d.want(200, "GET", "/audit?object=/sources/chain&action=rewind", ""); !strings.Contains(a.raw, "the indexer lost a day") {
		t.Errorf("%s", a.raw)
	}
	today := `{"kind": "sui_graphql", "url": "http://127.0.0.1:1/", "filter": {"module": "0xf1::workflow"},
		"map": {"fqn": "/contents/json/tool"}}`
	if s := d.want(201, "PUT", "/sources/today", today); strings.Contains(s.raw, `JSON-RPC`) {
		t.Errorf("%s", s.raw)
	}
	d.want(204, "DELETE", "/sources/today", "")
	if s := d.want(200, "GET", "/sources", ""); len(s.body["items"].([]any)) != 1 {
		t.Errorf("%s", s.raw)
	}
	for field, body := range map[string]string{
		"/filter":     `{"kind": "sui", "url": "http://127.0.0.1:1/", "map": {"fqn": "/t"}}`,
		"/url":        `{"kind": "http_json", "url": "file:///etc/passwd", "map": {"fqn": "/t"}}`,
		"/map/fqn":    `{"kind": "push", "map": {"fqn": ""}}`,
		"/start":      `{"kind": "http_json", "url": "http://127.0.0.1:1/", "map": {"fqn": "/t"}, "start": "latest"}`,
		"/table/key":  `{"kind": "postgres_table", "table": {"name": "t", "key": "a;b", "cursor": "id"}, "map": {"fqn": "/t"}}`,
		"/poll_every": `{"kind": "push", "map": {"fqn": "/t"}, "poll_every": "soon"}`,
	} {
		if a := d.want(422, "PUT", "/sources/bad", body); !strings.Contains(a.raw, `"pointer":"`+field+`"`) {
			t.Errorf("%s: %s", field, a.raw)
		}
	}
	rpc := strings.Replace(today, `"module": "0xf1::workflow"`, `"MoveEventModule": {}`, 1)
	if a := d.want(422, "PUT", "/sources/bad", rpc); !strings.Contains(a.raw, `"pointer":"/filter/MoveEventModule"`) {
		t.Errorf("%s", a.raw)
	}
	rows := `{"kind": "postgres_table", "table": {"name": "shop.orders", "key": "id", "cursor": "id"}, "map": {"fqn": "/tool"}}`
	if a := d.want(422, "PUT", "/sources/rows", rows); !strings.Contains(a.raw, `"pointer":"/table/name"`) || !strings.Contains(a.raw, "schema shop") ||
		!strings.Contains(a.raw, "--source-schemas shop (POSTERN_SOURCE_SCHEMAS)") {
		t.Errorf("%s", a.raw)
	}
	d.store.Events.SourceSchemas = []string{"shop"}
	for name, status := range map[string]int{"orders": 422, "public.orders": 422, "Shop.orders": 422, "postern.task": 422, "pg_catalog.pg_authid": 422,
		"river.river_job": 422, "information_schema.tables": 422, `shop\".orders`: 422, "shop.orders": 201} {
		d.want(status, "PUT", "/sources/"+strings.Trim(strings.ReplaceAll(name, ".", "-"), `\"`)+"-1", strings.Replace(rows, "shop.orders", name, 1))
	}
	d.want(201, "PUT", "/sources/elsewhere", strings.Replace(rows, `"table"`, `"url": "postgres://reader@db.example/shop", "table"`, 1)) // its role says what is read
	d.want(201, "PUT", "/sources/rows", `{"kind": "postgres_table", "table": {"name": "shop.orders", "key": "id", "cursor": "id"}, "map": {"fqn": "/tool"}}`)
	if s := d.want(200, "PATCH", "/sources/rows", `{"table": {"settle": "9s"}}`); !strings.Contains(s.raw, `"table":{"name":"shop.orders","key":"id","cursor":"id","settle":"9s"}`) {
		t.Errorf("%s", s.raw)
	}
	d.want(204, "DELETE", "/sources/chain", "")
	d.refused(404, "not_found", "GET", "/sources/chain", "")
	d.refused(404, "not_found", "POST", "/sources/chain/pause", "")
}

func TestEventsArePushedListedAndRead(t *testing.T) {
	d := newDoor(t)
	d.want(201, "PUT", "/sources/app", pushSource)
	one := `{"source": "app", "identity": {"checkpoint": "7", "digest": "0xab", "index": 2}, "json": {"tool": "xyz.labs.add@1", "n": 1.50}}`
	first := d.want(201, "POST", "/events", one)
	again := d.want(200, "POST", "/events", one)
	if !strings.Contains(first.raw, `"known":false`) || strings.Replace(first.raw, "false", "true", 1) != again.raw {
		t.Errorf("%s %s", first.raw, again.raw)
	}
	d.refused(409, "idempotency_conflict", "POST", "/events", strings.Replace(one, "1.50", "2", 1))
	d.want(201, "POST", "/events", `{"source": "app", "cursor": 9, "events": [{"identity": {"digest": "0xcd"}, "json": {"tool": "xyz.labs.sub@1"}},
		{"identity": {"digest": "0xcd", "index": 1}, "json": {"tool": "xyz.labs.add@1"}}]}`)
	for text, body := range map[string]string{
		"it names no tool at /tool":        `{"source": "app", "identity": {"digest": "x"}, "json": {}}`,
		"stands in this request twice":     `{"source": "app", "events": [{"identity": {"digest": "y"}, "json": {"tool": "xyz.labs.sub@1"}}, {"identity": {"digest": "y"}, "json": {"tool": "xyz.labs.add@1"}}]}`,
		"identity is required":             `{"source": "app"}`,
		"json is required":                 `{"source": "app", "identity": {"digest": "x"}}`,
		"one event with identity and json": `{"source": "app", "identity": {"digest": "x"}, "json": {}, "events": [{"identity": {"digest": "y"}, "json": {}}]}`,
	} {
		if a := d.want(422, "POST", "/events", body); !strings.Contains(a.str("detail"), text) {
			t.Errorf("%s, want %q", a.raw, text)
		}
	}
	d.refused(404, "not_found", "POST", "/events", strings.Replace(one, "app", "nowhere", 1))
	page := d.want(200, "GET", "/events?limit=2&order=asc", "")
	if list := page.body["items"].([]any); len(list) != 2 || page.body["next"] == nil || list[0].(map[string]any)["status"] != "Queued" || strings.Contains(page.raw, `"json"`) {
		t.Errorf("%s", page.raw)
	}
	if rest := d.want(200, "GET", "/events?limit=2&order=asc&cursor="+page.str("next"), ""); len(rest.body["items"].([]any)) != 1 || rest.body["next"] != nil {
		t.Errorf("%s", rest.raw)
	}
	if list := d.want(200, "GET", "/events?tool=xyz.labs.add@1&digest=0xab&status=Queued&source=app", ""); len(list.body["items"].([]any)) != 1 {
		t.Errorf("%s", list.raw)
	}
	id := first.body["items"].([]any)[0].(map[string]any)["id"].(string)
	if e := d.want(200, "GET", "/events/"+id, ""); e.str("identity") != "0xab:2" || e.str("checkpoint") != "7" || strings.Count(e.raw, `1.50`) != 2 || e.body["input_url"] != nil {
		t.Errorf("%s", e.raw)
	}
	for input, want := range map[string]string{"/n": `"input":1.50,`, "http://127.0.0.1:1/inputs/{/n}?of={/tool}": `"input_url":"http://127.0.0.1:1/inputs/1.50?of=xyz.labs.add%401",`, "/none": `"tool":"xyz.labs.add@1","status"`} {
		d.want(200, "PUT", "/sources/app", strings.Replace(pushSource, `"/tool"`, `"/tool", "input": "`+input+`"`, 1))
		if e := d.want(200, "GET", "/events/"+id, ""); !strings.Contains(e.raw, want) {
			t.Errorf("%s, want %s", e.raw, want)
		}
	}
	d.refused(404, "not_found", "GET", "/events/none", "")
	d.want(201, "PUT", "/sources/pulled", `{"kind": "http_json", "url": "http://127.0.0.1:1/", "map": {"fqn": "/tool"}}`)
	d.refused(409, "wrong_state", "POST", "/events", strings.Replace(one, "app", "pulled", 1))
}
