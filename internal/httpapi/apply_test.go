package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/internal/manifest"
)

const (
	secretOfShop = "whsec_vHwSXpr0Ns9WtMFjHJFlMA8kFvCA0yBqmK3SGhevpAE="
	otherSecret  = "whsec_AAAAXpr0Ns9WtMFjHJFlMA8kFvCA0yBqmK3SGhevpAE="
	kindsOfShop  = 11
)

func init() { os.Setenv("SHOP_SECRET", secretOfShop) } // to which examples/apply refers

// shop is the body of an apply of the file that docs/apply.md shows, which has each kind once. change are texts
// and what they are replaced by.
func shop(t *testing.T, change ...string) string {
	t.Helper()
	list, err := manifest.Read(nil, "../../examples/apply")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{"documents": list, "label": "shop"})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(change); i += 2 {
		if !strings.Contains(string(b), change[i]) {
			t.Fatalf("the example does not say %s: %s", change[i], b)
		}
		b = []byte(strings.ReplaceAll(string(b), change[i], change[i+1]))
	}
	return string(b)
}

// applied sends an apply and returns the results by kind and name.
func (d *door) applied(query, body string, headers ...string) map[string]string {
	d.t.Helper()
	return d.resultsOf(d.want(200, "POST", "/apply"+query, body, headers...))
}

func (d *door) resultsOf(a answer) map[string]string {
	d.t.Helper()
	var out struct {
		Things []struct{ Kind, Name, Result string }
	}
	if err := json.Unmarshal([]byte(a.raw), &out); err != nil {
		d.t.Fatal(err)
	}
	got := map[string]string{}
	for _, t := range out.Things {
		got[t.Kind+" "+t.Name] = t.Result
	}
	return got
}

// same says whether n things have one result.
func same(got map[string]string, result string, n int) bool {
	for _, r := range got {
		if r != result {
			return false
		}
	}
	return len(got) == n
}

// these is the body of an apply.
func these(more string, list ...string) string {
	return `{"documents": [` + strings.Join(list, ", ") + `]` + more + `}`
}

func TestApplyTwiceIsNoChange(t *testing.T) {
	d := newDoor(t, callsLoopback(t))
	before := d.rows()
	if got := d.applied("?dry_run=true", shop(t)); !same(got, "created", kindsOfShop) || d.rows() != before {
		t.Errorf("%v, and rows\n%s", got, d.rows())
	}
	if got := d.applied("?reason=first", shop(t)); !same(got, "created", kindsOfShop) {
		t.Errorf("%v", got)
	}
	before = d.rows()
	for _, query := range []string{"", "?dry_run=true", "?reason=again"} {
		if got := d.applied(query, shop(t)); !same(got, "unchanged", kindsOfShop) {
			t.Errorf("%v", got)
		}
		if after := d.rows(); after != before {
			t.Errorf("an apply of what there is has changed rows:\n%s\nthey were\n%s", after, before)
		}
	}
	in := "Postern-Context: shop"
	for path, shows := range map[string]string{
		"/pools/payers":              `"block_for":"1h"`,
		"/senders/payer-1":           `"address":"0x01"`,
		"/dispatchers/PAY":           `"signed":true`,
		"/queues/refunds":            `"priority":"High"`,
		"/tools/com.example.price@1": `"timeout":"10s"`,
		"/sources/orders":            `"buffer":50`,
		"/channels/till-to-books":    `"capacity":20`,
		"/processors/neutron":        `"owner":"dev"`,
		"/authorizations/payouts":    `"mode":"permissionless"`,
		"/subscriptions/books":       `"kind":"pull"`,
	} {
		first := `"1"`
		if path == "/queues/refunds" { // its name is made before its settings
			first = `"2"`
		}
		if a := d.want(200, "GET", path, "", in); !strings.Contains(a.raw, shows) || a.header.Get("ETag") != first {
			t.Errorf("%s: %s %s", path, a.header.Get("ETag"), a.raw)
		}
	}
	var audited int
	if err := d.store.Pool().QueryRow(t.Context(), `SELECT count(*) FROM postern.audit
		WHERE action = 'put' AND reason = 'first' AND via = 'http'`).Scan(&audited); err != nil {
		t.Fatal(err)
	}
	if audited != kindsOfShop {
		t.Error(audited)
	}
}

