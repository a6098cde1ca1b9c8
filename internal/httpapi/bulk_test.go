package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
)

func (d *door) post(queue string, n int) (ids []string) {
	d.t.Helper()
	for i := range n {
		ids = append(ids, d.want(201, "POST", "/transactions", fmt.Sprintf(`{"type": "pay", "queue": %q, "uid": "%s-%d"}`, queue, queue, i)).str("id"))
	}
	return ids
}

func (d *door) states(ids []string) string {
	d.t.Helper()
	var list []string
	for _, id := range ids {
		list = append(list, d.want(200, "GET", "/transactions/"+id, "").str("state"))
	}
	return strings.Join(list, " ")
}

func (a answer) counts(t *testing.T, matched, changed, pending, refused int) {
	t.Helper()
	if a.body["matched"] != float64(matched) || a.body["changed"] != float64(changed) || a.body["pending"] != float64(pending) ||
		len(a.body["refused"].([]any)) != refused {
		t.Errorf("want matched %d, changed %d, pending %d, refused %d: %s", matched, changed, pending, refused, a.raw)
	}
}

func TestManyAreCancelledAndRedrivenByIDs(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	ids := append(d.post("a", 3), d.post("b", 3)...)
	ends := strings.Join([]string{ids[4], ids[0], ids[0], ids[2], "nonsense", "018f0000-0000-8000-8000-000000000000"}, `", "`)
	before := d.rows()
	tried := d.want(200, "POST", "/transactions:cancel", `{"ids": ["`+ends+`"], "dry_run": true}`)
	if d.rows() != before || tried.body["dry_run"] != true {
		t.Error("a dry run changed rows", tried.raw)
	}
	tried.counts(t, 3, 3, 0, 2)
	d.want(200, "POST", "/transactions:cancel", `{"ids": ["`+ends+`"], "reason": "wrong batch"}`).counts(t, 3, 3, 0, 2)
	if got := d.states(ids); got != "CANCELLED WAITING CANCELLED WAITING CANCELLED WAITING" {
		t.Error(got)
	}
	again := d.want(200, "POST", "/transactions:cancel", `{"ids": ["`+ids[0]+`", "`+ids[1]+`"]}`)
	again.counts(t, 2, 1, 0, 0)
	var rows int
	if err := d.store.Pool().QueryRow(t.Context(), `SELECT count(*) FROM postern.audit WHERE action = 'cancel' AND reason = 'wrong batch' AND actor = 'dev'`).Scan(&rows); err != nil || rows != 3 {
		t.Errorf("%d audit rows: %v", rows, err)
	}
	d.want(200, "POST", "/transactions:retry", `{"ids": ["`+ids[3]+`"]}`).counts(t, 1, 0, 0, 1)
	d.want(200, "POST", "/transactions:redrive", `{"ids": ["`+ids[0]+`", "`+ids[2]+`", "`+ids[3]+`"]}`).counts(t, 3, 2, 0, 1)
	if l := d.want(200, "GET", "/transactions?redrive_of="+ids[2], "").body["items"].([]any); len(l) != 1 || l[0].(map[string]any)["queue"] != "a" {
		t.Error(l)
	}
	if d.states(ids[5:]) != "WAITING" {
		t.Error("what nobody named has changed")
	}
}

func TestManyAreCancelledByFilterAndNothingBeyondMax(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	ids := d.post("a", 250)
	other := d.post("b", 1)
	filter := `"filter": {"queue": "a", "state": ["WAITING"]}`
	before := d.rows()
	d.want(200, "POST", "/transactions:cancel?dry_run=true", `{`+filter+`, "max": 230}`).counts(t, 230, 230, 0, 0)
	if d.rows() != before {
		t.Error("a dry run changed rows")
	}
	a := d.want(200, "POST", "/transactions:cancel", `{`+filter+`, "max": 230}`)
	a.counts(t, 230, 230, 0, 0)
	if got := d.states([]string{ids[0], ids[229], ids[230], ids[249], other[0]}); got != "CANCELLED CANCELLED WAITING WAITING WAITING" || a.str("next") == "" {
		t.Errorf("the oldest come first: %s, next %q", got, a.str("next"))
	}
	d.refused(400, "bad_cursor", "POST", "/transactions:cancel", `{"filter": {"queue": "b"}, "max": 5, "after": "`+a.str("next")+`"}`)
	a = d.want(200, "POST", "/transactions:cancel", `{`+filter+`, "max": 230, "after": "`+a.str("next")+`"}`)
	a.counts(t, 20, 20, 0, 0)
	if a.body["next"] != nil || d.want(200, "GET", "/queues/a", "").body["depth"] != 0.0 {
		t.Error(a.raw)
	}
	d.want(200, "POST", "/transactions:cancel", `{"filter": {"type": "pay", "state": "WAITING"}, "max": 10}`).counts(t, 1, 1, 0, 0)
	for _, body := range []string{`{}`, `{"ids": []}`, `{"ids": ["x"], "filter": {}}`, `{"filter": {}}`, `{"filter": {}, "max": 10001}`, `{"filter": {"colour": "red"}, "max": 1}`,
		`{"filter": {"state": "BORED"}, "max": 1}`, `{"ids": ["x"], "max": 3}`, `{"filter": {"queue": 3}, "max": 1}`} {
		d.refused(422, "invalid", "POST", "/transactions:cancel", body)
	}
}

