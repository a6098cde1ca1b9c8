package httpapi_test

import (
	"fmt"
	"testing"
)

// The works of a domain are listed in the order of the pool, with where each is and for how long.
func TestTheWorksOfADomainAreListed(t *testing.T) {
	d := newDoor(t)
	d.want(201, "PUT", "/dispatchers/TOK", `{"worker_url": "noop:"}`)
	d.want(201, "PUT", "/domains/tok", `{"types": ["TOK"], "service_url": "http://127.0.0.1:1"}`)
	for n := range 3 {
		d.want(201, "POST", "/domains/tok/intents", fmt.Sprintf(`{"uid": "i%d", "party": "ann", "data": 1}`, n))
	}
	var states, nodes []string
	cursor := ""
	for range 3 {
		page := d.want(200, "GET", "/domains/tok/works?limit=1"+cursor, "")
		for _, w := range page.items() {
			states, nodes = append(states, w["state"].(string)), append(nodes, w["node"].(string))
			if w["seconds"].(float64) < 0 || w["generation"] == nil {
				t.Error(w)
			}
		}
		if next, _ := page.body["next"].(string); next != "" {
			cursor = "&cursor=" + next
		}
	}
	if got := fmt.Sprint(states, nodes); got != "[Assembling Pooled Pooled] [self self self]" {
		t.Error(got)
	}
	if n := len(d.want(200, "GET", "/domains/tok/works?state=Assembling", "").items()); n != 1 {
		t.Errorf("%d are Assembling", n)
	}
	d.refused(404, "not_found", "GET", "/domains/none/works", "")
	d.refused(422, "invalid", "GET", "/domains/tok/works?state=Sleeping", "")
	d.refused(400, "bad_cursor", "GET", "/domains/tok/works?cursor=none", "")
}