func TestApplyChangesWhatDiffersAndSaysHow(t *testing.T) {
	d := newDoor(t, callsLoopback(t))
	d.applied("", shop(t))
	change := []string{
		`"max_depth":1000`, `"max_depth":2000`,
		`"block_for":"1h"`, `"block_for":"60m"`, // the same in other words
		`"0x01"`, `"0x02"`,
		`"initial":"15s"`, `"initial":"20s"`,
		`"priority":"High",`, ``,
		`"timeout":"10s"`, `"timeout":"20s"`,
		`"buffer":50`, `"buffer":60`,
		`"capacity":20`, `"capacity":30`,
		`"tick_interval":"2s"`, `"tick_interval":"3s"`,
		`"permissionless"`, `{"permissioned":{"without_call_limit":["till"]}}`,
		`,"transaction.failed"`, ``,
	}
	for _, query := range []string{"?dry_run=true", ""} {
		a := d.want(200, "POST", "/apply"+query, shop(t, change...))
		got := d.resultsOf(a)
		if got["pool payers"] != "unchanged" {
			t.Errorf("%v", got)
		}
		if delete(got, "pool payers"); !same(got, "changed", kindsOfShop-1) {
			t.Errorf("%v", got)
		}
		for _, shows := range []string{
			`{"field":"/max_depth","was":1000,"becomes":2000}`,
			`{"field":"/attributes/address","was":"0x01","becomes":"0x02"}`,
			`{"field":"/retry/initial","was":"15s","becomes":"20s"}`,
			`{"field":"/priority","was":"High","becomes":"Med"}`,
			`{"field":"/timeout","was":"10s","becomes":"20s"}`,
			`{"field":"/events","was":["transaction.done","transaction.failed"],"becomes":["transaction.done"]}`,
			`{"field":"/mode","was":"permissionless","becomes":{"permissioned":{"without_call_limit":["till"]}}}`,
		} {
			if !strings.Contains(a.raw, shows) {
				t.Errorf("%s is missing in %s", shows, a.raw)
			}
		}
	}
	if got := d.applied("", shop(t, change...)); !same(got, "unchanged", kindsOfShop) {
		t.Errorf("%v", got)
	}
	// a setting that stands in no document is a default again, but not who is in a context and who owns a processor
	in := "Postern-Context: shop"
	actor := d.want(201, "POST", "/actors", `{}`).str("id")
	d.want(200, "PUT", "/contexts/shop/members/"+actor, `{"roles": ["admin"]}`)
	got := d.applied("", these("",
		`{"kind": "context", "name": "shop", "settings": {"require_key": true, "max_depth": 2000}}`,
		`{"kind": "processor", "name": "neutron", "context": "shop", "settings": {"tick_interval": "3s"}}`,
		`{"kind": "dispatcher", "name": "PAY", "context": "shop", "settings": {"worker_url": "noop:"}}`))
	want := map[string]string{
		"context shop":      "unchanged",
		"processor neutron": "unchanged",
		"dispatcher PAY":    "changed",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if a := d.want(200, "GET", "/dispatchers/PAY", "", in); a.body["signed"] != true || a.str("pool") != "" {
		t.Error(a.raw)
	}
}

func TestOfHalfValidDocumentsNothingIsApplied(t *testing.T) {
	d := newDoor(t)
	before := d.rows()
	a := d.refused(422, "invalid", "POST", "/apply", these(`, "label": "l"`,
		`{"kind": "pool", "name": "good"}`,
		`{"kind": "pool", "name": "long", "settings": {"block_for": "ten years"}}`,
		`{"kind": "pool", "name": "strange", "settings": {"block": "1h", "after_failure": "shrug"}}`,
		`{"kind": "sender", "name": "acct", "settings": {"pool": 7}}`,
		`{"kind": "dispatcher", "name": "T", "settings": {}}`,
		`{"kind": "queue", "name": "q", "settings": {"pool": "absent"}}`,
		`{"kind": "queue", "name": "good", "settings": {"pool": "good"}}`,
		`{"kind": "queue", "name": "a/b"}`,
		`{"kind": "secret", "name": "x"}`,
		`{"kind": "pool", "name": "good"}`,
		`{"kind": "pool", "name": "p", "context": "nowhere"}`,
		`{"kind": "processor", "name": "p", "settings": {"deliver_as": "absent"}}`))
	if after := d.rows(); after != before {
		t.Errorf("rows have changed:\n%s\nthey were\n%s", after, before)
	}
	for _, shows := range []string{
		`"pointer":"/documents/1/settings/block_for"`,
		`"pointer":"/documents/2/settings/block"`,
		`"pointer":"/documents/2/settings/after_failure"`,
		`"pointer":"/documents/3/settings/pool"`,
		`"pointer":"/documents/4/settings/worker_url"`,
		`"pointer":"/documents/5/settings/pool"`,
		`"pointer":"/documents/7/name"`,
		`"pointer":"/documents/8/kind"`,
		`"pointer":"/documents/9/name"`,
		`"index":10,"kind":"pool","context":"nowhere","name":"p","code":"not_found"`,
		`"pointer":"/documents/11/settings/deliver_as"`,
		`10 of the documents are refused`,
	} {
		if !strings.Contains(a.raw, shows) {
			t.Errorf("%s is missing in %s", shows, a.raw)
		}
	}
	// a fault that only the database finds
	a = d.call("POST", "/apply", these("", `{"kind": "pool", "name": "good"}`,
		`{"kind": "sender", "name": "acct", "settings": {"pool": "good", "attributes": {"a": 1e200000}}}`))
	if a.status != 422 && a.status != 400 || d.rows() != before {
		t.Errorf("%d %s", a.status, a.raw)
	}
	d.refused(422, "invalid", "POST", "/apply", these(`, "prune": true`, `{"kind": "pool", "name": "good"}`))
	d.refused(422, "invalid", "POST", "/apply", these(`, "labels": "x"`, `{"kind": "pool", "name": "good"}`))
}

// The order of documents does not matter, and each sees what those before it made in the same commit.
func TestDocumentsMayNameEachOther(t *testing.T) {
	d := newDoor(t)
	d.want(201, "PUT", "/dispatchers/OLD", `{"worker_url": "noop:", "pool": "crew"}`)
	d.want(201, "POST", "/transactions", `{"type": "OLD", "queue": "waits"}`)
	body := these("",
		`{"kind": "authorization", "name": "auth", "settings": {"mode": "permissionless",
			"actions_config": {"atomic": {"functions": [
			{"domain": "far", "contract_address": "FAR", "message_details": {"message": {"name": "go"}}}]}}}}`,
		`{"kind": "processor", "name": "far", "settings": {"deliver_as": "FAR"}}`,
		`{"kind": "queue", "name": "waits", "settings": {"pool": "fresh"}}`,
		`{"kind": "dispatcher", "name": "FAR", "settings": {"worker_url": "noop:", "capabilities": ["atomic"]}}`,
		`{"kind": "sender", "name": "acct", "settings": {"pool": "fresh"}}`,
		`{"kind": "pool", "name": "fresh", "settings": {"after_failure": "block"}}`)
	before := d.rows()
	if got := d.applied("?dry_run=true", body); !same(got, "created", 6) || d.rows() != before {
		t.Errorf("%v", got)
	}
	if got := d.applied("", body); !same(got, "created", 6) {
		t.Errorf("%v", got)
	}
	if got := d.applied("", body); !same(got, "unchanged", 6) {
		t.Errorf("%v", got)
	}
	d.want(201, "POST", "/transactions", `{"type": "FAR", "queue": "q"}`) // this process knows it at once
}

func TestPruneRemovesWhatTheLabelNamesNoMore(t *testing.T) {
	d := newDoor(t, callsLoopback(t))
	d.want(201, "PUT", "/pools/other", `{}`)
	d.applied("", shop(t))
	less := these(`, "label": "shop", "prune": true`,
		`{"kind": "context", "name": "shop", "settings": {"require_key": true}}`)
	d.want(201, "POST", "/transactions", `{"type": "PAY", "queue": "q"}`, "Postern-Context: shop", "Idempotency-Key: a")
	before := d.rows()
	a := d.refused(409, "in_use", "POST", "/apply", less)
	if !strings.Contains(a.raw, `"kind":"dispatcher","context":"shop","name":"PAY"`) || d.rows() != before ||
		!strings.Contains(a.raw, "remove it all the same with DELETE /dispatchers/PAY?force=true") {
		t.Error(a.raw)
	}
	id := d.want(200, "GET", "/transactions/by-uid/a", "", "Postern-Context: shop").str("id")
	d.want(200, "POST", "/transactions/"+id+"/cancel", "", "Postern-Context: shop")
	// without prune, under another label and in another context nothing is removed
	kept := these(`, "label": "books"`, `{"kind": "subscription", "name": "books", "context": "shop", "settings":
		{"kind": "pull", "events": ["transaction.done", "transaction.failed"]}}`)
	bodies := []string{
		strings.Replace(less, `, "prune": true`, ``, 1),
		strings.Replace(less, `"label": "shop"`, `"label": "none"`, 1),
		kept,
	}
	for _, body := range bodies {
		for what, result := range d.applied("", body) {
			if result == "removed" {
				t.Errorf("%s removes %s", body, what)
			}
		}
	}
	if got := d.applied("", less, "Postern-Context: shop"); len(got) != 1 {
		t.Errorf("%v", got)
	}
	before = d.rows()
	dry := d.applied("?dry_run=true", less)
	if d.rows() != before {
		t.Error("a dry run has changed rows")
	}
	done := d.applied("", less)
	for _, got := range []map[string]string{dry, done} {
		if got["context shop"] == "removed" || got["subscription books"] != "kept" {
			t.Errorf("%v", got)
		}
		if got["pool payers"] != "removed" || len(got) != kindsOfShop {
			t.Errorf("%v", got)
		}
	}
	for _, path := range []string{"/pools/payers", "/senders/payer-1", "/dispatchers/PAY", "/queues/refunds",
		"/tools/com.example.price@1", "/sources/orders", "/channels/till-to-books", "/processors/neutron",
		"/authorizations/payouts"} {
		d.refused(404, "not_found", "GET", path, "", "Postern-Context: shop")
	}
	d.want(200, "GET", "/subscriptions/books", "", "Postern-Context: shop")
	d.want(200, "GET", "/pools/other", "")
	if got := d.applied("", less); len(got) != 1 {
		t.Errorf("what was let go is let go again: %v", got)
	}
}

func TestASecretIsNeverShown(t *testing.T) {
	d := newDoor(t, callsLoopback(t))
	var said strings.Builder
	for _, secret := range []string{secretOfShop, otherSecret, ""} {
		for _, query := range []string{"?dry_run=true", "", ""} {
			a := d.want(200, "POST", "/apply"+query, shop(t, secretOfShop, secret))
			said.WriteString(a.raw)
			differs := strings.Contains(a.raw, `"field":"/secret"`)
			if differs && secret == otherSecret != strings.Contains(a.raw, `"becomes":"(hidden)"`) {
				t.Error(a.raw)
			}
		}
	}
	if n := strings.Count(said.String(), `"field":"/secret"`); n != 4 { // twice changed, and told before by a dry run
		t.Errorf("told %d times: %s", n, said.String())
	}
	said.WriteString(d.refused(422, "invalid", "POST", "/apply", shop(t, secretOfShop, otherSecret+"!")).raw)
	said.WriteString(d.want(200, "GET", "/audit", "", "Postern-Context: shop").raw)
	for _, secret := range []string{secretOfShop, otherSecret} {
		if strings.Contains(said.String(), secret[6:20]) {
			t.Errorf("a secret was shown: %s", said.String())
		}
	}
}

func TestAnAdminAppliesInItsOwnContextAlone(t *testing.T) {
	d, root := closedDoor(t)
	d.want(201, "PUT", "/contexts/shop", `{}`, root)
	d.want(201, "PUT", "/contexts/bank", `{}`, root)
	admin, _, _ := d.key(root, "shop", "admin")
	executor, _, _ := d.key(root, "shop", "executor")
	reading, _, _ := d.key(root, "shop", "admin", "read")
	pool := `{"kind": "pool", "name": "p"}`
	d.refused(403, "forbidden", "POST", "/apply", these("", pool), executor)
	d.refused(403, "forbidden", "POST", "/apply", these("", pool), reading)
	d.refused(404, "not_found", "POST", "/apply", these("", pool), admin, "Postern-Context: bank")
	before := d.rows()
	for body, code := range map[string]string{
		these("", pool, `{"kind": "pool", "name": "p", "context": "bank"}`):         "not_found",
		these("", pool, `{"kind": "context", "name": "mine"}`):                      "not_found",
		these("", pool, `{"kind": "context", "name": "bank", "settings": {}}`):      "not_found",
		these("", pool, `{"kind": "tool", "name": "a.b.c@1", "context": "system"}`): "not_found",
	} {
		if a := d.refused(404, code, "POST", "/apply", body, admin); d.rows() != before {
			t.Error(a.raw)
		}
	}
	deep := `{"kind": "context", "name": "shop", "settings": {"max_depth": 5}}`
	got := d.applied("", these("", pool, deep), admin)
	if got["pool p"] != "created" || got["context shop"] != "changed" {
		t.Errorf("%v", got)
	}
	// a label belongs to the context in which it was given: another admin prunes nothing by it
	d.applied("", these(`, "label": "l"`, pool), admin)
	other, _, _ := d.key(root, "bank", "admin")
	got = d.applied("", these(`, "label": "l", "prune": true`, `{"kind": "pool", "name": "q"}`), other)
	if len(got) != 1 {
		t.Errorf("%v", got)
	}
	d.want(200, "GET", "/pools/p", "", admin)
}

func TestAToolSaysWhatItIsBeforeLocksAreTaken(t *testing.T) {
	d := newDoor(t, callsLoopback(t))
	i := newInstrument(t)
	tool := `{"kind": "tool", "name": "xyz.labs.add@1", "settings": {"url": "` + i.URL + `", "timeout": "90s"}}`
	if got := d.applied("", these("", `{"kind": "pool", "name": "p"}`, tool)); !same(got, "created", 2) {
		t.Errorf("%v", got)
	}
	i.status.Store(500) // it is away, and its definition holds
	if got := d.applied("", these("", tool)); !same(got, "unchanged", 1) {
		t.Errorf("%v", got)
	}
	if got := d.applied("", these("", strings.Replace(tool, "90s", "80s", 1))); !same(got, "changed", 1) {
		t.Errorf("%v", got)
	}
	a := d.refused(422, "invalid", "POST", "/apply", these("", `{"kind": "pool", "name": "q"}`,
		strings.ReplaceAll(tool, "add@1", "add@2")))
	if !strings.Contains(a.raw, `"pointer":"/documents/1/settings/url"`) {
		t.Error(a.raw)
	}
	d.refused(404, "not_found", "GET", "/pools/q", "")
}

// Any number at once, of the same and of others: one after the other, and each is all or nothing.
func TestAppliesAtTheSameTimeComeOneBehindTheOther(t *testing.T) {
	d := newDoor(t, callsLoopback(t))
	var group sync.WaitGroup
	var mu sync.Mutex
	created := map[string]int{}
	for n := range 12 {
		group.Go(func() {
			body := shop(t)
			if n%3 == 2 { // crosswise with the others, which name these in another order
				body = these("",
					`{"kind": "queue", "name": "refunds", "context": "shop", "settings": {"priority": "High"}}`,
					`{"kind": "context", "name": "shop", "settings": {"require_key": true, "max_depth": 1000}}`)
			}
			a := d.want(200, "POST", "/apply", body)
			mu.Lock()
			defer mu.Unlock()
			for what, result := range d.resultsOf(a) {
				if result == "created" {
					created[what]++
				}
			}
		})
	}
	for n := range 20 { // beside them goes what they change
		d.call("PUT", "/queues/refunds", fmt.Sprintf(`{"max_depth": %d}`, n+1), "Postern-Context: shop")
	}
	group.Wait()
	for what, n := range created {
		if n != 1 && what != "queue refunds" {
			t.Errorf("%s was created %d times", what, n)
		}
	}
	if got := d.applied("", shop(t)); got["context shop"] != "unchanged" || got["pool payers"] != "unchanged" {
		t.Errorf("%v", got)
	}
}

// TestAPeerIsRemovedByTheApplyOrNotAtAll prunes a peer beside a document that is refused.
func TestAPeerIsRemovedByTheApplyOrNotAtAll(t *testing.T) {
	d := newDoor(t, callsLoopback(t))
	pool := `{"kind": "pool", "name": "payers"}`
	d.applied("", these(`, "label": "far"`, pool, `{"kind": "peer", "name": "far", "settings": {
		"url": "http://127.0.0.1:1/contexts/shop/peers/near",
		"secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}}`))
	before := d.rows()
	d.refused(422, "invalid", "POST", "/apply", these(`, "label": "far", "prune": true`, pool,
		`{"kind": "dispatcher", "name": "PAY", "settings": {"worker_url": "nowhere"}}`))
	if d.rows() != before {
		t.Error("an apply that was refused has changed rows")
	}
	d.want(200, "GET", "/peers/far", "")
	if got := d.applied("", these(`, "label": "far", "prune": true`, pool)); got["peer far"] != "removed" {
		t.Error(got)
	}
	d.refused(404, "not_found", "GET", "/peers/far", "")
}