func TestAQueueIsPurgedDrainedAndResumed(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	ids := d.post("q", 5)
	before := d.rows()
	if a := d.want(200, "POST", "/queues/q/purge?dry_run=true", `{"max": 2}`); a.body["cancelled"] != 2.0 || a.body["more"] != true || d.rows() != before {
		t.Error(a.raw)
	}
	etag := d.want(200, "GET", "/queues/q", "").header.Get("ETag")
	d.refused(412, "precondition_failed", "POST", "/queues/q/purge", ``, `If-Match: "99"`)
	if a := d.want(200, "POST", "/queues/q/purge", `{"max": 2, "reason": "wrong"}`, "If-Match: "+etag); a.body["cancelled"] != 2.0 || a.body["more"] != true || a.body["result"] != "done" {
		t.Error(a.raw)
	}
	if got := d.states(ids); got != "CANCELLED CANCELLED WAITING WAITING WAITING" {
		t.Error(got)
	}
	d.want(200, "POST", "/queues/q/drain", "")
	d.refused(409, "queue_draining", "POST", "/transactions", `{"type": "pay", "queue": "q"}`)
	if a := d.want(200, "POST", "/queues/q/purge", ""); a.body["cancelled"] != 3.0 || a.body["more"] != false || a.body["changed"] != true {
		t.Error(a.raw)
	}
	if a := d.want(200, "POST", "/queues/q/purge", ""); a.body["cancelled"] != 0.0 || a.body["changed"] != false {
		t.Error(a.raw)
	}
	if q := d.want(200, "GET", "/queues/q", ""); q.body["depth"] != 0.0 || q.body["draining"] != true {
		t.Error(q.raw)
	}
	d.want(200, "POST", "/queues/q/resume", "")
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q"}`)
	d.refused(404, "not_found", "POST", "/queues/none/purge", "")
	var rows int
	if err := d.store.Pool().QueryRow(t.Context(), `SELECT count(*) FROM postern.audit WHERE object = '/queues/q' AND action = 'purge'`).Scan(&rows); err != nil || rows != 3 {
		t.Errorf("%d audit rows: %v", rows, err)
	}
}

func TestSuspendedOnesAreListedAndResumedTogether(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	var ids []string
	for i := range 3 {
		ids = append(ids, d.want(201, "POST", "/transactions", fmt.Sprintf(`{"type": "pay", "queue": "q", "uid": "u-%d"}`, i)).str("id"))
	}
	d.want(200, "POST", "/transactions/"+ids[1]+"/suspend", `{"reason": "check"}`)
	if v := d.want(200, "GET", "/transactions/"+ids[1], ""); v.body["suspended"] != true || v.str("state") != "WAITING" {
		t.Error(v.raw)
	}
	if w := d.want(200, "GET", "/transactions/"+ids[1]+"/why", ""); !strings.Contains(w.raw, `suspended by dev: check`) || !strings.Contains(w.raw, ids[1]+"/resume") {
		t.Error(w.raw)
	}
	for query, n := range map[string]int{"suspended=true": 1, "suspended=false": 2, "suspended=true&suspended=false": 3, "suspended=true&queue=q": 1, "suspended=true&uid=u-0": 0} {
		if l := d.want(200, "GET", "/transactions?"+query, ""); len(l.body["items"].([]any)) != n {
			t.Errorf("%s: %s", query, l.raw)
		}
	}
	if b := d.want(200, "POST", "/transactions:suspend", `{"filter": {"queue": "q"}, "max": 10}`); b.body["changed"] != 2.0 || b.body["matched"] != 3.0 {
		t.Error(b.raw)
	}
	if b := d.want(200, "POST", "/transactions:resume", `{"filter": {"suspended": true}, "max": 10, "dry_run": true}`); b.body["changed"] != 3.0 {
		t.Error(b.raw)
	}
	if b := d.want(200, "POST", "/transactions:resume", `{"filter": {"suspended": true}, "max": 2}`); b.body["changed"] != 2.0 || b.body["next"] == nil {
		t.Error(b.raw)
	}
	if l := d.want(200, "GET", "/transactions?suspended=true", ""); len(l.body["items"].([]any)) != 1 {
		t.Error(l.raw)
	}
	h := d.want(200, "GET", "/transactions/"+ids[1]+"/history", "")
	for _, want := range []string{`"event":"suspend"`, `"event":"resume"`, `"detail":"check"`} {
		if !strings.Contains(h.raw, want) {
			t.Errorf("no %s in %s", want, h.raw)
		}
	}
}

