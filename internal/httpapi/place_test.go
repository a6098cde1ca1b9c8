package httpapi_test

import (
	"strings"
	"testing"
)

// line is the order in which a queue goes out, by uid: its head, what is before what, as /why counts.
func (d *door) line(uids ...string) {
	d.t.Helper()
	for i, uid := range uids {
		w := d.want(200, "GET", "/transactions/by-uid/"+uid+"/why", "").raw
		if i > 0 && !strings.Contains(w, string(rune('0'+i))+" stand") {
			d.t.Errorf("%s is not at %d: %s", uid, i, w)
		}
	}
	at := d.want(200, "GET", "/transactions/by-uid/"+uids[0], "")
	if q := d.want(200, "GET", "/queues/"+at.str("queue"), ""); q.body["head"].(map[string]any)["id"] != at.str("id") {
		d.t.Errorf("head is not %s: %s", uids[0], q.raw)
	}
}

func TestAPostMayNameItsPlace(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	post := func(uid, place string) string {
		return `{"type": "pay", "queue": "q", "uid": "` + uid + `", "place": ` + place + `}`
	}
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q", "uid": "a"}`)
	b := d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q", "uid": "b"}`).str("id")
	d.want(201, "POST", "/transactions?reason=urgent", post("first", `"head"`))
	d.line("first", "a", "b")
	d.want(200, "POST", "/transactions", post("first", `"head"`))
	d.refused(409, "idempotency_conflict", "POST", "/transactions", post("first", `{"before": "`+b+`"}`))
	d.want(201, "POST", "/transactions", post("c", `{"before": "`+b+`"}`))
	d.line("first", "a", "c", "b")
	audit := d.want(200, "GET", "/audit?action=insert", "").raw
	if !strings.Contains(audit, `"reason":"urgent"`) || strings.Count(audit, `"action":"insert"`) != 2 {
		t.Error(audit)
	}

	if x := d.want(207, "POST", "/transactions:batch", `{"items": [`+post("d", `"head"`)+`, {"type": "pay", "queue": "q", "uid": "e"}, `+
		post("f", `{"after": "`+b+`"}`)+`, `+strings.Replace(post("g", `{"after": "`+b+`"}`), `"q"`, `"other"`, 1)+`]}`); !strings.Contains(x.raw, `"status":422`) {
		t.Error(x.raw)
	}
	d.line("d", "first", "a", "c", "b", "f", "e")
	d.refused(404, "not_found", "GET", "/transactions/by-uid/g", "")
	d.refused(422, "invalid", "POST", "/transactions:batch", `{"atomic": true, "items": [`+post("h", `"head"`)+`, `+strings.Replace(post("g", `{"after": "`+b+`"}`), `"q"`, `"other"`, 1)+`]}`)
	d.refused(404, "not_found", "GET", "/transactions/by-uid/h", "")
	d.want(201, "POST", "/transactions:batch", `{"atomic": true, "items": [`+post("h", `"head"`)+`, `+post("i", `{"before": "`+b+`"}`)+`]}`)
	d.line("h", "d", "first", "a", "c", "i", "b")

	till := "Authorization: Bearer " + d.want(201, "POST", "/api-keys", `{"name": "till", "role": "executor"}`).str("secret")
	if f := d.refused(403, "forbidden", "POST", "/transactions", post("mine", `"head"`), till); !strings.Contains(f.str("detail"), "admin") {
		t.Error(f.raw)
	}
	d.refused(403, "forbidden", "POST", "/transactions:batch", `{"atomic": true, "items": [`+post("mine", `"head"`)+`]}`, till)
	if x := d.want(207, "POST", "/transactions:batch", `{"items": [`+post("mine", `"head"`)+`, {"type": "pay", "queue": "other", "uid": "plain"}]}`, till); !strings.Contains(x.raw, `"status":403`) {
		t.Error(x.raw)
	}
	d.refused(404, "not_found", "GET", "/transactions/by-uid/mine", "")

	d.refused(422, "invalid", "POST", "/transactions", `{"type": "pay", "place": "head"}`)
	d.refused(422, "invalid", "POST", "/transactions", post("x", `"tail"`))
	d.claimAll(d.node())
	d.refused(409, "wrong_state", "POST", "/transactions", post("x", `{"before": "`+d.want(200, "GET", "/transactions/by-uid/h", "").str("id")+`"}`))
}

func TestATransactionIsMovedToAnotherQueueUnderANewID(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	ids := d.post("q", 4)
	there := d.post("r", 2)
	move := "/transactions/" + ids[1] + "/move"
	if tried := d.want(200, "POST", move+"?dry_run=true", `{"queue": "r"}`); tried.body["dry_run"] != true || tried.str("id") == "" {
		t.Error(tried.raw)
	}
	if v := d.want(200, "GET", "/transactions/"+ids[1], ""); v.str("queue") != "q" {
		t.Error(v.raw)
	}
	id := d.want(200, "POST", move, `{"queue": "r", "place": {"before": "`+there[1]+`"}, "reason": "wrong one"}`).str("id")
	for _, path := range []string{ids[1], id} {
		if v := d.want(200, "GET", "/transactions/"+path, ""); v.str("id") != id || v.str("queue") != "r" || v.str("moved_from") != ids[1] {
			t.Error(v.raw)
		}
		if h := d.want(200, "GET", "/transactions/"+path+"/history", "").raw; !strings.Contains(h, "wrong one") {
			t.Error(h)
		}
	}
	if w := d.want(200, "GET", "/transactions/"+id+"/why", "").raw; !strings.Contains(w, "1 stand") {
		t.Error(w)
	}
	d.refused(409, "wrong_state", "POST", move, `{"queue": "s"}`)
	d.refused(409, "wrong_state", "POST", "/transactions/"+id+"/move", `{"queue": "r"}`)

	body := `{"ids": ["` + ids[2] + `", "` + ids[3] + `", "` + there[0] + `"], "queue": "r", "place": "head"`
	for _, also := range []string{`, "dry_run": true}`, `}`} {
		if b := d.want(200, "POST", "/transactions:move", body+also); b.body["changed"] != 2.0 || len(b.body["refused"].([]any)) != 1 {
			t.Error(b.raw)
		}
	}
	if q := d.want(200, "GET", "/queues/r", ""); q.body["depth"] != 5.0 {
		t.Error(q.raw)
	}
	if q := d.want(200, "GET", "/queues/q", ""); q.body["depth"] != 1.0 {
		t.Error(q.raw)
	}
	if l := d.want(200, "GET", "/transactions", ""); len(l.body["items"].([]any)) != 6 {
		t.Error(l.raw)
	}
}
