package domains_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/pg/domains"
)

// keptOf counts the generations that have such a part, and returns the highest one.
func (w *world) keptOf(part string) (n int, highest int64) {
	w.Scan(`SELECT count(DISTINCT generation), coalesce(max(generation), 0) FROM postern.coord_payload
		WHERE generation > 0 AND part = '`+part+`'`, &n, &highest)
	return n, highest
}

// While an endorser is away an intent is assembled again and again: of the tries before the last ones nothing is kept.
func TestOnlyTheLastTriesAreKept(t *testing.T) {
	w := newWorld(t)
	w.fails = map[string]string{"endorse": "the service answers 500"}
	w.post("a")
	most, last, tries := 0, int64(0), 0
	for range 150 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
		n, highest := w.keptOf("assembled")
		if most = max(most, n); highest != last {
			last, tries = highest, tries+1
		}
		w.Later(time.Second)
	}
	if tries < 4 || tries > 12 || most > 2 {
		t.Errorf("of %d tries in 150 s up to %d are kept", tries, most)
	}
	w.fails = nil
	w.Later(time.Minute)
	w.finish()
	w.Same(w.receipts(), "success ")
}

// The same holds for what may be used, where another node asks and the service here is away.
func TestOnlyTheLastPendingStatesAreKept(t *testing.T) {
	w := newPair(t)
	set := w.settings()
	set.Static = "bob"
	_, err := w.S.Domains.Put(w.Ctx, w.By, "tok", set, 0)
	w.Must(err)
	i := w.post("a")
	for beat := int64(1); beat <= 20; beat++ {
		w.arrives(domains.Parcel{Message: coord.Message{Kind: coord.Heartbeat, Beat: 2 * beat, State: coord.Active}})
		w.arrives(domains.Parcel{Message: coord.Message{Kind: coord.AssembleRequest, Beat: 2*beat + 1, ID: i.ID,
			Key: fmt.Sprint("k", beat), Generation: beat}})
		w.step()
		w.Later(time.Second)
	}
	if n, highest := w.keptOf("pending"); n == 0 || n > 2 || highest != 20 {
		t.Errorf("of %d tries %d are kept", highest, n)
	}
}
