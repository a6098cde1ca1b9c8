package httpapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// listed reads all pages of a list of transactions, and returns their ids.
func (d *door) listed(query string) (ids []string) {
	d.t.Helper()
	for cursor := ""; ; {
		page := d.want(200, "GET", "/transactions?"+query+cursor, "")
		for _, item := range page.body["items"].([]any) {
			ids = append(ids, item.(map[string]any)["id"].(string))
		}
		next, more := page.body["next"].(string)
		if !more || len(ids) > 1000 {
			return ids
		}
		cursor = "&cursor=" + next
	}
}

// Transactions that are named are listed like all others: each once, in the order of lists, page by page.
func TestNamedTransactionsAreAllListedInTheirOrder(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("T")
	var items []string
	for i := range 60 {
		items = append(items, fmt.Sprintf(`{"type": "T", "queue": "q", "uid": "u%d"}`, i))
	}
	d.want(201, "POST", "/transactions:batch", `{"items": [`+strings.Join(items, ",")+`]}`)
	ids := d.listed("order=asc&queue=q")
	if len(ids) != 60 {
		t.Fatalf("queue q has %d transactions", len(ids))
	}
	names := "id=" + strings.Join(ids, "&id=")
	if got := d.listed("order=asc&" + names); !slices.Equal(got, ids) {
		t.Errorf("by id: got  %d %v\nwant %v", len(got), got, ids)
	}
	uids := ""
	for i := range 60 {
		uids += fmt.Sprintf("&uid=u%d", i)
	}
	want := slices.Clone(ids)
	slices.Reverse(want)
	if got := d.listed("limit=7" + uids); !slices.Equal(got, want) {
		t.Errorf("by uid: got  %d %v\nwant %v", len(got), got, want)
	}
	if got := d.listed("limit=7&" + names + "&uid=u3&uid=u5"); !slices.Equal(got, []string{ids[5], ids[3]}) {
		t.Errorf("by id and uid: %v", got)
	}
	d.want(200, "POST", "/transactions/"+ids[0]+"/move", `{"queue": "r"}`)
	now := d.want(200, "GET", "/transactions/"+ids[0], "").body["id"].(string)
	for _, names := range []string{"id=" + ids[0], "id=" + now, "id=" + ids[0] + "&id=" + now} {
		if got := d.listed(names); !slices.Equal(got, []string{now}) {
			t.Errorf("moved from %s to %s; %s lists %v", ids[0], now, names, got)
		}
	}
}

// A filter of a bulk may name more than a page: all are taken, up to its max, and next goes on behind them.
func TestABulkTakesAllThatItsFilterNames(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("T")
	var items, uids []string
	for i := range 250 {
		items = append(items, fmt.Sprintf(`{"type": "T", "queue": "q", "uid": "u%d"}`, i))
		uids = append(uids, fmt.Sprintf(`"u%d"`, i))
	}
	d.want(201, "POST", "/transactions:batch", `{"items": [`+strings.Join(items, ",")+`]}`)
	cancel := func(more string) answer {
		return d.want(200, "POST", "/transactions:cancel", `{"filter": {"uid": [`+strings.Join(uids, ",")+`]}`+more+`}`)
	}
	if b := cancel(`, "max": 10000, "dry_run": true`); b.body["matched"] != 250.0 || b.body["next"] != nil {
		t.Errorf("matched %v, next %v", b.body["matched"], b.body["next"])
	}
	b := cancel(`, "max": 230`)
	next, more := b.body["next"].(string)
	if b.body["changed"] != 230.0 || !more {
		t.Fatalf("changed %v, next %v", b.body["changed"], b.body["next"])
	}
	if b := cancel(`, "max": 230, "after": "` + next + `"`); b.body["changed"] != 20.0 || b.body["next"] != nil {
		t.Errorf("the rest: changed %v, next %v", b.body["changed"], b.body["next"])
	}
}