// Held transactions are listed however old they are, and a bulk ends those of a type.
func TestHeldOnesAreListedAndEndedTogether(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	node := d.node()
	var ids []string
	for i := range 2 {
		posted := d.want(201, "POST", "/transactions", fmt.Sprintf(`{"type": "pay", "uid": "u-%d"}`, i))
		ids = append(ids, posted.str("id"))
		d.hold(node)
	}
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q", "uid": "waits"}`)
	const older = `UPDATE postern.task SET created_at = created_at - interval '2 days' WHERE uid = 'u-1'`
	if _, err := d.store.Pool().Exec(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	if v := d.want(200, "GET", "/transactions/"+ids[0], ""); v.body["held"] != true || v.str("state") != "DISPATCHING" {
		t.Error(v.raw)
	}
	for query, n := range map[string]int{
		"held=true":           2,
		"held=true&type=pay":  2,
		"held=true&type=none": 0,
		"held=false":          1,
		"held=true&queue=q":   0,
		"held=true&uid=u-0":   1,
		"held=false&uid=u-0":  0,
	} {
		if l := d.want(200, "GET", "/transactions?"+query, ""); len(l.body["items"].([]any)) != n {
			t.Errorf("%s: %s", query, l.raw)
		}
	}
	b := d.want(200, "POST", "/transactions:was-done",
		`{"filter": {"held": true, "type": "pay"}, "max": 10, "reason": "the bank shows them"}`)
	if b.body["changed"] != 2.0 || b.body["matched"] != 2.0 {
		t.Error(b.raw)
	}
	if l := d.want(200, "GET", "/transactions?held=true", ""); len(l.body["items"].([]any)) != 0 {
		t.Error(l.raw)
	}
}

func TestSeveralAreMovedAndKeepTheirOrder(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	ids := d.post("q", 5)
	other := d.post("r", 2)
	order := func(want ...int) {
		t.Helper()
		for i, n := range want {
			w := d.want(200, "GET", "/transactions/"+ids[n]+"/why", "")
			if i > 0 && !strings.Contains(w.raw, fmt.Sprintf("%d stand before this one", i)) && !strings.Contains(w.raw, fmt.Sprintf("%d stands before this one", i)) {
				t.Errorf("%d is not at %d: %s", n, i, w.raw)
			}
		}
		if q := d.want(200, "GET", "/queues/q", ""); q.body["head"].(map[string]any)["id"] != ids[want[0]] {
			t.Errorf("head is not %d: %s", want[0], q.raw)
		}
	}
	list := func(n ...int) string {
		var named []string
		for _, i := range n {
			named = append(named, `"`+ids[i]+`"`)
		}
		return "[" + strings.Join(named, ",") + "]"
	}
	if b := d.want(200, "POST", "/transactions:move", `{"ids": `+list(3, 2)+`, "place": "head", "reason": "urgent"}`); b.body["changed"] != 2.0 {
		t.Error(b.raw)
	}
	order(2, 3, 0, 1, 4)
	if b := d.want(200, "POST", "/transactions:move", `{"ids": `+list(0, 1)+`, "place": {"after": "`+ids[4]+`"}, "dry_run": true}`); b.body["changed"] != 2.0 {
		t.Error(b.raw)
	}
	order(2, 3, 0, 1, 4)
	d.want(200, "POST", "/transactions:move", `{"ids": `+list(0, 1)+`, "place": {"after": "`+ids[4]+`"}}`)
	order(2, 3, 4, 0, 1)
	d.want(200, "POST", "/transactions:move", `{"ids": `+list(4, 1)+`, "place": {"before": "`+ids[3]+`"}}`)
	order(2, 1, 4, 3, 0)
	if b := d.want(200, "POST", "/transactions:move", `{"filter": {"queue": ["q", "r"]}, "max": 9, "place": "head"}`); b.body["matched"] != 7.0 || len(b.body["refused"].([]any)) != 0 {
		t.Error(b.raw)
	}
	order(0, 1, 2, 3, 4)
	if v := d.want(200, "GET", "/transactions/"+ids[1], ""); v.body["placed_before"] == nil {
		t.Error(v.raw)
	}
	move := "/transactions/" + ids[0] + "/move"
	d.refused(422, "invalid", "POST", move, `{"place": {"before": "`+other[0]+`"}}`)
	d.refused(422, "invalid", "POST", move, `{"place": {"before": "`+ids[0]+`"}}`)
	d.refused(422, "invalid", "POST", move, `{"place": "tail"}`)
	d.refused(422, "invalid", "POST", move, `{"place": {"before": "`+ids[1]+`", "after": "`+ids[2]+`"}}`)
	d.refused(422, "invalid", "POST", move, `{}`)
	d.want(200, "POST", "/transactions/"+ids[1]+"/cancel", "")
	d.refused(409, "wrong_state", "POST", move, `{"place": {"after": "`+ids[1]+`"}}`)
	d.refused(409, "wrong_state", "POST", "/transactions/"+ids[1]+"/move", `{"place": "head"}`)
	dep := d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q", "depends_on": ["`+ids[2]+`"]}`).str("id")
	d.refused(422, "dependency_cycle", "POST", "/transactions/"+dep+"/move", `{"place": "head"}`)
}
