package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/pg"
)

// stage submits through SQL, each in a transaction of its own.
func (d *door) stage(sql string, args ...any) error {
	d.t.Helper()
	var uid string
	return d.store.Pool().QueryRow(d.t.Context(), sql, args...).Scan(&uid)
}

func (d *door) drain() {
	d.t.Helper()
	out, err := pg.NewDrainer(d.store.Store).Once(d.t.Context())
	if err != nil || out.Rows == 0 {
		d.t.Fatalf("drained %+v, %v", out, err)
	}
}

func TestWhatIsStagedIsShownUnderItsUID(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("T")
	if err := d.stage(`SELECT postern.submit('q', 'T', '{"n": 1.50}', uid => 'order-1', tags => '{"k": "v"}', max_retries => 3)`); err != nil {
		t.Fatal(err)
	}
	got := d.want(200, "GET", "/transactions/by-uid/order-1", "")
	if got.body["staged"] != true || got.body["id"] != nil || got.body["state"] != "WAITING" || got.body["queue"] != "q" || got.body["max_retries"] != 3.0 ||
		!strings.Contains(got.raw, `1.50`) {
		t.Errorf("%s", got.raw)
	}
	d.want(304, "GET", "/transactions/by-uid/order-1", "", "If-None-Match: "+got.header.Get("ETag"))
	why := d.want(200, "GET", "/transactions/by-uid/order-1/why", "")
	if b := why.body["blockers"].([]any)[0].(map[string]any); b["kind"] != "staged" || b["since"] != got.str("received_at") || why.body["moving"] != true {
		t.Errorf("%s", why.raw)
	}
	if late := d.want(200, "GET", "/transactions/by-uid/order-1?wait=100ms", ""); late.body["staged"] != true {
		t.Errorf("%s", late.raw)
	}
	waited := make(chan answer)
	go func() { waited <- d.call("GET", "/transactions/by-uid/order-1?until=change&wait=30s", "") }()
	time.Sleep(20 * time.Millisecond)
	d.drain()
	if now := <-waited; now.body["staged"] != false || now.body["id"] == nil || now.body["position"] != 1.0 || now.str("uid") != "order-1" {
		t.Errorf("%s", now.raw)
	}
	if why := d.want(200, "GET", "/transactions/by-uid/order-1/why", ""); strings.Contains(why.raw, `"staged"`) {
		t.Errorf("%s", why.raw)
	}
	again := d.want(200, "POST", "/transactions", `{"queue": "q", "type": "T", "data": {"n": 15e-1}, "tags": {"k": "v"}, "max_retries": 3}`, "Idempotency-Key: order-1")
	if again.header.Get("Idempotent-Replay") != "true" {
		t.Errorf("%v %s", again.header, again.raw)
	}
	d.refused(404, "not_found", "GET", "/transactions/by-uid/order-2", "")
	d.refused(404, "not_found", "GET", "/transactions/by-uid/order-2/why", "")
}

func TestAConflictThatShowsInTheDrainEndsFailedAndSaysSo(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("T")
	if err := d.stage(`SELECT postern.submit('q', 'T', '{"n": 1}', uid => 'order-1')`); err != nil {
		t.Fatal(err)
	}
	first := d.want(201, "POST", "/transactions", `{"queue": "q", "type": "T", "data": {"n": 2}, "uid": "order-1"}`).str("id")
	d.drain()
	if got := d.want(200, "GET", "/transactions/by-uid/order-1", "").str("id"); got != first {
		t.Errorf("the uid names %s, want %s", got, first)
	}
	list := d.want(200, "GET", "/transactions?state=FAILED&include=data", "").body["items"].([]any)
	if len(list) != 1 {
		t.Fatalf("%v", list)
	}
	failed := list[0].(map[string]any)
	if e := failed["error"].(map[string]any); e["code"] != "idempotency_conflict" || !strings.Contains(e["message"].(string), first) ||
		failed["uid"] != failed["id"] || failed["queue"] != "q" || failed["position"] != 2.0 {
		t.Errorf("%v", failed)
	}
	path := "/transactions/" + failed["id"].(string)
	history := d.want(200, "GET", path+"/history", "")
	if !strings.Contains(history.raw, `"event":"Refused"`) {
		t.Errorf("%s", history.raw)
	}
	d.want(200, "GET", path+"/why", "")
	if again := d.want(201, "POST", path+"/redrive", `{"uid": "order-1b"}`); again.body["queue"] != "q" || again.body["position"] != 3.0 {
		t.Errorf("%s", again.raw)
	}
}

