package httpapi_test

import (
	"fmt"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
)

// moves moves what fits a filter, in as many requests as it takes, and lets something happen behind the first one.
func (d *door) moves(filter, to string, max int, meanwhile func()) (changed float64) {
	d.t.Helper()
	for after := ""; ; meanwhile = nil {
		body := fmt.Sprintf(`{"filter": %s, "max": %d, "after": %q, %s}`, filter, max, after, to)
		a := d.want(200, "POST", "/transactions:move", body)
		if refused := a.body["refused"].([]any); len(refused) > 0 {
			d.t.Errorf("refused: %s", a.raw)
		}
		changed += a.body["changed"].(float64)
		if after = a.str("next"); after == "" {
			return changed
		}
		if meanwhile != nil {
			meanwhile()
		}
	}
}

// A move of many takes several requests: each goes on behind what the one before has moved.
func TestAMoveOverSeveralRequestsKeepsTheOrder(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	first := d.post("first", 2)
	d.post("q", 6)
	d.moves(`{"queue": ["q"]}`, `"queue": "first", "place": "head"`, 3, nil)
	d.line("q-0", "q-1", "q-2", "q-3", "q-4", "q-5", "first-0", "first-1")
	d.post("r", 3)
	d.moves(`{"queue": ["r"]}`, `"queue": "first", "place": {"after": "`+first[0]+`"}`, 2, nil)
	d.line("q-0", "q-1", "q-2", "q-3", "q-4", "q-5", "first-0", "r-0", "r-1", "r-2")

	// those that a dry run has found are moved by their ids, and the rest behind them
	post := func(ids string) answer {
		t.Helper()
		return d.want(200, "POST", "/transactions:move", `{"queue": "n", "place": "head", `+ids+`}`)
	}
	d.post("n", 1)
	m := d.post("m", 4)
	filter := `"filter": {"queue": ["m"]}, "max": 2, "dry_run": %t, "after": %q`
	tried := post(fmt.Sprintf(filter, true, "")).str("next")
	post(fmt.Sprintf(filter, true, tried)).counts(t, 2, 2, 0, 0)
	post(fmt.Sprintf(`"ids": [%q, %q]`, m[0], m[1])).counts(t, 2, 2, 0, 0)
	post(fmt.Sprintf(filter, false, tried)).counts(t, 2, 2, 0, 0)
	d.line("m-0", "m-1", "m-2", "m-3", "n-0")

	var ids []string
	for n := range 6 { // in turns
		for _, queue := range []string{"s", "t"} {
			ids = append(ids, d.want(201, "POST", "/transactions",
				fmt.Sprintf(`{"type": "pay", "queue": %q, "uid": "%s-%d"}`, queue, queue, n)).str("id"))
		}
	}
	d.want(200, "POST", "/transactions/"+ids[10]+"/move", `{"place": "head"}`)
	d.moves(`{"queue": ["s", "t"]}`, `"place": "head"`, 3, nil)
	d.line("s-0", "s-1", "s-2", "s-3", "s-4", "s-5")
	d.line("t-0", "t-1", "t-2", "t-3", "t-4", "t-5")
	if n := d.moves(`{"queue": ["s", "t"]}`, `"place": "head"`, 5, nil); n != 0 {
		t.Errorf("%v of what stood there already were moved", n)
	}
	d.moves(`{"uid": ["s-0", "s-1", "s-2", "s-3"]}`, `"place": {"after": "`+ids[8]+`"}`, 2, nil)
	d.line("s-4", "s-0", "s-1", "s-2", "s-3", "s-5")
	d.moves(`{"uid": ["s-0", "s-1", "s-2", "s-3"]}`, `"place": {"before": "`+ids[8]+`"}`, 2, nil)
	d.line("s-0", "s-1", "s-2", "s-3", "s-4", "s-5")
	d.moves(`{"queue": ["s"]}`, `"place": "head", "dry_run": true`, 2, nil)

	d.refused(400, "bad_cursor", "POST", "/transactions:move",
		`{"filter": {"queue": ["s"]}, "max": 2, "after": ".AAAA", "place": "head"}`)
}

// The one that was moved last goes out meanwhile, and all before it: the next one goes to the head. Where the last one
// was cancelled instead, others of those may wait, and the next one would go ahead of them: it is refused.
func TestAMoveGoesOnWhenWhatItMovedHasGoneOut(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	d.post("q", 2)
	d.post("r", 4)
	node := d.node()
	d.want(200, "POST", "/queues/r/pause", "")
	d.moves(`{"queue": ["r"]}`, `"queue": "q", "place": "head"`, 1, func() {
		d.answerOne(node, outbox.Answer{Result: outbox.Result{Done: []byte("{}")}})
	})
	d.line("r-1", "r-2", "r-3", "q-0", "q-1")

	many := `{"filter": {"uid": ["r-3", "q-0", "q-1"]}, "max": 2, "place": {"after": "` +
		d.want(200, "GET", "/transactions/by-uid/r-1", "").str("id") + `"}, "after": %q}`
	next := d.want(200, "POST", "/transactions:move", fmt.Sprintf(many, "")).str("next")
	d.want(200, "POST", "/transactions/"+d.want(200, "GET", "/transactions/by-uid/q-1", "").str("id")+"/cancel", "")
	a := d.want(200, "POST", "/transactions:move", fmt.Sprintf(many, next))
	a.counts(t, 1, 0, 0, 1)
	d.line("r-1", "q-0", "r-2", "r-3")
}
