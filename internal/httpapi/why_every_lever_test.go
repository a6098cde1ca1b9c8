package httpapi_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// saidWhy is what /why answers.
type saidWhy struct {
	Summary  string
	Blockers []saidBlocker
}

type saidBlocker struct {
	Kind, Object, Detail string
	Next                 *struct{ At, What string }
	Levers               []struct {
		Method, Path string
		Body         json.RawMessage
	}
}

// why asks why something stands, by the path of its /why.
func (d *door) why(path string) (w saidWhy) {
	d.t.Helper()
	a := d.want(200, "GET", path, "")
	if err := json.Unmarshal([]byte(a.raw), &w); err != nil {
		d.t.Fatal(err)
	}
	return w
}

// has says whether the same stands in the way, for the same reason.
func (w saidWhy) has(b saidBlocker) bool {
	for _, c := range w.Blockers {
		same := b.Next == nil || c.Next != nil && *b.Next == *c.Next
		if same && c.Kind == b.Kind && c.Object == b.Object && c.Detail == b.Detail {
			return true
		}
	}
	return false
}

// stays are levers after which the same blocker stands in the way for a while, by its kind and their method: their
// change takes effect with the next step, and why tells its time.
var stays = map[string]bool{"queue_blocked PATCH": true, "outcome_unknown PATCH": true}

// Each lever that /why names, of everything that can be in the way, is a request that the API takes as it is printed.
func TestEveryLeverOfWhyIsARequestThatIsTaken(t *testing.T) {
	for _, c := range pgworld.Stands {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			for n, more := 0, true; more; n++ {
				w := pgworld.New(t)
				id := w.Stood(c)
				d := doorTo(t, w.S)
				at := "/transactions/" + id.String() + "/why"
				more = d.pull(at, n)
			}
		})
	}
}

// pull sends the n-th lever that /why names, and says whether there is another one.
func (d *door) pull(at string, n int) bool {
	d.t.Helper()
	said, i := d.why(at), 0
	for _, b := range said.Blockers {
		for _, l := range b.Levers {
			if i++; i-1 != n {
				continue
			}
			body := string(l.Body)
			if body == "null" {
				body = ""
			}
			a := d.call(l.Method, l.Path, body)
			what := l.Method + " " + l.Path + " " + body
			switch {
			case a.status == http.StatusNotFound, a.status == http.StatusMethodNotAllowed, a.status/100 == 5,
				a.status == http.StatusBadRequest, a.status == http.StatusUnprocessableEntity:
				d.t.Errorf("of %s: %s answers %d: %s", b.Kind, what, a.status, a.raw)
			case a.status/100 != 2 && a.str("detail") == "":
				d.t.Errorf("of %s: %s answers %d and does not say why: %s", b.Kind, what, a.status, a.raw)
			case a.status == http.StatusOK && l.Method != http.MethodGet && d.why(at).has(b):
				if !stays[b.Kind+" "+l.Method] || b.Next == nil {
					d.t.Errorf("of %s: %s is taken, and changes nothing: %s", b.Kind, what, b.Detail)
				}
			}
			return true
		}
	}
	return false
}
