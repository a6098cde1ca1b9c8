package pg_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// grouped puts types whose transactions share a lane by a field of their data.
func (w *world) grouped(by string, types ...string) {
	w.T.Helper()
	for _, typ := range types {
		w.Dispatcher(typ, func(d *outbox.Dispatcher) { d.Exclusive = outbox.Exclusive("group:zkapp:" + by) })
	}
}

// valued posts one with data of its own.
func (w *world) valued(queue, typ, uid, data string) {
	w.T.Helper()
	s := w.Sub(queue, typ, uid)
	s.Data = json.RawMessage(data)
	w.Ingest(w.S, s)
}

// relaned reads the settings again and moves what waits to where it now belongs.
func (w *world) relaned() int {
	w.T.Helper()
	w.Must(w.S.Refresh(w.Ctx))
	n, err := w.S.Relane(w.Ctx)
	w.Must(err)
	again, err := w.S.Relane(w.Ctx)
	if w.Must(err); again != 0 {
		w.T.Errorf("%d were moved once more: they stand in lanes that never fit", again)
	}
	return n
}

// taken claims, and returns the leases by uid.
func (w *world) taken(n pg.Node, want ...string) map[string]*pg.Lease {
	w.T.Helper()
	leases, uids := map[string]*pg.Lease{}, []string{}
	for _, l := range w.Claim(n, pgworld.Everything()) {
		leases[l.Task.UID] = l
		uids = append(uids, l.Task.UID)
	}
	if slices.Sort(uids); !slices.Equal(uids, want) {
		w.T.Fatalf("claimed %v, want %v", uids, want)
	}
	pgworld.HoldsTrue(w.T, w.Ctx, w.S.Pool())
	return leases
}

// One value has one lane, however its number is written and in whatever order its members stand: as it was posted, and
// as the database has read it back.
func TestOneValueHasOneLane(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.Node("n")
	w.grouped("/z", "T", "U")
	for i, data := range []string{`1`, `1.0`, `10e-1`, `{"bb": 1, "a": 1e2}`, `{"a": 100.0, "bb": 1}`, `"1"`, `null`} {
		w.valued(string(rune('a'+i)), []string{"T", "U"}[i%2], data, `{"z": `+data+`}`)
		w.Later(time.Second)
	}
	w.valued("missing", "U", "missing", `{}`)
	if moved := w.relaned(); moved != 0 {
		t.Errorf("%d stood in a lane that does not fit what the database has read back", moved)
	}
	w.taken(n, `"1"`, `1`, `null`, `{"bb": 1, "a": 1e2}`)
}

// TestATypeThatLeavesItsGroup lets a type leave while it holds the lane of the group, and while it waits for it.
func TestATypeThatLeavesItsGroup(t *testing.T) {
	t.Parallel()
	for name, leaves := range map[string]func(*outbox.Dispatcher){
		"for none":          nil,
		"for its own lanes": func(d *outbox.Dispatcher) { d.Exclusive = "field:/app" },
		"for the type":      func(d *outbox.Dispatcher) { d.Exclusive = "type" },
		"for another group": func(d *outbox.Dispatcher) { d.Exclusive = "group:other:/app" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := w.Node("n")
			w.grouped("/app", "T", "U")
			w.valued("q", "T", "a", `{"app": "x"}`)
			w.Later(time.Second)
			w.valued("r", "U", "b", `{"app": "x"}`)
			w.Later(time.Second)
			w.valued("s", "T", "c", `{"app": "x"}`)
			held := w.taken(n, "a")

			w.Dispatcher("T", leaves)
			if moved := w.relaned(); moved != 1 {
				t.Errorf("%d were moved, want c alone", moved)
			}
			c := w.taken(n, "c")["c"] // a call that is out ends as it began: b still holds the lane of the group
			w.Settle(w.Answer(held["a"], pgworld.Done()))
			b := w.taken(n, "b")["b"]
			w.Settle(w.Answer(b, pgworld.Done()), w.Answer(c, pgworld.Done()))
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
			var free bool
			if w.Scan(`SELECT bool_and(holder IS NULL) FROM postern.lane`, &free); !free {
				t.Error("all have ended, and a lane is held")
			}

			w.grouped("/app", "T") // and back again
			w.valued("q", "T", "d", `{"app": "x"}`)
			w.relaned()
			w.valued("r", "U", "e", `{"app": "x"}`)
			w.Settle(w.Answer(w.taken(n, "d")["d"], pgworld.Done()))
			w.taken(n, "e")
		})
	}
}

// TestATypeThatExcludesByAnotherField moves what waits to the lane of its new value, within the group and without one.
func TestATypeThatExcludesByAnotherField(t *testing.T) {
	t.Parallel()
	for _, kind := range []outbox.Exclusive{"group:zkapp:", "field:"} {
		t.Run(string(kind), func(t *testing.T) {
			w := newWorld(t)
			n := w.Node("n")
			w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Exclusive = kind + "/old" })
			w.valued("q", "T", "a", `{"old": 1, "app": "x"}`)
			w.valued("r", "T", "b", `{"old": 2, "app": "x"}`)
			w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Exclusive = kind + "/app" })
			if moved := w.relaned(); moved != 2 {
				t.Errorf("%d were moved, want both", moved)
			}
			if got := len(w.Claim(n, pgworld.Everything())); got != 1 {
				t.Errorf("%d with one value are in flight", got)
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}

// TestAValueIsOneHoweverItIsWrittenAndHoweverLong posts a value that JSON writes in two ways, and one that no index
// takes.
func TestAValueIsOneHoweverItIsWrittenAndHoweverLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.Node("n")
	w.grouped("/app", "T", "U")
	long := strings.Repeat("0123456789abcdef", 4000)
	w.valued("q", "T", "a", `{"app": "B62"}`)
	w.valued("q", "T", "long", `{"app": "`+long+`"}`)
	w.Later(time.Second)
	w.valued("r", "U", "b", `{"app":"B\u0036\u0032"}`)
	w.Settle(w.Answer(w.taken(n, "a")["a"], pgworld.Done()))
	w.valued("s", "U", "long too", `{"app": "`+long+`"}`)
	w.taken(n, "b", "long")
}
