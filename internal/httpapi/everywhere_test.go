package httpapi_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// An admin of the context system reads in all contexts at once: lists page by page, each page of one context, and one
// thing wherever it is. Others do not, and nothing is written so.
func TestAnAdminOfSystemReadsInAllContexts(t *testing.T) {
	d, root := closedDoor(t)
	const all = "Postern-Context: *"
	var want []string
	ids := map[string]string{}
	for _, in := range []string{"shop", "bank", "empty"} {
		at := "Postern-Context: " + in
		d.want(201, "PUT", "/contexts/"+in, "{}", root)
		if in == "empty" {
			continue
		}
		d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:1/"}`, root, at)
		for i := range 5 {
			uid := fmt.Sprint(in, i)
			body := fmt.Sprintf(`{"type": "pay", "queue": "q", "uid": %q}`, uid)
			ids[in] = d.want(201, "POST", "/transactions", body, root, at).str("id")
			want = append(want, in+" "+uid)
		}
	}
	d.want(201, "PUT", "/queues/only", "{}", root, "Postern-Context: bank")
	slices.Sort(want)

	var got []string
	for next, pages := "/transactions?limit=2&order=asc", 0; next != ""; pages++ {
		a := d.want(200, "GET", next, "", root, all)
		for _, item := range a.items() {
			got = append(got, a.header.Get("Postern-Context")+" "+item["uid"].(string))
		}
		if next = ""; a.body["next"] != nil {
			next = "/transactions?limit=2&order=asc&cursor=" + url.QueryEscape(a.str("next"))
			if !strings.Contains(a.header.Get("Link"), `rel="next"`) {
				t.Error(a.header)
			}
		}
		if pages > 20 {
			t.Fatal("the list has no end")
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if a := d.want(200, "GET", "/audit?action=put", "", root, all); a.header.Get("Postern-Context") == "" {
		t.Error(a.header)
	}
	for in, id := range ids {
		for _, part := range []string{"", "/why", "/history", "/attempts"} {
			a := d.want(200, "GET", "/transactions/"+id+part, "", root, all)
			if a.header.Get("Postern-Context") != in {
				t.Errorf("%s%s is of %q, want %s", id, part, a.header.Get("Postern-Context"), in)
			}
		}
	}
	if a := d.want(200, "GET", "/queues/only", "", root, all); a.header.Get("Postern-Context") != "bank" {
		t.Error(a.header)
	}
	p := d.refused(422, "invalid", "GET", "/queues/q", "", root, all)
	if !strings.Contains(p.str("detail"), `"bank" and "shop"`) {
		t.Error(p.raw)
	}
	d.refused(404, "not_found", "GET", "/queues/none", "", root, all)
	d.refused(404, "not_found", "GET", "/transactions/"+ids["shop"][:35]+"9", "", root, all)
	d.refused(400, "bad_cursor", "GET", "/transactions?cursor=x", "", root, all)
	d.refused(422, "invalid", "GET", "/transactions?nothing=1", "", root, all)
	d.refused(422, "invalid", "GET", "/transactions:stream", "", root, all)
	d.refused(422, "invalid", "POST", "/transactions", `{"type": "pay"}`, root, all)
	d.refused(422, "invalid", "PUT", "/queues/only", `{}`, root, all)
	for _, role := range []string{"admin", "executor", "reader"} {
		header, _, _ := d.key(root, "shop", role)
		d.refused(404, "not_found", "GET", "/transactions", "", header, all)
		d.refused(404, "not_found", "GET", "/transactions/"+ids["shop"], "", header, all)
		d.refused(404, "not_found", "POST", "/transactions", `{"type": "pay"}`, header, all)
	}
	poster, _, _ := d.key(root, "system", "admin", "post")
	d.refused(403, "forbidden", "GET", "/transactions", "", poster, all)
}
