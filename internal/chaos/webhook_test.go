package chaos

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	pgdb "github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remote"
)

// TestKillWhoDelivers kills both nodes that number and deliver, one after the other in the middle, and starts another
// one: every event arrives at least once, and those of a queue in order, however they were interrupted. A delivery
// whose call was cut off goes out again when its lease of 30 s is over.
func TestKillWhoDelivers(t *testing.T) {
	const queues, depth = 100, 4
	db := pgtest.New(t)
	s := db.Store(t, 6)
	by := pgdb.By{Context: s.Context("default").ID, Actor: "test", Via: "test"}
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL = "T", remote.NoopURL
	_, err := s.PutDispatcher(t.Context(), by, d, 0)
	must(t, err)

	var mu sync.Mutex
	var heard []string // webhook-id and queue, in the order of arrival
	reached := make(chan int, 10000)
	r := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var m struct {
			Data struct{ Queue, UID, State string }
		}
		if err := json.NewDecoder(q.Body).Decode(&m); err != nil {
			return // its sender died
		}
		time.Sleep(5 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, q.Header.Get("Webhook-Id")+" "+m.Data.Queue)
		reached <- len(heard)
	}))
	defer r.Close()
	_, err = s.Deliveries.PutSubscription(t.Context(), by,
		outbox.Subscription{Name: "s", Kind: "webhook", URL: r.URL, OnError: "block"},
		[]byte("0123456789abcdef0123456789abcdef"), 0)
	must(t, err)

	first, second := startNode(t, db.URL, "first"), startNode(t, db.URL, "second")
	ids := post(t, s, by, queues, depth)
	for _, kill := range []struct {
		at     int
		victim *process
	}{{150, first}, {250, second}} {
		for n := range reached {
			if n >= kill.at {
				break
			}
		}
		if kill.victim == second {
			startNode(t, db.URL, "heir")
		}
		kill.victim.kill()
	}
	ended(t, s, by.Context, ids, 2*time.Minute)
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		v, err := s.Deliveries.Subscription(t.Context(), by.Context, "s")
		must(t, err)
		if v.Pending == 0 {
			break
		}
		if time.Since(begun) > 2*time.Minute {
			t.Fatalf("%d events are still pending", v.Pending)
		}
	}

	// what the rows say in their order, queue by queue, is what arrived, each the first time
	want := map[string][]string{}
	rows, err := s.Pool().Query(t.Context(), `SELECT postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from)) || '.' || to_hex(postern.micros(e.at)) || '.' || e.state, n.name
		FROM postern.task t JOIN postern.queue_name n USING (queue_id) JOIN postern.outcome o USING (queue_id, seq, day)
		CROSS JOIN LATERAL (VALUES ('WAITING', t.created_at), (o.state, o.done_at)) e(state, at) ORDER BY e.at, t.seq`)
	must(t, err)
	for rows.Next() {
		var id, queue string
		must(t, rows.Scan(&id, &queue))
		want[queue] = append(want[queue], id)
	}
	must(t, rows.Err())
	got, seen, twice := map[string][]string{}, map[string]bool{}, 0
	mu.Lock()
	defer mu.Unlock()
	for _, m := range heard {
		id, queue, _ := strings.Cut(m, " ")
		if seen[id] {
			twice++
			continue
		}
		seen[id] = true
		got[queue] = append(got[queue], id)
	}
	for q := range want {
		if strings.Join(got[q], "\n") != strings.Join(want[q], "\n") {
			t.Errorf("queue %s was told\n%s\nand it was\n%s", q,
				strings.Join(got[q], "\n"), strings.Join(want[q], "\n"))
		}
	}
	t.Logf("%d messages, %d of them again", len(heard), twice)
}