// Both doors refuse the same things with the same document, but for what belongs to a request.
func TestSQLRefusesAsHTTPDoes(t *testing.T) {
	d := allowing(t, "127.0.0.0/8")
	d.dispatcher("T")
	d.works("n", "10.20.0.0/16", "fd00::/8")
	d.want(201, "PUT", "/queues/shut", `{}`)
	d.want(200, "POST", "/queues/shut/drain", "")
	d.want(201, "PUT", "/queues/small", `{"max_depth": 1}`)
	d.want(201, "POST", "/transactions", `{"queue": "small", "type": "T"}`)
	d.want(201, "POST", "/transactions", `{"queue": "q", "type": "T", "data": {"n": [1, 2.50]}, "uid": "known"}`)
	d.want(201, "POST", "/transactions", `{"queue": "q", "type": "T", "uid": "dependent", "depends_on": ["known"]}`)
	deep := strings.Repeat("[", 63) + strings.Repeat("]", 63)
	for name, item := range map[string]string{
		"queue":            `{"queue": "no spaces", "type": "T"}`,
		"empty queue":      `{"queue": "", "type": "T"}`,
		"type":             `{"queue": "q", "type": "-T"}`,
		"long type":        `{"queue": "q", "type": "` + strings.Repeat("x", 201) + `"}`,
		"no type":          `{"queue": "q", "data": 1}`,
		"uid":              `{"queue": "q", "type": "T", "uid": "` + strings.Repeat("x", 256) + `"}`,
		"large":            `{"queue": "q", "type": "T", "data": "` + strings.Repeat("x", 256<<10) + `"}`,
		"max_retries":      `{"queue": "q", "type": "T", "max_retries": 10001}`,
		"few retries":      `{"queue": "q", "type": "T", "max_retries": -1}`,
		"half a retry":     `{"queue": "q", "type": "T", "max_retries": 1.5}`,
		"far":              `{"queue": "q", "type": "T", "not_before": "2199-01-02T03:04:05Z"}`,
		"no time":          `{"queue": "q", "type": "T", "not_before": "tomorrow"}`,
		"empty tag":        `{"queue": "q", "type": "T", "tags": {"": "x"}}`,
		"long tag":         `{"queue": "q", "type": "T", "tags": {"k": "` + strings.Repeat("x", 257) + `"}}`,
		"no text in a tag": `{"queue": "q", "type": "T", "tags": {"k": true}}`,
		"many tags":        `{"queue": "q", "type": "T", "tags": {` + many(17) + `}}`,
		"unknown field":    `{"queue": "q", "type": "T", "colour": "red"}`,
		"no string":        `{"queue": 7, "type": "T"}`,
		"unknown type":     `{"queue": "q", "type": "U"}`,
		"draining":         `{"queue": "shut", "type": "T"}`,
		"full":             `{"queue": "small", "type": "T"}`,
		"no dependency":    `{"queue": "q", "type": "T", "depends_on": ["known", "nobody"]}`,
		"nor an id":        `{"queue": "q", "type": "T", "depends_on": ["00000000-0000-8000-8000-000000000001"]}`,
		"depends on self":  `{"queue": "q", "type": "T", "uid": "me", "depends_on": ["me"]}`,
		"odd dependency":   `{"queue": "q", "type": "T", "depends_on": ["known", "no good"]}`,
		"no text":          `{"queue": "q", "type": "T", "depends_on": ["known", 7]}`,
		"no list":          `{"queue": "q", "type": "T", "depends_on": "known"}`,
		"many":             `{"queue": "q", "type": "T", "depends_on": ["known"` + strings.Repeat(`, "known"`, 64) + `]}`,
		"no endpoint":      `{"queue": "q", "type": "T", "callback": {"on": ["DONE"]}}`,
		"no URL":           `{"queue": "q", "type": "T", "callback": {"url": "ftp://x/"}}`,
		"a password":       `{"queue": "q", "type": "T", "callback": {"url": "http://me:it@x/"}}`,
		"a number as URL":  `{"queue": "q", "type": "T", "callback": {"url": 7}}`,
		"no end":           `{"queue": "q", "type": "T", "callback": {"url": "http://x/", "on": ["WAITING"]}}`,
		"a text as list":   `{"queue": "q", "type": "T", "callback": {"url": "http://x/", "on": "DONE"}}`,
		"odd field":        `{"queue": "q", "type": "T", "callback": {"url": "http://x/", "how": "loudly"}}`,
		"other callback":   `{"queue": "q", "type": "T", "data": {"n": [1, 2.50]}, "uid": "known", "callback": {"url": "http://x/"}}`,
		"other ones":       `{"queue": "q", "type": "T", "data": {"n": [1, 2.50]}, "uid": "known", "depends_on": ["dependent"]}`,
		"conflict":         `{"queue": "r", "type": "T", "data": {"n": [1, 2.51]}, "uid": "known", "max_retries": 1}`,
	} {
		t.Run(name, func(t *testing.T) { d.refusedInBoth(t, item) })
	}
	for _, host := range append(refusedHosts, oddHosts...) {
		url, _ := json.Marshal("http://" + host + "/hook")
		t.Run("a callback to "+host, func(t *testing.T) {
			d.refusedInBoth(t, fmt.Sprintf(`{"queue": "q", "type": "T", "callback": {"url": %s}}`, url))
		})
	}
	// requests that both doors answer alike
	for _, item := range []string{
		`{"queue": "q", "type": "T", "uid": "known", "data": {"n": [1.0, 25e-1]}, "tags": {}}`,
		`{"queue": "q", "type": "T", "uid": "dependent", "depends_on": ["known", "known"]}`,
		`{"queue": "q", "type": "T", "uid": "tells", "callback": {"url": "https://x:1/y?z=%20", "on": []}}`,
		`{"type": "T", "callback": {"url": "http://10.20.1.1:8000/x"}}`,
		`{"type": "T", "callback": {"url": "http://[fd00::7]:8000"}}`,
		`{"type": "T", "callback": {"url": "http://[2a00:1450::1]"}}`,
		`{"type": "T", "callback": {"url": "HTTP://93.184.215.14?x"}}`,
		`{"type": "T", "callback": {"url": "http://worker_1.internal.:80/"}}`,
		`{"type": "T", "callback": {"url": "http://1.2.3.4a/"}}`,
		`{"queue": null, "type": "T", "not_before": "2030-01-02T03:04:05.000001+02:00", "data": null}`,
		`{"type": "T", "data": ` + deep + `}`,
	} {
		status := d.call("POST", "/transactions", item).status
		if err := d.stage(`SELECT postern.submit_many(jsonb_build_array($1::jsonb))`, item); err != nil || status > 201 {
			t.Errorf("HTTP answers %d, SQL %v: %s", status, err, item)
		}
	}
	for name, sql := range map[string]string{
		"ZP422 nested deeper":    `SELECT postern.submit('q', 'T', '[` + deep + `]')`,
		"ZP422 beyond 1e308":     `SELECT postern.submit('q', 'T', '[1e308, {"x": -1e309}]')`,
		"ZP422 before 1970":      `SELECT postern.submit('q', 'T', '{}', not_before => '-infinity')`,
		"ZP422 /type: is requir": `SELECT postern.submit('q', NULL, '{}')`,
		"ZP422 expected object":  `SELECT postern.submit('q', 'T', '{}', tags => '[]')`,
		"ZP404 no context":       `SELECT postern.submit('q', 'T', '{}', context => 'elsewhere')`,
		"ZP422 items: want":      `SELECT postern.submit_many('{}')`,
		"ZP422 neither the id":   `SELECT postern.submit_many('[{"type": "T", "uid": "x", "depends_on": ["y"]}, {"type": "T", "uid": "y"}]')`,
	} {
		var e *pgconn.PgError
		if err := d.stage(sql); !errors.As(err, &e) || e.Code != name[:5] || !strings.Contains(e.Message, name[6:]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var staged int
	if err := d.store.Pool().QueryRow(t.Context(), `SELECT count(*) FROM postern.outbox`).Scan(&staged); err != nil || staged != 8 {
		t.Errorf("%d rows are staged, %v", staged, err)
	}
}

// Both doors take the same URLs for callbacks, whatever stands behind the host.
func TestBothDoorsTakeTheSameURLs(t *testing.T) {
	d := allowing(t, "127.0.0.0/8")
	d.dispatcher("T")
	taken := 0
	for _, rest := range []string{
		"/%zz", "/%", "/%2", "/a%2", "/%2g/x", "/%41", "/%C3%a4", "/%ff", "/%00", "?a=%zz", "/x?%", "?%zz", "?", "/?",
		"/a b", "/x?a b", "/ ", "?x ", "/a\tb", "/a\nb", "/a\x01", "/x?\x01", "/\x7f", "/x?\x7f", "/\u0085",
		"/x?\u009f", "/ä", "/x?ä", "/\u2028", "/\U0001f600", "#", "/#", "/x?y#", "/#f", "/#%zz", "/%zz#", "/[", "/]",
		"/x?[", "/a:b", "//x", "/..", "/\\x", "/|^`{}", "/;x=1", "/@", "/x@y", "?@", ":80/%zz", ":80/", ":/", ":x/",
		":80x", ":99999/", `/'"<>`, "/*", "/+", "/%2F%2f", "&", "\\x", "",
	} {
		text, _ := json.Marshal("http://example.com" + rest)
		item := fmt.Sprintf(`{"type": "T", "callback": {"url": %s}}`, text)
		a := d.call("POST", "/transactions", item)
		err := d.stage(`SELECT postern.submit_many(jsonb_build_array($1::jsonb))`, item)
		switch {
		case a.status == 400 || a.status > 422:
			t.Errorf("%q: HTTP answers %d %s", rest, a.status, a.raw)
		case (a.status > 201) != (err != nil):
			t.Errorf("%q: HTTP answers %d %s, SQL %v", rest, a.status, a.raw, err)
		case err == nil:
			taken++
		}
	}
	if taken < 20 {
		t.Errorf("only %d were taken", taken)
	}
}

// refusedHosts are addresses that no node of TestSQLRefusesAsHTTPDoes may call.
var refusedHosts = []string{
	"127.0.0.1", "localhost:9", "LocalHost", "localhost.", "db.localhost", "[::1]", "[::ffff:127.0.0.1]",
	"[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "169.254.169.254", "10.21.0.1:8080", "[fe80::1]",
	"0.0.0.0", "255.255.255.255",
}

// refusedInBoth fails the test unless both doors refuse an item with the same document.
func (d *door) refusedInBoth(t *testing.T, item string) {
	t.Helper()
	http := d.call("POST", "/transactions", item)
	var e *pgconn.PgError
	if err := d.stage(`SELECT postern.submit_many(jsonb_build_array($1::jsonb))`, item); !errors.As(err, &e) {
		t.Fatalf("HTTP answers %d %s, SQL %v", http.status, http.raw, err)
	}
	var sql map[string]any
	if err := json.Unmarshal([]byte(e.Detail), &sql); err != nil {
		t.Fatalf("%v: %s", err, e.Detail)
	}
	single := unbatched(t, sql)
	want := maps.Clone(http.body)
	delete(want, "request_id")
	if got, want := text(single), text(want); got != want {
		t.Errorf("%s\nSQL  %s\nHTTP %s", e.Code, got, want)
	}
	status := http.status
	if status == 413 {
		status = 422
	}
	if e.Code != fmt.Sprint("ZP", status) || e.Message != sql["detail"] {
		t.Errorf("SQLSTATE %s, message %q; HTTP answers %d", e.Code, e.Message, http.status)
	}
}

// unbatched takes out of a document what the place in the batch has put there.
func unbatched(t *testing.T, doc map[string]any) map[string]any {
	t.Helper()
	single := maps.Clone(doc)
	said, ok := strings.CutPrefix(single["detail"].(string), "item 0: ")
	said, ok2 := strings.CutSuffix(said, "; nothing of the batch was accepted")
	if !ok || !ok2 {
		t.Errorf("detail %q", doc["detail"])
	}
	single["detail"] = said
	list := single["errors"].([]any)
	field := maps.Clone(list[0].(map[string]any))
	pointer, ok := strings.CutPrefix(field["pointer"].(string), "/items/0")
	if !ok {
		t.Errorf("errors %v", list)
	}
	field["pointer"] = pointer
	single["errors"] = []any{field}
	if pointer == "" {
		delete(single, "errors") // HTTP has none for what is no field's fault
	}
	return single
}

func text(v any) string {
	b, _ := json.MarshalIndent(v, "", " ")
	return string(b)
}

func many(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"k%d": "v"`, i))
	}
	return strings.Join(list, ", ")
}
