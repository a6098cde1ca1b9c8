package domains_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/domains"
)

// A height that is wrong is lowered by force, with an audit row, and a new domain of the name has none of it.
func TestAWrongHeightIsLowered(t *testing.T) {
	w := newPair(t)
	height := func(want int64) {
		t.Helper()
		w.Same(w.Lines(`SELECT height || ' ' || (image->>'Height') FROM postern.coord_state`),
			fmt.Sprint(want, " ", want))
	}
	put := func(h int64, force bool) error { return w.S.Domains.SetHeight(w.Ctx, w.By, "tok", h, force) }
	if err := put(1<<60+1, true); fault.KindOf(err) != fault.Invalid {
		t.Error("a height that no other node would take:", err)
	}
	w.Must(put(1_000_000_000, false)) // nothing is known that it could be compared with
	w.step()
	height(1_000_000_000)
	if err := put(1000, false); fault.KindOf(err) != fault.Invalid {
		t.Error("a height falls without force:", err)
	}
	w.Must(put(1000, true))
	height(1000)
	w.Same(w.Lines(`SELECT action || ' ' || object || ' by ' || actor FROM postern.audit WHERE action = 'lower'`),
		"lower /domains/tok/height by test")
	w.Must(put(1001, false))
	w.step()
	height(1001)
	set := w.settings()
	w.Must(w.S.Domains.Remove(w.Ctx, w.By, "tok"))
	_, err := w.S.Domains.Put(w.Ctx, w.By, "tok", set, 0)
	w.Must(err)
	height(0)
	w.step()
	height(0)
}

// The service of a domain may not say a height that other nodes refuse.
func TestAHeightOfTheServiceIsBounded(t *testing.T) {
	w := newPair(t)
	set := w.settings()
	set.ServiceCalls = []string{domains.CallHeight}
	_, err := w.S.Domains.Put(w.Ctx, w.By, "tok", set, 0)
	w.Must(err)
	for range 3 {
		w.step()
		w.Later(3e9)
	}
	calls, err := w.S.Domains.ClaimCalls(w.Ctx, w.node.ID, nil, 10)
	w.Must(err)
	if len(calls) != 1 || calls[0].Kind != domains.CallHeight {
		t.Fatalf("%+v", calls)
	}
	for said, fine := range map[string]bool{"-1": false, "1.5": false, "1152921504606846977": false, "77": true} {
		err := w.S.Domains.Heard(w.Ctx, calls[0], json.RawMessage(`{"height": "`+said+`"}`))
		if fine != (err == nil) {
			t.Errorf("%s: %v", said, err)
		}
	}
	w.Same(w.Lines(`SELECT height::text FROM postern.coord_state`), "77")
}
