package domains_test

import (
	"fmt"
	"testing"
	"time"
)

// Of the requests of a process one waits for the seat of a domain in the database, so that a step that looks after the
// domain is next but one, however many there are: else no node would hear of another one while requests come.
func TestRequestsWaitForASeatInLine(t *testing.T) {
	w := newWorld(t)
	const requests = 5
	tx := w.Begin(w.S.Pool())
	_, err := tx.Exec(w.Ctx, `SELECT FROM postern.coord_state FOR UPDATE`)
	w.Must(err)
	waiting := func() (n int) {
		_, err := tx.Exec(w.Ctx, `SELECT pg_stat_clear_snapshot()`) // else it sees no session that connects later
		w.Must(err)
		w.Must(tx.QueryRow(w.Ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n))
		return n
	}
	until := func(n int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); waiting() != n; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d wait, want %d", waiting(), n)
			}
		}
	}
	done := make(chan string, requests+1)
	for n := range requests {
		go func() {
			if _, err := w.submit(w.S, fmt.Sprint("n", n)); err != nil {
				t.Error(err)
			}
			done <- "request"
		}()
	}
	until(1)
	time.Sleep(100 * time.Millisecond) // for those that would not wait in line
	until(1)
	go func() {
		if out, err := w.core.Domains.StepInLine(w.Ctx, w.id(), nil); err != nil || !out.Taken {
			t.Errorf("%+v %v", out, err)
		}
		done <- "step"
	}()
	until(2)
	w.Must(tx.Rollback(w.Ctx))
	for n := range requests + 1 {
		if who := <-done; who == "step" && n > 2 {
			t.Errorf("the step was number %d", n+1)
		}
	}
}
