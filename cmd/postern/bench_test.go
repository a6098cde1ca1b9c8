package main

import (
	"encoding/json"
	"testing"

	"github.com/postern-dev/postern/internal/bench"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestBenchChecksItsRunsAndPrintsOneJSONLine(t *testing.T) {
	db := pgtest.New(t)
	got := postern(t, database(db.URL), "bench", "e2e", "--queues", "20", "--depth", "5", "--connections", "8", "--runs", "2", "--listen", "127.0.0.1:0")
	got.want(t, 0)
	var r bench.Result
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatalf("%v: %s", err, got.stdout)
	}
	if r.Scenario != "e2e" || r.Transactions != 100 || r.Runs != 2 || r.Rate <= 0 || r.RateMin > r.Rate || r.Rate > r.RateMax || r.Violations != 0 {
		t.Errorf("%+v", r)
	}
	postern(t, database(db.URL), "bench", "e3e").want(t, 2, "e3e")
}
