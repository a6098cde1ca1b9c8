package domains_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pg/domains"
)

// Steps beside many works in flight at one coordinator: POSTERN_STEPS=500 says how many, and how long a step takes. It
// wants that each of another hundred intents ends well meanwhile.
func TestStepsBesideManyInFlight(t *testing.T) {
	crowd := 30
	if n, err := strconv.Atoi(os.Getenv("POSTERN_STEPS")); err == nil {
		crowd = n
	}
	w := newWorld(t)
	var many []domains.NewIntent
	for n := range crowd + 100 {
		uid := fmt.Sprint("i", n)
		many = append(many, domains.NewIntent{UID: uid, Party: "ann", Data: json.RawMessage(`"` + uid + `"`)})
	}
	for chunk := range slices.Chunk(many, 100) {
		_, err := w.S.Domains.Submit(w.Ctx, w.By, "tok", chunk, func(int) string { return "" })
		w.Must(err)
	}
	for n := 0; w.open() > crowd; n++ {
		if n > 2000 {
			t.Fatalf("%d are open", w.open())
		}
		w.Must(w.turn(w.Ctx, w.S, w.node))
		w.send()
		w.Later(100 * time.Millisecond)
	}
	slices.Sort(w.took)
	at := func(q float64) time.Duration { return w.took[int(q*float64(len(w.took)-1))] }
	t.Logf("%d steps beside %d works: p50 %s, p99 %s, longest %s", len(w.took), crowd, at(0.5), at(0.99), at(1))
}
